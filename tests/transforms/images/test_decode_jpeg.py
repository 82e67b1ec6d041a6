import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from recordmill.schemas.rejects import UnusableError
from recordmill.transforms.images import decode_jpeg as module
from recordmill.transforms.images.check_formats import jpeg_frame
from recordmill.transforms.images.decode_jpeg import decode_jpeg
from recordmill.transforms.images.load_images import decode_pixels, decode_rgb
from tests.conftest import SHARED_DATA

Y, X = np.mgrid[:37, :53]
NOISE = np.random.default_rng(1).integers(0, 80, (37, 53, 3))
PIXELS = (np.stack([X * 3, Y * 4, X * Y % 170], 2) + NOISE).astype(np.uint8)


def jpeg(mode: str = "RGB", pixels: np.ndarray = PIXELS, **options: object) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(stream, "JPEG", **options)
    return stream.getvalue()


def by_pillow(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"subsampling": "4:4:4", "quality": 95},
        {"subsampling": "4:2:2"},
        {"subsampling": "4:2:0", "quality": 20},
        {"subsampling": "4:1:1"},
        {"mode": "L"},
        {"keep_rgb": True},  # no transform of colours, by Adobe's segment
        {"restart_marker_blocks": 2},
        {"exif": b"Exif\0\0MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0"},  # lies on its side
    ],
    ids=str,
)
def test_pixels_equal_those_of_pillow(options, progressive):
    data = jpeg(**options, progressive=progressive)
    np.testing.assert_array_equal(decode_jpeg(data), by_pillow(data))


@pytest.mark.skipif(not SHARED_DATA.is_dir(), reason="the real data sets are not here")
def test_pixels_of_real_images_equal_those_of_pillow():
    paths = sorted(path for path in SHARED_DATA.rglob("*.jp*g") if path.is_file())[::25]
    decoded = [(data, decode_jpeg(data)) for data in map(Path.read_bytes, paths) if decode_jpeg(data) is not None]
    assert len(decoded) > 50
    for data, pixels in decoded:
        np.testing.assert_array_equal(pixels, by_pillow(data))


def tall() -> bytes:
    return jpeg(pixels=np.zeros((65_000, 1, 3), np.uint8))


def test_extreme_sizes_and_trailing_bytes():
    assert decode_jpeg(tall()).shape == (65_000, 1, 3)
    np.testing.assert_array_equal(decode_jpeg(jpeg() + b"a video"), by_pillow(jpeg()))


@pytest.mark.parametrize(("min_size", "factor"), [((1, 1), 8), ((10, 14), 4), ((11, 1), 2), ((20, 1), 1)])
def test_reduced_size_equals_that_of_pillow(min_size, factor):
    pixels = decode_jpeg(jpeg(), min_size)
    image = Image.open(io.BytesIO(jpeg()))
    image.draft("RGB", (53 // factor, 37 // factor))
    np.testing.assert_array_equal(pixels, np.asarray(image))


def test_decode_into_an_array():
    out = np.zeros((2, 37, 53, 3), np.uint8)
    assert np.shares_memory(decode_jpeg(jpeg(), out=out[1]), out)
    np.testing.assert_array_equal(out, [np.zeros_like(PIXELS), by_pillow(jpeg())])


def png() -> bytes:
    stream = io.BytesIO()
    Image.fromarray(PIXELS).save(stream, "PNG")
    return stream.getvalue()


def bomb() -> bytes:
    """Return a small JPEG whose header states 65,500x65,500 pixels."""
    data, frame = bytearray(jpeg()), jpeg_frame(jpeg())
    at = data.index((frame.height).to_bytes(2, "big") + frame.width.to_bytes(2, "big"))
    data[at : at + 4] = (65_500).to_bytes(2, "big") * 2
    return bytes(data)


@pytest.mark.parametrize("data", [jpeg("CMYK"), png(), bomb(), b"", b"\xff\xd8\xff", jpeg()[:-40], jpeg()[:200]])
def test_pillow_decodes_the_rest(data, monkeypatch):
    assert decode_jpeg(data) is None
    expected = outcome(data)
    monkeypatch.setattr(module, "simplejpeg", None)
    assert outcome(data) == expected


def test_platforms_without_simplejpeg(monkeypatch):
    expected = outcome(jpeg())
    monkeypatch.setattr(module, "simplejpeg", None)
    assert outcome(jpeg()) == expected


def outcome(data: bytes) -> object:
    """Return the pixels that readers and models get, or why there are none."""
    try:
        return decode_rgb(data).tobytes(), decode_pixels(data, (20, 30), "bilinear").tobytes()
    except UnusableError as error:
        return error.reason, error.detail
