"""Options of `recordmill labelme`."""

from collections.abc import Iterable

from recordmill.schemas.inputs.option import LEAVE_OUT, Names, redefined
from recordmill.transforms.annotated.format_options import FormatOptions
from recordmill.transforms.annotated.naming import NamingOptions
from recordmill.transforms.annotated.source import Source

NO_OBJECTS = ("__ignore__", "_background_")


class LabelmeOptions(NamingOptions):
    """Options of `recordmill labelme`, see docs/formats.md."""

    ignore_labels: Names = LEAVE_OUT.opt(
        "Labels of shapes that are no objects. They are rejects, `excluded`, which `--max-rejects` does not limit.",
        NO_OBJECTS,
        "NAME[,NAME…]",
        ",".join(NO_OBJECTS),
    )
    name: str = redefined(FormatOptions, "name", "labelme")

    def source(self) -> Source:
        from recordmill.transforms.labelme.parse_shapes import labelme_source

        return labelme_source(self)

    @staticmethod
    def recognise(names: Iterable[str]) -> str:
        from recordmill.transforms.labelme.parse_shapes import recognise

        return recognise(names)
