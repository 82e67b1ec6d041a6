import pickle

import numpy as np
import pytest

from recordmill.schemas.errors import ConfigError
from tests.recordmill.splits import CONTENTS, draw, write_split


@pytest.fixture
def split(tmp_path):
    contents = CONTENTS["detection"]
    return write_split(tmp_path, contents, [draw(contents, number) for number in range(5)])


def same(one, other) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def test_records_are_split_one_by_one_and_several(split):
    source = split.grain()
    assert len(source) == 5
    assert same(source[3], split[3])
    assert all(map(same, source._getitems([4, 0, 4]), [split[4], split[0], split[4]]))
    assert source.__getitems__([]) == []
    assert split.grain(raw=True)._getitems([2, 1]) == [split.raw(2), split.raw(1)]
    assert split.grain(raw=True)[4] == split.raw(4)


def test_compressed_shards_are_refused_when_it_is_made(tmp_path):
    split = write_split(tmp_path, CONTENTS["rows"], [draw(CONTENTS["rows"], 0)], compressed=True)
    with pytest.raises(ConfigError, match="the shards are GZIP"):
        split.grain()


def test_copy_in_another_process_reads_same(split):
    source = split.grain()
    first = source[0]
    assert same(pickle.loads(pickle.dumps(source))[0], first)


def test_its_name_is_that_of_its_records_wherever_they_are(split, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    contents = CONTENTS["detection"]
    drawn = [draw(contents, number) for number in range(5)]
    copy = write_split(tmp_path / "elsewhere", contents, drawn)
    assert repr(copy.grain()) == repr(split.grain())
    other = write_split(tmp_path / "elsewhere", contents, drawn[::-1])
    names = {repr(each) for each in (split.grain(), split.grain(raw=True), split[1:].grain(), other.grain())}
    assert len(names) == 4
