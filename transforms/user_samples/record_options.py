"""Options of `recordmill.beam.WriteDataset` and `recordmill.beam.Encode`."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from recordmill.schemas.features import FeatureTable, Part
from recordmill.schemas.inputs.image_options import MASKS, ObjectOptions
from recordmill.schemas.inputs.option import READ, WRITE, Images, option_fields, redefine_option
from recordmill.schemas.inputs.options import ConvertOptions
from recordmill.schemas.layouts import LAYOUTS, CocoLayout
from recordmill.transforms.coco.coco_options import CocoOptions
from recordmill.transforms.folder.folder_options import FolderOptions

PARTS = {
    "keypoints": (Part.KEYPOINTS,),
    "captions": (Part.CAPTIONS,),
    "stuff": (Part.SEMANTIC,),
    "panoptic": (Part.SEMANTIC, Part.PANOPTIC),
}
"""Parts of a record for each kind of annotation."""


def _part(what: str) -> Any:
    return WRITE.opt(f"Store {what} of Samples.", False)


class RecordOptions(ObjectOptions):
    """Options of the records of Samples."""

    images: Images = redefine_option(ObjectOptions, "images", ())
    name: str = redefine_option(ObjectOptions, "name", "samples")
    layout: Literal[CocoLayout, "classification"] = redefine_option(ObjectOptions, "layout")  # type: ignore[assignment]
    keypoints: bool = _part("the keypoints of objects")
    captions: bool = _part("the captions")
    stuff: bool = _part("a semantic mask of the stuff")
    panoptic: bool = _part("a semantic and a panoptic mask of the panoptic segments")

    @property
    def parts(self) -> tuple[Part, ...]:
        """Requested parts of a record."""
        asked = [part for name, parts in PARTS.items() if getattr(self, name) for part in parts]
        return tuple(dict.fromkeys((*asked, *MASKS[self.masks])))

    @property
    def of_image(self) -> bool:
        """True if each image has one class."""
        return any(feature.source == "image.class_index" for feature in LAYOUTS[self.layout].features)

    @property
    def table(self) -> FeatureTable:
        """Features of the records, with LVIS's lists on demand."""
        return self.layout_table.with_parts(self.parts)

    @property
    def words(self) -> Mapping[str, str]:
        models = {model for model, _ in TRANSFORM_OPTIONS.values()}
        names = {each.flag: each.name for model in models for each in option_fields(model)}
        return names | {"--overwrite": "overwrite=True"}

    def _faults(self) -> Iterator[str]:
        for name in self.given("masks", *PARTS):
            parts = MASKS[self.masks] if name == "--masks" else PARTS[name[2:]]
            if not set(parts) & set(LAYOUTS[self.layout].parts):
                yield f"--layout {self.layout} has no feature for {name}: leave one of the two out"
        if self.stuff and self.panoptic:
            yield "--panoptic and --stuff both make the semantic mask: give one"
        yield from super()._faults()


def _names(model: type[ConvertOptions], *more: str) -> frozenset[str]:
    return frozenset(each.name for each in option_fields(model) if each.group == READ) | {*more}


_SPLITS = ("split", "split_seed", "split_by", "stratify", "group_from", "groups")
_RECORDS = ("layout", "rename", "label_as", "dtype", "masks", *PARTS, "boxes")
_IMAGES = ("check", "format", "max_side", "jpeg_quality", "workers")
TRANSFORM_OPTIONS: dict[str, tuple[type[ConvertOptions], frozenset[str]]] = {
    "ReadCoco": (CocoOptions, _names(CocoOptions, *_SPLITS, "masks", "categories", "no_crowd", "min_area")),
    "ReadFolder": (FolderOptions, _names(FolderOptions, *_SPLITS, "classes")),
    "Encode": (RecordOptions, frozenset((*_RECORDS, *_IMAGES))),
    "WriteDataset": (
        RecordOptions,
        frozenset(each.name for each in option_fields(RecordOptions)) - {"images", "dry_run"},
    ),
}
"""Names of the options that each transform of `recordmill.beam` accepts."""
