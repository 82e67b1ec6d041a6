"""Options of the format `voc`."""

from typing import ClassVar, Literal

from recordmill.schemas.inputs.option import READ, Data, Images, redefine_option
from recordmill.transforms.annotated.format_options import FormatOptions


class VocOptions(FormatOptions):
    """Options of the format `voc`, see docs/formats.md."""

    data: Data = redefine_option(
        FormatOptions,
        "data",
        ...,
        "Folder or .zip of the data set: with `Annotations` and `JPEGImages`, with XML files next to the images, or "
        "with folders train, val and test of either form.",
    )
    images: Images = redefine_option(
        FormatOptions, "images", text="Folder or .zip of images.", usual="`JPEGImages`, or next to the XML files"
    )
    voc_origin: Literal["0", "1"] = READ.opt(
        "Number of the first pixel. With 1, as in Pascal VOC's own files, left and top edges move by one pixel. TFDS "
        "and the Object Detection API do not move them.",
        "0",
    )
    name: str = redefine_option(FormatOptions, "name", "voc")
    endings: ClassVar[tuple[str, ...]] = (".xml",)
    known_names: ClassVar[str] = r"(?i).*(?<!annotations)\.xml"
