"""Options of the format `tfrecord`."""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from recordmill.schemas.inputs.option import READ, Data, File, Images, Names, Pairs, redefine_option
from recordmill.schemas.inputs.options import pair_faults, parse_pairs
from recordmill.schemas.sizes import first_texts
from recordmill.transforms.annotated.format_options import FormatOptions
from recordmill.transforms.tfrecord.record_keys import BOXES, ROLES

_SHOWN = 5


class TfrecordOptions(FormatOptions):
    """Options of the format `tfrecord`, see docs/formats.md."""

    data: Data = redefine_option(
        FormatOptions,
        "data",
        ...,
        "TFRecord files with any names: their folder or .zip, one file, or several, also by `*` and `?`.",
    )
    images: Images = redefine_option(
        FormatOptions, "images", text="Not used: records hold their images.", usual="the records"
    )
    files: Names = READ.opt(
        "Only these TFRecord files, as paths below the folder DATA. The same as several files as DATA.",
        (),
        "NAME[,NAME…]",
        "all",
    )
    record_keys: Pairs = READ.opt(
        "Names of keys in the records to read, if they differ from the Object Detection API. `--keys "
        "image/encoded=img,image/object/bbox/xmin=x1`. Use `bbox` for x, y, width and height in pixels, and "
        "`objects/bbox` for ymin, xmin, ymax and xmax in fractions. A key without a name, `--keys image/filename=`, "
        "is not read. To name keys of the written records, use `--rename`.",
        (),
        "KEY=NAME[,…]",
        alias="keys",
    )
    label_map: File | None = READ.opt(
        "Label map of the Object Detection API, a `.pbtxt`: class names, if records have only class numbers.",
        metavar="FILE",
        usual="the only one in the folder of DATA",
    )
    class_names: Names = READ.opt(
        "Class names, if records have only class numbers: name n is for number n, from 0. Or `NAME=NUMBER`. One name, "
        "if objects have no class.",
        (),
        "NAME[=NUMBER][,…]",
    )
    name: str = redefine_option(FormatOptions, "name", "tfrecord")
    endings: ClassVar[tuple[str, ...]] = ()
    most_folders: ClassVar[int | None] = 0

    def _faults(self) -> Iterator[str]:
        yield from pair_faults("keys", self.record_keys, "KEY=NAME")
        known = (*ROLES, *BOXES)
        if unknown := [role for role in self.roles if role not in known]:
            yield f"--keys names {unknown[0]!r}, which is not read. It must be one of {', '.join(known)}"
        if self.images:
            yield f"--images {first_texts(self.images, _SHOWN)}: TFRecord files hold their images. Leave it out"
        if self.label_map and self.class_names:
            yield "--label-map and --class-names both name the classes. Give only one of them"
        yield from super()._faults()

    @property
    def roles(self) -> Mapping[str, str]:
        """Names of keys in records by those of the Object Detection API; empty for a key that is not read."""
        return parse_pairs(self.record_keys)
