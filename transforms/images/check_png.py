"""Is a PNG one that TensorFlow decodes? Pillow forgives more than libpng does."""

import struct
import zlib
from collections.abc import Iterator

START = b"\x89PNG\r\n\x1a\n"
END = b"IEND\xaeB`\x82"

MAX_SIDE = 1_000_000
_PALETTE = 3
_CHANNELS = {0: 1, 2: 3, _PALETTE: 1, 4: 2, 6: 4}
_CHANNELS_DECODED = _CHANNELS | {_PALETTE: 3}
_TRANSPARENCY_BYTES = {0: 2, 2: 6}
"""How long a tRNS chunk is where there is no palette, by colour type; the other types have none."""
_UPRIGHT = {b"eXIf": b"", b"iTXt": b"XML:com.adobe.xmp\0"}
"""What may say which way is up: how the body of such a chunk begins."""
# First column, first row, column step, row step of the seven passes of an interlaced PNG.
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


def check_png(data: bytes) -> None:
    """What TensorFlow's libpng asks for and Pillow does not: every chunk whole and with the right checksum, a palette
    where pixels refer to one, and compressed pixels for every row.

    Raises:
        ValueError, struct.error, zlib.error: what is wrong.
    """
    kinds: list[bytes] = []
    pixels = _Inflated()
    for kind, body in _chunks(data):
        if (kind == b"IHDR") != (not kinds):
            raise ValueError("its header is not the first chunk, and only that")
        if kind == b"IHDR":
            header = struct.unpack(">IIBBBBB", body)
        elif kind == b"PLTE" and ({b"IDAT", b"PLTE"} & set(kinds) or not 0 < len(body) <= 768 or len(body) % 3):
            raise ValueError(f"its palette of {len(body)} bytes is none, or comes too late")
        elif kind == b"IDAT":
            if b"IDAT" in kinds and kinds[-1] != b"IDAT":
                raise ValueError("its compressed pixels are not in one piece")
            pixels.add(body)
        elif kind[:1].isupper() and kind not in (b"PLTE", b"IEND"):
            raise ValueError(f"chunk {kind!r} is unknown and said to be needed")
        kinds.append(kind)
    width, height, depth, colour, compression, filter_, interlace = header
    if max(width, height) > MAX_SIDE:
        raise ValueError(f"{width}x{height}: libpng reads sides up to {MAX_SIDE:,}")
    if compression or filter_ or interlace > 1:
        raise ValueError(f"unknown compression {compression}, filter {filter_} or interlace {interlace}")
    if colour == _PALETTE and b"PLTE" not in kinds:
        raise ValueError("its palette is missing")
    expected = _png_bytes(width, height, depth * _CHANNELS[colour], interlace)
    if pixels.size < expected or not pixels.ended:
        raise ValueError(f"{pixels.size:,} bytes of pixels where {expected:,} and a checksum are expected")


def _chunks(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Name and body of each chunk up to the last, whole and with the right checksum."""
    offset, kind = len(START), b""
    while kind != b"IEND":
        length, kind = struct.unpack_from(">I4s", data, offset)
        body = memoryview(data)[offset + 8 : offset + 8 + length]
        (checksum,) = struct.unpack_from(">I", data, offset + 8 + length)
        if zlib.crc32(body, zlib.crc32(kind)) != checksum:
            raise ValueError(f"chunk {kind!r} has a wrong checksum")
        if not kind.isalpha():
            raise ValueError(f"chunk {kind!r} is called by other characters than letters")
        yield kind, body
        offset += 12 + length


def without_metadata(data: bytes) -> bytes:
    """A PNG without the chunks that neither decoding its pixels nor which way is up depends on. What follows a chunk
    that is cut short is left as it is."""
    kept, end = [data[: len(START)]], len(START)
    colour, entries, has_pixels = -1, 0, False
    while end + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, end)
        start, end = end, min(end + 12 + length, len(data))
        if kind == b"IHDR" and length > 9:
            colour = data[start + 17]
        entries = length // 3 if kind == b"PLTE" else entries
        has_pixels = has_pixels or kind == b"IDAT"
        if kind == b"tRNS":  # libpng, too, passes over one of another length, or that comes late
            fits = 0 < length <= entries if colour == _PALETTE else length == _TRANSPARENCY_BYTES.get(colour)
            is_kept = fits and not has_pixels
        elif kind in _UPRIGHT:
            is_kept = data.startswith(_UPRIGHT[kind], start + 8)
        else:
            is_kept = kind[:1].isupper()
        if is_kept:
            kept.append(data[start:end])
        if kind == b"IEND":
            break
    return b"".join((*kept, data[end:]))


def png_channels(data: bytes) -> int:
    """How many channels TensorFlow makes of a PNG: a palette becomes colours, and so does what is transparent of it.

    Raises:
        ValueError, struct.error: it has no header.
    """
    offset, depth, colour, palette = len(START), 0, -1, 0
    while True:
        length, kind = struct.unpack_from(">I4s", data, offset)
        if kind == b"IHDR":
            depth, colour = struct.unpack_from(">BB", data, offset + 16)
        elif colour not in _CHANNELS_DECODED:
            raise ValueError("it has no header")
        elif kind == b"PLTE":
            palette = min(length // 3, 1 << depth)
        elif kind == b"tRNS" and colour == _PALETTE and 0 < length <= palette:  # libpng ignores others
            return 4
        elif kind in (b"IDAT", b"IEND"):
            return _CHANNELS_DECODED[colour]
        offset += 12 + length


def _png_bytes(width: int, height: int, bits: int, interlace: int) -> int:
    """How many bytes the rows of a PNG have before compression: a filter byte and the pixels of each."""
    total = 0
    for left, top, across, down in _PASSES if interlace else ((0, 0, 1, 1),):
        columns, rows = -(-(width - left) // across), -(-(height - top) // down)
        if columns > 0 and rows > 0:
            total += rows * (1 + (columns * bits + 7) // 8)
    return total


class _Inflated:
    """Counts the bytes of a zlib stream that comes in pieces, in constant memory."""

    _PIECE = 1 << 16

    def __init__(self):
        self._zlib = zlib.decompressobj()
        self.size = 0

    @property
    def ended(self) -> bool:
        """Whether the stream's end has come, with the right checksum."""
        return self._zlib.eof

    def add(self, data: memoryview) -> None:
        left: bytes | memoryview = data
        while len(left) and not self._zlib.eof:
            self.size += len(self._zlib.decompress(left, self._PIECE))
            left = self._zlib.unconsumed_tail
