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
        "Annotations to read if a task has several, for example from several people. Without it, several are an error."
    )
    unfinished: Literal["drop", "background"] = READ.opt(
        "What to do with images of skipped and unannotated tasks: skip them, or write them without objects.",
        "drop",
    )
    upload_prefix: Literal["keep", "drop"] | None = READ.opt(
        "Keep or drop the prefix that Label Studio adds to the name of an uploaded image: 48c220e9-cat.jpg.",
        usual="drop, if no image file has a prefix",
    )
    match: Match = redefine_option(NamingOptions, "match", "suffix")
    name: str = redefine_option(FormatOptions, "name", "labelstudio")
    known_names: ClassVar[str] = r"(.*/)?project-[^/]*-at-20[^/]*"
