"""Images that are deleted, replaced or out of reach while a job runs are counted, and tried again by the next."""

import contextlib
from collections.abc import Callable, Iterator

from recordmill.transforms.shards import write_shards

# Images that change while a job runs


@contextlib.contextmanager
def when_writing_begins(monkeypatch, change: Callable[[], object]) -> Iterator[None]:
    """Do something once, after all images have been listed and before any is read."""
    original, done = write_shards._write, []

    def write(*arguments):
        if not done:
            done.append(change())
        return original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(write_shards, "_write", write)
        yield
    assert done


def test_images_out_of_reach_are_read_by_next_run(sample_job, recordmill, monkeypatch):
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
