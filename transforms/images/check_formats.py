"""Checks of JPEG and PNG files that TensorFlow's decoders make and Pillow omits."""

import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

JPEG_START = b"\xff\xd8\xff"
JPEG_END = b"\xff\xd9"

_SOI, _EOI, _SOS = 0xD8, 0xD9, 0xDA
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_HUFFMAN_FRAMES = (0xC0, 0xC1, 0xC2)  # baseline, extended, progressive
_ALONE = frozenset((0x01, *range(0xD0, 0xD8)))  # markers without a segment
_COMMENT, _JFIF, _EXIF, _ADOBE = 0xFE, 0xE0, 0xE1, 0xEE
_SEGMENTS = frozenset((0xC4, 0xCC, _SOS, 0xDB, 0xDC, 0xDD, 0xFE, *range(0xE0, 0xF0))) | _FRAMES
"""Markers that libjpeg reads or skips. It fails at any other marker."""

# In compressed pixels 0xff is followed by 0x00, by a restart marker, or by 0xff.
_ENDS_SCAN = np.ones(256, bool)
_ENDS_SCAN[[0x00, 0xFF, *range(0xD0, 0xD8)]] = False


@dataclass(frozen=True)
class JpegFrame:
    """Frame header of a JPEG. Sizes are in pixels. Height is 0 if the file states it only after the scan.

    Attributes:
        sampling: Horizontal and vertical sampling factor of each channel.
    """

    marker: int
    precision: int
    height: int
    width: int
    channels: int
    sampling: tuple[tuple[int, int], ...]

    @cached_property
    def is_tf_decodable(self) -> bool:
        """True if TensorFlow decodes the JPEG: 8 bits, Huffman coding, 1, 3 or 4 channels with integer upsampling.
        (libjpeg supports no other upsampling. Pillow reports that only when it decodes at full size.)"""
        is_usual = self.marker in _HUFFMAN_FRAMES and self.precision == 8 and self.channels in (1, 3, 4)
        return is_usual and all(
            factor and max(factors) % factor == 0 for factors in zip(*self.sampling, strict=True) for factor in factors
        )


class JpegError(ValueError):
    """Error in the markers of a JPEG."""


def jpeg_frame(data: bytes) -> JpegFrame:
    """Return the frame header of a JPEG.

    Raises:
        JpegError: The file has no frame header.
    """
    for marker, offset, _ in _scan_segments(data):
        if marker in _FRAMES:
            channels = int.from_bytes(data[offset + 7 : offset + 8], "big")
            return _parse_frame_header(marker, data[offset : offset + 8 + 3 * channels])
    raise JpegError("it has no frame header")


def jpeg_ends(data: bytes) -> bool:
    """Return True if the scan of a JPEG has an end marker. Data may follow, because cameras append even videos."""
    if data.endswith(JPEG_END):
        return True
    try:
        return any(marker == _SOS and data.find(JPEG_END, offset) >= 0 for marker, offset, _ in _scan_segments(data))
    except JpegError:
        return False


def check_jpeg(data: bytes) -> None:
    """Check all markers of a JPEG.

    Raises:
        JpegError: A marker is missing, truncated, or unknown to libjpeg.
    """
    scans = frames = 0
    for marker, _, _ in _scan_segments(data):
        scans += marker == _SOS
        frames += marker in _FRAMES
    if frames != 1 or not scans:
        raise JpegError(f"it has {frames} frame headers and {scans} scans")


def jpeg_without_metadata(data: bytes) -> bytes:
    """Drop segments of a JPEG that neither decoding nor orientation needs. All bytes from a damaged segment on are
    kept."""
    return _drop_segments(data, _is_metadata)


def without_exif(data: bytes) -> bytes:
    """Drop EXIF, XMP and texts, which may contain an orientation, from a JPEG or PNG."""
    if not data.startswith(PNG_START):
        return _drop_segments(data, lambda marker, body: marker == _EXIF)
    return PNG_START + b"".join(
        data[start:end] for kind, start, end in _scan_chunks(data) if kind not in _MAY_HAVE_EXIF
    )


def _drop_segments(data: bytes, is_dropped: Callable[[int, bytes], bool]) -> bytes:
    pieces, end = [data[:2]], 2
    with suppress(JpegError):
        for marker, offset, length in _scan_segments(data):
            if marker == _SOS:
                break
            if not is_dropped(marker, data[offset + 2 : offset + length]):
                pieces.append(data[end : offset + length])
            end = offset + length
    return data if sum(map(len, pieces)) == end else b"".join((*pieces, memoryview(data)[end:]))


def _is_metadata(marker: int, body: bytes) -> bool:
    if marker == _JFIF:
        return not (body.startswith(b"JFIF\0") and len(body) >= 14)  # libjpeg ignores a shorter one, too
    if marker == _ADOBE:
        return not (body.startswith(b"Adobe") and len(body) >= 12)
    if marker == _EXIF:
        return not body.startswith((b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0"))  # these have the orientation
    return marker == _COMMENT or _JFIF <= marker <= _JFIF + 15


@lru_cache(4096)  # images of a data set have few different headers
def _parse_frame_header(marker: int, header: bytes) -> JpegFrame:
    if len(header) < 8:
        raise JpegError("its frame header is truncated")
    precision, height, width, channels = struct.unpack_from(">BHHB", header, 2)
    factors = header[9::3]  # each after the channel's id
    if len(factors) != channels:
        raise JpegError("its frame header is truncated")
    sampling = tuple((factor >> 4, factor & 15) for factor in factors)
    return JpegFrame(marker, precision, height, width, channels, sampling)


def _scan_segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield (marker, offset of its length, length) of each segment up to the end marker. Scans are skipped."""
    offset = 2
    while True:
        offset = data.find(b"\xff", offset)  # libjpeg, too, skips bytes between segments
        while 0 <= offset < len(data) and data[offset] == 0xFF:
            offset += 1
        if not 0 <= offset < len(data):
            raise JpegError("it has no end marker")
        marker = data[offset]
        offset += 1
        if marker == _EOI:
            return
        if marker == 0 or marker in _ALONE:
            continue
        if marker not in _SEGMENTS:
            raise JpegError(f"it has an unknown or misplaced marker 0x{marker:02x}")
        length = int.from_bytes(data[offset : offset + 2], "big")
        if length < 2 or offset + length > len(data):
            raise JpegError(f"its segment 0x{marker:02x} is truncated")
        yield marker, offset, length
        offset += length
        if marker == _SOS:
            offset = _scan_end(data, offset)


def _scan_end(data: bytes, offset: int) -> int:
    """Return the offset of the marker that ends a scan. (A regular expression would be as slow as decoding.)"""
    pixels = np.frombuffer(data, np.uint8)[offset:]
    marks = np.flatnonzero(pixels[:-1] == 0xFF)
    ends = marks[_ENDS_SCAN[pixels[marks + 1]]]
    if not len(ends):
        raise JpegError("it has no end marker")
    return offset + int(ends[0])


PNG_START = b"\x89PNG\r\n\x1a\n"
PNG_END = b"IEND\xaeB`\x82"

MAX_SIDE = 1_000_000
_PALETTE = 3
_CHANNELS = {0: 1, 2: 3, _PALETTE: 1, 4: 2, 6: 4}
_CHANNELS_DECODED = _CHANNELS | {_PALETTE: 3}
_TRANSPARENCY_BYTES = {0: 2, 2: 6}
"""Length of the tRNS chunk by colour type, for types without a palette. Other types have no such chunk."""
_UPRIGHT = {b"eXIf": b"", b"iTXt": b"XML:com.adobe.xmp\0"}
"""Start of the chunks that may have an orientation, by chunk name."""
_MAY_HAVE_EXIF = (b"eXIf", b"tEXt", b"zTXt", b"iTXt")
# First column, first row, column step, row step of the seven passes of an interlaced PNG.
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


def check_png(data: bytes) -> None:
    """Check the requirements of TensorFlow's libpng that Pillow lacks: complete chunks with correct checksums, a
    palette if pixels refer to one, and compressed pixels for every row.

    Raises:
        ValueError, struct.error, zlib.error: A check fails.
    """
    kinds: list[bytes] = []
    pixels = _Inflated()
    for kind, body in _chunks(data):
        if (kind == b"IHDR") != (not kinds):
            raise ValueError("its header must be the first chunk, and occur once")
        if kind == b"IHDR":
            header = struct.unpack(">IIBBBBB", body)
        elif kind == b"PLTE" and ({b"IDAT", b"PLTE"} & set(kinds) or not 0 < len(body) <= 768 or len(body) % 3):
            raise ValueError(f"its palette of {len(body)} bytes is invalid, or comes too late")
        elif kind == b"IDAT":
            if b"IDAT" in kinds and kinds[-1] != b"IDAT":
                raise ValueError("its compressed pixels are not contiguous")
            pixels.add(body)
        elif kind[:1].isupper() and kind not in (b"PLTE", b"IEND"):
            raise ValueError(f"chunk {kind!r} is unknown and marked as critical")
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
        raise ValueError(f"{pixels.size:,} bytes of pixels; expected {expected:,} and a checksum")


def _chunks(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Yield name and body of each chunk. Incomplete chunks and wrong checksums raise the errors of `check_png`."""
    offset, kind = len(PNG_START), b""
    while kind != b"IEND":
        length, kind = struct.unpack_from(">I4s", data, offset)
        body = memoryview(data)[offset + 8 : offset + 8 + length]
        (checksum,) = struct.unpack_from(">I", data, offset + 8 + length)
        if zlib.crc32(body, zlib.crc32(kind)) != checksum:
            raise ValueError(f"chunk {kind!r} has a wrong checksum")
        if not kind.isalpha():
            raise ValueError(f"the name of chunk {kind!r} has characters other than letters")
        yield kind, body
        offset += 12 + length


def _scan_chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield name, start and end of each chunk, unchecked. The last chunk may be truncated. A rest that is too short for
    a chunk has the name b""."""
    end = len(PNG_START)
    while end + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, end)
        start, end = end, min(end + 12 + length, len(data))
        yield kind, start, end
    yield b"", end, len(data)


def png_without_metadata(data: bytes) -> bytes:
    """Drop chunks of a PNG that neither decoding nor orientation needs. All bytes from a truncated chunk on are
    kept."""
    view = memoryview(data)
    pieces: list[bytes | memoryview] = [PNG_START]
    colour, entries, has_pixels = -1, 0, False
    for kind, start, end in _scan_chunks(data):
        length = end - start - 12
        if kind == b"IHDR" and length > 9:
            colour = data[start + 17]
        entries = length // 3 if kind == b"PLTE" else entries
        has_pixels = has_pixels or kind == b"IDAT"
        if kind in (b"IEND", b""):
            pieces.append(view[start:])
            break
        if kind == b"tRNS":  # libpng, too, ignores a tRNS of another length, or after the pixels
            fits = 0 < length <= entries if colour == _PALETTE else length == _TRANSPARENCY_BYTES.get(colour)
            is_kept = fits and not has_pixels
        elif kind in _UPRIGHT:
            is_kept = data.startswith(_UPRIGHT[kind], start + 8)
        else:
            is_kept = kind[:1].isupper()
        if is_kept:
            pieces.append(view[start:end])
    # Large files are not copied without need.
    return data if sum(map(len, pieces)) == len(data) else b"".join(pieces)


def png_may_have_exif(data: bytes) -> bool:
    """Return True if a PNG has a chunk that may contain EXIF or XMP. The PNG is not checked otherwise."""
    return any(kind in _MAY_HAVE_EXIF for kind, _, _ in _scan_chunks(data))


def png_channels(data: bytes) -> int:
    """Return the number of channels that TensorFlow decodes a PNG to. A palette becomes RGB, or RGBA with transparency.

    Raises:
        ValueError, struct.error: The PNG has no header, or no pixels.
    """
    channels = palette = 0
    for kind, start, end in _scan_chunks(data):
        length = end - start - 12
        if kind == b"IHDR":
            depth, colour = struct.unpack_from(">BB", data, start + 16)
            channels = _CHANNELS_DECODED.get(colour, 0)
        elif not channels:
            break
        elif kind == b"PLTE":
            palette = min(length // 3, 1 << depth)
        elif kind == b"tRNS" and colour == _PALETTE and 0 < length <= palette:  # libpng ignores other lengths
            return 4
        elif kind in (b"IDAT", b"IEND"):
            return channels
    raise ValueError("it has no header, or no pixels")


def _png_bytes(width: int, height: int, bits: int, interlace: int) -> int:
    """Return the size of the rows of a PNG before compression. A row has a filter byte and its pixels."""
    total = 0
    for left, top, across, down in _PASSES if interlace else ((0, 0, 1, 1),):
        columns, rows = -(-(width - left) // across), -(-(height - top) // down)
        if columns > 0 and rows > 0:
            total += rows * (1 + (columns * bits + 7) // 8)
    return total


class _Inflated:
    """Counter of the decompressed bytes of a zlib stream in pieces, in constant memory."""

    _PIECE = 1 << 16

    def __init__(self):
        self._zlib = zlib.decompressobj()
        self.size = 0

    @property
    def ended(self) -> bool:
        """True if the stream has ended with a correct checksum."""
        return self._zlib.eof

    def add(self, data: memoryview) -> None:
        left: bytes | memoryview = data
        while len(left) and not self._zlib.eof:
            self.size += len(self._zlib.decompress(left, self._PIECE))
            left = self._zlib.unconsumed_tail
