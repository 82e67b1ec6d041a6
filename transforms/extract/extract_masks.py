"""Masks as records hold them become COCO's compressed run lengths."""

import msgspec
import numpy as np

from recordmill.schemas.rejects import UnusableError
from recordmill.transforms.extract.extract_values import UnusableRecordError
from recordmill.transforms.images.load_images import brief
from recordmill.transforms.images.open_picture import open_picture
from recordmill.transforms.masks.bitmaps import run_lengths
from recordmill.transforms.masks.decode_segmentation import decode_segmentation
from recordmill.transforms.masks.encode_masks import mask_rle


class RunLengths(msgspec.Struct, frozen=True):
    """COCO's compressed run lengths; size is height, width."""

    counts: str
    size: tuple[int, int]


Segmentation = RunLengths | list[list[float]]
"""`[]` is no mask."""


def mask_of_rle(counts: bytes, width: int, height: int) -> Segmentation:
    """Compressed counts as they are, once they are known to make sense; `[]` where they say that no pixel is inside.

    Raises:
        UnusableRecordError: they are no mask of an image of this size.
    """
    form = RunLengths(counts.decode(errors="replace"), (height, width))
    try:
        runs = decode_segmentation(msgspec.json.encode(form), width, height)
    except UnusableError as error:
        raise UnusableRecordError("mask", str(error)) from error
    return form if runs[1::2].any() else []


def mask_of_png(png: bytes, width: int, height: int) -> Segmentation:
    """A grey PNG of the full image, inside wherever it is not 0, becomes the counts that pycocotools gives for it.

    Raises:
        UnusableRecordError: it does not decode, or is of another size.
    """
    try:
        with open_picture(png, "png") as image:
            size, mode = image.size, image.mode
            pixels = np.asarray(image) if (size, mode) == ((width, height), "L") else None
    except Exception as error:  # Pillow's decoders raise nearly anything on damaged bytes
        raise UnusableRecordError("mask", f"it does not decode as PNG ({brief(error)})") from error
    if pixels is None:
        detail = f"a PNG of {size[0]}x{size[1]}, mode {mode}; its image is {width}x{height}, and masks are grey"
        raise UnusableRecordError("mask", detail)
    if not pixels.any():
        return []
    # Not by pycocotools' encode, which writes past its memory where a few runs have 2 ** 24 pixels.
    return RunLengths(mask_rle(run_lengths(pixels != 0), width, height).decode(), (height, width))
