"""Is a JPEG one that TensorFlow decodes? libjpeg, which both use, goes on after more faults in Pillow's hands."""

import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np

START = b"\xff\xd8\xff"
END = b"\xff\xd9"

_SOI, _EOI, _SOS = 0xD8, 0xD9, 0xDA
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_HUFFMAN_FRAMES = (0xC0, 0xC1, 0xC2)  # baseline, extended, progressive
_ALONE = frozenset((0x01, *range(0xD0, 0xD8)))  # markers without a segment
_COMMENT, _JFIF, _EXIF, _ADOBE = 0xFE, 0xE0, 0xE1, 0xEE
_COMMON = frozenset((0xC4, 0xDB, 0xDD, _COMMENT, *range(0xE0, 0xF0)))
"""Markers of the segments that most JPEGs have before their frame header."""
_SAMPLINGS = frozenset((b"\x11", b"\x11\x11\x11", b"\x21\x11\x11", b"\x22\x11\x11"))
"""Sampling factors of grey pictures, and of colours at full size, at half the width, at half of both sides."""
_FRAME = struct.Struct(">xxHBHHB")
_SEGMENTS = frozenset((0xC4, 0xCC, _SOS, 0xDB, 0xDC, 0xDD, 0xFE, *range(0xE0, 0xF0))) | _FRAMES
"""Markers that libjpeg reads or passes over; it gives up at any other."""

# In compressed pixels 0xff is followed by zero, by a restart number, or by more of itself.
_ENDS_SCAN = np.ones(256, bool)
_ENDS_SCAN[[0x00, 0xFF, *range(0xD0, 0xD8)]] = False


class JpegFrame(NamedTuple):
    """How the pixels are written. Sizes are in pixels; height is 0 where it stands only after the scan.

    Attributes:
        sampling: horizontal and vertical factor of each channel.
    """

    marker: int
    precision: int
    height: int
    width: int
    channels: int
    sampling: tuple[tuple[int, int], ...]

    @property
    def is_tf_decodable(self) -> bool:
        """Whether TensorFlow decodes it: 8 bits, Huffman coded, of 1, 3 or 4 channels, none of which has to be made
        larger by a factor that is no whole number. (libjpeg lacks that, which Pillow notices at full size only.)"""
        is_usual = self.marker in _HUFFMAN_FRAMES and self.precision == 8 and self.channels in (1, 3, 4)
        return is_usual and all(
            factor and max(factors) % factor == 0 for factors in zip(*self.sampling, strict=True) for factor in factors
        )


class JpegError(ValueError):
    """What is wrong with the markers."""


def jpeg_frame(data: bytes) -> JpegFrame:
    """The frame header of a JPEG.

    Raises:
        JpegError: there is none.
    """
    for marker, offset, _ in _segments(data):
        if marker in _FRAMES:
            return _frame(data, marker, offset)
    raise JpegError("it has no frame header")


def usual_size(data: bytes) -> tuple[int, int] | None:
    """Width and height of a JPEG that is as most are: its file ends with it, it is of a kind that TensorFlow decodes,
    and `jpeg_frame` finds nothing unusual before its frame header. None of any other, which may be as good.

    Ten times as fast as `jpeg_frame`.
    """
    if not (data.startswith(START) and data.endswith(END)):
        return None
    offset, last = 2, len(data) - _FRAME.size
    while offset < last and data[offset] == 0xFF:
        marker = data[offset + 1]
        if marker in _HUFFMAN_FRAMES:
            length, precision, height, width, channels = _FRAME.unpack_from(data, offset)
            factors = data[offset + 11 : offset + 10 + 3 * channels : 3]
            is_usual = precision == 8 and factors in _SAMPLINGS and len(factors) == channels
            return (width, height) if is_usual and offset + 2 + length <= len(data) and length >= 2 else None
        length = data[offset + 2] << 8 | data[offset + 3]
        if marker not in _COMMON or length < 2:
            return None
        offset += 2 + length
    return None


def jpeg_ends(data: bytes) -> bool:
    """Whether the scan of a JPEG ends. Cameras append what they like, even films: its end need not be the file's."""
    if data.endswith(END):
        return True
    try:
        return any(marker == _SOS and data.find(END, offset) >= 0 for marker, offset, _ in _segments(data))
    except JpegError:
        return False


def check_jpeg(data: bytes) -> None:
    """Every marker from the first to the end.

    Raises:
        JpegError: one is missing, cut short, or none that libjpeg knows.
    """
    scans = frames = 0
    for marker, _, _ in _segments(data):
        scans += marker == _SOS
        frames += marker in _FRAMES
    if frames != 1 or not scans:
        raise JpegError(f"it has {frames} frame headers and {scans} scans")


def without_metadata(data: bytes) -> bytes:
    """A JPEG without the segments before its pixels that neither decoding them nor which way is up depends on. What
    follows a segment that is damaged is left as it is."""
    kept, end = [data[:2]], 2
    with suppress(JpegError):
        for marker, offset, length in _segments(data):
            if marker == _SOS:
                break
            if not _is_metadata(marker, data[offset + 2 : offset + length]):
                kept.append(data[end : offset + length])
            end = offset + length
    return data if sum(map(len, kept)) == end else b"".join((*kept, memoryview(data)[end:]))


def _is_metadata(marker: int, body: bytes) -> bool:
    if marker == _JFIF:
        return not (body.startswith(b"JFIF\0") and len(body) >= 14)  # or libjpeg does not take it for one, either
    if marker == _ADOBE:
        return not (body.startswith(b"Adobe") and len(body) >= 12)
    if marker == _EXIF:
        return not body.startswith((b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0"))  # which say which way is up
    return marker == _COMMENT or _JFIF <= marker <= _JFIF + 15


def _frame(data: bytes, marker: int, offset: int) -> JpegFrame:
    if len(data) < offset + 8:
        raise JpegError("its frame header is cut short")
    precision, height, width, channels = struct.unpack_from(">BHHB", data, offset + 2)
    factors = data[offset + 9 : offset + 8 + 3 * channels : 3]  # each after the channel's id
    if len(factors) != channels:
        raise JpegError("its frame header is cut short")
    sampling = tuple((factor >> 4, factor & 15) for factor in factors)
    return JpegFrame(marker, precision, height, width, channels, sampling)


def _segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """(marker, offset of its length, length) of each segment, up to the end marker; scans are passed over."""
    offset = 2
    while True:
        offset = data.find(b"\xff", offset)  # libjpeg, too, passes over what stands between segments
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
            raise JpegError(f"it has a marker 0x{marker:02x}, which is none, or no place for it")
        length = int.from_bytes(data[offset : offset + 2], "big")
        if length < 2 or offset + length > len(data):
            raise JpegError(f"its segment 0x{marker:02x} is cut short")
        yield marker, offset, length
        offset += length
        if marker == _SOS:
            offset = _scan_end(data, offset)


def _scan_end(data: bytes, offset: int) -> int:
    """Offset of the marker that ends the scan. A regular expression takes as long as decoding does."""
    pixels = np.frombuffer(data, np.uint8)[offset:]
    marks = np.flatnonzero(pixels[:-1] == 0xFF)
    ends = marks[_ENDS_SCAN[pixels[marks + 1]]]
    if not len(ends):
        raise JpegError("it has no end marker")
    return offset + int(ends[0])
