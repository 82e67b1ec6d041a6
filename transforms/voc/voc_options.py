"""Options of `recordmill voc`."""

from collections.abc import Iterable
from typing import Literal

from recordmill.schemas.inputs.option import READ, Data, Images, redefined
from recordmill.transforms.annotated.format_options import FormatOptions
from recordmill.transforms.annotated.source import Source


class VocOptions(FormatOptions):
    """Options of `recordmill voc`, see docs/formats.md."""

    data: Data = redefined(
        FormatOptions,
        "data",
        ...,
        "Folder or .zip of the data set: with `Annotations` and `JPEGImages`, with XML files beside the images, or "
        "with such folders train, val and test.",
    )
    images: Images = redefined(
        FormatOptions, "images", text="Folder or .zip of images.", usual="`JPEGImages`, or beside the XML files"
    )
    voc_origin: Literal["0", "1"] = READ.opt(
        "Number of the first pixel. With 1, as in Pascal VOC's own files, left and top edges move by one pixel. TFDS "
        "and the Object Detection API do not move them.",
        "0",
    )
    name: str = redefined(FormatOptions, "name", "voc")

    def source(self) -> Source:
        from recordmill.transforms.voc.read_voc import voc_source

        return voc_source(self.data, self.images, int(self.voc_origin))

    @staticmethod
    def recognise(names: Iterable[str]) -> str:
        from recordmill.transforms.voc.read_voc import recognise

        return recognise(names)
