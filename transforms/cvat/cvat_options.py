"""Options of the format `cvat`."""

from typing import ClassVar

from recordmill.schemas.inputs.option import READ, Data, Images, redefine_option
from recordmill.transforms.annotated.format_options import FormatOptions, NamingOptions


class CvatOptions(NamingOptions):
    """Options of the format `cvat`, see docs/formats.md."""

    data: Data = redefine_option(
        FormatOptions,
        "data",
        ...,
        "annotations.xml of an export as `CVAT for images 1.1` or `CVAT for video 1.1`, or its folder or .zip.",
    )
    images: Images = redefine_option(
        FormatOptions, "images", text="Folder or .zip of images.", usual="`images` next to the file, or its folder"
    )
    frame_name: str | None = READ.opt(
        "File name of a video frame, with the frame number in braces: `frame_{:06d}.png`.",
        metavar="NAME",
        usual="`frame_{:06d}` with the suffix of the images",
    )
    name: str = redefine_option(FormatOptions, "name", "cvat")
    endings: ClassVar[tuple[str, ...]] = (".xml",)
    known_names: ClassVar[str] = r"(.*/)?annotations\.xml"
