"""Options of the format `createml`."""

from typing import ClassVar

from recordmill.schemas.inputs.option import redefine_option
from recordmill.transforms.annotated.format_options import FormatOptions, NamingOptions


class CreatemlOptions(NamingOptions):
    """Options of the format `createml`, see docs/formats.md."""

    name: str = redefine_option(FormatOptions, "name", "createml")
    known_names: ClassVar[str] = r".*\.createml\.json"
