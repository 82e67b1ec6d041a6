"""Image files become what is written of them, their bytes or raw pixels; or pixels of one size, as
`keras.utils.load_img` gives them to a model."""

import numpy as np
from PIL import Image

from recordmill.schemas.images import ImageTask, Picture, PictureRules, Transcoding
from recordmill.schemas.rejects import Rejected
from recordmill.transforms.images.load_images import (
    DECODING,
    check_end,
    check_pixel_count,
    check_structure,
    known_kind,
    load_image,
    opened,
    or_rejected,
    pixels_decode,
)
from recordmill.transforms.images.transcode_picture import decode_picture, for_jpeg

RAW = "raw"
_RESIZE = "bilinear"


def load_picture(task: ImageTask, rules: PictureRules) -> Picture | Rejected:
    """Read a task's image file, and make of it what `rules` say.

    Raises:
        OSError: as `recordmill.transforms.images.load_images.load_image`.
    """
    if rules.raw_size is None:
        return load_image(task, rules)
    size = rules.raw_size
    return or_rejected(task, lambda data: _raw(data, size))


def _raw(data: bytes, size: tuple[int, int]) -> Picture:
    pixels = decode_pixels(data, size, _RESIZE)
    height, width = size
    return Picture(pixels.tobytes(), RAW, width, height, "", None, Transcoding(known_kind(data) or "other", len(data)))


def load_pixels(task: ImageTask, size: tuple[int, int], resize: str) -> np.ndarray | Rejected:
    """Read a task's image file, check and decode it whole, and make it `size`, height and width.

    Returns:
        uint8 [height, width, 3], RGB; or why there is none.

    Raises:
        OSError: as `recordmill.transforms.images.load_images.load_image`.
    """
    return or_rejected(task, lambda data: decode_pixels(data, size, resize))


def decode_pixels(data: bytes, size: tuple[int, int], resize: str) -> np.ndarray:
    """The pixels of an image file: its first frame, as it is stored, without transparency.

    Args:
        resize: name of a filter of Pillow's, `bilinear` for example.

    Raises:
        UnusableError: it is none, or damaged.
    """
    kind = known_kind(data)
    image = opened(data, kind)
    check_pixel_count(image)
    with DECODING.part(image.width * image.height), image:
        if kind:
            check_end(data, kind)
        with pixels_decode():
            if kind:
                check_structure(data, kind)
            picture = decode_picture(image, turn=False)
            if picture.mode != "RGB":  # or it would be copied
                picture = for_jpeg(picture).convert("RGB")
        height, width = size
        return np.asarray(picture.resize((width, height), Image.Resampling[resize.upper()]))
