"""Options of the format `tfcsv`."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from recordmill.schemas.inputs.box_columns import find_box_columns
from recordmill.schemas.inputs.option import READ, redefine_option
from recordmill.transforms.annotated.format_options import FormatOptions, NamingOptions


class TfcsvOptions(NamingOptions):
    """Options of the format `tfcsv`, see docs/formats.md."""

    bbox_format: Literal["xywh", "xyxy", "cxcywh", "rel-xywh", "rel-xyxy", "rel-cxcywh"] | None = READ.opt(
        "Meaning of the four numbers of a box. Left, top, width, height; or left, top, right, bottom; or (`cxcywh`) "
        "centre, width, height; in pixels, or (`rel-`) as fractions of the image size. Required if one column has all "
        "four numbers.",
        usual="by the names of the columns",
    )
    name: str = redefine_option(FormatOptions, "name", "tfcsv")
    endings: ClassVar[tuple[str, ...]] = (".csv",)
    known_names: ClassVar[str] = r".*_(annotations|labels)\.csv"

    @classmethod
    def recognise_columns(cls, columns: Mapping[str, Any]) -> str:
        import pyarrow as pa

        boxes = find_box_columns(columns)
        if not boxes or not all(boxes.used):
            return ""
        is_csv = all(pa.types.is_large_string(columns[name].type) for name in boxes.used)  # others have numbers
        return ", ".join(sorted(boxes.used)) if is_csv else ""
