"""The picture of a record, decoded to be looked at."""

from PIL import Image

from recordmill.transforms.images.load_images import check_pixel_count, known_kind, opened, pixels_decode
from recordmill.transforms.images.open_picture import kind_of
from recordmill.transforms.images.transcode_picture import decode_picture

_OTHERS = (b"GIF8", b"II*\0", b"MM\0*")
"""How GIF and TIFF begin, which others have in their records; what BMP begins with is a word's beginning, too."""


def open_record_picture(data: bytes) -> Image.Image:
    """The pixels of an encoded picture, its first frame, as they are stored.

    Raises:
        UnusableError: it is none, does not decode, or has too many pixels.
    """
    image = opened(data, known_kind(data))
    check_pixel_count(image)
    with pixels_decode(), image:
        return decode_picture(image, turn=False)


def picture_size(data: bytes) -> tuple[str, int, int] | None:
    """Format, width and height of an encoded picture; None for bytes that do not begin as one.

    Raises:
        UnusableError: it begins as one, and cannot be opened.
    """
    kind = kind_of(data)
    is_webp = data.startswith(b"RIFF") and data[8:12] == b"WEBP"
    if not kind and not is_webp and not data.startswith(_OTHERS):
        return None
    with opened(data, kind) as image:
        return str(image.format).lower(), *image.size
