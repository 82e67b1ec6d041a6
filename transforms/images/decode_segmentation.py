"""Convert the JSON of an annotation's `segmentation`, in any of COCO's forms, to COCO's compressed counts.

pycocotools draws the polygons, so that masks equal those of other tools pixel for pixel. The other forms are decoded
here, because the C code of pycocotools does not validate: it accepts counts of any sum and any characters.
"""

import contextlib
from typing import Annotated

import msgspec
import numpy as np
from pycocotools import mask as coco_mask

from recordmill.schemas.inputs.annotations import Int64
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.images.masks import mask_rle

# pycocotools walks an edge in steps of 1/5 pixel, and stores 8 to 16 bytes per step. The limit is two sides of each
# pixel of the image. Small images allow more, because polygons may extend beyond the image. The maximum is 50 million
# steps.
_STEPS_PER_PX = 5
_MAX_STEPS_PER_IMAGE_PX = 10
_MAX_STEPS_IN_SMALL_IMAGES = 2_000_000
_MAX_STEPS = 50_000_000
# pycocotools counts steps in C ints. On overflow it reads and writes out of bounds. No image is this large.
_MAX_COORDINATE_PX = 1e8
# rleToString of pycocotools allocates 6 characters per run and writes one more. Runs of 2 ** 24 pixels fill all 6.
# malloc's rounding has space for up to three such runs. A run of a polygon that leaves a row of pixels free is shorter
# than a column, and so has fewer characters.
_MAX_RUNS_OF_6_PX = 3 << 24
_MAX_DRAWN_PX = 1 << 29  # the largest run that fits 6 characters

_MAX_CHARACTERS = 7  # per number in compressed counts: 35 bits; pycocotools uses 32 of them


class _RunLengths(msgspec.Struct):
    counts: list[Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]] | str
    size: list[Int64]


_SEGMENTATION = msgspec.json.Decoder(list[list[float] | float] | _RunLengths | None)


def compress_segmentation(segmentation: bytes, width: int, height: int) -> bytes:
    """Convert JSON to the compressed counts of a mask of `width` x `height` pixels, equal to those of pycocotools.

    Args:
        segmentation: Polygons `[[x1, y1, x2, y2, …], …]` in pixels, whose union is the mask. A polygon of four numbers
            is a box x, y, width, height. The outer list may be missing for one polygon. Or run lengths `{"counts": …,
            "size": [height, width]}`, with a list of counts, or compressed counts as a string. `b""`, `null`, `[]` and
            `[[]]` give an empty mask.
        width, height: Size of the stored image, at least 1.

    Raises:
        UnusableError: The JSON has another form (MALFORMED_SEGMENTATION), or another size (MASK_SIZE_MISMATCH).

    >>> compress_segmentation(b"[[1, 0, 3, 0, 3, 2, 1, 2]]", width=4, height=3)
    b'32103'
    """
    form = _parse_segmentation(segmentation) if segmentation else None
    try:
        if isinstance(form, _RunLengths):
            if form.size != [height, width]:
                given = f"run lengths of size {str(form.size)[:60]}"
                detail = f"{given} for an image of size [{height}, {width}] (height, width)"
                raise UnusableError(Reason.MASK_SIZE_MISMATCH, detail)
            return mask_rle(_check_runs(_parse_runs(form), height * width))
        if polygons := _list_polygons(form or []):
            return _draw_polygons(polygons, width, height)
        return mask_rle(np.array([height * width]))
    except _MalformedError as fault:
        raise _malformed_error(str(fault), segmentation) from fault


def list_polygons(segmentation: bytes) -> list[list[float]]:
    """Return x1, y1, x2, y2, … of each polygon of a segmentation that `compress_segmentation` accepts; none of run
    lengths.

    >>> list_polygons(b"[[1, 0, 3, 0, 3, 2]]"), list_polygons(b'{"counts": [12], "size": [3, 4]}')
    ([[1.0, 0.0, 3.0, 0.0, 3.0, 2.0]], [])
    """
    form = _parse_segmentation(segmentation)
    return _list_polygons(form) if isinstance(form, list) else []


def has_several_runs(segmentation: bytes) -> bool:
    """Return True for run lengths of more than one run. `[12, 0]`, without a pixel, counts as a mask in manifests."""
    form = _parse_segmentation(segmentation) if segmentation else None
    return isinstance(form, _RunLengths) and len(_parse_runs(form)) > 1


def run_bounds_px(segmentation: bytes) -> tuple[float, float, float, float] | None:
    """Return xmin, ymin, xmax, ymax of run lengths in JSON; None for any other JSON, or a mask without a pixel.

    >>> run_bounds_px(b'{"counts": [4, 1, 4], "size": [3, 3]}'), run_bounds_px(b"[[1, 2, 3, 9, 4, 2]]")
    ((1.0, 1.0, 2.0, 2.0), None)
    """
    with contextlib.suppress(UnusableError, _MalformedError):
        form = _parse_segmentation(segmentation)
        if isinstance(form, _RunLengths) and len(form.size) == 2 and min(form.size) > 0:
            height = form.size[0]
            edges = np.cumsum(_check_runs(_parse_runs(form), height * form.size[1]))
            starts, lasts = edges[:-1:2], edges[1::2] - 1
            starts, lasts = starts[starts <= lasts], lasts[starts <= lasts]
            if len(starts):
                left, right = starts[0] // height, lasts[-1] // height
                is_whole = np.any(starts // height < lasts // height)  # from the bottom of a column to the next
                top, bottom = (0, height - 1) if is_whole else (min(starts % height), max(lasts % height))
                return float(left), float(top), float(right + 1), float(bottom + 1)
    return None


def decode_counts(counts: bytes, width: int, height: int) -> np.ndarray:
    """Decode compressed counts to run lengths down the columns: int64 [n], of zeros, of ones, of zeros, … Their sum is
    height * width.

    Raises:
        UnusableError: The counts are not a mask of this size (MALFORMED_SEGMENTATION).

    >>> decode_counts(b"231", width=3, height=2)
    array([2, 3, 1])
    """
    try:
        return _check_runs(_decompress(counts), height * width)
    except _MalformedError as fault:
        raise _malformed_error(str(fault), counts) from fault


class _MalformedError(Exception):
    """Error of a malformed segmentation; `_malformed_error` adds details."""


def _malformed_error(fault: str, segmentation: bytes) -> UnusableError:
    excerpt = repr(segmentation[:80].decode(errors="replace"))[:90] + ("…" if len(segmentation) > 80 else "")
    return UnusableError(Reason.MALFORMED_SEGMENTATION, f"{fault}: {excerpt}")


def _parse_segmentation(segmentation: bytes) -> list[list[float] | float] | _RunLengths | None:
    try:
        return _SEGMENTATION.decode(segmentation)
    except RecursionError as error:
        raise _malformed_error("nested too deeply", segmentation) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _malformed_error(str(error), segmentation) from error


def _parse_runs(form: _RunLengths) -> np.ndarray:
    return _decompress(form.counts.encode()) if isinstance(form.counts, str) else np.array(form.counts, np.int64)


def _check_runs(runs: np.ndarray, area: int) -> np.ndarray:
    # Check single runs first: the sum of large runs could overflow to the correct area.
    outside = runs[(runs < 0) | (runs > area)]
    if outside.size:
        raise _MalformedError(f"a run of {outside[0]} pixels in an image of {area}")
    if runs.sum() != area:
        raise _MalformedError(f"runs of {runs.sum()} pixels in an image of {area}")
    return runs


def _decompress(counts: bytes) -> np.ndarray:
    """Decode compressed counts to run lengths that are not validated: int64 [n]. See `masks.mask_rle`."""
    characters = np.frombuffer(counts, np.uint8) - 48  # below "0" this wraps round to above 63
    if not characters.size:
        raise _MalformedError("no run lengths")
    if characters.max() > 63:
        raise _MalformedError("a character that compressed counts do not have")
    last = (characters < 32).nonzero()[0]
    if not last.size or last[-1] != len(characters) - 1:
        raise _MalformedError("compressed counts that end within a number")
    lengths = last.copy()
    lengths[0] += 1
    lengths[1:] -= last[:-1]
    longest = lengths.max()
    if longest > _MAX_CHARACTERS:
        raise _MalformedError(f"a compressed number of more than {_MAX_CHARACTERS} characters")
    runs = (characters[last] ^ 16).astype(np.int64) - 16  # bit 16 is the sign
    characters &= 31
    for place in range(1, longest):
        longer = (lengths > place).nonzero()[0]
        runs[longer] = (runs[longer] << 5) + characters[last[longer] - place]
    # From the fourth run on, a number is the difference to the run two before it.
    runs[1::2].cumsum(out=runs[1::2])
    runs[2::2].cumsum(out=runs[2::2])
    return runs


def _list_polygons(form: list[list[float] | float]) -> list[list[float]]:
    """Return x1, y1, x2, y2, … of each polygon."""
    flat = [entry for entry in form if isinstance(entry, float)]
    nested = [entry for entry in form if isinstance(entry, list)]
    if flat and nested:
        raise _MalformedError("numbers mixed with lists of numbers")
    return [_check_polygon(numbers) for numbers in nested or [flat] if numbers]


def _check_polygon(numbers: list[float]) -> list[float]:
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
    most = min(max(_MAX_STEPS_PER_IMAGE_PX * height * width, _MAX_STEPS_IN_SMALL_IMAGES), _MAX_STEPS)
    most_px = most // _STEPS_PER_PX
    # Measure edges only if this upper bound is too large: no edge is longer than twice the farthest coordinate.
    if farthest_px * sum(map(len, polygons)) > most_px:
        edges_px = sum(map(_edge_px, polygons))
        if edges_px > most_px:
            raise _MalformedError(f"polygons with edges of {edges_px:.0f} px; the limit is {most_px}")
    drawn_height = _drawn_height(polygons, width, height)
    masks = [mask["counts"] for mask in coco_mask.frPyObjects(polygons, drawn_height, width)]
    if len(masks) == 1 and drawn_height == height:
        return masks[0]
    runs = _unite(list(map(_decompress, masks)), drawn_height * width)
    return mask_rle(runs if drawn_height == height else _cut_bottom(runs, drawn_height, height))


def _drawn_height(polygons: list[list[float]], width: int, height: int) -> int:
    """Return the height of the mask to draw: that of the image, unless runs of its size are unsafe, see
    _MAX_RUNS_OF_6_PX. Then one with free rows below all polygons."""
    if height * width < _MAX_RUNS_OF_6_PX or min(min(polygon[1::2]) for polygon in polygons) > 1:
        return height
    lowest = max(max(polygon[1::2]) for polygon in polygons)
    drawn_height = max(height, int(lowest) + 3)
    if width * drawn_height >= _MAX_DRAWN_PX:
        detail = f"polygons down to {lowest:.0f} px in an image of {width}x{height} pixels"
        raise _MalformedError(f"{detail}; the limit is {_MAX_DRAWN_PX // width - 3} px")
    return drawn_height


def _cut_bottom(runs: np.ndarray, drawn_height: int, height: int) -> np.ndarray:
    """Return the run lengths of the upper `height` rows of a mask."""
    column, row = np.divmod(np.cumsum(runs), drawn_height)
    edges = column * height + np.minimum(row, height)
    return np.diff(edges, prepend=0)


def _edge_px(polygon: list[float]) -> float:
    """Return the sum of max(|dx|, |dy|) over all edges of a closed polygon, in pixels."""
    points = np.array(polygon).reshape(-1, 2)
    return float(np.abs(np.diff(points, axis=0, append=points[:1])).max(axis=1).sum())


def _unite(masks: list[np.ndarray], area: int) -> np.ndarray:
    """Return the run lengths of the union of masks. pycocotools' merge traverses the union once per mask, which takes
    minutes for thousands of polygons."""
    bounds = [np.cumsum(runs) for runs in masks]
    begins = np.concatenate([ends[:-1:2] for ends in bounds])
    ends = np.concatenate([ends[1::2] for ends in bounds])
    if not len(begins):
        return np.array([area], np.int64)
    order = np.argsort(begins)
    begins, reached = begins[order], np.maximum.accumulate(ends[order])
    apart = begins[1:] > reached[:-1]  # the run starts after the ends of all earlier runs
    edges = np.column_stack((begins[np.append(True, apart)], reached[np.append(apart, True)])).ravel()
    runs = np.diff(edges, prepend=0, append=area)
    return runs if runs[-1] else runs[:-1]
