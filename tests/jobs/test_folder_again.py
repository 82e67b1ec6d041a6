"""`recordmill folder` into a folder that holds something: done, changed, damaged, or half done."""

import shutil
from pathlib import Path

from tests.conftest import shard_bytes
from tests.jobs.folders import draw, splits_of, three_splits, whole_folder


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
