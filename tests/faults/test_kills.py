"""Nothing is lost and nothing is half-written, whenever a run is killed; and the next run mends it."""

import json
import random
import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import CATEGORIES, write_coco
from tests.faults import warm_process
from tests.faults.jobs import (
    IMAGES,
    SHARDS,
    Files,
    Job,
    Left,
    LocalPlace,
    SmallJob,
    array_records,
    assert_consistent,
    coco,
    coco_parquet,
    coco_repacked,
    coco_replanned,
    coco_tars,
    coco_tiles,
    finished_shards,
    folder_splits,
    place_called,
    rows,
    rows_parquet,
    small_coco,
    zipped,
)

KILLS = 4
"""In each round."""


@pytest.mark.parametrize(
    ("where", "command"),
    [
        pytest.param("local", coco, id="local"),
        pytest.param("local", zipped(folder_splits), id="local folder"),
        pytest.param("local", rows, id="local rows"),
        pytest.param("local", coco_tars, id="local tars"),
        pytest.param("local", coco_tiles, id="local tiles"),
        pytest.param("gs", folder_splits, id="gs folder"),
        pytest.param("gs", rows, id="gs rows"),
        pytest.param("gs", coco_tars, id="gs tars"),
        pytest.param("local", coco_parquet, id="local Parquet"),
        pytest.param("gs", coco_parquet, id="gs Parquet"),
        pytest.param("local", rows_parquet, id="local rows Parquet"),
        pytest.param("local", array_records, id="local ArrayRecord"),
        pytest.param("gs", array_records, id="gs ArrayRecord"),
        pytest.param("s3", folder_splits, id="s3 folder"),
        pytest.param("local", coco_repacked, id="local repacked"),
        pytest.param("gs", coco_repacked, id="gs repacked"),
        pytest.param("local", coco_replanned, id="local replanned"),
    ],
)
def test_killed_at_random_moments(where, command, pictures, tmp_path, server, request):
    job = Job(place_called(where, tmp_path, server), tmp_path, partial(command, pictures))
    if request.node.callspec.id == "gs folder":  # its shards go in four pieces, and those of other rounds in one
        job.disturbance = partial(warm_process.upload_in_chunks, 256 * 1024)
    kill_at_random(job, {}, request.node.callspec.id)


def embed(pictures: Path, output: str) -> list[object]:
    model = ["--model", "mobilenet-v2", "--weights", "none", "--input-size", "32x32"]
    return ["convert", pictures / "images", "--format", "folder", *model, "--output", output, "--num-shards", 6]


def rows_in_many_shards(pictures: Path, output: str) -> list[object]:
    return rows(pictures, output, "--num-shards", 20, "--gzip")


@pytest.mark.parametrize(
    ("command", "shards", "changes"),
    [
        (embed, 6, 3 + 2 + 2 * 3),
        (coco_tars, SHARDS, 3 + 2 + 3 * 3),
        (coco_tiles, SHARDS, 3 + 2 + 3 * 3),
        (coco_parquet, SHARDS, 3 + 2 + 2 * 3),
        (array_records, SHARDS, 2 + 1 + 2 * 3),
        (coco_repacked, SHARDS, 3 + 2 + 3 * 3),
        (coco_replanned, SHARDS, 3 + 2 + 3 * 3),
        (rows_in_many_shards, 40, 60),
    ],
)
def test_a_kill_between_shards(command, shards, changes, pictures, tmp_path):
    """Records that were on their way are made again; shards that were finished are kept. Folders, recipes and sorted
    files of rows are made before the last of `changes`, and some shards and their notes."""
    job = Job(LocalPlace(tmp_path), tmp_path, partial(command, pictures))
    whole = job.undisturbed()
    output = job.new_output()
    killed = job.start(output, partial(warm_process.signal_before, changes, output, signal.SIGKILL, False)).end()
    assert killed.was_killed, killed
    before = Left(job.place, output)
    assert 0 < len(finished_shards(job.place.files(output))) < shards
    assert "Resuming an unfinished run" in job.run(output).out
    before.assert_kept()
    assert job.place.files(output) == whole


def coco_with_another_seed(pictures: Path, output: str) -> list[object]:
    return coco(pictures, output, "--seed", 1, "--overwrite")


def coco_val(pictures: Path, output: str) -> list[object]:
    return coco(pictures, output, "--split", "val")


@pytest.mark.parametrize("command", [coco_with_another_seed, coco_val])
def test_killed_at_random_over_data_set(command, pictures, tmp_path, request):
    """--overwrite, and a second split: until the new data set is whole, what the manifest lists is of the old one."""
    first = Job(LocalPlace(tmp_path / "first"), tmp_path, partial(coco, pictures))
    old = first.undisturbed()
    job = Job(LocalPlace(tmp_path), tmp_path, partial(command, pictures), f"{first.place.root}/out1")
    kill_at_random(job, old, request.node.callspec.id)


@pytest.mark.parametrize(
    ("flags", "where"), [(("--add",), "local"), (("--add", "--sync"), "local"), (("--add", "--sync"), "gs")]
)
def test_addition_killed_at_random_moments(flags, where, pictures, tmp_path, server, request):
    """Readers have the data set before the run, or after it: no file of it is another one, or missing."""
    place = place_called(where, tmp_path, server)
    earlier = coco_earlier(pictures, tmp_path, is_changed="--sync" in flags)
    before = f"{place.root}/before"
    Job(place, tmp_path, earlier).run(before)
    job = Job(place, tmp_path, partial(coco_more, pictures, flags), before)
    output = job.new_output()
    job.run(output)
    kill_at_random(job, place.files(before), request.node.callspec.id, place.files(output))


def test_addition_killed_before_change(pictures, tmp_path):
    """Every eighth change of a file: a run that writes again, adds, and deletes at once."""
    place = LocalPlace(tmp_path)
    before = f"{place.root}/before"
    Job(place, tmp_path, coco_earlier(pictures, tmp_path, is_changed=True)).run(before)
    job = SmallJob(place, tmp_path, partial(coco_more, pictures, ("--add", "--sync", "--prune")), before)
    output = job.new_output()
    job.run(output)
    old, whole = place.files(before), place.files(output)
    kills = 0
    for number in range(1, 400, 8):
        output = job.new_output()
        killed = job.signalled(output, number, signal.SIGKILL).end()
        assert_consistent(place.files(output), old, whole)
        assert "manifest.json" in place.files(output)
        ended = job.run(output) if killed.was_killed else killed
        assert place.files(output) == whole, ended
        if not killed.was_killed:
            break
        kills += 1
    assert kills >= 10
    print(f"KILLS {kills}, each before a change")


def coco_earlier(pictures: Path, folder: Path, is_changed: bool) -> Callable[[str], list[object]]:
    """The first 160 images; with some other labels, if `is_changed`."""
    document = json.loads((pictures / "instances.json").read_text())
    annotations = [row for row in document["annotations"] if row["image_id"] < 160]
    for row in annotations[::40] if is_changed else ():
        row["bbox"][2] += 5
    write_coco(folder, document["images"][:160], annotations, CATEGORIES)
    inputs = ["--images", pictures / "images", "--instances", folder / "instances.json"]
    return lambda output: ["convert", *inputs, "--output", output, "--num-shards", SHARDS]


def coco_more(pictures: Path, flags: Sequence[str], output: str) -> list[object]:
    return coco(pictures, output, *flags)


def kill_at_random(job: Job, old: Files, seed: str, whole: Files | None = None) -> None:
    """Kills at moments of a seeded random generator, within the time that the run takes; every second one in its second
    half, where shards are written. The same command is run again and may be killed again, twice; then it ends with the
    bytes of an undisturbed run."""
    whole = whole or job.undisturbed()
    seconds = job.seconds
    moments = random.Random(seed)
    finished: list[int] = []  # shards after each kill
    while len(finished) < KILLS:
        output = job.new_output()
        for in_a_row in range(4):
            before = Left(job.place, output)
            process = job.start(output)
            if in_a_row < 3 and len(finished) < KILLS:
                process.process.join(moments.uniform(len(finished) % 2 * seconds / 2, seconds))
                process.kill()
            process.end()
            job.place.settle()
            files = job.place.files(output)
            assert_consistent(files, old, whole)
            assert "--add" not in job.command(output) or "manifest.json" in files
            if "--overwrite" not in job.command(output):
                before.assert_kept()
            if not process.was_killed:
                seconds *= 0.9  # the first run may have been slower than these
                break
            finished.append(len(finished_shards(files)))
        assert process.code == 0, process
        assert files == whole, process
        if "--overwrite" not in job.command(output):
            goes_on = before.is_noted and before.manifest != whole["manifest.json"] and not before.is_logged
            assert ("Resuming an unfinished run" in process.out) == goes_on, process
    print(f"KILLS {len(finished)} within {seconds:.2f} s; shards finished after each: {finished}")


@pytest.mark.parametrize(
    ("place", "container"),
    [(where, "tfrecord") for where in ("local", "gs", "s3")]
    + [(where, container) for container in ("webdataset", "parquet") for where in ("local", "s3")],
    indirect=True,
)
def test_killed_before_change_at_end(small_job):
    kill_before_changes_at_end(small_job)


def test_array_records_killed_before_change_at_end(pictures, tmp_path):
    job = SmallJob(LocalPlace(tmp_path), tmp_path, small_coco(pictures, tmp_path, "--container", "arrayrecord"))
    job.local_changes = 2 + 1 + 2 * 2  # no indexes
    kill_before_changes_at_end(job)


def test_repack_killed_before_change_at_end(place, pictures, tmp_path):
    source = LocalPlace(tmp_path / "source")
    SmallJob(source, tmp_path, small_coco(pictures, tmp_path)).run(f"{source.root}/data")
    command = ["repack", f"{source.root}/data"]
    repack = SmallJob(place, tmp_path, lambda output: [*command, output, "--container", "webdataset"])
    kill_before_changes_at_end(repack)


def kill_before_changes_at_end(small_job: SmallJob) -> None:
    """Every third one; every ninth in a bucket."""
    whole = small_job.undisturbed()
    small_job.before = small_job.all_but_the_end()
    kills = 0
    for number in range(1, 100, 3 if isinstance(small_job.place, LocalPlace) else 9):
        output = small_job.new_output()
        killed = small_job.signalled(output, number, signal.SIGKILL).end()
        small_job.place.settle()
        assert_consistent(small_job.place.files(output), whole)
        ended = small_job.run(output) if killed.was_killed else killed
        assert small_job.place.files(output) == whole, ended
        if not killed.was_killed:
            break
        kills += 1
    assert kills >= 3
    print(f"KILLS {kills}, each before a change at the end")


@pytest.mark.parametrize("place", ["local", "gs", "s3"], indirect=True)
def test_kill_before_tidying_leaves_nothing(small_job):
    """A kill within rejects.jsonl, and one after all is in its place."""
    whole = small_job.undisturbed()
    output = small_job.all_but_the_end()
    if isinstance(small_job.place, LocalPlace):
        assert [name for name in small_job.place.files(output) if name.startswith(".rejects.jsonl.")] != []
    small_job.place.copy(f"{small_job.place.root}/out1", output)
    assert set(small_job.place.files(output)) > set(whole)
    small_job.run(output)
    assert small_job.place.files(output) == whole


@pytest.fixture(scope="module")
def converted(pictures, tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("converted")
    output = str(folder / "out")
    assert Job(LocalPlace(folder), folder, partial(coco, pictures)).run(output).code == 0
    return output


@pytest.mark.parametrize("where", ["local", "gs"])
def test_extraction_killed_goes_on(where, converted, tmp_path, server):
    """At moments of a seeded random generator, twice before it goes on to its end. Shards that were extracted are kept,
    the bytes are those of an undisturbed run, and nothing is left besides."""
    job = Job(place_called(where, tmp_path, server), tmp_path, lambda output: ["extract", converted, output])
    output = job.new_output()
    job.run(output)
    whole = job.place.files(output)
    assert len([name for name in whole if name.endswith(".jpg")]) == IMAGES
    moments = random.Random(where)
    kept = 0
    for _ in range(KILLS):
        output = job.new_output()
        for _ in range(2):
            process = job.start(output)
            process.process.join(moments.uniform(job.seconds / 4, job.seconds))
            process.kill()
            if not process.end().was_killed:
                break
        job.place.settle()
        before, versions = job.place.files(output), job.place.versions(output)
        if not process.was_killed:
            assert before == whole
            continue
        pieces = [name for name in before if name.endswith(".json") and "/pieces/" in name]
        ended = job.run(output)
        assert job.place.files(output) == whole, ended
        assert ("Resuming an unfinished extraction" in ended.out) == (".recordmill-extract/recipe" in before)
        if len(pieces) == SHARDS:
            kept += 1
            after = job.place.versions(output)
            assert {name: after[name] for name in after if name.endswith(".jpg")} == {
                name: versions[name] for name in after if name.endswith(".jpg")
            }
    print(f"KILLS with all shards extracted {kept}")
