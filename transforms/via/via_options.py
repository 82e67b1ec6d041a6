"""Options of the format `via`."""

from typing import ClassVar

from recordmill.schemas.inputs.option import READ, redefine_option
from recordmill.transforms.annotated.format_options import FormatOptions, NamingOptions


class ViaOptions(NamingOptions):
    """Options of the format `via`, see docs/formats.md."""

    class_attribute: str | None = READ.opt(
        "Attribute of regions that has the class. Required if regions have several attributes.",
        metavar="NAME",
        usual="the only one",
    )
    class_name: str | None = READ.opt(
        "Class of regions without a class attribute, as in data sets with one class. Without it, these regions are "
        "rejected.",
        metavar="NAME",
    )
    name: str = redefine_option(FormatOptions, "name", "via")
    known_names: ClassVar[str] = r"(.*/)?via_[^/]*"
