"""A bundle that fails, or is done twice, leaves one whole shard or none."""

import gc
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from recordmill.schemas.errors import StepError
from recordmill.transforms.encoders.encode_examples import ExampleEncoder
from recordmill.transforms.shards import encode_pictures
from recordmill.transforms.shards.shard_file import ShardFile, WrittenShard
from recordmill.transforms.storage.resolve import storage_for
from tests.faults.failing import fail_once


@pytest.mark.usefixtures("small_writes")
@pytest.mark.parametrize("where", ["a record", "the file's end", "the note of it"])
def test_a_bundle_that_failed_is_done_again(shard, place, is_gzip, where, monkeypatch):
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


def test_a_bundle_that_is_done_twice_is_written_once(shard, is_gzip):
    whole = shard.undisturbed(is_gzip)
    results = [shard.finish(is_gzip) for _ in range(2)]
    assert results[0] == results[1]
    assert shard.files() == whole


@pytest.mark.usefixtures("small_writes")
def test_a_bundle_that_two_workers_do_at_once(shard, is_gzip):
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


def test_a_job_whose_writing_fails_ends_and_goes_on(sample_job, recordmill, monkeypatch):
    """The local runner does a bundle once."""
    whole = sample_job.undisturbed(recordmill)
    with monkeypatch.context() as patch:
        fail_once(patch, ShardFile, "append", 20, RuntimeError("once"))
        outcome = recordmill(*sample_job.flags())
    assert outcome.code == 1
    assert re.fullmatch(r"recordmill: the job failed in step \S+: once .*\n", outcome.err)
    assert sample_job.visible().items() <= whole.items()
    assert "manifest.json" not in sample_job.visible()
    assert recordmill(*sample_job.flags()).code == 0
    assert sample_job.files() == whole


# Exceptions within a shard


@pytest.mark.usefixtures("small_writes")
@pytest.mark.parametrize(
    ("error", "raised"), [(ValueError("of the encoder"), StepError), (KeyboardInterrupt(), KeyboardInterrupt)]
)
def test_what_breaks_off_a_shard_leaves_nothing(shard, is_gzip, error, raised, monkeypatch):
    """Beam's own writers publish what has been written so far when they are closed, or collected."""
    monkeypatch.setattr(encode_pictures, "_RUN_IMAGES", 8)
    fail_once(monkeypatch, ExampleEncoder, "encode", 3, error)
    with pytest.raises(raised):
        shard.finish(is_gzip)
    assert shard.files() == {}
    gc.collect()
    assert shard.files() == {}


@pytest.mark.usefixtures("small_writes")
def test_a_shard_that_nobody_ends_is_never_visible(shard, is_gzip):
    """Neither by `with` nor in another way."""
    begun = ShardFile(shard.recipe(is_gzip), shard.KEY)
    begun.append(bytes(100_000))
    del begun
    gc.collect()
    assert [name for name in shard.files() if not re.fullmatch(r"\..+\.tmp", name)] == []
