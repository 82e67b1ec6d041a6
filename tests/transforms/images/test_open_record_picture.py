import zlib

import pytest

from recordmill.schemas.rejects import UnusableError
from recordmill.transforms.images.open_record_picture import open_record_picture, picture_size
from tests.transforms.show.records import picture


@pytest.mark.parametrize("format_", ["JPEG", "PNG", "GIF", "WEBP", "TIFF"])
def test_pictures_are_known_by_their_bytes(format_):
    assert picture_size(picture(60, 40, format_)) == (format_.lower(), 60, 40)
    assert open_record_picture(picture(60, 40, format_)).size == (60, 40)


@pytest.mark.parametrize("data", [b"", b"BMW", b"RIFF\x00\x00\x00\x00WAVE", b"text"])
def test_what_is_none(data):
    assert picture_size(data) is None


def test_a_cut_picture():
    with pytest.raises(UnusableError, match="do not decode"):
        open_record_picture(picture(600, 400)[:-200])


def test_more_pixels_than_are_decoded():
    large = bytearray(picture(60, 40, "PNG"))
    large[16:24] = (60_000).to_bytes(4, "big") * 2
    large[29:33] = zlib.crc32(bytes(large[12:29])).to_bytes(4, "big")
    with pytest.raises(UnusableError, match="60000x60000"):
        open_record_picture(bytes(large))
