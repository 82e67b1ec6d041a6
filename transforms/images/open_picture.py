"""Pillow opens a picture, for its pixels: odd metadata makes it give up on pictures that TensorFlow decodes.

`PIL.Image.open` would hold the size against a limit that is the whole process's, and warn or raise by it. Ours is
checked by who opens, so what opens a format is asked itself.
"""

import io
import struct

from PIL import Image, ImageFile

from recordmill.transforms.images import check_formats

_OTHERS = ("WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF", "JPEG2000")
"""Formats that Pillow reads and TensorFlow, or a reader of records, does not. Not those that run programs (EPS)."""
_START = {"jpeg": check_formats.JPEG_START, "png": check_formats.PNG_START}
_WITHOUT_METADATA = {"jpeg": check_formats.jpeg_without_metadata, "png": check_formats.png_without_metadata}
_ENOUGH = 48
"""Pixels of the longer side that `load_small` leaves."""
_NOT_OF_FORMAT = (SyntaxError, IndexError, TypeError, struct.error)
"""Exceptions of Pillow's plugins for files of another format."""


def kind_of(data: bytes) -> str:
    """`jpeg` or `png`, by the first bytes; empty for anything else."""
    return next((kind for kind, start in _START.items() if data.startswith(start)), "")


def encoded_channels(data: bytes, format_: str) -> int:
    """How many channels `tf.io.decode_image(data)` gives, if it is left to choose."""
    # Of CMYK it makes RGB.
    return min(check_formats.jpeg_frame(data).channels, 3) if format_ == "jpeg" else check_formats.png_channels(data)


def open_picture(data: bytes, kind: str) -> ImageFile.ImageFile:
    """Open an image and read its header only.

    Args:
        kind: `jpeg` or `png`; empty for any other format.

    Raises:
        Exception: any that Pillow raises on bytes made to break it.
    """
    Image.preinit() if kind else Image.init()  # of JPEG and PNG alone, or of each format: 40 ms
    fault: Exception | None = None
    for format_ in [kind.upper()] if kind else filter(Image.OPEN.__contains__, _OTHERS):
        open_format, is_format = Image.OPEN[format_]
        if not is_format or is_format(data[:16]) is True:
            try:
                return open_format(io.BytesIO(_WITHOUT_METADATA[kind](data) if kind else data), "")
            except _NOT_OF_FORMAT as error:
                fault = error
    raise fault or ValueError("it begins as no known format does")


def load_small(image: Image.Image) -> None:
    """Decode an opened image. A JPEG is decoded at an eighth of its size, which reads the complete stream in 60 % of
    the time; a small one at more, so that its hash is meaningful.

    Raises:
        Exception: any that Pillow raises on pixels that do not decode.
    """
    part = max(1, min(8, max(image.size) // _ENOUGH))
    image.draft("L", (max(1, image.width // part), max(1, image.height // part)))  # of JPEGs alone
    image.load()
