"""Options of `recordmill vertex`."""

from typing import ClassVar

from recordmill.schemas.inputs.option import redefined
from recordmill.schemas.names import Match
from recordmill.transforms.annotated.format_options import FormatOptions, NamingOptions


class VertexOptions(NamingOptions):
    """Options of `recordmill vertex`, see docs/formats.md."""

    match: Match = redefined(NamingOptions, "match", "suffix")
    name: str = redefined(FormatOptions, "name", "vertex")
    known_columns: ClassVar[frozenset[str]] = frozenset({"imageGcsUri"})
