"""`recordmill folder` into a folder that holds something: done, changed, damaged, or half done."""

import shutil
import signal
from functools import partial
from pathlib import Path

import msgspec
import pytest

from recordmill.launch.cli import main
from recordmill.transforms.images.listing import listing_of
from tests.conftest import manifest_of, shard_bytes, staged_shards
from tests.faults.warm_process import Command, signal_after_record
from tests.jobs.folders import SPLITS, draw, draw_all, image_files, splits_of, three_splits, whole_folder


def test_a_complete_data_set_is_not_written_again(pictures, tmp_path, recordmill):
    assert recordmill("folder", *three_splits(pictures, tmp_path)).code == 0
    times = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    outcome = recordmill("folder", *three_splits(pictures, tmp_path))
    assert outcome.code == 0
    assert "holds all these splits already; --overwrite would write again" in outcome.out
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == times


def test_an_image_that_was_added_is_told_and_overwrite_takes_it(pictures, converted, tmp_path, recordmill):
    images = Path(shutil.copytree(pictures, tmp_path / "images"))
    out = tmp_path / "out"
    assert recordmill("folder", *three_splits(images, out)).code == 0
    draw(images / "Cat" / "new.jpg", 11)
    before = whole_folder(out)
    outcome = recordmill("folder", *three_splits(images, out))
    assert outcome.code == 2
    assert "made otherwise (inputs was" in outcome.err
    assert "--overwrite to replace it" in outcome.err
    assert whole_folder(out) == before
    assert recordmill("folder", *three_splits(images, out), "--overwrite").code == 0
    assert splits_of(out).items() >= splits_of(converted).items()
    assert len(splits_of(out)) == 25
    assert recordmill("verify", out).code == 0


def test_a_half_done_run_goes_on_with_the_images_that_there_are_now(pictures, tmp_path, recordmill):
    """A shard is kept by what is in it, so no two listings are mixed: the bytes are those of a run that begins now."""
    images = Path(shutil.copytree(pictures, tmp_path / "images"))
    out = tmp_path / "out"
    flags = three_splits(images, out)
    disturbance = partial(signal_after_record, 13, signal.SIGKILL)
    assert Command(["folder", *flags], tmp_path / "killed", disturbance=disturbance).end().was_killed
    assert staged_shards(out)
    draw(images / "Cat" / "new.jpg", 11)
    max(image_files(images).items())[1].unlink()
    assert recordmill("folder", *flags).code == 0
    assert recordmill("folder", *three_splits(images, tmp_path / "new")).code == 0
    assert whole_folder(out) == whole_folder(tmp_path / "new")


def test_the_manifest_says_what_the_job_has_listed(pictures, converted):
    (found,) = manifest_of(converted)["splits"]["train"]["recipe"]["inputs"]
    assert found == msgspec.to_builtins(listing_of(str(pictures)))


def test_overwrite_replaces_all_the_splits_of_another_name_and_division(tmp_path, recordmill):
    images = draw_all(tmp_path / "images", [f"{class_}/{number}.jpg" for class_ in "ab" for number in range(4)])
    flags = ["--images", images, "--output", tmp_path / "out"]
    assert recordmill("folder", *flags, "--split", "train=0.5,val=0.5").code == 0
    again = ["--name", "pets", "--split", "train=0.75,val=0.25", "--overwrite"]
    outcome = recordmill("folder", *flags, *again)
    assert outcome.code == 0, outcome
    assert len(splits_of(tmp_path / "out")) == 8
    assert {name.partition("-")[0] for name in shard_bytes(tmp_path / "out")} == {"pets"}
    assert recordmill("verify", tmp_path / "out").code == 0


def test_overwrite_of_one_split_may_not_take_images_of_another_one(tmp_path, recordmill):
    images = draw_all(tmp_path / "images", [f"{class_}/{number}.jpg" for class_ in "ab" for number in range(4)])
    out = tmp_path / "out"
    assert recordmill("folder", "--images", images, "--output", out, "--split", "train=0.5,val=0.5").code == 0
    before = whole_folder(out)
    outcome = recordmill("folder", "--images", images, "--output", out, "--split", "train", "--overwrite")
    assert outcome.code == 2
    assert "holds the split val of the same images, divided by --split train=0.5,val=0.5" in outcome.err
    assert whole_folder(out) == before


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """A folder with images and what they were converted to, `out`; and with tables and images that go wrong."""
    folder = tmp_path_factory.mktemp("written")
    images = draw_all(folder / "images", ["cat/1.jpg", "dog/2.jpg"])
    draw_all(folder / "more", ["cat/1.jpg"])
    for name, table in (("gone", "gone.jpg,cat\n"), ("open", 'cat/1.jpg,"cat\n')):
        (folder / f"{name}.csv").write_text(f"path,label\n{table}")
    assert main(["folder", "--images", str(images), "--output", str(folder / "out")]) == 0
    return folder


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (["--classes", "Cat"], "--classes Cat: no image is of these; there are 'cat', 'dog'"),
        (["--labels", "gone.csv"], "none of the 1 images has a file"),
        (["--labels", "open.csv"], "cannot be read as CSV"),
        (["--split", "val=1/1000000,train=999999/1000000"], "split val gets none of the 2 images"),
        (["--images", "more"], "'cat/1.jpg' is both"),
    ],
)
def test_overwrite_deletes_nothing_for_a_job_that_cannot_be_done(
    written, tmp_path, recordmill, monkeypatch, wrong, told
):
    monkeypatch.chdir(shutil.copytree(written, tmp_path / "copy"))
    before = whole_folder(Path("out"))
    outcome = recordmill("folder", "--images", "images", "--output", "out", "--overwrite", *wrong)
    assert outcome.code in (1, 2)
    assert told in outcome.err
    assert outcome.err.count("\n") == 1
    assert {
        name: data for name, data in whole_folder(Path("out")).items() if not name.startswith(".recordmill")
    } == before
    assert "images-train.tfrecord-00000-of-00001" in before


def test_another_division_is_refused_in_the_same_folder(converted, pictures, recordmill):
    outcome = recordmill("folder", *three_splits(pictures, converted), "--split-seed", 3)
    assert outcome.code == 2
    assert "split-seed was 0, now 3" in outcome.err


def test_a_shard_that_was_deleted_is_written_again(pictures, converted, tmp_path, recordmill):
    out = Path(shutil.copytree(converted, tmp_path / "out"))
    (out / "images-val.tfrecord-00001-of-00002").unlink()
    assert recordmill("folder", *three_splits(pictures, out)).code == 0
    assert shard_bytes(out) == shard_bytes(converted)
    assert set(manifest_of(out)["splits"]) == set(SPLITS)
    assert recordmill("verify", out).code == 0


def test_a_killed_run_goes_on(pictures, converted, tmp_path, recordmill):
    """A process that dies in the middle of three splits."""
    out = tmp_path / "out"
    flags = three_splits(pictures, out)
    disturbance = partial(signal_after_record, 13, signal.SIGKILL)
    killed = Command(["folder", *flags], tmp_path / "killed", disturbance=disturbance).end()
    assert killed.was_killed, killed
    left = {name: path.stat().st_mtime_ns for name, path in staged_shards(out).items()}
    assert 0 < len(left) < 6
    assert [path.name for path in out.iterdir() if path.name[0] != "."] == []
    outcome = recordmill("folder", *flags)
    assert outcome.code == 0
    assert "Going on with an unfinished run" in outcome.out
    assert shard_bytes(out) == shard_bytes(converted)
    assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()}.items() >= left.items()
    assert [path.name for path in out.iterdir() if path.name.startswith(".")] == [".index"]
