"""The JSON of an annotation's `segmentation`, in each of COCO's forms, becomes COCO's compressed counts.

pycocotools draws the polygons, so that masks equal those of everyone else's pixel for pixel. All else is decoded here,
because its C code trusts what it reads: it takes counts of any sum and of any character for a mask.
"""

from typing import Annotated

import msgspec
import numpy as np
from pycocotools import mask as coco_mask

from recordmill.schemas.inputs.annotations import Int64
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.images.masks import mask_rle

# pycocotools walks an edge in steps of 1/5 pixel, and keeps 8 to 16 bytes a step. What is walked at most is two sides
# of each pixel, as many as an image has; more where the image is small, as polygons may reach out of it; and never more
# than 50 million steps.
_STEPS_PER_PX = 5
_MAX_STEPS_PER_IMAGE_PX = 10
_MAX_STEPS_IN_SMALL_IMAGES = 2_000_000
_MAX_STEPS = 50_000_000
# pycocotools counts steps in C ints, and beyond those it reads and writes anywhere. No image is this large.
_MAX_COORDINATE_PX = 1e8
# Its rleToString allocates 6 characters a run and writes one more; runs of 2 ** 24 pixels fill all 6. Up to three of
# them malloc's rounding has room.
_MAX_POLYGON_IMAGE_PX = 3 << 24

_MAX_CHARACTERS = 7  # of one number in compressed counts: 35 bits, of which pycocotools uses 32


class _RunLengths(msgspec.Struct):
    counts: list[Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]] | str
    size: list[Int64]


_SEGMENTATION = msgspec.json.Decoder(list[list[float] | float] | _RunLengths | None)


def compress_segmentation(segmentation: bytes, width: int, height: int) -> bytes:
    """JSON text becomes the compressed counts of a mask of `width` x `height` pixels, the bytes that pycocotools gives.

    Args:
        segmentation: polygons `[[x1, y1, x2, y2, …], …]` in pixels, of which several are united and one of four numbers
            is a box x, y, width, height; one polygon without the outer list; or `{"counts": …, "size": [height,
            width]}` with the counts a list, or a string as compressed by pycocotools. `b""`, `null`, `[]` and `[[]]`
            are no mask.
        width: of the stored image; at least 1, as is height.

    Raises:
        UnusableError: it is none of these (MALFORMED_SEGMENTATION), or of another size (MASK_SIZE_MISMATCH).

    >>> compress_segmentation(b"[[1, 0, 3, 0, 3, 2, 1, 2]]", width=4, height=3)
    b'32103'
    """
    form = _parse(segmentation) if segmentation else None
    try:
        if isinstance(form, _RunLengths):
            if form.size != [height, width]:
                given = f"run lengths of size {str(form.size)[:60]}"
                detail = f"{given} for an image of size [{height}, {width}] (height, width)"
                raise UnusableError(Reason.MASK_SIZE_MISMATCH, detail)
            return mask_rle(_check_runs(_runs(form), height * width))
        if polygons := _polygons(form or []):
            return _draw_polygons(polygons, width, height)
        return mask_rle(np.array([height * width]))
    except _MalformedError as fault:
        raise _malformed(str(fault), segmentation) from fault


def has_several_runs(segmentation: bytes) -> bool:
    """True for run lengths of more than one run. Those without a pixel, as `[12, 0]`, count as a mask in manifests."""
    form = _parse(segmentation) if segmentation else None
    return isinstance(form, _RunLengths) and len(_runs(form)) > 1


def decode_counts(counts: bytes, width: int, height: int) -> np.ndarray:
    """Compressed counts become int64 run lengths down the columns: of zeros, of ones, of zeros, … Their sum is
    height * width.

    Raises:
        UnusableError: they are no mask of this size (MALFORMED_SEGMENTATION).

    >>> decode_counts(b"231", width=3, height=2)
    array([2, 3, 1])
    """
    try:
        return _check_runs(_decompress(counts), height * width)
    except _MalformedError as fault:
        raise _malformed(str(fault), counts) from fault


class _MalformedError(Exception):
    """Error of a malformed segmentation. `_malformed` adds details to the message."""


def _malformed(fault: str, segmentation: bytes) -> UnusableError:
    found = repr(segmentation[:80].decode(errors="replace"))[:90] + ("…" if len(segmentation) > 80 else "")
    return UnusableError(Reason.MALFORMED_SEGMENTATION, f"{fault}: {found}")


def _parse(segmentation: bytes) -> list[list[float] | float] | _RunLengths | None:
    try:
        return _SEGMENTATION.decode(segmentation)
    except RecursionError as error:
        raise _malformed("nested too deeply", segmentation) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _malformed(str(error), segmentation) from error


def _runs(form: _RunLengths) -> np.ndarray:
    return _decompress(form.counts.encode()) if isinstance(form.counts, str) else np.array(form.counts, np.int64)


def _check_runs(runs: np.ndarray, area: int) -> np.ndarray:
    # One by one first: their sum could pass 2 ** 63 and come round to the right number.
    outside = runs[(runs < 0) | (runs > area)]
    if outside.size:
        raise _MalformedError(f"a run of {outside[0]} pixels in an image of {area}")
    if runs.sum() != area:
        raise _MalformedError(f"runs of {runs.sum()} pixels in an image of {area}")
    return runs


def _decompress(counts: bytes) -> np.ndarray:
    """Compressed counts become int64 run lengths, not yet known to make sense; see `encode_masks.mask_rle`."""
    characters = np.frombuffer(counts, np.uint8) - 48  # below "0" this wraps round to above 63
    if not characters.size:
        raise _MalformedError("no run lengths")
    if characters.max() > 63:
        raise _MalformedError("a character that is not of compressed counts")
    last = (characters < 32).nonzero()[0]
    if not last.size or last[-1] != len(characters) - 1:
        raise _MalformedError("compressed counts that end within a number")
    lengths = last.copy()
    lengths[0] += 1
    lengths[1:] -= last[:-1]
    longest = lengths.max()
    if longest > _MAX_CHARACTERS:
        raise _MalformedError(f"a compressed number of more than {_MAX_CHARACTERS} characters")
    runs = (characters[last] ^ 16).astype(np.int64) - 16  # 16 is the sign
    characters &= 31
    for place in range(1, longest):
        longer = (lengths > place).nonzero()[0]
        runs[longer] = (runs[longer] << 5) + characters[last[longer] - place]
    # From the fourth on, each is the difference to the run two before.
    runs[1::2].cumsum(out=runs[1::2])
    runs[2::2].cumsum(out=runs[2::2])
    return runs


def _polygons(form: list[list[float] | float]) -> list[list[float]]:
    """x1, y1, x2, y2, … of each polygon."""
    flat = [entry for entry in form if isinstance(entry, float)]
    nested = [entry for entry in form if isinstance(entry, list)]
    if flat and nested:
        raise _MalformedError("numbers beside lists of numbers")
    return [_polygon(numbers) for numbers in nested or [flat] if numbers]


def _polygon(numbers: list[float]) -> list[float]:
    if len(numbers) == 4:
        x, y, width, height = numbers
        xmax, ymax = x + width, y + height
        return [x, y, x, ymax, xmax, ymax, xmax, y]  # in the order of pycocotools' rleFrBbox
    if len(numbers) < 6 or len(numbers) % 2:
        raise _MalformedError(f"a polygon of {len(numbers)} numbers")
    return numbers


def _draw_polygons(polygons: list[list[float]], width: int, height: int) -> bytes:
    farthest_px = max(max(max(polygon), -min(polygon)) for polygon in polygons)
    if farthest_px > _MAX_COORDINATE_PX:
        raise _MalformedError("coordinates beyond any image")
    if height * width >= _MAX_POLYGON_IMAGE_PX:
        raise _MalformedError(f"polygons in an image of {width}x{height} pixels; they are drawn below 50 million")
    most = min(max(_MAX_STEPS_PER_IMAGE_PX * height * width, _MAX_STEPS_IN_SMALL_IMAGES), _MAX_STEPS)
    most_px = most // _STEPS_PER_PX
    # No edge is longer than twice the farthest coordinate, so that most need not be measured.
    if farthest_px * sum(map(len, polygons)) > most_px:
        edges_px = sum(map(_edge_px, polygons))
        if edges_px > most_px:
            raise _MalformedError(f"polygons with edges of {edges_px:.0f} px, of which at most {most_px} are drawn")
    masks = [mask["counts"] for mask in coco_mask.frPyObjects(polygons, height, width)]
    if len(masks) == 1:
        return masks[0]
    return mask_rle(_unite(list(map(_decompress, masks)), height * width))


def _edge_px(polygon: list[float]) -> float:
    """Over the edges, also that from the last point to the first, the sum of the larger of |dx| and |dy|."""
    points = np.array(polygon).reshape(-1, 2)
    return float(np.abs(np.diff(points, axis=0, append=points[:1])).max(axis=1).sum())


def _unite(masks: list[np.ndarray], area: int) -> np.ndarray:
    """Runs that are ones in any of the masks. pycocotools' merge goes through all of the union once more for each mask,
    which for thousands of polygons takes minutes."""
    bounds = [np.cumsum(runs) for runs in masks]
    begins = np.concatenate([ends[:-1:2] for ends in bounds])
    ends = np.concatenate([ends[1::2] for ends in bounds])
    if not len(begins):
        return np.array([area], np.int64)
    order = np.argsort(begins)
    begins, reached = begins[order], np.maximum.accumulate(ends[order])
    apart = begins[1:] > reached[:-1]  # the run begins after all before it have ended
    edges = np.column_stack((begins[np.append(True, apart)], reached[np.append(apart, True)])).ravel()
    runs = np.diff(edges, prepend=0, append=area)
    return runs if runs[-1] else runs[:-1]
