"""Pillow opens, decodes and encodes pictures. Those that training cannot decode, or that are wanted otherwise, are
transcoded as JPEG or PNG.

They are opened without metadata: odd metadata makes Pillow give up on pictures that TensorFlow decodes.

`PIL.Image.open` would hold the size against a limit that is the whole process's, and warn or raise by it. Ours is
checked by who opens, so what opens a format is asked itself.
"""

import io
import struct

import numpy as np
from PIL import Image, ImageFile

from recordmill.schemas.inputs.images import PictureRules
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.images import check_formats

_OTHERS = ("WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF", "JPEG2000")
"""Formats that Pillow reads and TensorFlow, or a reader of records, does not. Not those that run programs (EPS)."""
_START = {"jpeg": check_formats.JPEG_START, "png": check_formats.PNG_START}
_WITHOUT_METADATA = {"jpeg": check_formats.jpeg_without_metadata, "png": check_formats.png_without_metadata}
_ENOUGH = 48
"""Pixels of the longer side that `load_small` leaves."""
_NOT_OF_FORMAT = (SyntaxError, IndexError, TypeError, struct.error)
"""Exceptions of Pillow's plugins for files of another format."""
_ALPHA = ("LA", "La", "PA", "RGBA", "RGBa")  # whose last channel it is
_GREY = ("1", "L", "LA", "La")
_DEEP = "I;16"
_MAX_SIDE = {"jpeg": 65_500, "png": check_formats.MAX_SIDE}  # pixels, of libjpeg and libpng
_ORIENTATION = 0x0112  # EXIF
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
LIES_ON_ITS_SIDE = frozenset((5, 6, 7, 8))
_TURNED_BY_PILLOW = "TIFF"
"""The format whose pixels and size Pillow gives upright by itself."""
_TURNED_BACK = TURNS | {6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270}
_PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", _DEEP)


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


def shrunk_size(width: int, height: int, max_side: int | None) -> tuple[int, int]:
    """The largest size of the same shape whose sides are at most `max_side` pixels.

    >>> shrunk_size(640, 480, 320), shrunk_size(640, 480, None), shrunk_size(5000, 2, 100)
    ((320, 240), (640, 480), (100, 1))
    """
    if max_side is None or max(width, height) <= max_side:
        return width, height
    scale = max_side / max(width, height)
    return max(1, round(width * scale)), max(1, round(height * scale))


def orientation_of(image: Image.Image) -> int:
    """How an opened picture is to be turned, by EXIF; 1 where it is upright."""
    try:
        return image.getexif().get(_ORIENTATION, 1)
    except Exception:  # Pillow's reading of metadata made to break it; then there is none
        return 1


def stored_size(image: Image.Image) -> tuple[int, int]:
    """Return width and height of the stored pixels of an opened image."""
    is_swapped = image.format == _TURNED_BY_PILLOW and orientation_of(image) in LIES_ON_ITS_SIDE
    return image.size[::-1] if is_swapped else image.size


def decode_picture(image: Image.Image, turn: bool) -> Image.Image:
    """Return the pixels of an opened image: first frame, at most 16 bits, without metadata.

    Args:
        turn: whether to turn it upright, as its EXIF orientation says.

    Raises:
        UnusableError: floats, or integers of more than 16 bits.
        Exception: any that Pillow raises on pixels that do not decode.
    """
    orientation = orientation_of(image)
    is_turned = image.format == _TURNED_BY_PILLOW
    image.load()
    if turn and not is_turned:
        image = image.transpose(TURNS[orientation])
    elif is_turned and not turn and orientation in _TURNED_BACK:
        image = image.transpose(_TURNED_BACK[orientation])
    image = _shallow(image)
    # Pillow writes what it finds here: comments and profiles that may not fit where they are to go.
    image.info = {key: value for key, value in image.info.items() if key == "transparency"}
    return image


def encode_picture(image: Image.Image, original: str, size: tuple[int, int], rules: PictureRules) -> tuple[bytes, str]:
    """The bytes and format of a decoded picture.

    A picture with transparency or 16 bits, or too large for a JPEG, becomes a PNG, another a JPEG, if it is not one of
    the two already and no format is asked for.

    Args:
        original: its format.
        size: width and height to shrink it to.

    Raises:
        UnusableError: it has a side that the format has not.
    """
    has_alpha = _is_see_through(image)
    format_ = rules.format
    if format_ == "keep":
        needs_png = has_alpha or image.mode == _DEEP or max(size) > _MAX_SIDE["jpeg"]
        format_ = original if original in _MAX_SIDE else "png" if needs_png else "jpeg"
    if max(size) > _MAX_SIDE[format_]:
        limit = f"{format_.upper()}s that can be read have sides up to {_MAX_SIDE[format_]:,}"
        raise UnusableError(Reason.TOO_LARGE, f"{size[0]}x{size[1]}: {limit}")
    image = for_jpeg(image) if format_ == "jpeg" else _for_png(image, has_alpha)
    if image.size != size:
        image = _shrunk(image, size, has_alpha and format_ == "png")
    stream = io.BytesIO()
    try:
        image.save(stream, format_.upper(), **({"quality": rules.jpeg_quality} if format_ == "jpeg" else {}))
    except OSError as error:
        raise UnusableError(
            Reason.UNSUPPORTED_FORMAT, f"it cannot be written as {format_.upper()} ({error})"
        ) from error
    return stream.getvalue(), format_


def _is_see_through(image: Image.Image) -> bool:
    if image.mode in _ALPHA:
        # Animations have the channel, used or not.
        return np.asarray(image.getchannel(image.getbands()[-1])).min() < 255
    return "transparency" in image.info


def _shallow(image: Image.Image) -> Image.Image:
    """16 bits at the most."""
    if image.mode.startswith("I;16"):
        return Image.fromarray(np.asarray(image).astype(np.uint16))
    if image.mode == "I":
        pixels = np.asarray(image)
        if pixels.min() < 0 or pixels.max() > 0xFFFF:
            raise UnusableError(Reason.UNSUPPORTED_FORMAT, f"its pixels reach from {pixels.min()} to {pixels.max()}")
        return Image.fromarray(pixels.astype(np.uint16))
    if image.mode == "F":
        raise UnusableError(Reason.UNSUPPORTED_FORMAT, "its pixels are floats")
    return image


def is_12_bit(image: Image.Image) -> bool:
    """True if a decoded picture has samples of 16 bits that all fit 12, and has not one colour only."""
    return image.mode.startswith(_DEEP) and (of := np.asarray(image)).min() < of.max() < 1 << 12


def for_jpeg(image: Image.Image) -> Image.Image:
    """Drop what TensorFlow drops, too: transparency, and the lower 8 of 16 bits."""
    if image.mode == _DEEP:
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image.convert("L" if image.mode in _GREY else "RGB")


def _for_png(image: Image.Image, has_alpha: bool) -> Image.Image:
    if image.mode in _PNG_MODES and (has_alpha or image.mode not in _ALPHA):
        return image
    if image.mode in _GREY:
        return image.convert("L")
    return image.convert("RGBA" if has_alpha else "RGB")


def _shrunk(image: Image.Image, size: tuple[int, int], has_alpha: bool) -> Image.Image:
    if image.mode == _DEEP:
        return _shallow(image.convert("I").resize(size, Image.Resampling.BOX))
    if image.mode in ("1", "P"):  # colours between those of a palette are none of it
        grey = image.mode == "1"
        image = image.convert("L" if grey else "RGBA" if has_alpha else "RGB")
    return image.resize(size, Image.Resampling.LANCZOS)
