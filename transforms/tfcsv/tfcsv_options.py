"""Options of the format `tfcsv`."""

from typing import ClassVar

from recordmill.schemas.inputs.option import redefine_option
from recordmill.transforms.annotated.format_options import FormatOptions, NamingOptions


class TfcsvOptions(NamingOptions):
    """Options of the format `tfcsv`, see docs/formats.md."""

    name: str = redefine_option(FormatOptions, "name", "tfcsv")
    endings: ClassVar[tuple[str, ...]] = (".csv",)
    known_names: ClassVar[str] = r".*_(annotations|labels)\.csv"
    known_columns: ClassVar[frozenset[str]] = frozenset({"filename", "class", "xmin", "ymin", "xmax", "ymax"})
