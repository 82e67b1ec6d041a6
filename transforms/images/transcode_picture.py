"""Pictures that training cannot decode, or that are wanted otherwise, are transcoded as JPEG or PNG."""

import io

import numpy as np
from PIL import Image, ImageOps

from recordmill.schemas.images import PictureRules
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.images import check_png

_ALPHA = ("LA", "La", "PA", "RGBA", "RGBa")  # whose last channel it is
_GREY = ("1", "L", "LA", "La")
_DEEP = "I;16"
_PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", _DEEP)


def shrunk_size(width: int, height: int, max_side: int | None) -> tuple[int, int]:
    """The largest size of the same shape whose sides are at most `max_side` pixels.

    >>> shrunk_size(640, 480, 320), shrunk_size(640, 480, None), shrunk_size(5000, 2, 100)
    ((320, 240), (640, 480), (100, 1))
    """
    if max_side is None or max(width, height) <= max_side:
        return width, height
    scale = max_side / max(width, height)
    return max(1, round(width * scale)), max(1, round(height * scale))


def transcode_picture(
    image: Image.Image, original: str, size: tuple[int, int], turn: bool, rules: PictureRules
) -> tuple[bytes, str]:
    """The picture's bytes and format.

    A picture with transparency or 16 bits becomes a PNG, another a JPEG, if it is not one of the two already and no
    format is asked for.

    Args:
        image: opened, not decoded yet; its first frame is taken.
        original: its format.
        size: width and height to shrink it to.
        turn: whether to turn it upright, as its EXIF orientation says.

    Raises:
        UnusableError: floats, or integers of more than 16 bits; a PNG of a side that libpng refuses.
        Exception: whatever Pillow raises on pixels that do not decode, or sizes that do not encode.
    """
    image.load()
    if turn:
        image = ImageOps.exif_transpose(image)
    image = _shallow(image)
    has_alpha = _is_see_through(image)
    format_ = rules.format
    if format_ == "keep":
        needs_png = has_alpha or image.mode == _DEEP
        format_ = original if original in ("jpeg", "png") else "png" if needs_png else "jpeg"
    image = _for_jpeg(image) if format_ == "jpeg" else _for_png(image, has_alpha)
    if image.size != size:
        image = _shrunk(image, size, has_alpha and format_ == "png")
    stream = io.BytesIO()
    if format_ == "jpeg":
        image.save(stream, "JPEG", quality=rules.jpeg_quality)
    else:
        if max(image.size) > check_png.MAX_SIDE:
            detail = f"{image.width}x{image.height}: PNGs that can be read have sides up to {check_png.MAX_SIDE:,}"
            raise UnusableError(Reason.TOO_LARGE, detail)
        image.save(stream, "PNG")
    return stream.getvalue(), format_


def _is_see_through(image: Image.Image) -> bool:
    if image.mode in _ALPHA:
        return (
            np.asarray(image.getchannel(image.getbands()[-1])).min() < 255
        )  # animations have the channel, used or not
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


def _for_jpeg(image: Image.Image) -> Image.Image:
    """What TensorFlow makes of it, too: transparency and the lower 8 of 16 bits are dropped."""
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
