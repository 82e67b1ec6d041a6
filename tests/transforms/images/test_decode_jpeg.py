import io
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
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


@pytest.mark.parametrize("subsampling", ["444", "422", "420", "440", "411", "Gray"])
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (1, 40), (33, 7), (16, 16), (17, 31)])
def test_odd_sizes_of_all_subsamplings(subsampling, size):
    pixels = np.ascontiguousarray(PIXELS[: size[0], : size[1]])
    data = simplejpeg.encode_jpeg(pixels, quality=60, colorsubsampling=subsampling)
    np.testing.assert_array_equal(decode_jpeg(data), by_pillow(data))


@pytest.mark.skipif(not SHARED_DATA.is_dir(), reason="the real data sets are not here")
def test_pixels_of_real_images_equal_those_of_pillow():
    paths = sorted(path for path in SHARED_DATA.rglob("*.jp*g") if path.is_file())[::25]
    decoded = [(data, decode_jpeg(data)) for data in map(Path.read_bytes, paths) if decode_jpeg(data) is not None]
    assert len(decoded) > 50
    for data, pixels in decoded:
        np.testing.assert_array_equal(pixels, by_pillow(data))


@pytest.mark.parametrize("size", [(65_000, 1), (1, 65_000)])
def test_extreme_sizes(size):
    data = jpeg(pixels=np.resize(PIXELS, (*size, 3)))
    np.testing.assert_array_equal(decode_jpeg(data), by_pillow(data))
    assert decode_jpeg(data, (1, 1)).shape == (max(1, size[0] // 8), max(1, size[1] // 8), 3)


@pytest.mark.parametrize("rest", [b"a video", bytes(3000), jpeg("L")])
def test_trailing_bytes(rest):
    np.testing.assert_array_equal(decode_jpeg(jpeg() + rest), by_pillow(jpeg()))


@pytest.mark.parametrize(("min_size", "factor"), [((1, 1), 8), ((10, 14), 4), ((11, 1), 2), ((20, 1), 1)])
def test_reduced_size_equals_that_of_pillow(min_size, factor):
    pixels = decode_jpeg(jpeg(), min_size)
    image = Image.open(io.BytesIO(jpeg()))
    image.draft("RGB", (53 // factor, 37 // factor))
    np.testing.assert_array_equal(pixels, np.asarray(image))


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


def with_frame(at: int, value: int) -> bytes:
    """Return a JPEG with another byte in its frame header: 1 is the marker, 4 the bits, 6 the height, 11 a sampling."""
    data = bytearray(jpeg())
    data[data.index(b"\xff\xc0") + at] = value
    return bytes(data)


def with_two_frames() -> bytes:
    """Return a JPEG whose first frame header states fewer pixels than the second."""
    small, large = with_frame(6, 1), jpeg()
    start = large.index(b"\xff\xc0")
    return large[:start] + small[start : start + 19] + large[start:]


def with_many_scans() -> bytes:
    """Return a progressive JPEG that repeats its last scan. Pillow has no limit of scans."""
    data = jpeg(progressive=True)
    return data[:-2] + data[data.rindex(b"\xff\xda") : -2] * 1_000 + data[-2:]


ADOBE = b"\xff\xee\0\x0eAdobe\0d\0\0\0\0"


@pytest.mark.parametrize(
    "data",
    {
        "CMYK": jpeg("CMYK"),
        "YCCK": jpeg("CMYK").replace(ADOBE + b"\0", ADOBE + b"\2"),
        "transform for four channels": jpeg()[:2] + ADOBE + b"\2" + jpeg()[20:],
        "PNG": png(),
        "bomb": bomb(),
        "empty": b"",
        "start only": b"\xff\xd8\xff",
        "truncated": jpeg()[:-40],
        "no end marker": jpeg()[:-2],
        "truncated header": jpeg()[:200],
        "12 bits": with_frame(4, 12),
        "arithmetic coding": with_frame(1, 0xC9),
        "lossless": with_frame(1, 0xC3),
        "no height": with_frame(6, 0),
        "more rows than scanned": with_frame(6, 200),
        "fractional sampling": with_frame(11, 0x31),
        "many scans": with_many_scans(),
        "two frames": with_two_frames(),
        "garbage in scan": jpeg()[:-90] + b"\xff\x01" + jpeg()[-88:],
    }.items(),
    ids=lambda item: item[0],
)
def test_pillow_decodes_the_rest(data, monkeypatch):
    assert decode_jpeg(data[1]) is None
    expected = outcome(data[1])
    monkeypatch.setattr(module, "simplejpeg", None)
    assert outcome(data[1]) == expected


@pytest.mark.parametrize("min_size", [(0, 0), (10, 14), (11, 1), (1, 1), (200, 1)])
def test_platforms_without_simplejpeg(min_size, monkeypatch):
    expected = outcome(jpeg(), min_size)
    monkeypatch.setattr(module, "simplejpeg", None)
    assert outcome(jpeg(), min_size) == expected


def outcome(data: bytes, min_size: tuple[int, int] = (0, 0)) -> object:
    """Return the pixels that readers and models get, or why there are none."""
    results: list[object] = []
    for decode in (lambda: decode_rgb(data, min_size), lambda: decode_pixels(data, (20, 30), "bilinear")):
        try:
            pixels = decode()
            results.append((pixels.shape, pixels.tobytes()))
        except UnusableError as error:
            results.append((error.reason, error.detail))
    return results
