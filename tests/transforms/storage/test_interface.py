import base64

import google_crc32c
import pytest

from recordmill.transforms.storage.interface import crc32c_text


@pytest.mark.parametrize(
    ("data", "crc"),
    [  # RFC 3720, B.4
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (b"", 0),
    ],
)
def test_it_is_big_endian_in_base64(data, crc):
    checksum = google_crc32c.Checksum()
    checksum.update(data)
    assert base64.b64decode(crc32c_text(checksum)) == crc.to_bytes(4, "big")
