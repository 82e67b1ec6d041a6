"""`recordmill folder` into a folder that holds something: done, changed, damaged, or half done."""

import shutil
import signal
from functools import partial
from pathlib import Path

from tests.conftest import shard_bytes, staged_shards
from tests.faults.warm_process import Command, signal_after_record
from tests.jobs.folders import draw, draw_all, image_files, splits_of, three_splits, whole_folder


def test_a_complete_data_set_is_not_written_again_and_an_added_image_takes_overwrite(
    pictures, converted, tmp_path, recordmill
):
    images = Path(shutil.copytree(pictures, tmp_path / "images"))
    out = tmp_path / "out"
    assert recordmill("folder", *three_splits(images, out)).code == 0
    times = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    assert recordmill("folder", *three_splits(images, out)).code == 0
    assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()} == times
    (out / "images-val.tfrecord-00001-of-00002").unlink()
    assert recordmill("folder", *three_splits(images, out)).code == 0
    assert shard_bytes(out) == shard_bytes(converted)
    draw(images / "Cat" / "new.jpg", 11)
    before = whole_folder(out)
    assert recordmill("folder", *three_splits(images, out)).code == 2
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
