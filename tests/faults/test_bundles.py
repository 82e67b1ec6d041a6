"""A bundle that fails, or is done twice, leaves one whole shard or none."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from apache_beam.runners.portability.fn_api_runner import execution

from recordmill.transforms.shards.shard_file import ShardFile, WrittenShard
from recordmill.transforms.storage.resolve import storage_for
from tests.conftest import every_kind
from tests.faults.jobs import LocalPlace


def fail_once(monkeypatch, owner: type, method: str, at: int, error: BaseException) -> None:
    """Let the `at`th call of a method (from 1) raise."""
    original = getattr(owner, method)
    calls = []

    def failing(*arguments):
        calls.append(arguments)
        if len(calls) == at:
            raise error
        return original(*arguments)

    monkeypatch.setattr(owner, method, failing)


@pytest.mark.usefixtures("small_writes")
@pytest.mark.parametrize("where", ["a record", "the file's end", "the note of it"])
def test_bundle_that_failed_is_done_again(shard, place, is_gzip, where, monkeypatch):
    whole = shard.undisturbed(is_gzip)
    storage = storage_for(shard.output)
    match where:
        case "a record":
            fail_once(monkeypatch, ShardFile, "append", 10, RuntimeError("once"))
        case "the file's end":
            fail_once(monkeypatch, type(storage.create(f"{place.root}/other/x")), "commit", 1, RuntimeError("once"))
        case "the note of it":
            fail_once(monkeypatch, type(storage), "write", 1 if is_gzip else 2, RuntimeError("once"))  # after the index
    with pytest.raises(RuntimeError, match="once"):
        shard.finish(is_gzip)
    assert shard.files().items() <= whole.items()
    written = [name for name in shard.files() if not name.endswith(".idx")]
    assert len(written) == (1 if where == "the note of it" else 0)
    shard.finish(is_gzip)
    assert shard.files() == whole


def test_bundle_done_twice_is_written_once(shard, is_gzip):
    whole = shard.undisturbed(is_gzip)
    results = [shard.finish(is_gzip) for _ in range(2)]
    assert results[0] == results[1]
    assert shard.files() == whole


@pytest.mark.usefixtures("small_writes")
def test_bundle_that_two_workers_do_at_once(shard, is_gzip):
    whole = shard.undisturbed(is_gzip)
    for number in range(10):
        output = f"{shard.output}{number}"
        together = threading.Barrier(2)

        def work(output: str = output, together: threading.Barrier = together) -> WrittenShard:
            together.wait()
            return shard.finish(is_gzip, output)

        with ThreadPoolExecutor(2) as workers:
            one, other = [future.result() for future in [workers.submit(work) for _ in range(2)]]
        assert one == other
        assert shard.files(output) == whole


def test_reordered_and_repeated_bundles(sample, tmp_path, recordmill, monkeypatch):
    """Each file is the same: GroupByKey promises no order, and a service repeats bundles."""
    flags = ["convert", *every_kind(sample), "--masks", "both", "--split", "train=0.7,val=0.3", "--num-shards", 3]
    assert recordmill(*flags, "--output", tmp_path / "once").code == 0
    rng, shuffled = random.Random(5), []
    partition = execution.GroupingBuffer.partition

    def shuffle(buffer, n):
        if buffer._grouped_output is None and buffer._table is not None:
            for values in buffer._table.values():
                rng.shuffle(values)
                shuffled.append(len(values) > 1)
        return partition(buffer, n)

    monkeypatch.setattr(execution.GroupingBuffer, "partition", shuffle)
    beam = ["--", "--direct_runner_bundle_repeat=1"]
    assert recordmill(*flags, "--output", tmp_path / "twice", *beam).code == 0
    assert sum(shuffled) > 5
    once, twice = (LocalPlace(tmp_path).files(str(tmp_path / name)) for name in ("once", "twice"))
    assert once == twice
