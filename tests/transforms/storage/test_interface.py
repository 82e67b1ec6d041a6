import base64

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.storage.interface import crc32c_text, join_checksums


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


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_join_checksums(first, second):
    joined = join_checksums(google_crc32c.value(first), google_crc32c.value(second), len(second))
    assert joined == google_crc32c.value(first + second)


def test_join_checksums_of_many_bytes():
    zeros, length = google_crc32c.value(bytes(1 << 20)), 1 << 20
    expected = google_crc32c.value(bytes(1 << 26))
    while length < 1 << 26:
        zeros, length = join_checksums(zeros, zeros, length), 2 * length
    assert zeros == expected
