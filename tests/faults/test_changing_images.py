"""Images that are deleted, replaced or out of reach while a job runs are counted, and tried again by the next."""

import contextlib
import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator

from recordmill.transforms.shards import shard_writer
from tests.faults.failing import fail_reads
from tests.faults.jobs import Files, assert_whole

# Images that change while a job runs


@contextlib.contextmanager
def when_writing_begins(monkeypatch, change: Callable[[], object]) -> Iterator[None]:
    """Do something once, after all images have been listed and before any is read."""
    original, done = shard_writer._write, []

    def write(*arguments):
        if not done:
            done.append(change())
        return original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(shard_writer, "_write", write)
        yield
    assert done


def rejects_by_name(files: Files) -> dict[str, str]:
    """Why images were left out that are there when they are listed."""
    rows = map(json.loads, files["rejects-train.jsonl"].splitlines())
    found = (re.fullmatch(r"'(.+)': (.+ since it was listed)", row["detail"]) for row in rows)
    return {match[1]: match[2] for match in found if match}


def test_an_image_that_is_deleted_and_one_that_is_replaced(sample_job, recordmill, monkeypatch):
    gone, new = sorted(path for path in sample_job.images.iterdir() if path.suffix == ".jpg")[:2]
    kept = gone.rename(gone.with_suffix(".kept"))
    shutil.copy2(kept, gone)

    def change() -> None:
        gone.unlink()
        new.write_bytes(new.read_bytes())

    with when_writing_begins(monkeypatch, change):
        outcome = recordmill(*sample_job.flags("--max-rejects", 0.5))
    assert outcome.code == 0
    assert "image_missing 3" in outcome.out
    assert rejects_by_name(sample_job.files()) == {
        gone.name: "the file is gone since it was listed",
        new.name: "the file has been replaced since it was listed",
    }
    assert_whole(sample_job.files())


def test_images_that_were_out_of_reach_for_a_while_are_there_in_the_next_run(sample_job, recordmill, monkeypatch):
    """A network drive that comes and goes: too many rejects, and the same command goes on."""
    whole = sample_job.undisturbed(recordmill)
    away = sample_job.images.with_name("away")
    with when_writing_begins(monkeypatch, lambda: sample_job.images.rename(away)):
        outcome = recordmill(*sample_job.flags())
    assert outcome.code == 1
    assert "images (100.0%) are rejected" in outcome.err, outcome
    away.rename(sample_job.images)
    assert recordmill(*sample_job.flags()).code == 0
    assert sample_job.files() == whole


def test_images_that_might_not_be_read_for_a_while_are_there_in_the_next_run(sample_job, recordmill, monkeypatch):
    """Permissions that were wrong, and are put right: no file has changed."""
    whole = sample_job.undisturbed(recordmill)
    error = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    with monkeypatch.context() as patch:
        fail_reads(patch, ".jpg", error)
        assert recordmill(*sample_job.flags()).code == 1
    assert recordmill(*sample_job.flags("--max-rejects", 1)).code == 0
    assert sample_job.files() == whole
