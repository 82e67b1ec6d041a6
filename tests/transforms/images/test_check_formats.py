import random
import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from recordmill.transforms.images.check_formats import (
    PNG_START,
    JpegError,
    check_jpeg,
    check_png,
    jpeg_ends,
    jpeg_frame,
    jpeg_without_metadata,
    png_channels,
    png_without_metadata,
)
from recordmill.transforms.images.open_image import encoded_channels
from recordmill.transforms.sample.draw_scene import encoded
from tests.conftest import SHARED_DATA

NOISE = Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 96, 3), np.uint8))


def jpeg(image: Image.Image = NOISE, **how) -> bytes:
    return encoded(image, "JPEG", **how)


JPEG = jpeg()
SCAN = JPEG.index(b"\xff\xda")
GOOD = {
    "baseline": JPEG,
    "progressive": jpeg(progressive=True),
    "grey": jpeg(NOISE.convert("L")),
    "cmyk": jpeg(NOISE.convert("CMYK")),
    "restart markers": jpeg(restart_marker_rows=1),
    "comment and exif": jpeg(comment=b"\xff\xd9 not the end", exif=Image.Exif()),
    "bytes after the end": JPEG + b"\x00 a film \xff\xd8\xff",
    "fill bytes before a marker": JPEG[:SCAN] + b"\xff\xff" + JPEG[SCAN:],
}


def decodes(data: bytes) -> bool:
    try:
        tf.io.decode_image(data, channels=3, expand_animations=False)
    except tf.errors.InvalidArgumentError:
        return False
    return True


@pytest.mark.parametrize("name", GOOD)
def test_good_ones(name):
    data = GOOD[name]
    check_jpeg(data)
    assert jpeg_ends(data)
    assert jpeg_frame(data).is_tf_decodable
    assert decodes(data)


def with_frame(marker: int = 0xC0, precision: int = 8, channels: int = 3) -> bytes:
    frame = struct.pack(">BBHBHHB", 0xFF, marker, 17, precision, 64, 96, channels)
    place = JPEG.index(b"\xff\xc0")
    return JPEG[:place] + frame + JPEG[place + len(frame) :]


@pytest.mark.parametrize(
    "frame", [{"marker": 0xC3}, {"marker": 0xCA}, {"precision": 12}, {"channels": 2}, {"channels": 5}]
)
def test_frames_that_tensorflow_does_not_decode(frame):
    """Lossless, progressive in arithmetic coding, 12 bits, and channels of no colour space."""
    data = with_frame(**frame)
    assert not jpeg_frame(data).is_tf_decodable
    assert not decodes(data)


def flat(*sampling: tuple[int, int]) -> bytes:
    """A grey JPEG of 24x24 whose channels have these factors: of each block, six bits say that it is zero."""
    data = bytearray(jpeg(Image.new("RGB", (24, 24), (128, 128, 128)), subsampling=0))
    frame, scan = data.index(b"\xff\xc0"), data.index(b"\xff\xda")
    for channel, (horizontal, vertical) in enumerate(sampling):
        data[frame + 11 + 3 * channel] = horizontal << 4 | vertical
        data[scan + 6 + 2 * channel] = 0  # all are coded by the tables of the first
    pixels = scan + 2 + int.from_bytes(data[scan + 2 : scan + 4], "big")
    units = [-(-24 // (8 * max(factors))) for factors in zip(*sampling, strict=True)]
    bits = "001010" * (units[0] * units[1] * sum(horizontal * vertical for horizontal, vertical in sampling))
    bits += "1" * (-len(bits) % 8)
    return bytes(data[:pixels]) + int(bits, 2).to_bytes(len(bits) // 8, "big") + b"\xff\xd9"


@pytest.mark.parametrize(
    ("sampling", "is_decodable"),
    [
        (((1, 1), (1, 1), (1, 1)), True),
        (((2, 2), (1, 1), (2, 1)), True),
        (((4, 1), (2, 1), (1, 1)), True),
        (((3, 1), (2, 1), (1, 1)), False),
        (((1, 3), (1, 2), (1, 1)), False),
    ],
)
def test_channels_no_whole_fraction_of_another(sampling, is_decodable):
    data = flat(*sampling)
    check_jpeg(data)
    assert jpeg_frame(data).is_tf_decodable == decodes(data) == is_decodable


def test_arithmetic_coding_is_unusual():
    assert not jpeg_frame(with_frame(marker=0xC9)).is_tf_decodable


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (JPEG[:-2], "no end marker"),
        (JPEG[: SCAN + 40], "no end marker"),
        (JPEG[:SCAN], "no end marker"),
        (JPEG[:SCAN] + JPEG[-2:], "1 frame headers and 0 scans"),
        (JPEG[:2] + JPEG[-2:], "0 frame headers and 0 scans"),
        (JPEG[:2] + b"\xff\x02" + JPEG[2:], "misplaced marker 0x02"),
        (JPEG[:2] + b"\xff\xd8" + JPEG[2:], "misplaced marker 0xd8"),
        (JPEG[: SCAN + 100] + b"\xff\x30" + JPEG[SCAN + 102 :], "misplaced marker 0x30"),
        (JPEG[:2] + b"\xff\xe1\x00\x01" + JPEG[2:], "segment 0xe1 is truncated"),
        (JPEG[:2] + b"\xff\xfe\xff\xff", "segment 0xfe is truncated"),
        (JPEG[:SCAN] + JPEG[JPEG.index(b"\xff\xc0") : SCAN] + JPEG[SCAN:], "2 frame headers"),
    ],
)
def test_bad_ones(data, what):
    with pytest.raises(JpegError, match=what):
        check_jpeg(data)


@pytest.mark.parametrize("data", [b"\xff\xd8\xff", JPEG[:2], JPEG[:30], b"\xff\xd8\xff\xc0\x00\x11"])
def test_a_jpeg_without_a_frame(data):
    with pytest.raises(JpegError):
        jpeg_frame(data)


def test_marker_in_scan_is_found():
    """Pillow does forgive some: bytes of the scan become 0xff and any other, over and over."""
    rng = random.Random(0)
    found = missed = 0
    for _ in range(300):
        data = bytearray(JPEG)
        place = rng.randrange(SCAN + 14, len(JPEG) - 3)
        data[place : place + 2] = bytes((0xFF, rng.randrange(256)))
        try:
            check_jpeg(bytes(data))
        except JpegError:
            found += 1
        else:
            missed += not decodes(bytes(data))
    assert found > 100
    assert missed == 0


@pytest.mark.parametrize(
    ("marker", "body", "is_kept"),
    [
        (0xE0, b"JFIF\0" + bytes(9), True),
        (0xE0, b"JFIF\0" + bytes(8), False),
        (0xE0, b"JFXX\0" + bytes(9), False),
        (0xEE, b"Adobe" + bytes(7), True),
        (0xEE, b"Adobe" + bytes(6), False),
        (0xE1, b"Exif\0\0II*\0", True),
        (0xE1, b"http://ns.adobe.com/xap/1.0/\0<x/>", True),
        (0xE1, b"else", False),
        (0xE2, b"ICC_PROFILE\0\1\1", False),
        (0xEF, b"", False),
        (0xFE, b"a comment", False),
        (0xDD, b"\0\0", True),
    ],
)
def test_pixel_segments_and_orientation_are_kept(marker, body, is_kept):
    segment = bytes((0xFF, marker)) + struct.pack(">H", len(body) + 2) + body
    data = JPEG[:2] + segment + JPEG[2:]
    assert jpeg_without_metadata(data) == (data if is_kept else JPEG)
    assert jpeg_without_metadata(JPEG[:SCAN] + segment + JPEG[SCAN:] + segment).endswith(JPEG[SCAN:] + segment)


CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Channels of the written pixels, by colour type."""
DEPTHS = [(0, 1), (0, 2), (0, 4), (0, 8), (0, 16), (2, 8), (2, 16), (3, 1), (3, 2), (3, 4), (3, 8)]
DEPTHS += [(4, 8), (4, 16), (6, 8), (6, 16)]
PALETTE = (b"PLTE", bytes(6))


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(body, zlib.crc32(kind)))


def drawn(colour: int, depth: int, *more: tuple[bytes, bytes], interlace: int = 0) -> bytes:
    """A black PNG of 4x3 with further chunks between its header and its pixels."""
    row = bytes(1 + (4 * depth * CHANNELS[colour] + 7) // 8)
    passes = row * 12 if interlace else row * 3  # more than is asked for does no harm
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 3, depth, colour, 0, 0, interlace))
    between = b"".join(chunk(*each) for each in more)
    return PNG_START + header + between + chunk(b"IDAT", zlib.compress(passes)) + chunk(b"IEND", b"")


def decoded_channels(data: bytes) -> int:
    return tf.io.decode_image(data, channels=0, expand_animations=False).shape[2]


@pytest.mark.parametrize("interlace", [0, 1])
@pytest.mark.parametrize(("colour", "depth"), DEPTHS)
def test_every_colour_type_and_depth(colour, depth, interlace):
    data = drawn(colour, depth, *([PALETTE] if colour == 3 else []), interlace=interlace)
    check_png(data)
    assert png_channels(data) == decoded_channels(data) == (3 if colour == 3 else CHANNELS[colour])


@pytest.mark.parametrize(
    ("colour", "depth", "more", "channels"),
    [
        (3, 8, [PALETTE, (b"tRNS", b"\0")], 4),
        (3, 1, [PALETTE, (b"tRNS", b"\0\xff")], 4),
        (3, 8, [(b"gAMA", struct.pack(">I", 45455)), PALETTE, (b"bKGD", b"\0"), (b"tRNS", b"\0")], 4),
        (3, 8, [PALETTE, (b"tEXt", b"tRNS\0tRNS")], 3),
        (0, 8, [(b"tRNS", b"\0\0")], 1),
        (2, 8, [(b"tRNS", bytes(6))], 3),
        (2, 8, [PALETTE, (b"tRNS", bytes(6))], 3),
        (4, 8, [(b"tRNS", b"\0\0")], 2),
        (6, 8, [PALETTE], 4),
        (3, 8, [PALETTE, (b"tRNS", b"\0\0\0")], 3),  # longer than the palette: libpng passes over it
        (3, 8, [PALETTE, (b"tRNS", b"")], 3),
        (3, 8, [(b"tRNS", b"\0"), PALETTE], 3),
        (3, 1, [(b"PLTE", bytes(12)), (b"tRNS", bytes(4))], 3),  # longer than the palette has places
    ],
)
def test_transparency_counts_with_palette(colour, depth, more, channels):
    data = drawn(colour, depth, *more)
    check_png(data)
    assert png_channels(data) == decoded_channels(data) == channels


@pytest.mark.parametrize("cut", [slice(8, None), slice(12, None), slice(33, None), slice(40, None), slice(8, 33)])
def test_png_without_a_part_has_no_header_or_no_pixels(cut):
    data = drawn(0, 8)
    with pytest.raises((struct.error, ValueError)):
        png_channels(data.replace(data[cut], b""))


@pytest.mark.skipif(not SHARED_DATA.exists(), reason="the real data sets are not on this machine")
def test_pngsuite():
    """Channels of PngSuite's files equal Pillow's; names that begin with x are broken on purpose."""
    paths = [path for path in sorted((SHARED_DATA / "pngsuite" / "png").glob("*.png")) if path.name[0] != "x"]
    wrong = [path.name for path in paths if png_channels(path.read_bytes()) != decoded_channels(path.read_bytes())]
    assert wrong == []
    assert len(paths) == 161


@pytest.mark.parametrize("mode", ["L", "RGB", "YCbCr", "CMYK"])
def test_channels_of_a_jpeg(mode):
    data = jpeg(NOISE.convert(mode))
    assert encoded_channels(data, "jpeg") == decoded_channels(data)


@pytest.mark.parametrize("kind", [b"ab1c", b"a_bc", b"\xe9bcd"])
def test_a_chunk_is_called_by_letters(kind):
    data = drawn(2, 8, (kind, b"something"))
    with pytest.raises(tf.errors.InvalidArgumentError):
        decoded_channels(data)
    with pytest.raises(ValueError, match="characters other than letters"):
        check_png(data)


IMAGE = (b"IDAT", zlib.compress(bytes(60)))
END = (b"IEND", b"")
UPRIGHT = [(b"eXIf", b"II*\0"), (b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0<x/>")]


@pytest.mark.parametrize(
    ("colour", "chunks", "dropped"),
    [
        (2, [*UPRIGHT, IMAGE, END], []),
        (2, [(b"iTXt", b"Comment\0\0\0\0\0text"), IMAGE, (b"tEXt", b"a\0b"), END], [0, 2]),
        (2, [(b"tRNS", bytes(6)), IMAGE, END], []),
        (2, [(b"tRNS", bytes(5)), IMAGE, END], [0]),
        (2, [IMAGE, (b"tRNS", bytes(6)), END], [1]),
        (0, [(b"tRNS", bytes(2)), IMAGE, END], []),
        (0, [(b"tRNS", bytes(6)), IMAGE, END], [0]),
        (6, [(b"tRNS", bytes(6)), IMAGE, END], [0]),
        (3, [PALETTE, (b"tRNS", bytes(2)), IMAGE, END], []),
        (3, [PALETTE, (b"tRNS", bytes(3)), IMAGE, END], [1]),
        (3, [PALETTE, (b"tRNS", b""), IMAGE, END], [1]),
        (3, [(b"tRNS", bytes(1)), PALETTE, IMAGE, END], [0]),
    ],
)
def test_pixel_chunks_and_orientation_are_kept(colour, chunks, dropped):
    head = PNG_START + chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 3, 8, colour, 0, 0, 0))
    kept = [each for index, each in enumerate(chunks) if index not in dropped]
    data, expected = (head + b"".join(chunk(*each) for each in listed) for listed in (chunks, kept))
    assert png_without_metadata(data) == expected
    assert png_without_metadata(data + b"after the end") == expected + b"after the end"
