"""Options of `recordmill createml`."""

from collections.abc import Iterable

from recordmill.schemas.inputs.option import redefined
from recordmill.transforms.annotated.format_options import FormatOptions
from recordmill.transforms.annotated.naming import NamingOptions
from recordmill.transforms.annotated.source import Source


class CreatemlOptions(NamingOptions):
    """Options of `recordmill createml`, see docs/formats.md."""

    name: str = redefined(FormatOptions, "name", "createml")

    def source(self) -> Source:
        from recordmill.transforms.createml.parse_images import createml_source

        return createml_source(self)

    @staticmethod
    def recognise(names: Iterable[str]) -> str:
        return next((name for name in sorted(names) if name.endswith(".createml.json")), "")
