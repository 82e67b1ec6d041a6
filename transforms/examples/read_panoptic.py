"""The PNG of a panoptic annotation becomes the index of each pixel's segment in `segments_info`."""

from typing import NamedTuple

import numpy as np

from recordmill.schemas.annotations import PanopticAnnotation
from recordmill.schemas.images import panoptic_file
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.images.check_png import check_png
from recordmill.transforms.images.fetch_images import fetch_file
from recordmill.transforms.images.load_images import DECODING, brief
from recordmill.transforms.images.open_picture import open_picture
from recordmill.transforms.storage.interface import ChangedFileError, UnreadableFileError

MAX_SEGMENTS = 255
"""As many values as a pixel of one byte has, besides 0 for void."""


class PanopticMap(NamedTuple):
    """A panoptic PNG, read.

    Attributes:
        data: the file.
        indices: uint8 [height, width]: 1 + index of the pixel's segment in `segments_info`; 0 for void.
    """

    data: bytes
    indices: np.ndarray


def read_panoptic(panoptic: PanopticAnnotation, width: int, height: int, category_ids: frozenset[int]) -> PanopticMap:
    """Read the PNG of an image of `width` x `height` pixels, and compare its segments with its row.

    Args:
        category_ids: of all segments; they are how panopticapi's two-channel format is known.

    Raises:
        UnusableError: the PNG is missing, broken or of another size, or its segments are not those of the row.
        OSError: storage fails.
    """
    if len(panoptic.segments) > MAX_SEGMENTS:
        detail = f"{len(panoptic.segments)} segments; masks of one byte tell {MAX_SEGMENTS} apart"
        raise UnusableError(Reason.TOO_MANY_SEGMENTS, _of(panoptic, detail))
    try:
        data = fetch_file(panoptic_file(panoptic))
    except ChangedFileError as error:
        detail = "the file has been replaced since it was listed"
        raise UnusableError(Reason.MASK_MISSING, _of(panoptic, detail)) from error
    except FileNotFoundError as error:
        raise UnusableError(Reason.MASK_MISSING, _of(panoptic, "no such file under --panoptic-masks")) from error
    except UnreadableFileError as error:
        raise UnusableError(Reason.MASK_UNREADABLE, _of(panoptic, str(error.strerror))) from error
    with DECODING.part(width * height):
        colours = _decoded(panoptic, data, width, height)
        indices = _places(colours, np.array([segment.id for segment in panoptic.segments], np.uint32))
    if fault := _fault(panoptic, indices):
        if _is_two_channel(colours, category_ids):
            detail = (
                "its pixels are (category, instance), panopticapi's two-channel format; convert it with panopticapi's "
                "converters/2channels2panoptic_coco_format.py, which also writes the JSON that goes with it"
            )
            raise UnusableError(Reason.TWO_CHANNEL_PANOPTIC, _of(panoptic, detail))
        raise UnusableError(Reason.SEGMENT_MISMATCH, _of(panoptic, fault))
    return PanopticMap(data, indices.astype(np.uint8))


def _of(panoptic: PanopticAnnotation, detail: str) -> str:
    return f"{panoptic.file_name!r}: {detail}"


def _decoded(panoptic: PanopticAnnotation, data: bytes, width: int, height: int) -> np.ndarray:
    """uint8 [height, width, 3]."""
    try:
        with open_picture(data, "png") as image:
            size, mode = image.size, image.mode
            if size == (width, height) and mode in ("RGB", "RGBA", "P"):
                check_png(data)
                return np.asarray(image.convert("RGB"))
    except Exception as error:  # Pillow's decoders raise nearly anything on bytes made to break them
        detail = f"it does not decode as PNG ({brief(error)})"
        raise UnusableError(Reason.MASK_UNREADABLE, _of(panoptic, detail)) from error
    if size != (width, height):
        detail = f"it is {size[0]}x{size[1]}, its image {width}x{height}"
        raise UnusableError(Reason.MASK_SIZE_MISMATCH, _of(panoptic, detail))
    detail = f"a PNG of mode {mode}; segment ids are written as RGB"
    raise UnusableError(Reason.MASK_UNREADABLE, _of(panoptic, detail))


_UNKNOWN = -1
_PIXELS_AT_ONCE = 1 << 20
"""What it takes to look a pixel's segment up is several times the pixel."""


def _places(colours: np.ndarray, segment_ids: np.ndarray) -> np.ndarray:
    """int16 [height, width]: 1 + index of each pixel's id in `segment_ids`, 0 for id 0, _UNKNOWN for any other."""
    known = np.concatenate([np.zeros(1, np.uint32), segment_ids])
    order = np.argsort(known)
    ranked = known[order]
    indices = np.empty(colours.shape[:2], np.int16)
    rows = max(1, _PIXELS_AT_ONCE // colours.shape[1])
    for top in range(0, len(colours), rows):
        # Little-endian, the four bytes R, G, B, 0 are R + 256 G + 65536 B.
        part = colours[top : top + rows]
        four = np.zeros((*part.shape[:2], 4), np.uint8)
        four[:, :, :3] = part
        ids = four.view("<u4")[:, :, 0]
        ranks = np.searchsorted(ranked, ids).clip(max=len(known) - 1)
        indices[top : top + rows] = np.where(ranked[ranks] == ids, order[ranks], _UNKNOWN)
    return indices


def _fault(panoptic: PanopticAnnotation, indices: np.ndarray) -> str:
    """How PNG and row differ; empty where they do not."""
    unknown = int(np.count_nonzero(indices == _UNKNOWN))
    if unknown:
        return f"{unknown:,} of its pixels are of segments that segments_info does not list"
    seen = np.bincount(indices.ravel(), minlength=len(panoptic.segments) + 1)
    absent = [segment.id for segment, pixels in zip(panoptic.segments, seen[1:].tolist(), strict=True) if not pixels]
    return f"segments {', '.join(map(str, absent[:5]))} have no pixel in it" if absent else ""


def _is_two_channel(colours: np.ndarray, category_ids: frozenset[int]) -> bool:
    if colours[:, :, 2].any():
        return False
    reds = np.unique(colours[:, :, 0]).tolist()
    return all(red in category_ids for red in reds if red)
