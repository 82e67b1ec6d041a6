import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from recordmill.schemas.features import Part
from recordmill.schemas.inputs.annotations import Category, MapFile
from recordmill.schemas.inputs.files import File
from recordmill.schemas.inputs.images import StoredImage
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import DETECTION
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.encoders.encode_maps import MapEncoder, read_depth, read_mask

VALUES = [[0, 1, 2], [3, 1, 0]]
COLOURS = bytes([0, 0, 0, 255, 0, 0, 0, 255, 0, 255, 255, 255])
LABELS = LabelMap((), tuple(Category(number, f"class {number}") for number in range(4)), has_pixel_ids=True)


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(*rows: bytes, bits: int = 8, colour: int = 0, more: bytes = b"", passes: int = 0) -> bytes:
    """A PNG of unfiltered rows, 3 pixels wide; if it is interlaced, with `passes` rows more than its height."""
    header = struct.pack(">IIBBBBB", 3, len(rows) - passes, bits, colour, 0, 0, bool(passes))
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    end = chunk(b"IDAT", data) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + more + end


def saved(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


GREY = Image.fromarray(np.array(VALUES, np.uint8))
PALETTE = GREY.convert("P")
PALETTE.putpalette(COLOURS)
DEEP = Image.fromarray(np.array(VALUES, np.uint16))
PALETTE_CHUNK = chunk(b"PLTE", COLOURS)
TWO_BITS = b"\x18", b"\xd0"
ANIMATED = {"save_all": True, "append_images": [GREY.point(lambda value: 3 - value)]}


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(saved(GREY), id="grey"),
        pytest.param(saved(PALETTE), id="palette of 2 bits"),
        pytest.param(png(b"\0\1\2", b"\3\1\0", colour=3, more=PALETTE_CHUNK + chunk(b"tRNS", b"\0")), id="transparent"),
        pytest.param(png(b"\0\1\2", b"\3\1\0", more=chunk(b"tRNS", b"\0\1")), id="transparent grey"),
        pytest.param(png(*TWO_BITS, bits=2), id="2 bits"),
        pytest.param(png(b"\x01\x20", b"\x31\x00", bits=4), id="4 bits"),
        pytest.param(saved(DEEP), id="16 bits"),
        pytest.param(png(b"\0", b"\2", b"\1", b"\3\1\0", passes=2), id="interlaced"),
        pytest.param(saved(GREY, **ANIMATED), id="animated"),
        pytest.param(saved(GREY, "BMP"), id="bmp"),
        pytest.param(saved(PALETTE, "GIF"), id="gif"),
        pytest.param(saved(GREY, "TIFF", compression="tiff_lzw"), id="tiff"),
    ],
)
def test_values_of_a_mask_are_those_of_its_pixels(data):
    assert read_mask(data, 3, 2).tolist() == VALUES


def test_mask_of_1_bit_has_values_0_and_1():
    assert read_mask(png(b"\xa0", bits=1), 3, 1).tolist() == [[1, 0, 1]]


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "L"])
def test_colours_are_the_index_in_their_table(mode):
    values = [[0, 3, 3]] if mode == "L" else VALUES
    colours = np.frombuffer(COLOURS, np.uint8).reshape(-1, 3)[np.array(values)]
    assert read_mask(saved(Image.fromarray(colours).convert(mode)), 3, len(values), COLOURS).tolist() == values


WIDE = np.array([[0, 9, 3]], np.int64)


@pytest.mark.parametrize(("dtype", "form"), [(np.uint16, "PNG"), (np.int32, "TIFF")])
def test_deep_pixels_of_8_bits_are_greys(dtype, form):
    greys = bytes((0, 0, 0, 9, 9, 9, 3, 3, 3))
    assert read_mask(saved(Image.fromarray(WIDE.astype(dtype)), form), 3, 1, greys).tolist() == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("pixels", "form"),
    [
        (WIDE.astype(np.uint16) * 100, "PNG"),
        (WIDE.astype(np.int32) - 4, "TIFF"),
        (WIDE.astype(np.float32), "TIFF"),
    ],
)
def test_other_deep_pixels_are_no_colours(pixels, form):
    """Pillow would make 0 or 255 of them."""
    with pytest.raises(UnusableError) as caught:
        read_mask(saved(Image.fromarray(pixels), form), 3, 1, bytes((0, 0, 0, 255, 255, 255, 9, 9, 9)))
    assert caught.value.reason is Reason.MASK_KIND


@pytest.mark.parametrize("value", [-1, 65_536, 65_537])
def test_values_beyond_16_bits_are_not_those_of_a_class(value):
    assert read_mask(saved(Image.fromarray(np.array([[value, 1]], np.int32)), "TIFF"), 2, 1).tolist() == [[65_535, 1]]


HUGE = chunk(b"IHDR", struct.pack(">IIBBBBB", 1 << 30, 1 << 30, 8, 0, 0, 0, 0))
BOMB = b"\x89PNG\r\n\x1a\n" + HUGE + chunk(b"IDAT", zlib.compress(bytes(1 << 24))) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", Reason.MASK_UNREADABLE),
        (b"no image", Reason.MASK_UNREADABLE),
        (saved(GREY)[:-20], Reason.MASK_UNREADABLE),
        (saved(GREY).replace(b"IDAT", b"IDAX"), Reason.MASK_UNREADABLE),
        (BOMB, Reason.MASK_SIZE_MISMATCH),
        (saved(GREY.resize((2, 3))), Reason.MASK_SIZE_MISMATCH),
        (saved(GREY, "JPEG"), Reason.MASK_KIND),
        (saved(GREY, "WEBP", lossless=True), Reason.MASK_KIND),
        (saved(GREY.convert("RGB")), Reason.MASK_KIND),
        (saved(GREY.convert("LA")), Reason.MASK_KIND),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else value.value,
)
def test_unusable_masks(data, reason):
    with pytest.raises(UnusableError) as caught:
        read_mask(data, 3, 2)
    assert caught.value.reason is reason


def test_tiff_that_pillow_turns_has_the_size_of_its_turned_pixels():
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = saved(GREY, "TIFF", exif=exif)
    with pytest.raises(UnusableError) as caught:
        read_mask(turned, 3, 2)
    assert caught.value.reason is Reason.MASK_SIZE_MISMATCH


@pytest.mark.parametrize("data", [saved(GREY), saved(DEEP, "TIFF"), saved(GREY.convert("RGB"))])
def test_depth_maps_are_grey_pngs_of_16_bits(data):
    assert read_depth(saved(DEEP), 3, 2).tolist() == VALUES
    with pytest.raises(UnusableError) as caught:
        read_depth(data, 3, 2)
    assert caught.value.reason is Reason.MASK_KIND


@pytest.fixture
def maps(tmp_path):
    """Function that writes maps, and returns their MapFiles."""

    def write(part: Part, data: bytes, **more) -> MapFile:
        path = tmp_path / f"{part.value}.png"
        path.write_bytes(data)
        return MapFile(part, File(str(path)), path.name, **more)

    return write


def pixels(data: bytes) -> list:
    with Image.open(io.BytesIO(data)) as image:
        return [image.mode, np.asarray(image).tolist()]


def test_maps_of_an_image(maps):
    encoder = MapEncoder(LABELS, DETECTION.with_parts((Part.SEMANTIC, Part.DEPTH)))
    read = encoder.read(
        [maps(Part.SEMANTIC, saved(PALETTE), changes=((3, 255), (9, 255))), maps(Part.DEPTH, saved(DEEP))], 3, 2
    )
    whole = encoder.encode(read, StoredImage(b"", "png", 3, 2, ""), None)
    assert pixels(whole["semantic.png"]) == ["L", [[0, 1, 2], [255, 1, 0]]]
    assert whole["depth.png"] == saved(DEEP)
    assert whole["segments.class_index"] == [0, 1, 2]
    assert whole["semantic.pixels"] == {0: 2, 1: 2, 2: 1, 255: 1}
    tile = encoder.encode(read, StoredImage(b"", "png", 2, 1, ""), (1, 1))
    assert [pixels(tile[key]) for key in ("semantic.png", "depth.png")] == [["L", [[1, 0]]], ["I;16", [[1, 0]]]]
    shrunk = encoder.encode(read, StoredImage(b"", "png", 1, 1, "", (3, 2)), None)
    assert [pixels(shrunk[key]) for key in ("semantic.png", "depth.png")] == [["L", [[1]]], ["I;16", [[1]]]]


def test_image_of_a_set_without_maps_has_void_ones():
    values = MapEncoder(LABELS, DETECTION.with_parts((Part.SEMANTIC, Part.DEPTH))).encode(
        {}, StoredImage(b"", "png", 2, 1, ""), None
    )
    assert [pixels(values[key]) for key in ("semantic.png", "depth.png")] == [["L", [[255, 255]]], ["I;16", [[0, 0]]]]
    assert values["segments.class_index"] == []


@pytest.mark.parametrize(
    ("mask", "detail"),
    [
        (np.array([[0, 7, 9]], np.uint8), "2 of its pixels have a value without a name: 7, 9"),
        (np.array([[0, 300, 1]], np.uint16), "1 of its pixels have a value without a name: 300"),
        (np.array([[0, 255, 1]], np.uint8), ""),
    ],
)
def test_values_need_a_name(maps, mask, detail):
    file = maps(Part.SEMANTIC, saved(Image.fromarray(mask)))
    encoder = MapEncoder(LABELS, DETECTION.with_parts((Part.SEMANTIC,)))
    if not detail:
        assert encoder.read([file], 3, 1)[Part.SEMANTIC].pixels.tolist() == mask.tolist()
        return
    with pytest.raises(UnusableError) as caught:
        encoder.read([file], 3, 1)
    assert (caught.value.reason, caught.value.detail) == (
        Reason.UNNAMED_VALUE,
        f"its mask 'semantic.png': {detail}",
    )


def test_colour_without_a_name(maps):
    file = maps(Part.SEMANTIC, saved(GREY.convert("RGB")), colours=COLOURS)
    with pytest.raises(UnusableError, match=r"4 of its pixels have a colour .* lacks: #010101, #020202, #030303"):
        MapEncoder(LABELS, DETECTION.with_parts((Part.SEMANTIC,))).read([file], 3, 2)
