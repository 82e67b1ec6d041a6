"""COCO files from end to end, on data small enough to know by heart."""

import json
import pkgutil
import random
import signal
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from recordmill.launch.cli import main
from recordmill.schemas.block import Block
from recordmill.schemas.inputs.images import ImageTask
from recordmill.schemas.inputs.splits import name_id
from tests.conftest import (
    CATEGORIES,
    annotation,
    coco_flags,
    convert,
    draw_jpeg,
    image_row,
    manifest_of,
    read_examples,
    rejects_of,
    shard_bytes,
    staged_shards,
    write_coco,
)
from tests.consumers.coco_truth import Truth, assert_detection
from tests.faults.warm_process import Command, signal_after_record
from tests.jobs.folders import whole_folder

# What is in the records


def test_every_field_is_json_s_and_file_s(sample, tmp_path, copy_converted):
    copy_converted(tmp_path, "--num-shards", 3)
    truth, seen = Truth(sample.images, sample.instances), set()
    for example in read_examples(tmp_path):
        assert example["image/format"] == [b"png" if example["image/encoded"][0].startswith(b"\x89PNG") else b"jpeg"]
        single = ("image/encoded", "image/filename", "image/height", "image/source_id", "image/width")
        image_id = assert_detection(example | {name: example[name][0] for name in single}, truth)
        names = [truth.coco.cats[id_]["name"].encode() for id_ in truth.values(image_id, "category_id")]
        assert example["image/object/class/text"] == names
        seen.add(image_id)
    assert seen == truth.image_ids == set(truth.coco.getImgIds()) - {row["id"] for row in rejects_of(tmp_path)}


# The same bytes every time


def test_shuffled_rows_give_same_bytes(sample, tmp_path, copy_converted, recordmill):
    copy_converted(tmp_path / "here", "--num-shards", 3)
    document = json.loads(Path(sample.instances).read_text())
    for seed, rows in enumerate(document.values()):
        if isinstance(rows, list):
            random.Random(seed).shuffle(rows)
    shuffled = tmp_path / "shuffled.json"
    shuffled.write_text(json.dumps(document, indent=1))
    files = sample._replace(instances=str(shuffled))
    assert recordmill(*coco_flags(files, tmp_path / "shuffled", "--num-shards", 3, "--workers", 4)).code == 0
    assert shard_bytes(tmp_path / "here") == shard_bytes(tmp_path / "shuffled")


def test_both_writers_write_same_records(sample, tmp_path, recordmill):
    examples = {}
    for writer in ("planned", "beam"):
        folder = tmp_path / writer
        flags = ("--num-shards", 3, "--writer", writer, "--gzip")
        assert recordmill(*coco_flags(sample, folder, *flags)).code == 0
        assert len(shard_bytes(folder)) == 3
        examples[writer] = sorted(read_examples(folder), key=lambda example: example["image/source_id"])
        assert recordmill("verify", folder).code == 0
    assert examples["planned"] == examples["beam"]
    counts = [manifest_of(tmp_path / writer)["splits"]["train"] for writer in examples]
    assert counts[0]["images"].pop("without_objects") == 2, "counted by statistics, which Beam's writer has not"
    for key in ("images", "annotations", "record_bytes", "unlisted", "inputs"):
        assert counts[0][key] == counts[1][key]


# What is left out


def test_every_reason_is_listed(tmp_path, recordmill):
    images = tmp_path / "images"
    for name in ("good.jpg", "twice.jpg", "wrong size.jpg", "orphan.jpg", "[été]/ü 日本.jpg"):
        draw_jpeg(images / name)
    whole = (images / "good.jpg").read_bytes()
    (images / "half.jpg").write_bytes(whole[: len(whole) // 2])
    (images / "empty.jpg").write_bytes(b"")
    (images / "text.jpg").write_text("<html>not found</html>")
    Image.new("RGB", (40, 30)).save(images / "icon.jpg", "ICO")
    rows = [
        (image_row(1, "good.jpg"), None),
        (image_row(2, "half.jpg"), "image_unreadable"),
        (image_row(3, "empty.jpg"), "image_unreadable"),
        (image_row(4, "text.jpg"), "unsupported_format"),
        (image_row(5, "icon.jpg"), "unsupported_format"),
        (image_row(6, "missing.jpg"), "image_missing"),
        (image_row(7, "wrong size.jpg", 41, 30), "size_mismatch"),
        (image_row(8, "twice.jpg"), "duplicate_image_id"),
        (image_row(8, "good.jpg"), "duplicate_image_id"),
        (image_row(9, "../out.jpg"), "unsafe_file_name"),
        (image_row(10, "/etc/passwd"), "unsafe_file_name"),
        (image_row(11, "https://example.org/a.jpg"), "unsafe_file_name"),
        ({"id": 12, "width": 40, "height": 30}, "malformed_image"),
        (image_row(13, "[été]/ü 日本.jpg"), None),
        ({"id": 14.5, "file_name": "good.jpg"}, "malformed_image"),
    ]
    annotations = [
        (annotation(1, 1), None),
        (annotation(2, 1, category_id=2), "unknown_category"),
        (annotation(3, 99), "unknown_image"),
        (annotation(4, 1, bbox=(1, 2, 3)), "malformed_box"),
        (annotation(5, 1, bbox=(1, 2, -3, 4)), "malformed_box"),
        (annotation(6, 1, bbox=(50, 5, 5, 5)), "empty_box"),
        (annotation(7, 1, bbox=(5, 5, 0, 5)), "empty_box"),
        ({"id": 8, "image_id": 1, "category_id": 1}, "malformed_annotation"),
        *((annotation(id_, image), None) for id_, image in ((9, 2), (10, 6), (11, 8))),
    ]
    parts = {"image": rows, "annotation": annotations}
    instances = write_coco(tmp_path, *([row for row, _ in part] for part in parts.values()), CATEGORIES)
    outcome = convert(recordmill, tmp_path, instances, "--max-rejects", 1)
    assert outcome.code == 0, outcome
    reasons = {(row["what"], row["id"], row["reason"]) for row in rejects_of(tmp_path / "out")}
    expected = {(what, row["id"], reason) for what, part in parts.items() for row, reason in part if reason}
    assert reasons == expected - {("image", 14.5, "malformed_image")} | {("image", None, "malformed_image")}
    split = manifest_of(tmp_path / "out")["splits"]["train"]
    assert split["images"]["rows"] == 15 == split["images"]["written"] + sum(split["images"]["rejected"].values())
    assert split["annotations"]["rows"] == 11
    assert split["annotations"]["objects"] == 1
    assert split["annotations"]["of_rejected_images"] == 3
    assert split["unlisted"] == {"files": 2, "first": ["orphan.jpg", "twice.jpg"]}
    examples = {example["image/source_id"][0]: example for example in read_examples(tmp_path / "out")}
    assert examples.keys() == {b"1", b"13"}
    assert examples[b"13"]["image/filename"] == ["[été]/ü 日本.jpg".encode()]


def test_text_ids_are_numbers_in_records_and_texts_in_rejects(tmp_path, recordmill):
    rows = [image_row(id_, f"{number}.jpg") for number, id_ in enumerate(("0998", "1000", "a.jpg"))]
    for number in range(3):
        draw_jpeg(tmp_path / "images" / f"{number}.jpg")
    objects = [annotation(f"good {number}", row["id"]) for number, row in enumerate(rows)]
    bad = [annotation("x", "a.jpg", bbox="no"), annotation("y", "a.jpg", bbox=(0, 0, 0, 0)), annotation("z", "b.jpg")]
    instances = write_coco(tmp_path, rows, [*objects, *bad, annotation("no", "1000", category_id=9)], CATEGORIES)
    assert convert(recordmill, tmp_path, instances, "--max-rejects", 1).code == 0
    examples = {example["image/source_id"][0]: example for example in read_examples(tmp_path / "out")}
    assert examples.keys() == {b"998", b"1000", b"%d" % name_id("a.jpg")}
    assert [len(example["image/object/area"]) for example in examples.values()] == [1, 1, 1]
    details = {row["reason"]: row["detail"] for row in rejects_of(tmp_path / "out")}
    named = {"malformed_box": "x", "empty_box": "y", "unknown_image": "z", "unknown_category": "no"}
    assert details.keys() == named.keys()
    assert all(f"annotation id {text!r}" in details[reason] for reason, text in named.items())
    assert all("image id 'a.jpg'" in details[reason] for reason in ("malformed_box", "empty_box"))


def test_too_many_rejects_fail_until_they_are_accepted(sample, tmp_path, recordmill):
    flags = [*coco_flags(sample, tmp_path), "--max-rejects", 0.05]
    assert recordmill(*flags).code == 1
    assert not (tmp_path / "manifest.json").exists()
    written = {name: path.stat().st_mtime_ns for name, path in staged_shards(tmp_path).items()}
    assert len(written) == 1
    assert len(rejects_of(tmp_path)) == 2
    assert recordmill(*flags, "--max-rejects", 0.1).code == 0
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.tfrecord-*")} == written
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".index",
        "coco-train.tfrecord-00000-of-00001",
        "dataset_info.json",
        "duplicates.jsonl",
        "features.json",
        "fingerprints-train.jsonl",
        "image.object.class.index.labels.txt",
        "images-train.jsonl",
        "label_map.json",
        "label_map.pbtxt",
        "labels.csv",
        "manifest-train.json",
        "manifest.json",
        "problems-train.jsonl",
        "rejects-train.jsonl",
        "report.html",
        "statistics-train.json",
        "statistics.json",
    ]


# The output folder


def test_split_stays_is_added_or_is_replaced(sample, tmp_path, recordmill, copy_converted):
    copy_converted(tmp_path, "--num-shards", 4)
    times = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    (tmp_path / ".recordmill-train").mkdir()  # as of a run that is killed between its manifest and its tidying
    for name in (".recordmill-train/recipe.json", "coco-train.tfrecord-00000-of-00009"):
        (tmp_path / name).write_text("{}")
    assert recordmill(*coco_flags(sample, tmp_path, "--num-shards", 4)).code == 0
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == times
    train = shard_bytes(tmp_path)
    (tmp_path / min(train)).unlink()
    assert recordmill(*coco_flags(sample, tmp_path, "--num-shards", 4)).code == 0
    assert shard_bytes(tmp_path) == train
    assert recordmill(*coco_flags(sample, tmp_path, "--split", "val", "--no-crowd")).code == 0
    assert shard_bytes(tmp_path).items() >= train.items()
    assert {row["split"] for row in rejects_of(tmp_path)} == {"train", "val"}
    (tmp_path / "notes.txt").write_text("mine")
    before = whole_folder(tmp_path)
    assert recordmill(*coco_flags(sample, tmp_path, "--seed", 1)).code == 2, "another recipe"
    assert whole_folder(tmp_path) == before
    assert recordmill(*coco_flags(sample, tmp_path, "--num-shards", 2, "--gzip", "--overwrite")).code == 0
    assert sorted(shard_bytes(tmp_path)) == [
        "coco-train.tfrecord-00000-of-00002.gz",
        "coco-train.tfrecord-00001-of-00002.gz",
        "coco-val.tfrecord-00000-of-00001",
    ]
    assert list(manifest_of(tmp_path)["splits"]) == ["train", "val"]
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert recordmill("verify", tmp_path).code == 0


def test_after_signal_same_command_goes_on(sample, tmp_path, recordmill):
    """A process that gets what Kubernetes sends while it writes its second shard."""
    folder = tmp_path / "out"
    flags = coco_flags(sample, folder, "--num-shards", 3)
    interrupted = Command(flags, tmp_path / "log", disturbance=partial(signal_after_record, 9, signal.SIGTERM)).end()
    assert interrupted.code == 143, interrupted
    assert 0 < len(staged_shards(folder)) < 3
    assert [path.name for path in folder.iterdir() if path.suffix == ".tmp"] == []
    assert recordmill(*flags).code == 0
    assert len(shard_bytes(folder)) == 3


def test_shards_of_earlier_plan_are_deleted(tmp_path, recordmill):
    """An interrupted run, then images that arrive late: the plan has another number of shards."""
    rows = [image_row(number, f"{number}.jpg") for number in range(6)]
    instances = write_coco(tmp_path, rows, [annotation(1, 1)], CATEGORIES)
    draw_jpeg(tmp_path / "images" / "0.jpg")
    (tmp_path / "images" / "1.jpg").write_bytes(b"")
    flags = ["--examples-per-shard", 2, "--max-rejects", 0.7]
    assert convert(recordmill, tmp_path, instances, *flags).code == 1  # four images are missing, and one is empty
    assert len(staged_shards(tmp_path / "out")) == 1
    for number in range(1, 6):
        draw_jpeg(tmp_path / "images" / f"{number}.jpg")
    assert convert(recordmill, tmp_path, instances, *flags).code == 0
    assert len(shard_bytes(tmp_path / "out")) == 3
    assert recordmill("verify", tmp_path / "out").code == 0


def test_overwrite_keeps_shards_if_input_is_malformed(tmp_path, recordmill):
    draw_jpeg(tmp_path / "images" / "a.jpg")
    instances = write_coco(tmp_path, [image_row(1, "a.jpg")], [annotation(1, 1)], CATEGORIES)
    assert convert(recordmill, tmp_path, instances).code == 0
    before = shard_bytes(tmp_path / "out")
    for flag in ("--nosuch=1", "--direct_num_workers=abc"):
        assert convert(recordmill, tmp_path, instances, "--overwrite", "--", flag).code == 2
    instances.write_text(instances.read_text()[:-20])
    assert convert(recordmill, tmp_path, instances, "--overwrite").code == 1
    assert shard_bytes(tmp_path / "out") == before
    assert recordmill("verify", tmp_path / "out").code == 0


# A fault of ours


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("coco.join_images.limit_records", "join annotations"),
        ("encoders.encode_examples.load_image", "read images"),
        ("encoders.encode_examples.ExampleEncoder._fit", "encode images"),
    ],
)
def test_fault_of_ours_names_step_and_image(name, step, sample, tmp_path, monkeypatch, capsys):
    row = json.loads(Path(sample.instances).read_text())["images"][2]
    real = pkgutil.resolve_name(f"recordmill.transforms.{name}")

    def failing(*args):
        for arg in args:
            if isinstance(arg, Block | ImageTask) and row["id"] in np.atleast_1d(arg.image_id):
                raise ZeroDivisionError("on purpose")
        return real(*args)

    monkeypatch.setattr(f"recordmill.transforms.{name}", failing)
    assert main([*coco_flags(sample, tmp_path / "out"), "--progress", "none"]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    message = (
        f"step '{step}' failed with ZeroDivisionError: on purpose; image {row['id']}; file name {row['file_name']!r}"
    )
    assert message in line
