"""Options of the format `openimages`."""

from typing import ClassVar

from recordmill.schemas.inputs.option import READ, File, redefine_option
from recordmill.schemas.names import Match
from recordmill.transforms.annotated.format_options import FormatOptions, NamingOptions


class OpenimagesOptions(NamingOptions):
    """Options of the format `openimages`, see docs/formats.md."""

    class_descriptions: File | None = READ.opt(
        "CSV file of class names: `/m/01g317,Person`.",
        metavar="FILE",
        usual="class-descriptions*.csv next to the boxes, or metadata/classes.csv",
    )
    match: Match = redefine_option(NamingOptions, "match", "name")
    name: str = redefine_option(FormatOptions, "name", "openimages")
    endings: ClassVar[tuple[str, ...]] = (".csv",)
    known_names: ClassVar[str] = r".*annotations-bbox\.csv"
