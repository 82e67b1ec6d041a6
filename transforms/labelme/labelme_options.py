"""Options of the format `labelme`."""

from collections.abc import Iterable

from recordmill.schemas.inputs.images import is_image_name
from recordmill.schemas.inputs.option import LEAVE_OUT, Names, redefine_option
from recordmill.transforms.annotated.format_options import FormatOptions, NamingOptions

IGNORED_LABELS = ("__ignore__", "_background_")


class LabelmeOptions(NamingOptions):
    """Options of the format `labelme`, see docs/formats.md."""

    ignore_labels: Names = LEAVE_OUT.opt(
        "Labels of shapes that are not objects. These shapes are rejected as `excluded`, which `--max-rejects` does "
        "not count.",
        IGNORED_LABELS,
        "NAME[,NAME…]",
        f"`{','.join(IGNORED_LABELS)}`",
    )
    name: str = redefine_option(FormatOptions, "name", "labelme")

    @classmethod
    def recognise(cls, names: Iterable[str]) -> str:
        names = set(names)
        stems = {name.rpartition(".")[0] for name in names if is_image_name(name)}
        label_file = min((name for name in names if name.endswith(".json") and name[:-5] in stems), default="")
        return f"{label_file} beside its image" if label_file else ""
