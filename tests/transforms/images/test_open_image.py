import io
import struct
import warnings
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.images import ImageRules, ImageTask
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.images.load_images import load_image
from recordmill.transforms.images.open_image import decode_image, encode_image, image_kind, open_image, stored_size
from recordmill.transforms.sample.draw_scene import encoded
from tests.transforms.images.test_check_formats import chunk

NOISE = Image.fromarray(np.random.default_rng(0).integers(0, 255, (30, 40, 3), np.uint8))


JPEG, PNG = encoded(NOISE, "JPEG"), encoded(NOISE, "PNG")
BOMB = zlib.compress(bytes(3_000_000))


def png(kind: bytes, body: bytes, times: int = 1, late: bool = False) -> bytes:
    """A PNG with a chunk more, after its header or before its end."""
    at = len(PNG) - 12 if late else 33
    return PNG[:at] + chunk(kind, body) * times + PNG[at:]


def jpeg(marker: int, body: bytes, times: int = 1) -> bytes:
    segment = bytes((0xFF, marker)) + struct.pack(">H", len(body) + 2) + body
    return JPEG[:2] + segment * times + JPEG[2:]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(png(b"zTXt", b"a\0\0" + BOMB), id="zTXt bomb"),
        pytest.param(png(b"zTXt", b"a\0\0" + BOMB, late=True), id="zTXt bomb after the pixels"),
        pytest.param(png(b"iTXt", b"a\0\1\0\0\0" + BOMB), id="iTXt bomb"),
        pytest.param(png(b"iCCP", b"a\0\0" + BOMB), id="profile bomb"),
        pytest.param(png(b"iCCP", b""), id="empty profile"),
        pytest.param(png(b"tEXt", b"a\0" + bytes(1_000_000), 70), id="70 MB of text"),
        pytest.param(png(b"zTXt", b"a\0\5abc"), id="unknown compression of text"),
        pytest.param(png(b"pHYs", b"a"), id="short pHYs"),
        pytest.param(png(b"gAMA", b""), id="short gAMA"),
        pytest.param(png(b"sRGB", b""), id="short sRGB"),
        pytest.param(png(b"tRNS", b"abc"), id="transparency of another colour type"),
        pytest.param(png(b"acTL", b""), id="short acTL"),
        pytest.param(png(b"fcTL", b""), id="short fcTL"),
        pytest.param(png(b"fdAT", b"", late=True), id="short fdAT"),
        pytest.param(png(b"eXIf", b"II*\0" + b"\xff" * 50), id="broken eXIf"),
        pytest.param(jpeg(0xE0, b"JFIF"), id="short JFIF"),
        pytest.param(jpeg(0xE1, b"Exif\0\0II*\0" + b"\xff" * 50), id="broken Exif"),
        pytest.param(jpeg(0xE2, b"ICC_PROFILE\0"), id="short ICC profile"),
        pytest.param(jpeg(0xED, b"Photoshop 3.0\x008BIM\3\xed"), id="short Photoshop"),
        pytest.param(jpeg(0xEE, b"Adobe"), id="short Adobe"),
        pytest.param(jpeg(0xFE, bytes(65_000), 20), id="long comments"),
    ],
)
def test_metadata_that_pillow_stumbles_over_costs_no_image(data, tmp_path):
    (tmp_path / "image").write_bytes(data)
    ref = ImageFile(str(tmp_path / "image"), len(data))
    assert tf.io.decode_image(data).shape == (30, 40, 3)
    task = ImageTask(1, "a", 40, 30, ref, "train", ())
    assert load_image(task, ImageRules("decode")).data == data
    as_png = load_image(task, ImageRules("decode", "png")).data
    plain = Image.open(io.BytesIO(PNG if data.startswith(PNG[:8]) else JPEG))
    assert np.array_equal(tf.io.decode_image(as_png), plain)


@pytest.mark.parametrize("format_", ["JPEG", "PNG"])
def test_segments_that_decide_pixels_stay(format_):
    for mode in ("RGB", "CMYK") if format_ == "JPEG" else ("RGB", "P", "L", "RGBA"):
        data = encoded(NOISE.convert(mode), format_, **({"transparency": 5} if mode in ("P", "L") else {}))
        with open_image(data, image_kind(data)) as image:
            assert np.array_equal(image.convert("RGBA"), Image.open(io.BytesIO(data)).convert("RGBA"))


@pytest.mark.parametrize("format_", ["JPEG", "PNG"])
@pytest.mark.parametrize("cut", range(3, 700, 13))
def test_truncated_file_is_refused_where_pillow_refuses_it(format_, cut):
    data = {"JPEG": JPEG, "PNG": PNG}[format_][:cut]
    try:
        size = Image.open(io.BytesIO(data), formats=[format_]).size
    except Exception:
        with pytest.raises(Exception):  # noqa: B017, PT011  whatever Pillow raises
            open_image(data, format_.lower())
    else:
        assert open_image(data, format_.lower()).size == size


def test_host_s_limit_of_pixels_is_neither_heeded_nor_touched(monkeypatch):
    for limit in (1000, 100):  # of which Pillow would warn, and raise
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for format_ in ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF"):
                data = encoded(NOISE, format_)
                assert open_image(data, image_kind(data)).size == (40, 30)
        assert limit == Image.MAX_IMAGE_PIXELS


KEEP = ImageRules("decode", jpeg_quality=100)
# Smooth, so that JPEG keeps it; each corner of its own colour.
ROWS, COLUMNS = np.mgrid[0:30, 0:40]
COLOURS = np.stack([ROWS * 8, COLUMNS * 6, 255 - ROWS * 4 - COLUMNS * 3], -1).astype(np.uint8)
SMOOTH = Image.fromarray(COLOURS)


def opened(image: Image.Image, format_: str, **how) -> Image.Image:
    return Image.open(io.BytesIO(encoded(image, format_, **how)))


def transcode_image(image, original, size, turn, rules) -> tuple[bytes, str]:
    return encode_image(decode_image(image, turn), original, size, rules)


def pixels(data: bytes) -> np.ndarray:
    return tf.io.decode_image(data, channels=3, expand_animations=False).numpy().astype(int)


SEE_THROUGH = Image.fromarray(np.dstack([COLOURS, 100 + ROWS.astype(np.uint8)]))
OPAQUE = SMOOTH.convert("RGBA")
NEARLY_OPAQUE = OPAQUE.copy()
NEARLY_OPAQUE.putpixel((0, 0), (0, 0, 255, 254))
DEEP = Image.fromarray((ROWS * 40 * 50 + COLUMNS).astype(np.uint16))


@pytest.mark.parametrize(
    ("image", "format_", "becomes", "mode"),
    [
        (SMOOTH, "WEBP", "jpeg", "RGB"),
        (SEE_THROUGH, "WEBP", "png", "RGBA"),
        (OPAQUE, "TIFF", "jpeg", "RGB"),
        (NEARLY_OPAQUE, "TIFF", "png", "RGBA"),
        (SMOOTH, "GIF", "jpeg", "RGB"),
        (SMOOTH, "BMP", "jpeg", "RGB"),
        (SMOOTH.convert("1"), "BMP", "jpeg", "L"),
        (SMOOTH.convert("L"), "TIFF", "jpeg", "L"),
        (SMOOTH.convert("CMYK"), "TIFF", "jpeg", "RGB"),
        (SMOOTH.convert("LAB"), "TIFF", "jpeg", "RGB"),
        (DEEP, "TIFF", "png", "I;16"),
        (SMOOTH, "PPM", "jpeg", "RGB"),
        (SMOOTH, "JPEG2000", "jpeg", "RGB"),
    ],
)
def test_becomes(image, format_, becomes, mode):
    how = {"lossless": True} if format_ == "WEBP" else {}
    source = opened(image, format_, **how)
    data, found = transcode_image(source, format_.lower(), image.size, False, KEEP)
    assert (found, Image.open(io.BytesIO(data)).mode) == (becomes, mode)
    assert Image.open(io.BytesIO(data)).format == becomes.upper()
    expected = np.asarray(
        (DEEP if mode == "I;16" else opened(image, format_, **how)).convert("RGB" if mode != "I;16" else "I")
    )
    if mode == "I;16":
        expected = np.stack([expected >> 8] * 3, -1)
    ringing = 30 if image.mode == "1" else 6 if format_ == "GIF" else 3
    assert np.abs(pixels(data) - expected).mean() < ringing


@pytest.mark.parametrize("format_", ["jpeg", "png"])
@pytest.mark.parametrize("mode", ["RGBA", "P", "L", "LA", "1", "CMYK", "I;16"])
def test_all_in_one_format_as_tensorflow_sees_it(mode, format_):
    image = DEEP if mode == "I;16" else SMOOTH.convert(mode)
    original = "jpeg" if mode == "CMYK" else "png"
    how = {"quality": 100} if mode == "CMYK" else {}
    stored = encoded(image, original.upper(), **how)
    rules = ImageRules("decode", format_, jpeg_quality=100)
    data, found = transcode_image(Image.open(io.BytesIO(stored)), original, image.size, False, rules)
    assert found == format_
    difference = np.abs(pixels(data) - pixels(stored)).mean()
    assert difference < (25 if mode in ("P", "1") and format_ == "jpeg" else 3)
    assert format_ == "jpeg" or mode == "CMYK" or difference == 0


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "L", "1", "I;16"])
def test_shrunk(mode):
    image = DEEP if mode == "I;16" else SMOOTH.convert(mode)
    data, _ = transcode_image(opened(image, "PNG"), "png", (20, 15), False, KEEP)
    found = pixels(data)
    assert found.shape == (15, 20, 3)
    expected = pixels(encoded(image, "PNG")).reshape(15, 2, 20, 2, 3).mean((1, 3))
    assert np.abs(found - expected).mean() < (30 if mode in ("1", "P") else 3)


def test_palette_stays_see_through_when_it_is_shrunk():
    halves = Image.fromarray((COLUMNS >= 20).astype(np.uint8)).convert("P")
    data, found = transcode_image(opened(halves, "PNG", transparency=0), "png", (20, 15), False, KEEP)
    shrunk = Image.open(io.BytesIO(data))
    assert (found, shrunk.mode) == ("png", "RGBA")
    alpha = np.asarray(shrunk.getchannel("A"))
    assert (alpha[:, :5] == 0).all()
    assert (alpha[:, 15:] == 255).all()


@pytest.mark.parametrize("values", [np.float32(0.5), np.int32(70_000), np.int32(-1)])
def test_pixels_that_no_format_holds(values):
    image = opened(Image.fromarray(np.full((3, 4), values)), "TIFF")
    with pytest.raises(UnusableError):
        transcode_image(image, "tiff", (4, 3), False, KEEP)


@pytest.mark.parametrize(
    ("width", "format_", "becomes"),
    [(65_500, "keep", "jpeg"), (65_501, "keep", "png"), (1_000_000, "png", "png")],
)
def test_image_too_wide_for_jpeg_becomes_png(width, format_, becomes):
    wide = opened(Image.new("L", (width, 1)), "PPM")
    data, found = transcode_image(wide, "ppm", (width, 1), False, ImageRules("decode", format_))
    assert (found, pixels(data).shape) == (becomes, (1, width, 3))


@pytest.mark.parametrize(("width", "format_", "most"), [(65_501, "jpeg", "65,500"), (1_000_001, "png", "1,000,000")])
def test_image_wider_than_its_format_is_read(width, format_, most):
    wide = opened(Image.new("L", (width, 1)), "PPM")
    with pytest.raises(UnusableError, match=f"sides of a readable {format_.upper()} have at most {most}") as caught:
        transcode_image(wide, "ppm", (width, 1), False, ImageRules("decode", format_))
    assert caught.value.reason is Reason.TOO_LARGE


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("compression", [None, "tiff_lzw"])
def test_tiff_is_unchanged_stored_unless_it_is_to_be_turned(orientation, compression):
    """Pillow turns TIFFs by itself, and no other format."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    how = {"compression": compression} if compression else {}
    image = opened(SMOOTH, "TIFF", exif=exif, **how)
    assert stored_size(image) == (40, 30)
    data, _ = transcode_image(image, "tiff", (40, 30), False, ImageRules("decode", "png"))
    assert (pixels(data) == COLOURS).all()
    if orientation > 4:
        turned, _ = transcode_image(opened(SMOOTH, "TIFF", exif=exif, **how), "tiff", (30, 40), True, KEEP)
        expected, _ = transcode_image(opened(SMOOTH, "PNG", exif=exif), "png", (30, 40), True, KEEP)
        assert np.abs(pixels(turned) - pixels(expected)).mean() < 3


@pytest.mark.parametrize(
    ("format_", "how"),
    [("GIF", {"comment": b"x" * 70_000}), ("TIFF", {"icc_profile": bytes(100_000)}), ("WEBP", {"xmp": bytes(100_000)})],
)
@pytest.mark.parametrize("wanted", ["jpeg", "png"])
def test_metadata_is_not_carried(format_, how, wanted):
    data, _ = transcode_image(opened(SMOOTH, format_, **how), "", (40, 30), False, ImageRules("decode", wanted))
    assert len(data) < 10_000
    assert not Image.open(io.BytesIO(data)).info.keys() & {"comment", "icc_profile", "xmp", "exif"}
