"""`recordmill extract`: what went into a data set comes out of it, and nothing is written beside the folder."""

import errno
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.conftest import coco_flags, read_examples, rejects_of
from tests.jobs.folders import whole_folder


@pytest.fixture
def folder(copy_converted, tmp_path) -> Path:
    copy_converted(tmp_path / "out", "--num-shards", 3)
    return tmp_path / "out"


def document(folder: Path, kind: str = "instances", split: str = "train") -> dict:
    """A file of annotations, its rows by id."""
    found = json.loads((folder / "annotations" / f"{kind}_{split}.json").read_bytes())
    for part in ("images", "annotations"):
        found[part].sort(key=lambda row: row.get("id", row.get("image_id")))
    return found


def rows_of(path: str | Path, part: str, bad: Iterable[int] = ()) -> list[dict]:
    """The rows of a COCO file by id, without those of some images."""
    rows = json.loads(Path(path).read_text())[part]
    kept = [row for row in rows if row.get("image_id", row["id"] if part == "images" else None) not in bad]
    return sorted(kept, key=lambda row: row.get("id", row.get("image_id")))


def without(row: dict, *keys: str) -> dict:
    return {key: value for key, value in row.items() if key not in keys}


def bad_images(folder: Path) -> set[int]:
    return {row["id"] for row in rejects_of(folder)}


# What comes out is what went in


def test_masks_of_whole_images_are_records_own(of_every_kind, tmp_path, recordmill):
    extracted = tmp_path / "new"
    assert recordmill("extract", of_every_kind, extracted).code == 0
    folders = {"semantic": "segmentation/class/encoded", "panoptic_categories": "panoptic/category_mask"}
    folders["panoptic_instances"] = "panoptic/instance_mask"
    for folder, feature in folders.items():
        expected = {
            os.path.splitext(example["image/filename"][0].decode())[0] + ".png": example[f"image/{feature}"][0]
            for example in read_examples(of_every_kind)
        }
        assert whole_folder(extracted / folder / "train") == expected


@pytest.mark.parametrize("layout", ["detection", "keras"])
def test_extracted_files_give_same_shards(layout, of_every_kind, sample, tmp_path, recordmill):
    """Byte for byte. The two bad images are left out of the input, as they take part in the plan of shards."""
    bad = bad_images(of_every_kind)
    assert len(bad) == 2
    kinds, same = {"instances": sample.instances}, ["--layout", layout, "--examples-per-shard", 30]
    if layout == "detection":
        kinds |= {"captions": sample.captions, "keypoints": sample.keypoints}
        same = ["--masks", "rle", "--num-shards", 3]
    for kind, path in kinds.items():
        whole = json.loads(Path(path).read_text())
        rows = {part: rows_of(path, part, bad) for part in ("images", "annotations") if part in whole}
        (tmp_path / f"{kind}.json").write_text(json.dumps(whole | rows))
    inputs = [word for kind in kinds for word in (f"--{kind}", tmp_path / f"{kind}.json")]
    assert recordmill("convert", "--images", sample.images, *inputs, *same, "--output", tmp_path / "one").code == 0
    assert recordmill("extract", tmp_path / "one", tmp_path / "dir").code == 0
    names = {"instances": "instances", "captions": "captions", "keypoints": "person_keypoints"}
    inputs = [
        word for kind in kinds for word in (f"--{kind}", tmp_path / "dir" / "annotations" / f"{names[kind]}_train.json")
    ]
    if layout == "keras":  # which says nothing of crowds
        assert {row["iscrowd"] for row in document(tmp_path / "dir")["annotations"]} == {0}
    images = tmp_path / "dir" / "images" / "train"
    assert recordmill("convert", "--images", images, *inputs, *same, "--output", tmp_path / "two").code == 0
    one, two = (
        {path.name: path.read_bytes() for path in (tmp_path / name).glob("*tf*rec*")} for name in ("one", "two")
    )
    assert one == two
    assert len(one) >= 3


def test_layout_tfds_with_panoptic_pngs(sample, tmp_path, recordmill):
    flags = ["--layout", "tfds", "--captions", sample.captions]
    flags += ["--panoptic", sample.panoptic, "--panoptic-masks", sample.panoptic_masks]
    assert recordmill(*coco_flags(sample, tmp_path / "out", *flags)).code == 0
    assert recordmill("extract", tmp_path / "out", tmp_path / "dir").code == 0
    bad = bad_images(tmp_path / "out")
    drawn = ("segmentation", "keypoints", "num_keypoints")
    rows = rows_of(sample.instances, "annotations", bad)
    assert document(tmp_path / "dir")["annotations"] == [without(row, *drawn) for row in rows]
    assert document(tmp_path / "dir", "captions")["annotations"] == rows_of(sample.captions, "annotations", bad)
    panoptic = document(tmp_path / "dir", "panoptic")
    expected = rows_of(sample.panoptic, "annotations", bad)
    assert panoptic["annotations"] == expected
    assert panoptic["categories"] == rows_of(sample.panoptic, "categories")
    files = {row["file_name"]: (Path(sample.panoptic_masks) / row["file_name"]).read_bytes() for row in expected}
    assert whole_folder(tmp_path / "dir" / "panoptic" / "train") == files


def test_refused(folder, tmp_path, recordmill):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("")
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "images").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / ".recordmill-extract").symlink_to(tmp_path / "mine")
    for arguments in (
        (folder, tmp_path / "mine" / "file"),
        (folder, tmp_path / "link"),
        (folder, tmp_path / "state"),
        (folder, folder),
        (folder, tmp_path / "dir", "--split", "val"),
        (folder, "ftp://bucket/dir"),
    ):
        assert recordmill("extract", *arguments).code == 2, arguments
    assert whole_folder(tmp_path / "mine") == {"file": b""}
    assert not (tmp_path / "dir").exists()


def test_extraction_goes_on_after_full_disk(folder, tmp_path, recordmill, monkeypatch):
    """The same command goes on; another is refused, as is the same of another data set."""
    assert recordmill("extract", tmp_path / "out", tmp_path / "whole").code == 0

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("recordmill.transforms.extract.write_documents.write_document", full)
        assert recordmill("extract", tmp_path / "out", tmp_path / "dir").code == 1
    shutil.copytree(tmp_path / "out", tmp_path / "other")
    manifest = json.loads((tmp_path / "other" / "manifest.json").read_text())
    manifest["splits"]["train"]["shards"].pop()
    (tmp_path / "other" / "manifest.json").write_text(json.dumps(manifest))
    assert recordmill("extract", tmp_path / "other", tmp_path / "dir").code == 2
    outcome = recordmill("extract", tmp_path / "out", tmp_path / "dir")
    assert (outcome.code, "3 shards were extracted" in outcome.out) == (0, True)
    assert whole_folder(tmp_path / "dir") == whole_folder(tmp_path / "whole")


def test_file_system_without_locks_will_do(folder, tmp_path, recordmill, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", no_locks)
    (tmp_path / "dir" / ".recordmill-extract").mkdir(parents=True)  # as of a run that was killed as it ended
    assert recordmill("extract", folder, tmp_path / "dir").code == 0
    assert len(document(tmp_path / "dir")["images"]) == 22
