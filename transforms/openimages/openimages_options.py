"""Options of `recordmill openimages`."""

from collections.abc import Iterable

from recordmill.schemas.inputs.option import READ, File, redefined
from recordmill.schemas.names import Match
from recordmill.transforms.annotated.format_options import FormatOptions
from recordmill.transforms.annotated.naming import NamingOptions
from recordmill.transforms.annotated.source import Source


class OpenimagesOptions(NamingOptions):
    """Options of `recordmill openimages`, see docs/formats.md."""

    class_descriptions: File | None = READ.opt(
        "CSV file of the names of classes: `/m/01g317,Person`.",
        metavar="FILE",
        usual="class-descriptions*.csv beside the boxes, or metadata/classes.csv",
    )
    match: Match = redefined(NamingOptions, "match", "name")
    name: str = redefined(FormatOptions, "name", "openimages")

    def source(self) -> Source:
        from recordmill.transforms.openimages.parse_boxes import openimages_source

        return openimages_source(self)

    @staticmethod
    def recognise(names: Iterable[str]) -> str:
        return next((name for name in sorted(names) if name.endswith("annotations-bbox.csv")), "")
