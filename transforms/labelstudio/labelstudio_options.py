"""Options of the format `labelstudio`."""

from typing import ClassVar, Literal

from recordmill.schemas.inputs.option import READ, redefine_option
from recordmill.schemas.names import Match
from recordmill.transforms.annotated.format_options import FormatOptions, NamingOptions


class LabelstudioOptions(NamingOptions):
    """Options of the format `labelstudio`, see docs/formats.md."""

    image_key: str | None = READ.opt(
        "Key of a task's `data` that has the image.", metavar="NAME", usual="image, or the only one that names an image"
    )
    of_several: Literal["first", "last", "all"] | None = READ.opt(
        "Annotations to read of a task with several, for example by several people. Without it, several are an error."
    )
    unfinished: Literal["drop", "background"] = READ.opt(
        "Tasks that were skipped, or that nobody has annotated: leave out their images, or write them without objects.",
        "drop",
    )
    upload_prefix: Literal["keep", "drop"] | None = READ.opt(
        "Keep or drop the code that Label Studio puts before the name of an uploaded image: 48c220e9-cat.jpg.",
        usual="drop, if no image has one",
    )
    match: Match = redefine_option(NamingOptions, "match", "suffix")
    name: str = redefine_option(FormatOptions, "name", "labelstudio")
    known_names: ClassVar[str] = r"(.*/)?project-[^/]*-at-20[^/]*"
