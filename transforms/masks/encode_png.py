"""Grey pixels become a PNG (https://www.w3.org/TR/png-3/).

Pillow would do, but it chooses row filters and deflate settings for photographs. Label maps and masks are flat: most of
their filtered bytes are zeros in long runs, which zlib's strategy Z_RLE packs smaller and several times as fast.
"""

import struct
import zlib
from functools import cache, lru_cache

import numpy as np

UP = 2
"""The row filter under which each byte is the pixel minus the pixel above, modulo 256; above the first row is 0."""

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOUR_TYPE = {1: 0, 3: 2}
"""Grey and RGB, by the number of channels."""
_DEFLATE, _ADAPTIVE_FILTERS, _NOT_INTERLACED = 0, 0, 0
_ZLIB_HEADER = b"\x78\x01"
_LAST_BLOCK = b"\x03\x00"  # an empty one: deflate wants one that is marked as the last
_ADLER_MODULUS = 65_521
_ZEROS_AT_ONCE = 1 << 20
_PERIOD = 4 * 258
"""Zeros after which deflate repeats itself: a match is of at most 258, and of those that are alike each takes two bits,
so four of them a byte."""
_PERIODS_TO_BEGIN = 4
"""Of zeros after which zlib's codes, 1 bit of a match of 258, no longer depend on how many there are."""


def grey_png(pixels: np.ndarray) -> bytes:
    """uint8 [height, width] becomes an 8-bit greyscale PNG with the same values.

    Raises:
        ValueError: another dtype or rank, or no pixels, of which there can be no PNG.

    >>> grey_png(np.zeros((2, 3), np.uint8))[:8]
    b'\\x89PNG\\r\\n\\x1a\\n'
    """
    if pixels.dtype != np.uint8 or pixels.ndim != 2 or not pixels.size:
        raise ValueError(f"expected uint8 [height, width] with pixels, got {pixels.dtype} {list(pixels.shape)}")
    return encode_png(pixels[:, :, None])


def encode_png(pixels: np.ndarray) -> bytes:
    """uint8 [height, width, 1 or 3] becomes an 8-bit PNG, grey or RGB."""
    height, width, channels = pixels.shape
    flat = pixels.reshape(height, width * channels)
    rows = np.empty((height, 1 + width * channels), np.uint8)
    rows[:, 0] = UP
    rows[0, 1:] = flat[0]
    np.subtract(flat[1:], flat[:-1], out=rows[1:, 1:])
    return pack_rows(rows, channels=channels)


def black_png(width: int, height: int) -> bytes:
    """An 8-bit RGB PNG of zeros, which in a panoptic PNG are void."""
    return pack_rows(np.zeros((0, 1 + 3 * width), np.uint8), blank_above=height, channels=3)


def pack_rows(rows: np.ndarray, blank_above: int = 0, blank_below: int = 0, channels: int = 1) -> bytes:
    """Filtered rows become a PNG of 8 bits a channel.

    Args:
        rows: uint8 [n, 1 + width * channels], contiguous; the first byte of a row names its filter. n may be 0.
        blank_above: rows of zeros before them, which cost next to no time.
        blank_below: rows of zeros after them.
        channels: 1, grey, or 3, RGB.
    """
    height, row_bytes = blank_above + len(rows) + blank_below, rows.shape[1]
    kind = 8, _COLOUR_TYPE[channels], _DEFLATE, _ADAPTIVE_FILTERS, _NOT_INTERLACED
    header = struct.pack(">IIBBBBB", (row_bytes - 1) // channels, height, *kind)
    data = _deflate(rows, blank_above * row_bytes, blank_below * row_bytes)
    return b"".join((_SIGNATURE, _chunk(b"IHDR", header), _chunk(b"IDAT", data), _chunk(b"IEND", b"")))


def _deflate(rows: np.ndarray, zeros_before: int, zeros_after: int) -> bytes:
    """A zlib stream (RFC 1950) of the rows between zeros; a blank row is zeros in all, as filter None is 0."""
    checksum = _adler32_of_zeros(zlib.adler32(rows.data, _adler32_of_zeros(1, zeros_before)), zeros_after)
    blocks = (_zero_blocks(zeros_before), _blocks(rows.data), _zero_blocks(zeros_after))
    return b"".join((_ZLIB_HEADER, *blocks, _LAST_BLOCK, struct.pack(">I", checksum)))


def _adler32_of_zeros(checksum: int, count: int) -> int:
    """`zlib.adler32(bytes(count), checksum)`: its low half sums the bytes, its high half sums the low halves."""
    low, high = checksum & 0xFFFF, checksum >> 16
    return (high + count * low) % _ADLER_MODULUS << 16 | low


def _zero_blocks(count: int) -> bytes:
    whole, rest = divmod(count, _ZEROS_AT_ONCE)
    return _few_zero_blocks(_ZEROS_AT_ONCE) * whole + _few_zero_blocks(rest)


def _few_zero_blocks(count: int) -> bytes:
    """`_blocks(bytes(count))`, without going through the zeros where zlib's bytes allow it."""
    if not count:
        return b""
    periods = max(count // _PERIOD - _PERIODS_TO_BEGIN, 0)
    if periods and not _zeros_are_periodic():
        return _blocks(bytes(count))
    before, period, after = _periodic_zero_blocks(count - periods * _PERIOD)
    return before + period * periods + after


@cache
def _zeros_are_periodic() -> bool:
    """Whether the zlib that Python has packs zeros in periods, as forks of it may not."""
    count, periods = _PERIODS_TO_BEGIN * _PERIOD + 1, 100
    before, period, after = _periodic_zero_blocks(count)
    return before + period * periods + after == _blocks(bytes(count + periods * _PERIOD))


@lru_cache(maxsize=(_PERIODS_TO_BEGIN + 1) * _PERIOD)
def _periodic_zero_blocks(count: int) -> tuple[bytes, bytes, bytes]:
    """Blocks of so many zeros, cut in two where a byte for each further period belongs, and that byte between them."""
    blocks, more = _blocks(bytes(count)), _blocks(bytes(count + _PERIOD))
    differ = (at for at, (one, other) in enumerate(zip(blocks, more, strict=False)) if one != other)
    at = next(differ, len(blocks))
    return blocks[:at], more[at : at + 1], blocks[at:]


def _blocks(data: bytes | memoryview) -> bytes:
    """Deflate blocks (RFC 1951) that end at a byte's end and refer to nothing before them, so they can be joined."""
    compressor = zlib.compressobj(level=1, wbits=-15, strategy=zlib.Z_RLE)
    return compressor.compress(data) + compressor.flush(zlib.Z_SYNC_FLUSH)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return b"".join((struct.pack(">I", len(data)), kind, data, struct.pack(">I", zlib.crc32(data, zlib.crc32(kind)))))
