"""Options of the format `ndjson`."""

from collections.abc import Mapping
from typing import Any, ClassVar

from recordmill.schemas.inputs.option import redefine_option
from recordmill.schemas.names import Match
from recordmill.transforms.annotated.format_options import FormatOptions, NamingOptions


class NdjsonOptions(NamingOptions):
    """Options of the format `ndjson`, see docs/formats.md."""

    match: Match = redefine_option(NamingOptions, "match", "suffix")
    name: str = redefine_option(FormatOptions, "name", "ndjson")
    endings: ClassVar[tuple[str, ...]] = (".ndjson", ".jsonl", ".json")

    @classmethod
    def recognise_columns(cls, columns: Mapping[str, Any]) -> str:
        tops = {name.partition(".")[0] for name in columns}  # names by index are columns each
        return "type and class_names" if {"type", "file", "class_names"} <= tops else ""
