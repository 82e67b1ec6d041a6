import numpy as np
import pytest

from recordmill.transforms.records.shard_index import decode_index, encode_index, index_of


@pytest.mark.parametrize("lengths", [[], [16], [20, 17, 5_000_000_000, 16]])
def test_index_is_read_as_it_was_written(lengths):
    index = decode_index(encode_index(index_of(lengths)))
    assert index.lengths.tolist() == lengths
    assert index.bounds[:-1].tolist() == [sum(lengths[:each]) for each in range(len(lengths))]
    assert (index.records, index.size) == (len(lengths), sum(lengths))
    assert index.bounds.dtype == np.int64


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"0 20\n20 1", "cut"),
        (b"0 20\n20", "two numbers"),
        (b"0 20\n\n20 16\n", "lines"),
        (b"0 20\n 20\n", "two numbers"),
        (b"0 20 20\n", "lines"),
        (b"0\n", "lines"),
        (b"0 20\n-1 20\n", "lines"),
        (b"\x00\x01", "lines"),
        (b"0 20\n20 15\n", "record 1 has 15 bytes, where a frame alone has 16"),
        (b"0 20\n1000000000 16\n", "record 1 begins at byte 1,000,000,000, where the one before ends at 20"),
        (b"16 20\n36 16\n", "record 0 begins at byte 16, where the one before ends at 0"),
        (b"0 20\n36 16\n", "record 1 begins at byte 36"),
        (b"0 20\n20 99999999999999999999999\n", "record 1"),
        (b"0 9223372036854775807\n9223372036854775807 16\n", "record"),
    ],
)
def test_what_is_no_index_is_refused_with_what_is_wrong(data, told):
    with pytest.raises(ValueError, match=told):
        decode_index(data)
