"""Image files become pixels of one size, as `keras.utils.load_img` gives them to a model."""

import numpy as np
from PIL import Image

from recordmill.schemas.images import ImageTask
from recordmill.schemas.rejects import Reason, Rejected, UnusableError
from recordmill.transforms.images.fetch_images import Fetch, fetch_file
from recordmill.transforms.images.load_images import (
    DECODING,
    brief,
    check_end,
    check_pixel_count,
    check_structure,
    known_kind,
    opened,
    or_rejected,
)
from recordmill.transforms.images.transcode_picture import decode_picture, for_jpeg


def load_pixels(
    task: ImageTask, size: tuple[int, int], resize: str, fetch: Fetch = fetch_file
) -> np.ndarray | Rejected:
    """Read a task's image file by `fetch`, check and decode it whole, and make it `size`, height and width.

    Returns:
        uint8 [height, width, 3], RGB; or why there is none.

    Raises:
        OSError: as `recordmill.transforms.images.load_images.load_image`.
    """
    return or_rejected(task, fetch, lambda data: decode_pixels(data, size, resize))


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
        try:
            if kind:
                check_structure(data, kind)
            picture = decode_picture(image, turn=False)
            if picture.mode != "RGB":  # or it would be copied
                picture = for_jpeg(picture).convert("RGB")
        except UnusableError:
            raise
        except Exception as error:  # Pillow's decoders raise nearly anything on bytes made to break them
            raise UnusableError(Reason.IMAGE_UNREADABLE, f"its pixels do not decode ({brief(error)})") from error
        height, width = size
        return np.asarray(picture.resize((width, height), Image.Resampling[resize.upper()]))
