"""Options of `recordmill vertex`."""

from collections.abc import Iterable

from recordmill.schemas.inputs.option import redefined
from recordmill.schemas.names import Match
from recordmill.transforms.annotated.format_options import FormatOptions
from recordmill.transforms.annotated.naming import NamingOptions
from recordmill.transforms.annotated.source import Source


class VertexOptions(NamingOptions):
    """Options of `recordmill vertex`, see docs/formats.md."""

    match: Match = redefined(NamingOptions, "match", "suffix")
    name: str = redefined(FormatOptions, "name", "vertex")

    def source(self) -> Source:
        from recordmill.transforms.vertex.parse_lines import vertex_source

        return vertex_source(self)

    @staticmethod
    def recognise(names: Iterable[str]) -> str:
        """Return nothing: the names of its files say nothing."""
        return ""
