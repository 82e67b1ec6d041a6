"""Convert masks between pixels, run lengths, and the two forms in records: PNGs and compressed run lengths."""

import struct
import zlib
from collections.abc import Sequence
from functools import cache, lru_cache

import numpy as np
from pycocotools import mask as coco_mask


def bitmap(runs: np.ndarray, width: int, height: int) -> np.ndarray:
    """Draw COCO's run lengths (down the columns, zeros first): bool [height, width].

    >>> bitmap(np.array([1, 3]), 2, 2).tolist()
    [[False, True], [True, True]]
    """
    return np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(width, height).T


def run_lengths(pixels: np.ndarray) -> np.ndarray:
    """Convert bool [height, width] to COCO's run lengths: int64 [n].

    >>> run_lengths(np.array([[False, True], [True, True]]))
    array([1, 3])
    """
    flat = pixels.ravel(order="F")
    changes = np.flatnonzero(np.diff(flat, prepend=False))
    return np.diff(changes, prepend=0, append=flat.size)


def mask_bounds(counts: Sequence[bytes], width: int, height: int) -> np.ndarray:
    """Return the bounds of masks given as compressed counts: float64 [M, 4], ymin, xmin, ymax, xmax in pixels. ymax and
    xmax are exclusive. An empty mask has NaN.

    >>> mask_bounds([b"13", b"31", b"4"], 2, 2).tolist()
    [[0.0, 0.0, 2.0, 2.0], [1.0, 1.0, 2.0, 2.0], [nan, nan, nan, nan]]
    """
    x, y, wide, high = coco_mask.toBbox([{"counts": mask_counts, "size": [height, width]} for mask_counts in counts]).T
    bounds = np.column_stack((y, x, y + high, x + wide))
    bounds[wide == 0] = np.nan
    return bounds


def resize_nearest(pixels: np.ndarray, width: int, height: int) -> np.ndarray:
    """Resize [H, W] or [H, W, channels] to [height, width …] by nearest neighbour: each new pixel is the old pixel at
    its centre, so that ids are preserved.

    >>> resize_nearest(np.array([[1, 2, 3, 4]]), 2, 1).tolist()
    [[2, 4]]
    """
    return pixels[_middles(pixels.shape[0], height)[:, None], _middles(pixels.shape[1], width)]


def _middles(old: int, new: int) -> np.ndarray:
    """Return the indices of the `old` pixels of a row that contain the centres of `new` pixels: int64 [new]."""
    return ((np.arange(new) + 0.5) * old / new).astype(int)


UP = 2
"""PNG row filter: a byte is the pixel minus the pixel above, modulo 256. Above the first row is 0."""

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOUR_TYPE = {1: 0, 3: 2}
"""PNG colour type (0 grey, 2 RGB) by number of channels."""
_DEFLATE, _ADAPTIVE_FILTERS, _NOT_INTERLACED = 0, 0, 0
_ZLIB_HEADER = b"\x78\x01"
_LAST_BLOCK = b"\x03\x00"  # empty: deflate requires a block that is marked as the last
_ADLER_MODULUS = 65_521
_ZEROS_AT_ONCE = 1 << 20
_PERIOD = 4 * 258
"""Number of zeros per repeated byte of deflate's output. A match has at most 258 zeros, and equal matches take 2 bits
each, so that a byte has four matches."""
_PERIODS_TO_BEGIN = 4
"""Number of periods of zeros after which zlib's codes, 1 bit per match of 258, no longer depend on their number."""


def grey_png(pixels: np.ndarray) -> bytes:
    """Encode uint8 [height, width] as an 8-bit greyscale PNG.

    Raises:
        ValueError: `pixels` has another dtype or rank, or no pixels.

    >>> grey_png(np.zeros((2, 3), np.uint8))[:8]
    b'\\x89PNG\\r\\n\\x1a\\n'
    """
    if pixels.dtype != np.uint8 or pixels.ndim != 2 or not pixels.size:
        raise ValueError(f"expected uint8 [height, width] with pixels, got {pixels.dtype} {list(pixels.shape)}")
    return encode_png(pixels[:, :, None])


def grey16_png(pixels: np.ndarray) -> bytes:
    """Encode uint16 [height, width] as a 16-bit greyscale PNG.

    >>> grey16_png(np.zeros((2, 3), np.uint16))[:8]
    b'\\x89PNG\\r\\n\\x1a\\n'
    """
    big_endian = pixels.astype(">u2", order="C")
    return encode_png(big_endian.view(np.uint8)[:, :, None], bits=16)


def encode_png(pixels: np.ndarray, bits: int = 8) -> bytes:
    """Encode uint8 [height, width, 1 or 3] as an 8-bit PNG, grey or RGB. With 16 `bits`, two bytes are a grey pixel."""
    height, width, channels = pixels.shape
    flat = pixels.reshape(height, width * channels)
    rows = np.empty((height, 1 + width * channels), np.uint8)
    rows[:, 0] = UP
    rows[0, 1:] = flat[0]
    np.subtract(flat[1:], flat[:-1], out=rows[1:, 1:])
    return pack_rows(rows, channels=channels, bits=bits)


def black_png(width: int, height: int) -> bytes:
    """Return an 8-bit RGB PNG of zeros. Zeros are void in a panoptic PNG."""
    return pack_rows(np.zeros((0, 1 + 3 * width), np.uint8), blank_above=height, channels=3)


def pack_rows(rows: np.ndarray, blank_above: int = 0, blank_below: int = 0, channels: int = 1, bits: int = 8) -> bytes:
    """Encode filtered rows as a PNG.

    Args:
        rows: uint8 [n, 1 + width * channels * bits / 8], contiguous. The first byte of a row is its filter. n may be 0.
        blank_above: Number of rows of zeros before `rows`. They take almost no time.
        blank_below: Number of rows of zeros after `rows`.
        channels: 1 for grey, or 3 for RGB.
        bits: Bits of a channel, 8 or 16.
    """
    height, row_bytes = blank_above + len(rows) + blank_below, rows.shape[1]
    kind = bits, _COLOUR_TYPE[channels], _DEFLATE, _ADAPTIVE_FILTERS, _NOT_INTERLACED
    header = struct.pack(">IIBBBBB", (row_bytes - 1) // (channels * bits // 8), height, *kind)
    data = _deflate(rows, blank_above * row_bytes, blank_below * row_bytes)
    return b"".join((_SIGNATURE, _chunk(b"IHDR", header), _chunk(b"IDAT", data), _chunk(b"IEND", b"")))


def _deflate(rows: np.ndarray, zeros_before: int, zeros_after: int) -> bytes:
    """Return a zlib stream (RFC 1950) of rows between zeros. A blank row has only zeros, because filter None is 0."""
    checksum = _adler32_of_zeros(zlib.adler32(rows.data, _adler32_of_zeros(1, zeros_before)), zeros_after)
    blocks = (_zero_blocks(zeros_before), _blocks(rows.data), _zero_blocks(zeros_after))
    return b"".join((_ZLIB_HEADER, *blocks, _LAST_BLOCK, struct.pack(">I", checksum)))


def _adler32_of_zeros(checksum: int, count: int) -> int:
    """Return `zlib.adler32(bytes(count), checksum)`. The low half sums the bytes, the high half sums the low halves."""
    low, high = checksum & 0xFFFF, checksum >> 16
    return (high + count * low) % _ADLER_MODULUS << 16 | low


def _zero_blocks(count: int) -> bytes:
    whole, rest = divmod(count, _ZEROS_AT_ONCE)
    return _few_zero_blocks(_ZEROS_AT_ONCE) * whole + _few_zero_blocks(rest)


def _few_zero_blocks(count: int) -> bytes:
    """Return `_blocks(bytes(count))`, faster if zlib's output is periodic."""
    if not count:
        return b""
    periods = max(count // _PERIOD - _PERIODS_TO_BEGIN, 0)
    if periods and not _zeros_are_periodic():
        return _blocks(bytes(count))
    before, period, after = _periodic_zero_blocks(count - periods * _PERIOD)
    return before + period * periods + after


@cache
def _zeros_are_periodic() -> bool:
    """Return True if Python's zlib compresses zeros to periodic bytes. Forks of zlib may not."""
    count, periods = _PERIODS_TO_BEGIN * _PERIOD + 1, 100
    before, period, after = _periodic_zero_blocks(count)
    return before + period * periods + after == _blocks(bytes(count + periods * _PERIOD))


@lru_cache(maxsize=(_PERIODS_TO_BEGIN + 1) * _PERIOD)
def _periodic_zero_blocks(count: int) -> tuple[bytes, bytes, bytes]:
    """Return the blocks of `count` zeros, cut in two, and between them the byte to repeat for each further period."""
    blocks, more = _blocks(bytes(count)), _blocks(bytes(count + _PERIOD))
    differ = (at for at, (one, other) in enumerate(zip(blocks, more, strict=False)) if one != other)
    at = next(differ, len(blocks))
    return blocks[:at], more[at : at + 1], blocks[at:]


def _blocks(data: bytes | memoryview) -> bytes:
    """Return deflate blocks (RFC 1951) that can be joined: they end at a byte boundary and refer only to themselves."""
    compressor = zlib.compressobj(level=1, wbits=-15, strategy=zlib.Z_RLE)
    return compressor.compress(data) + compressor.flush(zlib.Z_SYNC_FLUSH)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return b"".join((struct.pack(">I", len(data)), kind, data, struct.pack(">I", zlib.crc32(data, zlib.crc32(kind)))))


# A character has 5 bits of a signed number, so a number of k characters is >= -2 ** (5k - 1) and < 2 ** (5k - 1).
_REACH = 1 << (5 * np.arange(1, 13, dtype=np.int64) - 1)


def mask_png(runs: np.ndarray, width: int, height: int) -> bytes:
    """Encode run lengths as an 8-bit greyscale PNG of the full image, 1 inside the object and 0 outside.

    The bitmap is never drawn. PNG's filter Up stores each pixel minus the pixel above. Down a column this is 1 where
    ones start, 255 after their end, and else 0, which run lengths give directly. Only the first run may be 0.

    >>> mask_png(np.array([2, 3, 1]), width=3, height=2)[:8]
    b'\\x89PNG\\r\\n\\x1a\\n'
    """
    ends = np.cumsum(runs)
    begins, ends = ends[:-1:2], ends[1::2]  # runs of ones
    if not len(begins):
        return pack_rows(np.empty((0, 1 + width), np.uint8), blank_above=height)
    first_column, first_row = np.divmod(begins, height)
    last_column, last_row = np.divmod(ends - 1, height)
    crossing = bool((first_column < last_column).any())  # from the bottom of a column to the top of the next
    top, bottom = (0, height) if crossing else (int(first_row.min()), int(last_row.max()) + 1)
    # One extra row for ends below the last row. It is dropped.
    rows = np.zeros((bottom - top + 1, 1 + width), np.uint8)
    rows[:, 0] = UP
    rows[first_row - top, 1 + first_column] = 1
    rows[last_row + 1 - top, 1 + last_column] = 255
    if crossing:  # the first pixel of a column is 1 if more runs of ones have started than ended
        at = height * np.arange(width)
        rows[0, 1:] = np.searchsorted(begins, at, side="right") > np.searchsorted(ends, at, side="right")
    return pack_rows(rows[:-1], blank_above=top, blank_below=height - bottom)


def mask_rle(runs: np.ndarray) -> bytes:
    """Encode run lengths as COCO's compressed `counts`, the same bytes as pycocotools for the same mask.

    A number is cut into groups of 5 bits, lowest first. A group is a character from 48 ("0") on. Bit 32 marks that more
    groups follow, and bit 16 of the last group is the sign. From the fourth run on, the number is the difference to the
    run two before it. (rleToString in pycocotools' maskApi.c is faster, but writes out of bounds if a few runs have
    2 ** 24 pixels.)

    >>> mask_rle(np.array([2, 3, 1]))
    b'231'
    """
    numbers = _canonical(runs).copy()
    numbers[3:] -= numbers[1:-2]  # NumPy reads the complete operand before it writes
    magnitude = numbers ^ numbers >> 63  # -1 needs as many bits as 0, -17 as many as 16
    lengths = 1 + np.searchsorted(_REACH, magnitude, side="right")
    place = np.arange(lengths.max())
    groups = (numbers[:, None] >> 5 * place) & 31
    groups += 48 + 32 * (place < lengths[:, None] - 1)
    return groups[place < lengths[:, None]].astype(np.uint8).tobytes()


def _canonical(runs: np.ndarray) -> np.ndarray:
    """Return the run lengths of the same mask without runs of length 0, except a leading one."""
    if np.count_nonzero(runs[1:]) == len(runs) - 1:
        return runs
    edges = np.cumsum(runs)
    # Two edges at the same pixel cancel out: the value changes twice.
    places, times = np.unique(edges[edges < edges[-1]], return_counts=True)
    return np.diff(places[times % 2 == 1], prepend=0, append=edges[-1])
