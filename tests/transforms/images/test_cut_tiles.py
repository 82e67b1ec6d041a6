import io
from itertools import product

import numpy as np
import pytest
from PIL import Image

from recordmill.schemas.inputs.images import ImageRules, TileOf
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.images.cut_tiles import read_whole, stored_box
from recordmill.transforms.images.load_images import _check_or_transcode
from recordmill.transforms.images.open_image import TURNS

WIDTH, HEIGHT = 70, 50
NOISE = np.random.default_rng(7).integers(0, 256, (HEIGHT, WIDTH, 4), np.uint8)
DEEP = NOISE[:, :, 0].astype(np.uint16) * 200
RULES = ImageRules("decode")


def encoded(pixels: np.ndarray, format_: str, mode: str = "", orientation: int = 0, **options) -> bytes:
    image = Image.fromarray(pixels)
    image = image.convert(mode) if mode else image
    if orientation:
        exif = Image.Exif()
        exif[0x0112] = orientation
        options["exif"] = exif
    stream = io.BytesIO()
    image.save(stream, format_, **options)
    return stream.getvalue()


def tile_of(x: int, y: int, size=(WIDTH, HEIGHT), **more) -> TileOf:
    return TileOf(x, y, *size, "a.png", 1, **more)


def pixels_of(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)))


SOURCES = {
    "RGB PNG": encoded(NOISE[:, :, :3], "PNG"),
    "RGBA PNG": encoded(NOISE, "PNG"),
    "opaque RGBA PNG": encoded(np.dstack([NOISE[:, :, :3], np.full((HEIGHT, WIDTH), 255, np.uint8)]), "PNG"),
    "grey PNG": encoded(NOISE[:, :, 0], "PNG"),
    "16-bit PNG": encoded(DEEP, "PNG"),
    "palette PNG": encoded(NOISE[:, :, :3], "PNG", "P"),
    "palette PNG with transparency": encoded(NOISE[:, :, :3], "PNG", "P", transparency=3),
    "1-bit PNG": encoded(NOISE[:, :, 0], "PNG", "1"),
    "RGB JPEG": encoded(NOISE[:, :, :3], "JPEG"),
    "grey JPEG": encoded(NOISE[:, :, 0], "JPEG"),
    "CMYK JPEG": encoded(NOISE[:, :, :3], "JPEG", "CMYK"),
    "WebP with transparency": encoded(NOISE, "WEBP", lossless=True),
    "TIFF": encoded(NOISE[:, :, :3], "TIFF"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_png_tiles_are_crops_of_the_image_as_it_is_converted(name):
    rules = ImageRules("decode", format="png")
    converted = _check_or_transcode(SOURCES[name], WIDTH, HEIGHT, rules)
    expected = Image.open(io.BytesIO(converted.data))
    whole = read_whole(SOURCES[name], tile_of(0, 0), rules)
    for x, y in product((0, 32, 64), (0, 32)):
        width, height = min(32, WIDTH - x), min(32, HEIGHT - y)
        stored = whole.cut(tile_of(x, y), width, height, rules)
        tile = Image.open(io.BytesIO(stored.data))
        assert (stored.format, stored.width, stored.height) == ("png", width, height)
        assert tile.mode == expected.mode
        assert tile.info.get("transparency") == expected.info.get("transparency")
        assert np.array_equal(np.asarray(tile), np.asarray(expected)[y : y + height, x : x + width])
        assert np.array_equal(
            np.asarray(tile.convert("RGBA")), np.asarray(expected.convert("RGBA").crop((x, y, x + width, y + height)))
        )


@pytest.mark.parametrize(
    ("name", "format_"),
    [
        ("RGB PNG", "png"),
        ("RGB JPEG", "jpeg"),
        ("TIFF", "jpeg"),
        ("WebP with transparency", "png"),
        ("16-bit PNG", "png"),
    ],
)
def test_tiles_keep_the_format_that_their_image_would_have(name, format_):
    assert read_whole(SOURCES[name], tile_of(0, 0), RULES).cut(tile_of(0, 0), 32, 32, RULES).format == format_


def test_jpeg_tiles_have_the_quality_that_is_asked():
    whole = read_whole(SOURCES["RGB JPEG"], tile_of(0, 0), RULES)
    small, large = (
        whole.cut(tile_of(8, 8), 32, 32, ImageRules("decode", jpeg_quality=quality)).data for quality in (20, 95)
    )
    image = Image.open(io.BytesIO(SOURCES["RGB JPEG"])).crop((8, 8, 40, 40))
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=95)
    assert len(small) < len(large)
    assert large == stream.getvalue()


@pytest.mark.parametrize("orientation", TURNS)
@pytest.mark.parametrize("format_", ["PNG", "JPEG", "TIFF"])
@pytest.mark.parametrize("is_measured", [False, True])
def test_tiles_are_in_the_frame_of_the_annotations(orientation, format_, is_measured):
    data = encoded(NOISE[:, :, :3], format_, orientation=orientation)
    is_lying = orientation > 4
    size = (HEIGHT, WIDTH) if is_lying else (WIDTH, HEIGHT)
    rules = ImageRules("decode", format="png", upright=True)
    stated = (None, None) if is_measured else size
    expected = pixels_of(_check_or_transcode(data, *stated, rules).data)
    whole = read_whole(data, tile_of(0, 0, size, is_measured=is_measured), rules)
    stored = whole.cut(tile_of(20, 11, size), 25, 30, rules)
    assert np.array_equal(pixels_of(stored.data), expected[11:41, 20:45])


@pytest.mark.parametrize("orientation", [1, *TURNS])
def test_stored_box_is_where_upright_pixels_come_from(orientation):
    stored = Image.fromarray(NOISE[:, :, :3])
    upright = stored.transpose(TURNS[orientation]) if orientation in TURNS else stored
    box = (3, 5, 20, 31)
    part = stored.crop(stored_box(box, upright.size, orientation))
    part = part.transpose(TURNS[orientation]) if orientation in TURNS else part
    assert np.array_equal(np.asarray(part), np.asarray(upright.crop(box)))


@pytest.mark.parametrize(
    ("data", "tile", "reason"),
    [
        (b"", tile_of(0, 0), Reason.IMAGE_UNREADABLE),
        (b"text", tile_of(0, 0), Reason.UNSUPPORTED_FORMAT),
        (SOURCES["RGB PNG"][:-40], tile_of(0, 0), Reason.IMAGE_UNREADABLE),
        (SOURCES["RGB JPEG"][:-400], tile_of(0, 0), Reason.IMAGE_UNREADABLE),
        (SOURCES["RGB PNG"], tile_of(0, 0, (64, 50)), Reason.SIZE_MISMATCH),
        (SOURCES["RGB PNG"], tile_of(0, 0, (64, 50), is_measured=True), Reason.SIZE_MISMATCH),
    ],
)
def test_broken_or_other_image_is_refused(data, tile, reason):
    with pytest.raises(UnusableError) as caught:
        read_whole(data, tile, RULES)
    assert caught.value.reason is reason


@pytest.mark.parametrize(("name", "end"), [("RGB JPEG", 2), ("RGB PNG", 12)])
def test_image_without_its_end_is_refused_by_a_check_of_headers(name, end):
    with pytest.raises(UnusableError) as caught:
        read_whole(SOURCES[name][:-end], tile_of(0, 0), ImageRules("header"))
    assert caught.value.reason is Reason.IMAGE_UNREADABLE


@pytest.mark.parametrize("name", SOURCES)
def test_measures_are_those_of_the_whole_image_and_of_the_first_tile_only(name):
    whole = read_whole(SOURCES[name], tile_of(0, 0), RULES)
    first, second = (whole.cut(tile_of(0, 0, is_first=is_first), 32, 32, RULES) for is_first in (True, False))
    kept = _check_or_transcode(SOURCES[name], WIDTH, HEIGHT, RULES)
    if kept.transcoding is None:
        assert first.measures == kept.measures
    assert first.measures is not None
    assert second.measures is None
