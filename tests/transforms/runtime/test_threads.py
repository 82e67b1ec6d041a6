import pickle

import pytest

from recordmill.transforms.extract.extract_shards import _ExtractShard
from recordmill.transforms.runtime import threads
from recordmill.transforms.shards.write_shards import _WriteShard
from recordmill.transforms.shards.write_with_beam_sink import MakeRecords
from recordmill.transforms.verify.verify_shards import _VerifyShard


@pytest.mark.parametrize(
    "make",
    [
        lambda number: _ExtractShard("folder", number),
        lambda number: MakeRecords(None, number),
        lambda number: _VerifyShard(number, 2),
        lambda number: _WriteShard(None, number),
    ],
)
@pytest.mark.parametrize(("given", "expected"), [(None, 3), (5, 5)])
def test_threads_are_as_many_as_are_given_or_as_cores_where_the_work_is_done(make, given, expected, monkeypatch):
    def not_here() -> int:
        raise AssertionError("counted where the job is submitted")

    monkeypatch.setattr(threads, "usable_cores", not_here)
    shipped = pickle.dumps(make(given))
    monkeypatch.setattr(threads, "usable_cores", lambda: 3)
    worker = pickle.loads(shipped)
    worker.setup()
    assert worker.pool._max_workers == worker.threads == expected
    worker.teardown()
    with pytest.raises(RuntimeError):
        worker.pool.submit(int)
