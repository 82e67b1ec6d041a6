import io
import struct
import subprocess
import sys
import warnings
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from recordmill.schemas.inputs.images import ImageRef, ImageTask, PictureRules
from recordmill.transforms.images.load_images import load_picture
from recordmill.transforms.images.open_picture import kind_of, open_picture
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
def test_metadata_that_pillow_stumbles_over_costs_no_picture(data, tmp_path):
    (tmp_path / "image").write_bytes(data)
    ref = ImageRef(str(tmp_path / "image"), len(data))
    assert tf.io.decode_image(data).shape == (30, 40, 3)
    task = ImageTask(1, "a", 40, 30, ref, "train", ())
    assert load_picture(task, PictureRules("decode")).data == data
    as_png = load_picture(task, PictureRules("decode", "png")).data
    plain = Image.open(io.BytesIO(PNG if data.startswith(PNG[:8]) else JPEG))
    assert np.array_equal(tf.io.decode_image(as_png), plain)


@pytest.mark.parametrize("format_", ["JPEG", "PNG"])
def test_what_decides_pixels_stays(format_):
    for mode in ("RGB", "CMYK") if format_ == "JPEG" else ("RGB", "P", "L", "RGBA"):
        data = encoded(NOISE.convert(mode), format_, **({"transparency": 5} if mode in ("P", "L") else {}))
        with open_picture(data, kind_of(data)) as opened:
            assert np.array_equal(opened.convert("RGBA"), Image.open(io.BytesIO(data)).convert("RGBA"))


@pytest.mark.parametrize("format_", ["JPEG", "PNG"])
@pytest.mark.parametrize("cut", range(3, 700, 13))
def test_what_is_cut_short_is_no_worse_than_it_is_to_pillow(format_, cut):
    data = {"JPEG": JPEG, "PNG": PNG}[format_][:cut]
    try:
        size = Image.open(io.BytesIO(data), formats=[format_]).size
    except Exception:
        with pytest.raises(Exception):  # noqa: B017, PT011  whatever Pillow raises
            open_picture(data, format_.lower())
    else:
        assert open_picture(data, format_.lower()).size == size


def test_host_s_limit_of_pixels_is_neither_heeded_nor_touched(monkeypatch):
    for limit in (1000, 100):  # of which Pillow would warn, and raise
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for format_ in ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF"):
                data = encoded(NOISE, format_)
                assert open_picture(data, kind_of(data)).size == (40, 30)
        assert limit == Image.MAX_IMAGE_PIXELS


def test_importing_all_that_job_needs_changes_nothing_of_pillow_s():
    code = """
import warnings, PIL.Image as image
before = list(warnings.filters), image.MAX_IMAGE_PIXELS
import recordmill.pipelines.coco, recordmill.pipelines.folder, recordmill.pipelines.extract, recordmill.pipelines.verify
ours = [each for each in warnings.filters if each not in before[0] and "PIL" in str(each)]
print(ours, image.MAX_IMAGE_PIXELS == before[1])
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "[] True\n"
