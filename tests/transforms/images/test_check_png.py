import io
import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from recordmill.transforms.images.check_png import START, check_png, png_channels, without_metadata
from recordmill.transforms.images.open_picture import encoded_channels
from tests.conftest import SHARED_DATA

CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Of the pixels as they are written, by colour type."""
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
    return START + header + between + chunk(b"IDAT", zlib.compress(passes)) + chunk(b"IEND", b"")


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
    ],
)
def test_transparency_counts_where_there_is_a_palette(colour, depth, more, channels):
    data = drawn(colour, depth, *more)
    assert png_channels(data) == decoded_channels(data) == channels


@pytest.mark.parametrize(
    ("depth", "more"),
    [
        (8, [PALETTE, (b"tRNS", b"\0\0\0")]),
        (8, [PALETTE, (b"tRNS", b"")]),
        (8, [(b"tRNS", b"\0"), PALETTE]),
        (1, [(b"PLTE", bytes(12)), (b"tRNS", bytes(4))]),
    ],
    ids=["longer than the palette", "empty", "before the palette", "longer than the palette has places"],
)
def test_transparency_that_libpng_passes_over_does_not_count(depth, more):
    data = drawn(3, depth, *more)
    check_png(data)
    assert png_channels(data) == decoded_channels(data) == 3


@pytest.mark.parametrize("cut", [8, 12, 33, 40])
def test_a_png_that_is_cut_short_has_no_header_or_no_pixels(cut):
    with pytest.raises((struct.error, ValueError)):
        png_channels(drawn(0, 8)[:cut])


@pytest.mark.skipif(not SHARED_DATA.exists(), reason="the real data sets are not on this machine")
def test_pngsuite():
    """Those that begin with x are broken on purpose."""
    paths = [path for path in sorted((SHARED_DATA / "pngsuite" / "png").glob("*.png")) if path.name[0] != "x"]
    wrong = [path.name for path in paths if png_channels(path.read_bytes()) != decoded_channels(path.read_bytes())]
    assert wrong == []
    assert len(paths) == 161


@pytest.mark.parametrize("mode", ["L", "RGB", "YCbCr", "CMYK"])
def test_channels_of_a_jpeg(mode):
    stream = io.BytesIO()
    Image.fromarray(np.arange(768, dtype=np.uint8).reshape(16, 16, 3)).convert(mode).save(stream, "JPEG")
    assert encoded_channels(stream.getvalue(), "jpeg") == decoded_channels(stream.getvalue())


@pytest.mark.parametrize("kind", [b"ab1c", b"a_bc", b"\xe9bcd"])
def test_a_chunk_is_called_by_letters(kind):
    data = drawn(2, 8, (kind, b"something"))
    with pytest.raises(tf.errors.InvalidArgumentError):
        decoded_channels(data)
    with pytest.raises(ValueError, match="other characters than letters"):
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
def test_what_decides_pixels_and_which_way_is_up_is_all_that_is_kept(colour, chunks, dropped):
    head = START + chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 3, 8, colour, 0, 0, 0))
    kept = [each for index, each in enumerate(chunks) if index not in dropped]
    data, expected = (head + b"".join(chunk(*each) for each in listed) for listed in (chunks, kept))
    assert without_metadata(data) == expected
    assert without_metadata(data + b"after the end") == expected + b"after the end"
