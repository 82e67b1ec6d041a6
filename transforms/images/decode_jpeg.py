"""Decode JPEGs straight to RGB arrays, by libjpeg-turbo."""

from contextlib import suppress

import numpy as np

from recordmill.schemas.inputs.images import MAX_PIXELS
from recordmill.transforms.images.check_formats import JPEG_START, JpegError, JpegFrame, jpeg_frame
from recordmill.transforms.records.example import Buffer

try:
    import simplejpeg
except ImportError:  # its wheels are not for every platform
    simplejpeg = None

_CHANNELS = (1, 3)
_HEADER_BYTES = 4096
"""Size of the part of a file that usually has the frame header."""


def decode_jpeg(data: Buffer, min_size: tuple[int, int] = (0, 0)) -> np.ndarray | None:
    """Return the pixels of a JPEG: uint8 [height, width, 3], equal to those of Pillow.

    None if Pillow must decode the image: other formats, CMYK, 12 bits, more than `MAX_PIXELS`, files that are damaged
    even a little, and platforms without simplejpeg. So errors are always Pillow's.

    Args:
        min_size: Minimum height and width in pixels. The image is decoded at 1/2, 1/4 or 1/8 of its size if that is
            enough. (0, 0) for its full size.
    """
    if simplejpeg is None or data[: len(JPEG_START)] != JPEG_START:
        return None
    frame = _read_frame(data)
    if not frame or not frame.is_tf_decodable or frame.channels not in _CHANNELS or not frame.height:
        return None
    if frame.width * frame.height > MAX_PIXELS:
        return None
    factor = reduction((frame.height, frame.width), min_size)
    height, width = -(-frame.height // factor), -(-frame.width // factor)
    try:
        pixels: np.ndarray = simplejpeg.decode_jpeg(data, min_height=height, min_width=width)
    except ValueError:  # also of errors that Pillow only skips
        return None
    return pixels


def _read_frame(data: Buffer) -> JpegFrame | None:
    for part in (data[:_HEADER_BYTES], data):  # to copy the whole file is rarely needed
        with suppress(JpegError):
            return jpeg_frame(bytes(part))
    return None


def reduction(size: tuple[int, int], min_size: tuple[int, int]) -> int:
    """Return the largest of 8, 4, 2 and 1 that divides an image's size, rounded up, into at least `min_size`.

    >>> reduction((480, 640), (100, 100)), reduction((480, 640), (241, 10)), reduction((9, 9), (0, 0))
    (4, 1, 1)
    """
    if not any(min_size):
        return 1
    sides = list(zip(size, min_size, strict=True))
    return next((factor for factor in (8, 4, 2) if all(-(-side // factor) >= least for side, least in sides)), 1)
