"""Disks that are full, fail, or are away for a while: no partial shard, one line that says where."""

import errno
import io
import os
import re
import subprocess
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest

from recordmill.schemas.containers import CONTAINERS
from recordmill.transforms.shards import write_shards
from recordmill.transforms.storage import local_storage
from tests.faults.jobs import SHARDS, Job, LocalPlace, Shard, assert_consistent, coco, finished_shards


def open_failing(mode: str, ending: str, stage: str, error: OSError, path: str, wanted: str, **how: Any) -> io.IOBase:
    """`open`, but files that are opened in one mode, and whose name ends so, are failing ones."""
    fails = wanted == mode and path.endswith(ending)
    return FailingFile(stage, error, path, mode) if fails else open(path, wanted, **how)


class FailingFile(io.FileIO):
    """A file whose last part the disk does not take."""

    def __init__(self, stage: str, error: OSError, path: str, mode: str):
        super().__init__(path, mode)
        self._stage, self._error, self._taken = stage, error, 0

    def write(self, data) -> int:
        self._taken += 1
        if self._stage == "write" and self._taken > 5:
            raise self._error
        return super().write(data)

    def flush(self) -> None:
        if self._stage == "flush":
            raise self._error
        super().flush()

    def close(self) -> None:
        fails = self._stage == "close" and not self.closed
        super().close()
        if fails:
            raise self._error


@pytest.mark.usefixtures("small_writes")
@pytest.mark.parametrize(
    ("stage", "number"),
    [("write", errno.ENOSPC), ("flush", errno.EDQUOT), ("fsync", errno.EIO), ("close", errno.ENOSPC)],
)
def test_a_disk_that_takes_no_more(tmp_path, stage, number, monkeypatch):
    """The error says where; nothing is left; a rerun writes what the first would have written."""
    shard = Shard(LocalPlace(tmp_path), tmp_path)
    whole = shard.undisturbed()
    error = OSError(number, os.strerror(number))
    with monkeypatch.context() as patch:
        if stage == "fsync":
            patch.setattr(os, "fsync", Mock(side_effect=error))
        else:
            patch.setattr(local_storage, "open", partial(open_failing, "xb", "", stage, error), raising=False)
        with pytest.raises(OSError, match=re.escape(os.strerror(number))) as told:
            shard.finish()
    assert "coco-train.tfrecord-00000-of-00001" in str(told.value)
    assert shard.files() == {}
    shard.finish()
    assert shard.files() == whole


@pytest.mark.parametrize("container", CONTAINERS)
def test_a_full_disk(pictures, tmp_path, container):
    """A file system of 4 MB; then it gets larger. With --format, a plan is no reason to refuse the job."""
    job = Job(
        LocalPlace(tmp_path),
        tmp_path,
        lambda output: coco(pictures, output, "--image-format", "jpeg", "--progress", "none", "--container", container),
    )
    whole = job.undisturbed()
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("no file system may be mounted here; test_a_disk_that_takes_no_more does without")
    try:
        output = f"{disk}/out"
        failed = job.start(output).end()
        assert failed.code == 1
        warned = r"warning: the shards take up to 7\.\d MB, and the disk of \S+ has 4\.2 MB free\. .*\n"
        error = rf"recordmill: {output}/\S+coco-train\S+: no space is left\. .*\n"
        assert re.fullmatch(warned + error, failed.err), failed
        left = job.place.files(output)
        assert_consistent(left, whole)
        assert 0 < len(finished_shards(left)) < SHARDS
        assert "manifest.json" not in left
        assert [name for name in left if name.endswith(".tmp")] == []
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        again = job.run(output)
        assert "Resuming an unfinished run" in again.out
        assert job.place.files(output) == whole
    finally:
        subprocess.run(["umount", disk], check=True)


def test_image_that_disk_does_not_give(sample_job, recordmill, monkeypatch):
    """The image is no reject, because the disk may work again later."""
    whole = sample_job.undisturbed(recordmill)
    read = local_storage._read_file

    def failing(descriptor: int, path: str, *arguments: object) -> bytes:
        if path.endswith("5.jpg"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(descriptor, path, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(local_storage, "_read_file", failing)
        outcome = recordmill(*sample_job.flags())
    assert outcome.code == 1
    assert re.fullmatch(rf"recordmill: {sample_job.images}/\S+5\.jpg: the disk failed .*\n", outcome.err), outcome
    assert sample_job.visible().items() <= whole.items()
    assert "manifest.json" not in sample_job.visible()
    assert recordmill(*sample_job.flags()).code == 0
    assert sample_job.files() == whole


def test_images_out_of_reach_are_read_by_next_run(sample_job, recordmill, monkeypatch):
    """A network drive that comes and goes: too many rejects, and the same command goes on."""
    whole = sample_job.undisturbed(recordmill)
    away = sample_job.images.with_name("away")
    write = write_shards._write_records

    def without_images(*arguments):
        if not away.exists():  # after all images have been listed, and before any is read
            sample_job.images.rename(away)
        return write(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(write_shards, "_write_records", without_images)
        outcome = recordmill(*sample_job.flags())
    assert outcome.code == 1
    assert "images (100.0%) are rejected" in outcome.err, outcome
    away.rename(sample_job.images)
    assert recordmill(*sample_job.flags()).code == 0
    assert sample_job.files() == whole
