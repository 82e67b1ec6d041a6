"""Jobs whose rejects wait in files of the state: the same list, and nothing of them is left."""

import os
import re
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from recordmill.schemas.line_blocks import BlockPlace
from recordmill.schemas.rejects import RejectRun
from recordmill.transforms.rejects import run_files, write_rejects
from recordmill.transforms.rejects.reject_blocks import merged_runs
from tests.conftest import image_row, write_coco
from tests.faults import warm_process
from tests.faults.jobs import CATEGORIES, Job, LocalPlace, assert_ended, folder_splits, rows
from tests.faults.test_two_at_once import assert_done_or_refused, wait_until_stopped


def all_in_files() -> None:
    run_files.INLINE_BYTES = 0


@pytest.fixture
def written(monkeypatch) -> list[str]:
    """Files of rejects that were written."""
    found = []
    name_of = run_files.reject_run

    def seen(digest: str) -> str:
        found.append(digest)
        return name_of(digest)

    monkeypatch.setattr(run_files, "INLINE_BYTES", 0)
    monkeypatch.setattr(run_files, "reject_run", seen)
    return found


@pytest.mark.parametrize(
    ("place", "writer"), [("local", "planned"), ("gs", "planned"), ("local", "beam")], indirect=["place"]
)
def test_the_same_data_set_and_a_dry_run_that_writes_nothing(sample_job, recordmill, writer, written):
    more = ("--writer", writer)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_files, "INLINE_BYTES", 1 << 16)
        assert recordmill(*sample_job.flags(*more, output="whole")).code == 0
    assert not written
    assert recordmill(*sample_job.flags(*more, "--dry-run")).code == 0
    assert (written, sample_job.files()) == ([], {})
    assert recordmill(*sample_job.flags(*more)).code == 0
    assert len(written) == 2  # the image without a file, and the one that is half a picture
    found, whole = sample_job.files(), sample_job.files("whole")
    assert found["rejects-train.jsonl"] == whole["rejects-train.jsonl"]
    assert writer == "beam" or found == whole
    assert not [name for name in found if name.startswith(".recordmill-")]


def picture_rows(pictures: Path, output: Path, *more: object) -> list[object]:
    images = "--image-column", "file", "--images", pictures / "images"
    return rows(pictures, output, *more, "--num-shards", 4, *images)


@pytest.mark.parametrize("verb", [folder_splits, rows, picture_rows])
def test_every_step_gives_places_in_files_for_each_split(verb, tmp_path, recordmill, monkeypatch):
    """Of images without a class, broken ones and missing ones, and of rows with too many cells."""
    for number in range(40):
        path = tmp_path / "images" / ("cat", "dog", "")[number % 3] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"no picture" * number)
    lines = [f"{number},{'ab'[number % 2]},{('cat', 'gone')[number % 2]}/{number}.jpg" for number in range(80)]
    (tmp_path / "rows-1.csv").write_text("\n".join(["id,kind,file", *lines, "99,a,b,c,d,e"]) + "\n")
    kinds = set()

    def seen(output: str, split: str, runs: list[RejectRun]) -> Iterator[list[bytes]]:
        kinds.update(type(block.packed) for run in runs for block in run.blocks)
        return merged_runs(output, split, runs)

    monkeypatch.setattr(write_rejects, "merged_runs", seen)
    lists = []
    for inline, kind in ((1 << 16, bytes), (0, BlockPlace)):
        monkeypatch.setattr(run_files, "INLINE_BYTES", inline)
        output = tmp_path / f"out{inline}"
        recordmill(*verb(tmp_path, output, "--max-rejects", 1))
        assert kinds == {kind}
        kinds.clear()
        lists.append({path.relative_to(output): path.read_bytes() for path in output.rglob("rejects*.jsonl")})
    assert len(lists[0]) == 2
    assert lists[0] == lists[1]


def test_too_many_rejects_are_listed_and_a_rerun_goes_on(sample_job, recordmill, written):
    whole = sample_job.undisturbed(recordmill)
    written.clear()
    strict = recordmill(*sample_job.flags("--max-rejects", 0))
    assert (strict.code, len(written)) == (1, 1)
    assert any(re.fullmatch(r"\.recordmill-train/rejects-\w+", name) for name in sample_job.files())
    assert recordmill(*sample_job.flags()).code == 0
    assert sample_job.files() == whole


@pytest.fixture
def job(pictures, tmp_path) -> Job:
    """Three images, of which one has no file and one is no picture, and annotations of which one has no category."""
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "1.jpg").write_bytes(next((pictures / "images").rglob("*.jpg")).read_bytes())
    (tmp_path / "images" / "2.jpg").write_bytes(b"no picture")
    images = [image_row(id_, f"{id_}.jpg", None, None) for id_ in (1, 2, 3)]
    annotations = [{"id": 1, "image_id": 1, "category_id": 77, "bbox": [1, 1, 5, 5], "area": 25, "iscrowd": 0}]
    path = write_coco(tmp_path, images, annotations, CATEGORIES)
    flags = ["coco", "--images", tmp_path / "images", "--instances", path, "--max-rejects", 1, "--num-shards", 2]
    job = Job(LocalPlace(tmp_path), tmp_path, lambda output: [*flags, "--output", output])
    job.disturbance = all_in_files
    return job


def signalled(job: Job, output: str, step: int, number: int):
    """A run that is sent a signal before its `step`th change of the output's files."""
    return job.start(output, partial(disturb, step, output, number))


def disturb(step: int, output: str, number: int) -> None:
    all_in_files()
    warm_process.signal_before(step, output, number, False)


def test_killed_and_run_again(job):
    """Before a second file of rejects, before their list, before that is moved, and while the state is deleted."""
    whole = job.undisturbed()
    left = 0
    for step in (5, 15, 21, 41):
        output = job.new_output()
        killed = signalled(job, output, step, signal.SIGKILL)
        assert killed.end().was_killed
        left += any(re.match(r"\.recordmill-train/rejects-\w+$", name) for name in job.place.files(output))
        job.run(output)
        assert_ended(killed, job.place.files(output), whole)
    assert left >= 3


@pytest.mark.parametrize("begin", ["anew", "all but the end"])
def test_one_pauses_while_another_does_it_all(job, begin):
    """Which deletes the rejects of the one that pauses, before their list is made, or thereafter."""
    whole = job.undisturbed()
    if begin == "all but the end":
        before = job.new_output()
        assert signalled(job, before, 15, signal.SIGKILL).end().was_killed
        job.before = before
    refused = 0
    for step in (5, 14, 15, 16) if begin == "anew" else (2, 3, 4):
        output = job.new_output()
        paused = signalled(job, output, step, signal.SIGSTOP)
        assert wait_until_stopped(paused)
        job.run(output)
        os.kill(paused.process.pid, signal.SIGCONT)
        assert_done_or_refused(paused.end())
        assert_ended(paused, job.place.files(output), whole)
        refused += " is gone, with rejects that were to be listed: another run of this job" in paused.err
    assert refused == 2
