"""Options of `recordmill tfcsv`."""

from collections.abc import Iterable

from recordmill.schemas.inputs.option import redefined
from recordmill.transforms.annotated.format_options import FormatOptions
from recordmill.transforms.annotated.naming import NamingOptions
from recordmill.transforms.annotated.source import Source


class TfcsvOptions(NamingOptions):
    """Options of `recordmill tfcsv`, see docs/formats.md."""

    name: str = redefined(FormatOptions, "name", "tfcsv")

    def source(self) -> Source:
        from recordmill.transforms.tfcsv.parse_rows import tfcsv_source

        return tfcsv_source(self)

    @staticmethod
    def recognise(names: Iterable[str]) -> str:
        return next((name for name in sorted(names) if name.endswith(("_annotations.csv", "_labels.csv"))), "")
