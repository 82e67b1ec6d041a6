"""Options of `recordmill labelstudio`."""

from collections.abc import Iterable
from typing import Literal

from recordmill.schemas.inputs.option import READ, redefined
from recordmill.schemas.names import Match
from recordmill.transforms.annotated.format_options import FormatOptions
from recordmill.transforms.annotated.naming import NamingOptions
from recordmill.transforms.annotated.source import Source


class LabelstudioOptions(NamingOptions):
    """Options of `recordmill labelstudio`, see docs/formats.md."""

    image_key: str | None = READ.opt(
        "Key of a task's `data` that has the image.", metavar="NAME", usual="image, or the only one that names an image"
    )
    of_several: Literal["first", "last", "all"] | None = READ.opt(
        "Which annotations of a task that has several, as of several people. Without it, several are an error."
    )
    upload_prefix: Literal["keep", "drop"] | None = READ.opt(
        "What to do about the code that Label Studio puts in front of the name of an uploaded image: 48c220e9-cat.jpg.",
        usual="drop, if no image has one",
    )
    match: Match = redefined(NamingOptions, "match", "suffix")
    name: str = redefined(FormatOptions, "name", "labelstudio")

    def source(self) -> Source:
        from recordmill.transforms.labelstudio.parse_tasks import labelstudio_source

        return labelstudio_source(self)

    @staticmethod
    def recognise(names: Iterable[str]) -> str:
        """Return why files of these names may be of Label Studio: exports are named project-1-at-2025-06-19-….json."""
        bases = ((name, name.rpartition("/")[2]) for name in sorted(names))
        return next((name for name, base in bases if base.startswith("project-") and "-at-20" in base), "")
