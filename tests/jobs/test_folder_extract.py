"""What `recordmill folder` wrote: extracted, converted again, verified."""

import csv
import hashlib
import json
import shutil
from pathlib import Path

from tests.conftest import manifest_of, shard_bytes
from tests.jobs.folders import SPLITS, image_files, splits_of
from tests.jobs.test_verify import changed, records, rewrite


def test_images_and_labels_come_out_as_they_went_in(pictures, converted, extracted):
    files, splits = image_files(pictures), splits_of(converted)
    for split in SPLITS:
        below = extracted / "images" / split
        found = {path.relative_to(below).as_posix(): path.read_bytes() for path in below.rglob("*") if path.is_file()}
        assert found == {name: path.read_bytes() for name, path in files.items() if splits[name] == split}
        with (extracted / "annotations" / f"labels_{split}.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert rows == [{"path": name, "label": name.split("/")[0], "split": split} for name in sorted(found)]
    assert sorted(path.name for path in extracted.iterdir()) == ["annotations", "images"]


def test_what_was_extracted_gives_the_same_bytes_again(converted, extracted, tmp_path, recordmill):
    flags = ["--output", tmp_path / "out", "--num-shards", 2]
    for split in SPLITS:
        flags += ["--images", extracted / "images" / split]
        flags += ["--labels", extracted / "annotations" / f"labels_{split}.csv"]
    outcome = recordmill("folder", *flags)
    assert outcome.code == 0, outcome
    assert shard_bytes(tmp_path / "out") == shard_bytes(converted)


def test_a_whole_data_set_passes(converted, recordmill):
    outcome = recordmill("verify", converted)
    assert outcome.code == 0
    assert "whole: every record read, parsed and decoded" in outcome.out


def test_verify_finds_a_record_that_contradicts_itself(converted, tmp_path, recordmill):
    out = Path(shutil.copytree(converted, tmp_path / "out"))
    path = out / "images-train.tfrecord-00000-of-00002"
    whole = records(path)
    whole[1] = changed(whole[1], "image/class/label", 77)
    rewrite(path, whole)
    manifest = manifest_of(out)
    shard = manifest["splits"]["train"]["shards"][0]
    shard["bytes"], shard["sha256"] = path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()
    (out / "manifest.json").write_text(json.dumps(manifest))
    outcome = recordmill("verify", out)
    assert outcome.code == 1
    assert f"{path.name} record 1: class: " in outcome.out
