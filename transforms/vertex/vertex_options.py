"""Options of the format `vertex`."""

import io
from typing import ClassVar

from recordmill.schemas.inputs.option import redefine_option
from recordmill.schemas.names import Match
from recordmill.transforms.annotated.format_options import FormatOptions, NamingOptions


class VertexOptions(NamingOptions):
    """Options of the format `vertex`, see docs/formats.md."""

    match: Match = redefine_option(NamingOptions, "match", "suffix")
    name: str = redefine_option(FormatOptions, "name", "vertex")
    endings: ClassVar[tuple[str, ...]] = (".jsonl", ".csv")
    known_columns: ClassVar[frozenset[str]] = frozenset({"imageGcsUri"})

    @classmethod
    def recognise_rows(cls, head: bytes) -> str:
        from recordmill.transforms.vertex.read_vertex import parse_lines  # imports NumPy

        images = parse_lines(io.BytesIO(head), ".csv")
        has_boxes = any(image.sample and image.sample.objects for image in images)
        return "boxes in fractions, without names of columns" if has_boxes else ""
