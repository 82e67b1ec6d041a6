"""Names of the options that each transform of `recordmill.beam` accepts."""

from collections.abc import Mapping

from recordmill.schemas.inputs.option import ARGUMENT, READ, option_fields
from recordmill.schemas.inputs.options import ConvertOptions
from recordmill.transforms.coco.coco_options import CocoOptions
from recordmill.transforms.folder.folder_options import FolderOptions
from recordmill.transforms.user_samples.record_options import PARTS, RecordOptions


class WriteOptions(RecordOptions):
    """Options of the records of Samples. Messages name keywords of all transforms instead of flags."""

    @property
    def words(self) -> Mapping[str, str]:
        models = {model for model, _ in TRANSFORM_OPTIONS.values()}
        names = {option.flag: option.name for model in models for option in option_fields(model)}
        return names | {"--overwrite": "overwrite=True"}


def _input_options(model: type[ConvertOptions], *more: str) -> frozenset[str]:
    return frozenset(option.name for option in option_fields(model) if option.group in (ARGUMENT, READ)) | {*more}


_SPLITS = ("split", "split_seed", "split_by", "stratify", "group_from", "groups")
_RECORDS = ("layout", "rename", "label_as", "dtype", "masks", *PARTS, "boxes")
_IMAGES = ("check", "image_format", "max_side", "jpeg_quality", "workers")
_WRITTEN = frozenset(option.name for option in option_fields(WriteOptions)) - {"images", "dry_run"}
TRANSFORM_OPTIONS: dict[str, tuple[type[ConvertOptions], frozenset[str]]] = {
    "ReadCoco": (CocoOptions, _input_options(CocoOptions, *_SPLITS, "masks", "categories", "no_crowd", "min_area")),
    "ReadFolder": (FolderOptions, _input_options(FolderOptions, *_SPLITS, "classes")),
    "Encode": (WriteOptions, frozenset((*_RECORDS, *_IMAGES))),
    "WriteDataset": (WriteOptions, _WRITTEN),
}
"""Options and their accepted names, by the name of the transform."""
