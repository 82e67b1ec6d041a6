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
        "TFRecord files of any name: their folder or .zip, one of them, or several, also with `*` and `?`.",
    )
    images: Images = redefine_option(
        FormatOptions, "images", text="Not used: records hold their images.", usual="the records"
    )
    files: Names = READ.opt(
        "Only these TFRecord files of the folder DATA: their paths below it. Several files as DATA are the same.",
        (),
        "NAME[,NAME…]",
        "all",
    )
    record_keys: Pairs = READ.opt(
        "Keys with other names in the records that are read, by their names in the Object Detection API. `--keys "
        "image/encoded=img,image/object/bbox/xmin=x1`. `bbox` has x, y, width and height in pixels, `objects/bbox` "
        "ymin, xmin, ymax and xmax in fractions. A key without a name, `--keys image/filename=`, is not read. "
        "`--rename` names keys of the records that are written.",
        (),
        "KEY=NAME[,…]",
        alias="keys",
    )
    label_map: File | None = READ.opt(
        "Label map of the Object Detection API, a `.pbtxt`: names of the classes that records give by number.",
        metavar="FILE",
        usual="the only one in the folder of DATA",
    )
    class_names: Names = READ.opt(
        "Names of the classes that records give by number: name n is for number n, from 0. Or `NAME=NUMBER` of "
        "each. One name for objects without a class.",
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
            yield "--label-map and --class-names both name the classes; give only one of them"
        yield from super()._faults()

    @property
    def roles(self) -> Mapping[str, str]:
        """Names of keys in records by those of the Object Detection API; empty for a key that is not read."""
        return parse_pairs(self.record_keys)
