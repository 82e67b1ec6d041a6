import google_crc32c
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.storage.join_checksums import join_checksums


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_it_is_the_checksum_of_both(first, second):
    joined = join_checksums(google_crc32c.value(first), google_crc32c.value(second), len(second))
    assert joined == google_crc32c.value(first + second)


def test_of_many_bytes():
    zeros, length = google_crc32c.value(bytes(1 << 20)), 1 << 20
    expected = google_crc32c.value(bytes(1 << 26))
    while length < 1 << 26:
        zeros, length = join_checksums(zeros, zeros, length), 2 * length
    assert zeros == expected
