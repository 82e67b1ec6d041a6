import zlib

import numpy as np
import pytest

from recordmill.schemas.rejects import UnusableError
from recordmill.transforms.draw.open_record_picture import picture_of, picture_size
from tests.transforms.show.records import picture


@pytest.mark.parametrize("format_", ["JPEG", "PNG", "GIF", "WEBP", "TIFF"])
def test_pictures_are_known_by_their_bytes(format_):
    assert picture_size(picture(60, 40, format_)) == (format_.lower(), 60, 40)
    assert picture_of({"image.encoded": picture(60, 40, format_)}).size == (60, 40)


@pytest.mark.parametrize("data", [b"", b"BMW", b"RIFF\x00\x00\x00\x00WAVE", b"text"])
def test_what_is_none(data):
    assert picture_size(data) is None


def test_raw_pixels():
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    values = {"image.pixels": pixels.tobytes()}
    assert (np.asarray(picture_of(values, (2, 4, 3))) == pixels).all()
    assert picture_of({}) is None
    with pytest.raises(UnusableError, match="24 bytes"):
        picture_of(values, (2, 5, 3))


def test_a_cut_picture():
    with pytest.raises(UnusableError, match="do not decode"):
        picture_of({"image.encoded": picture(600, 400)[:-200]})


def test_more_pixels_than_are_decoded():
    large = bytearray(picture(60, 40, "PNG"))
    large[16:24] = (60_000).to_bytes(4, "big") * 2
    large[29:33] = zlib.crc32(bytes(large[12:29])).to_bytes(4, "big")
    with pytest.raises(UnusableError, match="60000x60000"):
        picture_of({"image.encoded": bytes(large)})
