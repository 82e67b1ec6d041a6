"""Open, decode and encode images with Pillow. Images that training cannot decode are transcoded to JPEG or PNG.

Images are opened without metadata, because malformed metadata makes Pillow fail on images that TensorFlow decodes.

`PIL.Image.open` is not used: it warns or raises by a size limit of the whole process, and the callers of this module
check a limit themselves. So the plugin of a format is called directly.
"""

import io
import struct

import numpy as np
from PIL import Image, ImageFile, UnidentifiedImageError

from recordmill.schemas.inputs.images import ImageRules
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.images import check_formats

_OTHERS = ("WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF", "JPEG2000")
"""Formats that Pillow reads, and that TensorFlow or readers of records do not. Formats that run programs (EPS) are
omitted."""
_START = {"jpeg": check_formats.JPEG_START, "png": check_formats.PNG_START}
_WITHOUT_METADATA = {"jpeg": check_formats.jpeg_without_metadata, "png": check_formats.png_without_metadata}
_ENOUGH = 48
"""Minimum of the longer side in pixels after `load_small`."""
_NOT_OF_FORMAT = (SyntaxError, IndexError, TypeError, struct.error)
"""Exceptions of Pillow's plugins for files of another format."""
_ALPHA = ("LA", "La", "PA", "RGBA", "RGBa")  # modes whose last channel is alpha
_GREY = ("1", "L", "LA", "La")
_DEEP = "I;16"
_MAX_SIDE = {"jpeg": 65_500, "png": check_formats.MAX_SIDE}  # limits of libjpeg and libpng in pixels
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
TURNED_BY_PILLOW = "TIFF"
"""Format whose pixels and size Pillow turns upright by EXIF."""
_TURNED_BACK = TURNS | {6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270}
_PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", _DEEP)


def image_kind(data: bytes) -> str:
    """Return `jpeg` or `png`, by the first bytes of a file; "" for any other format."""
    return next((kind for kind, start in _START.items() if data.startswith(start)), "")


def encoded_channels(data: bytes, format_: str) -> int:
    """Return the channels of `tf.io.decode_image(data)` with its default `channels=0`."""
    # TensorFlow converts CMYK to RGB.
    return min(check_formats.jpeg_frame(data).channels, 3) if format_ == "jpeg" else check_formats.png_channels(data)


def open_image(data: bytes, kind: str) -> ImageFile.ImageFile:
    """Open an image and read its header only.

    Args:
        kind: `jpeg` or `png`; empty for any other format.

    Raises:
        UnidentifiedImageError: The first bytes are those of no known format.
        Exception: Pillow raises nearly any exception on malicious bytes.
    """
    Image.preinit() if kind else Image.init()  # common plugins only; init() loads all plugins in 40 ms
    fault: Exception | None = None
    for format_ in [kind.upper()] if kind else filter(Image.OPEN.__contains__, _OTHERS):
        open_format, is_format = Image.OPEN[format_]
        if not is_format or is_format(data[:16]) is True:
            try:
                return open_format(io.BytesIO(_WITHOUT_METADATA[kind](data) if kind else data), "")
            except _NOT_OF_FORMAT as error:
                fault = error
    raise fault or UnidentifiedImageError("its first bytes are not those of a known format")


def load_small(image: Image.Image) -> None:
    """Decode an opened image. A JPEG is decoded at 1/8 of its size, which reads the complete stream in 60 % of the
    time. A small JPEG is decoded at a larger fraction, so that its hash is meaningful.

    Raises:
        Exception: Pillow raises nearly any exception on malicious pixels.
    """
    part = max(1, min(8, max(image.size) // _ENOUGH))
    image.draft("L", (max(1, image.width // part), max(1, image.height // part)))  # no-op except for JPEGs
    image.load()


def shrunk_size(width: int, height: int, max_side: int | None) -> tuple[int, int]:
    """Return the largest size with the same aspect ratio whose sides are at most `max_side` pixels.

    >>> shrunk_size(640, 480, 320), shrunk_size(640, 480, None), shrunk_size(5000, 2, 100)
    ((320, 240), (640, 480), (100, 1))
    """
    if max_side is None or max(width, height) <= max_side:
        return width, height
    scale = max_side / max(width, height)
    return max(1, round(width * scale)), max(1, round(height * scale))


def exif_orientation(image: Image.Image) -> int:
    """Return the EXIF orientation of an opened image, 1..8; 1 is upright, and the default."""
    try:
        return image.getexif().get(_ORIENTATION, 1)
    except Exception:  # Pillow raises nearly any exception on malicious metadata; ignore it
        return 1


def stored_size(image: Image.Image) -> tuple[int, int]:
    """Return width and height of an image's stored pixels."""
    is_swapped = image.format == TURNED_BY_PILLOW and exif_orientation(image) in LIES_ON_ITS_SIDE
    return image.size[::-1] if is_swapped else image.size


def decode_image(image: Image.Image, turn: bool) -> Image.Image:
    """Return the pixels of an opened image: first frame, at most 16 bits, without metadata.

    Args:
        turn: True to turn the image upright by its EXIF orientation.

    Raises:
        UnusableError: The pixels are floats, or integers of more than 16 bits.
        Exception: Pillow raises nearly any exception on malicious pixels.
    """
    orientation = exif_orientation(image)
    is_turned = image.format == TURNED_BY_PILLOW
    image.load()
    if turn and not is_turned:
        image = image.transpose(TURNS[orientation])
    elif is_turned and not turn and orientation in _TURNED_BACK:
        image = image.transpose(_TURNED_BACK[orientation])
    image = _reduce_depth(image)
    # Pillow writes the contents of `info`: comments and profiles that may not fit the target format.
    image.info = {key: value for key, value in image.info.items() if key == "transparency"}
    return image


def encode_image(image: Image.Image, original: str, size: tuple[int, int], rules: ImageRules) -> tuple[bytes, str]:
    """Encode a decoded image in the format of `choose_format`. Return its bytes and format.

    Args:
        size: Width and height of the result in pixels.

    Raises:
        UnusableError: A side is too large for the format.
    """
    has_alpha = is_see_through(image)
    format_ = choose_format(image, original, has_alpha, size, rules)
    return encode_pixels(image, format_, has_alpha, size, rules.jpeg_quality), format_


def choose_format(image: Image.Image, original: str, has_alpha: bool, size: tuple[int, int], rules: ImageRules) -> str:
    """Return the format in which a decoded image is stored.

    Format `keep` is the original format if that is JPEG or PNG. Otherwise it is PNG for images with transparency or
    16 bits, or too large for a JPEG, else JPEG.

    Args:
        original: Format of the file.
        has_alpha: See `is_see_through`.
        size: Width and height of the result in pixels.

    Raises:
        UnusableError: A side is too large for the format.
    """
    format_ = rules.format
    if format_ == "keep":
        needs_png = has_alpha or image.mode == _DEEP or max(size) > _MAX_SIDE["jpeg"]
        format_ = original if original in _MAX_SIDE else "png" if needs_png else "jpeg"
    if max(size) > _MAX_SIDE[format_]:
        limit = f"sides of a readable {format_.upper()} have at most {_MAX_SIDE[format_]:,}"
        raise UnusableError(Reason.TOO_LARGE, f"{size[0]}x{size[1]}: {limit}")
    return format_


_USUAL_PNG_LEVEL = 6
"""zlib's and Pillow's default."""


def encode_pixels(
    image: Image.Image,
    format_: str,
    has_alpha: bool,
    size: tuple[int, int],
    jpeg_quality: int,
    png_level: int = _USUAL_PNG_LEVEL,
) -> bytes:
    """Encode a decoded image as `jpeg` or `png`, with `size` (width, height) pixels.

    Args:
        png_level: Level of deflate, 0 to 9.

    Raises:
        UnusableError: The format does not hold the pixels.
    """
    image = convert_for_jpeg(image) if format_ == "jpeg" else _convert_for_png(image, has_alpha)
    if image.size != size:
        image = _resize_pixels(image, size, has_alpha and format_ == "png")
    stream = io.BytesIO()
    try:
        image.save(stream, format_.upper(), quality=jpeg_quality, compress_level=png_level)  # each format ignores one
    except OSError as error:
        raise UnusableError(
            Reason.UNSUPPORTED_FORMAT, f"it cannot be written as {format_.upper()} ({error})"
        ) from error
    return stream.getvalue()


def is_see_through(image: Image.Image) -> bool:
    """Return True if a decoded image has transparent pixels."""
    if image.mode in _ALPHA:
        # Animations always have an alpha channel.
        return np.asarray(image.getchannel(image.getbands()[-1])).min() < 255
    return "transparency" in image.info


def _reduce_depth(image: Image.Image) -> Image.Image:
    """Convert integer pixels to at most 16 bits. Raise UnusableError for larger integers and floats."""
    if image.mode.startswith("I;16"):
        return Image.fromarray(np.asarray(image).astype(np.uint16))
    if image.mode == "I":
        pixels = np.asarray(image)
        if pixels.min() < 0 or pixels.max() > 0xFFFF:
            raise UnusableError(Reason.UNSUPPORTED_FORMAT, f"its pixels range from {pixels.min()} to {pixels.max()}")
        return Image.fromarray(pixels.astype(np.uint16))
    if image.mode == "F":
        raise UnusableError(Reason.UNSUPPORTED_FORMAT, "its pixels are floats")
    return image


def is_12_bit(image: Image.Image) -> bool:
    """Return True if all 16-bit samples of a decoded image fit in 12 bits, and they are not all equal."""
    if not image.mode.startswith(_DEEP):
        return False
    samples = np.asarray(image)
    return bool(samples.min() < samples.max() < 1 << 12)


def convert_for_jpeg(image: Image.Image) -> Image.Image:
    """Drop transparency and the lower byte, like TensorFlow."""
    if image.mode == _DEEP:
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image.convert("L" if image.mode in _GREY else "RGB")


def _convert_for_png(image: Image.Image, has_alpha: bool) -> Image.Image:
    if image.mode in _PNG_MODES and (has_alpha or image.mode not in _ALPHA):
        return image
    if image.mode in _GREY:
        return image.convert("L")
    return image.convert("RGBA" if has_alpha else "RGB")


def _resize_pixels(image: Image.Image, size: tuple[int, int], has_alpha: bool) -> Image.Image:
    if image.mode == _DEEP:
        return _reduce_depth(image.convert("I").resize(size, Image.Resampling.BOX))
    if image.mode in ("1", "P"):  # interpolated colours are not in the palette
        grey = image.mode == "1"
        image = image.convert("L" if grey else "RGBA" if has_alpha else "RGB")
    return image.resize(size, Image.Resampling.LANCZOS)
