"""`recordmill coco` from end to end, on data small enough to know by heart."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from pycocotools.coco import COCO

import recordmill as package
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
from tests.faults.warm_process import Command, signal_after_record
from tests.jobs.folders import whole_folder

# What is in the records


def test_every_field_is_the_json_s_and_the_file_s(sample, tmp_path, copy_converted):
    copy_converted(tmp_path, "--num-shards", 3)
    coco = COCO(sample.instances)
    category_ids = sorted(coco.getCatIds())
    examples = {int(example["image/source_id"][0]): example for example in read_examples(tmp_path)}
    assert set(examples) == set(coco.getImgIds()) - {row["id"] for row in rejects_of(tmp_path)}
    for image_id, example in examples.items():
        row = coco.loadImgs(image_id)[0]
        data = (Path(sample.images) / row["file_name"]).read_bytes()
        assert example["image/encoded"] == [data]
        assert example["image/filename"] == [row["file_name"].encode()]
        assert example["image/format"] == [b"png" if data.startswith(b"\x89PNG") else b"jpeg"]
        assert (example["image/width"], example["image/height"]) == ([row["width"]], [row["height"]])
        annotations = sorted(coco.loadAnns(coco.getAnnIds(image_id)), key=lambda ann: ann["id"])
        assert example["image/object/id"] == [ann["id"] for ann in annotations]
        assert example["image/object/class/label"] == [ann["category_id"] for ann in annotations]
        assert example["image/object/class/index"] == [category_ids.index(ann["category_id"]) for ann in annotations]
        names = [coco.loadCats(ann["category_id"])[0]["name"].encode() for ann in annotations]
        assert example["image/object/class/text"] == names
        assert example["image/object/is_crowd"] == [ann["iscrowd"] for ann in annotations]
        assert example["image/object/area"] == [ann["area"] for ann in annotations]
        x, y, width, height = np.array([ann["bbox"] for ann in annotations], float).reshape(-1, 4).T
        for edge, expected in (
            ("xmin", x / row["width"]),
            ("xmax", (x + width) / row["width"]),
            ("ymin", y / row["height"]),
            ("ymax", (y + height) / row["height"]),
        ):
            assert example[f"image/object/bbox/{edge}"] == pytest.approx(expected.tolist(), abs=1e-6)


def test_names_with_spaces_accents_and_folders(tmp_path, recordmill):
    names = ["a b.jpg", "été/ü ñ 日本.jpg", "deep/er/x.jpg", "[red]x.jpg"]
    for name in names:
        draw_jpeg(tmp_path / "images" / name)
    rows = [image_row(number, name) for number, name in enumerate(names)]
    assert convert(recordmill, tmp_path, write_coco(tmp_path, rows, [], CATEGORIES)).code == 0
    written = {example["image/filename"][0].decode() for example in read_examples(tmp_path / "out")}
    assert written == set(names)


def test_category_id_0_and_a_name_used_twice(tmp_path, recordmill):
    categories = [{"id": 0, "name": "face"}, {"id": 1, "name": "face"}, {"id": 5, "name": "hand"}]
    draw_jpeg(tmp_path / "images" / "a.jpg")
    annotations = [annotation(number, 1, category_id=id_) for number, id_ in enumerate((5, 0, 1))]
    instances = write_coco(tmp_path, [image_row(1, "a.jpg")], annotations, categories)
    outcome = convert(recordmill, tmp_path, instances)
    assert outcome.code == 0
    assert "several category ids share a name: face" in outcome.out
    (line,) = (line for line in outcome.out.splitlines() if line.startswith("  labels"))
    assert "class index + 1 (1 to 3)" in line
    (example,) = read_examples(tmp_path / "out")
    assert example["image/object/class/label"] == [3, 1, 2]
    assert example["image/object/category_id"] == [5, 0, 1]
    assert example["image/object/class/index"] == [2, 0, 1]
    assert example["image/object/class/text"] == [b"hand", b"face", b"face"]
    assert (tmp_path / "out" / "labels.csv").read_text() == "1,face\n2,face\n3,hand\n"
    assert re.findall(r"id: (\S+)", (tmp_path / "out" / "label_map.pbtxt").read_text()) == ["1", "2", "3"]
    label_map = json.loads((tmp_path / "out" / "label_map.json").read_text())
    assert label_map["label_by_id"] == {"0": 1, "1": 2, "5": 3}
    assert recordmill("verify", tmp_path / "out").code == 0
    (read,) = package.open(str(tmp_path / "out"))["train"].tensorflow()
    assert read["category_ids"].numpy().tolist() == [5, 0, 1]
    assert recordmill("extract", tmp_path / "out", tmp_path / "back").code == 0
    back = json.loads((tmp_path / "back" / "annotations" / "instances_train.json").read_text())
    assert back["categories"] == categories
    assert [row["category_id"] for row in back["annotations"]] == [5, 0, 1]


@pytest.mark.parametrize("layout", ["keras", "tfds"])
def test_category_id_0_stays_0_in_layouts_of_raw_ids(tmp_path, recordmill, layout):
    categories = [{"id": 0, "name": "face"}, {"id": 5, "name": "hand"}]
    draw_jpeg(tmp_path / "images" / "a.jpg")
    instances = write_coco(tmp_path, [image_row(1, "a.jpg")], [annotation(1, 1, category_id=0)], categories)
    outcome = convert(recordmill, tmp_path, instances, "--layout", layout)
    assert outcome.code == 0
    assert not any(line.startswith("  labels") for line in outcome.out.splitlines())
    assert (tmp_path / "out" / "labels.csv").read_text() == "0,face\n5,hand\n"
    assert not (tmp_path / "out" / "label_map.pbtxt").exists()
    assert recordmill("verify", tmp_path / "out").code == 0
    (read,) = package.open(str(tmp_path / "out"))["train"].tensorflow()
    assert (np.ravel(read["category_ids"]), np.ravel(read["labels"])) == ([0], [0])


def test_boxes_in_another_format_are_refused_before_a_picture_is_read_and_converted_where_it_is_named(
    tmp_path, recordmill
):
    boxes = [(20, 15, 10, 9), (3, 4, 9, 8), (25, 2, 12, 20), (22, 20, 14, 8), (18, 16, 20, 13), (15, 9, 8, 18)]
    corners = [(x, y, x + width, y + height) for x, y, width, height in boxes]
    fractions = [(x / 40, y / 30, width / 40, height / 30) for x, y, width, height in boxes]
    draw_jpeg(tmp_path / "images" / "a.jpg")
    shards = {}
    for format_, numbers in {"xywh": boxes, "xyxy": corners, "rel-xywh": fractions}.items():
        rows = [annotation(id_, 1, bbox=box, area=50) for id_, box in enumerate(numbers)]
        instances = write_coco(tmp_path, [image_row(1, "a.jpg")], rows, CATEGORIES)
        outcome = convert(recordmill, tmp_path, instances)
        assert outcome.code == (0 if format_ == "xywh" else 2)
        if format_ != "xywh":
            assert f"--bbox-format {format_} reads that" in outcome.err
            assert [line[:11] for line in outcome.err.splitlines() if "bbox" in line] == ["recordmill:"]
            assert not list((tmp_path / "out").glob("*.tfrecord-*"))
            assert convert(recordmill, tmp_path, instances, "--bbox-format", format_).code == 0
        (example,) = read_examples(tmp_path / "out")
        shards[format_] = {name: values for name, values in example.items() if "/object/" in name}
        shutil.rmtree(tmp_path / "out")
    assert shards["xyxy"] == shards["xywh"]
    assert shards["rel-xywh"] == {
        name: pytest.approx(values) if "bbox" in name else values for name, values in shards["xywh"].items()
    }


# The same bytes every time


@pytest.fixture(scope="module")
def reference(sample, tmp_path_factory) -> dict[str, bytes]:
    """The sample's shards, written by one thread in another process."""
    folder = tmp_path_factory.mktemp("reference")
    run_elsewhere(coco_flags(sample, folder, "--num-shards", 3, "--workers", 1), hash_seed="1")
    return shard_bytes(folder)


def run_elsewhere(arguments: list[str], hash_seed: str) -> None:
    command = [sys.executable, "-m", "recordmill.launch.cli", *arguments]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": hash_seed}, stdout=subprocess.DEVNULL)


def test_the_same_bytes_from_four_threads(sample, reference, tmp_path, recordmill):
    assert recordmill(*coco_flags(sample, tmp_path, "--num-shards", 3, "--workers", 4)).code == 0
    assert shard_bytes(tmp_path) == reference


def test_the_same_bytes_from_shuffled_rows(sample, reference, tmp_path, recordmill):
    document = json.loads(Path(sample.instances).read_text())
    for seed, rows in enumerate(document.values()):
        if isinstance(rows, list):
            random.Random(seed).shuffle(rows)
    shuffled = tmp_path / "shuffled.json"
    shuffled.write_text(json.dumps(document, indent=1))
    files = sample._replace(instances=str(shuffled))
    assert recordmill(*coco_flags(files, tmp_path / "out", "--num-shards", 3)).code == 0
    assert shard_bytes(tmp_path / "out") == reference


def test_both_writers_write_the_same_records(sample, tmp_path, recordmill):
    found = {}
    for writer in ("planned", "beam"):
        folder = tmp_path / writer
        flags = ("--num-shards", 3, "--writer", writer, "--gzip")
        assert recordmill(*coco_flags(sample, folder, *flags)).code == 0
        assert len(shard_bytes(folder)) == 3
        found[writer] = sorted(read_examples(folder), key=lambda example: example["image/source_id"])
        assert recordmill("verify", folder).code == 0
    assert found["planned"] == found["beam"]
    counts = [manifest_of(tmp_path / writer)["splits"]["train"] for writer in found]
    for key in ("images", "annotations", "record_bytes", "unlisted", "inputs"):
        assert counts[0][key] == counts[1][key]


# Shards


def test_more_shards_than_images(tmp_path, recordmill, caplog):
    rows = [image_row(number, f"{number}.jpg") for number in range(3)]
    for row in rows:
        draw_jpeg(tmp_path / "images" / row["file_name"])
    instances = write_coco(tmp_path, rows, [], CATEGORIES)
    assert convert(recordmill, tmp_path, instances, "--num-shards", 5, "--dry-run").code == 0
    assert convert(recordmill, tmp_path, instances, "--num-shards", 5).code == 0
    split = manifest_of(tmp_path / "out")["splits"]["train"]
    (text,) = split["warnings"]
    assert "5 shards for 3 images: 2 of them are empty" in text
    warned = [record.getMessage() for record in caplog.records if record.name.startswith("recordmill")]
    assert warned == [text, text]  # in the dry run, and before the pictures are read
    sizes = [shard["examples"] for shard in split["shards"]]
    assert len(sizes) == 5
    assert sorted(sizes) == [0, 0, 1, 1, 1]
    assert recordmill("verify", tmp_path / "out").code == 0


def test_shard_size_is_met_within_a_tenth(tmp_path, recordmill):
    rng = np.random.default_rng(0)
    rows = []
    for number in range(120):
        noise = rng.integers(0, 255, (int(rng.integers(30, 60)), 60, 3), np.uint8)
        path = tmp_path / "images" / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        from PIL import Image

        Image.fromarray(noise).save(path, "JPEG")
        rows.append(image_row(number, path.name, 60, noise.shape[0]))
    annotations = [annotation(number, int(rng.integers(0, 120)), (1, 1, 9, 9)) for number in range(600)]
    instances = write_coco(tmp_path, rows, annotations, CATEGORIES)
    assert convert(recordmill, tmp_path, instances, "--shard-size", "80kB").code == 0
    shards = manifest_of(tmp_path / "out")["splits"]["train"]["shards"]
    assert len(shards) > 3
    for shard in shards[:-1]:
        assert shard["bytes"] == pytest.approx(80_000, rel=0.1)
    assert 0 < shards[-1]["bytes"] < 88_000


# What is left out


def test_every_reason_is_told_and_nothing_is_lost(tmp_path, recordmill):
    from PIL import Image

    images = tmp_path / "images"
    for name in ("good.jpg", "twice.jpg", "wrong size.jpg", "orphan.jpg"):
        draw_jpeg(images / name)
    whole = (images / "good.jpg").read_bytes()
    (images / "half.jpg").write_bytes(whole[: len(whole) // 2])
    (images / "empty.jpg").write_bytes(b"")
    (images / "text.jpg").write_text("<html>not found</html>")
    Image.new("RGB", (40, 30)).save(images / "icon.jpg", "ICO")
    rows = [
        image_row(1, "good.jpg"),
        image_row(2, "half.jpg"),
        image_row(3, "empty.jpg"),
        image_row(4, "text.jpg"),
        image_row(5, "icon.jpg"),
        image_row(6, "missing.jpg"),
        image_row(7, "wrong size.jpg", 41, 30),
        image_row(8, "twice.jpg"),
        image_row(8, "good.jpg"),
        image_row(9, "../out.jpg"),
        image_row(10, "/etc/passwd"),
        image_row(11, "https://example.org/a.jpg"),
        {"id": 12, "width": 40, "height": 30},
        {"id": "x", "file_name": "good.jpg"},
    ]
    annotations = [
        annotation(1, 1),
        annotation(2, 1, category_id=2),
        annotation(3, 99),
        annotation(4, 1, bbox=(1, 2, 3)),
        annotation(5, 1, bbox=(1, 2, -3, 4)),
        annotation(6, 1, bbox=(50, 5, 5, 5)),
        annotation(7, 1, bbox=(5, 5, 0, 5)),
        {"id": 8, "image_id": 1, "category_id": 1},
        annotation(9, 2),
        annotation(10, 6),
        annotation(11, 8),
    ]
    instances = write_coco(tmp_path, rows, annotations, CATEGORIES)
    outcome = convert(recordmill, tmp_path, instances, "--max-rejects", 1)
    assert outcome.code == 0, outcome
    reasons = {(row["what"], row["id"], row["reason"]) for row in rejects_of(tmp_path / "out")}
    assert reasons == {
        ("image", 2, "image_unreadable"),
        ("image", 3, "image_unreadable"),
        ("image", 4, "unsupported_format"),
        ("image", 5, "unsupported_format"),
        ("image", 6, "image_missing"),
        ("image", 7, "size_mismatch"),
        ("image", 8, "duplicate_image_id"),
        ("image", 9, "unsafe_file_name"),
        ("image", 10, "unsafe_file_name"),
        ("image", 11, "unsafe_file_name"),
        ("image", 12, "malformed_image"),
        ("image", None, "malformed_image"),
        ("annotation", 2, "unknown_category"),
        ("annotation", 3, "unknown_image"),
        ("annotation", 4, "malformed_box"),
        ("annotation", 5, "malformed_box"),
        ("annotation", 6, "empty_box"),
        ("annotation", 7, "empty_box"),
        ("annotation", 8, "malformed_annotation"),
    }
    split = manifest_of(tmp_path / "out")["splits"]["train"]
    assert split["images"]["rows"] == 14 == split["images"]["written"] + sum(split["images"]["rejected"].values())
    assert split["annotations"]["rows"] == 11
    assert split["annotations"]["objects"] == 1
    assert split["annotations"]["of_rejected_images"] == 3
    assert split["unlisted"] == {"files": 2, "first": ["orphan.jpg", "twice.jpg"]}
    assert [e["image/source_id"] for e in read_examples(tmp_path / "out")] == [[b"1"]]


def test_too_many_rejects_fail_loudly_and_accepting_them_goes_on_from_there(sample, tmp_path, recordmill):
    flags = [*coco_flags(sample, tmp_path), "--max-rejects", 0.05]
    outcome = recordmill(*flags)
    assert outcome.code == 1
    assert "2 of 24 images (8.3%) are rejected" in outcome.err
    assert "while running" not in outcome.err
    assert not (tmp_path / "manifest.json").exists()
    written = {name: path.stat().st_mtime_ns for name, path in staged_shards(tmp_path).items()}
    assert len(written) == 1
    assert len(rejects_of(tmp_path)) == 2
    outcome = recordmill(*flags, "--max-rejects", 0.1)
    assert outcome.code == 0
    assert "Going on with an unfinished run" in outcome.out
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.tfrecord-*")} == written
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".index",
        "coco-train.tfrecord-00000-of-00001",
        "dataset_info.json",
        "duplicates.jsonl",
        "features.json",
        "fingerprints-train.jsonl",
        "image.object.class.index.labels.txt",
        "label_map.json",
        "label_map.pbtxt",
        "labels.csv",
        "manifest-train.json",
        "manifest.json",
        "rejects-train.jsonl",
        "report.html",
        "statistics-train.json",
        "statistics.json",
    ]


# The output folder


def test_a_second_split_is_added(sample, tmp_path, recordmill, copy_converted):
    copy_converted(tmp_path)
    train = shard_bytes(tmp_path)
    assert recordmill(*coco_flags(sample, tmp_path, "--split", "val", "--no-crowd")).code == 0
    assert list(manifest_of(tmp_path)["splits"]) == ["train", "val"]
    assert {row["split"] for row in rejects_of(tmp_path)} == {"train", "val"}
    assert shard_bytes(tmp_path).items() >= train.items()
    assert recordmill("verify", tmp_path).code == 0


def test_another_data_set_in_the_folder_is_refused_and_left_alone(sample, tmp_path, recordmill, copy_converted):
    copy_converted(tmp_path)
    before = whole_folder(tmp_path)
    for flags, told in (
        (("--seed", 1), "seed was 0, now 1"),
        (("--split", "val", "--name", "other"), "--name other would mix two data sets"),
        (("--gzip",), "gzip was False, now True"),
    ):
        outcome = recordmill(*coco_flags(sample, tmp_path, *flags))
        assert outcome.code == 2
        assert told in outcome.err
    assert whole_folder(tmp_path) == before


def test_overwrite_replaces_the_split_and_nothing_else(sample, tmp_path, recordmill, copy_converted):
    copy_converted(tmp_path, "--num-shards", 4)
    assert recordmill(*coco_flags(sample, tmp_path, "--split", "val")).code == 0
    (tmp_path / "notes.txt").write_text("mine")
    assert recordmill(*coco_flags(sample, tmp_path, "--num-shards", 2, "--gzip", "--overwrite")).code == 0
    assert sorted(shard_bytes(tmp_path)) == [
        "coco-train.tfrecord-00000-of-00002.gz",
        "coco-train.tfrecord-00001-of-00002.gz",
        "coco-val.tfrecord-00000-of-00001",
    ]
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert recordmill("verify", tmp_path).code == 0


def test_a_complete_split_is_not_written_again(sample, tmp_path, recordmill, copy_converted):
    copy_converted(tmp_path)
    times = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    # What a run leaves that is killed between its manifest and its tidying.
    (tmp_path / ".recordmill-train").mkdir()
    for name in (".recordmill-train/recipe.json", "coco-train.tfrecord-00000-of-00009"):
        (tmp_path / name).write_text("{}")
    outcome = recordmill(*coco_flags(sample, tmp_path))
    assert outcome.code == 0
    assert "holds the whole split already" in outcome.out
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == times


def test_a_killed_run_leaves_whole_shards_only_and_goes_on(sample, tmp_path, recordmill, copy_converted):
    """A process that dies in the middle of its third shard."""
    folder = tmp_path / "out"
    flags = coco_flags(sample, folder, "--num-shards", 4)
    killed = Command(flags, tmp_path / "killed", disturbance=partial(signal_after_record, 13, signal.SIGKILL)).end()
    assert killed.was_killed, killed
    left = {name: path.read_bytes() for name, path in staged_shards(folder).items()}
    assert len(left) == 2
    assert [path.name for path in folder.iterdir() if path.name[0] != "."] == []
    assert recordmill(*flags).code == 0
    undisturbed = tmp_path / "undisturbed"
    copy_converted(undisturbed, "--num-shards", 4)
    assert shard_bytes(folder) == shard_bytes(undisturbed)
    assert shard_bytes(folder).items() >= left.items()
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == [".index"]


@pytest.mark.parametrize(
    ("number", "code", "told"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_is_told_and_the_same_command_goes_on(sample, tmp_path, recordmill, number, code, told):
    """A process that gets Ctrl-C, or what Kubernetes sends, while it writes its second shard."""
    folder = tmp_path / "out"
    flags = coco_flags(sample, folder, "--num-shards", 3)
    interrupted = Command(flags, tmp_path / "told", disturbance=partial(signal_after_record, 9, number)).end()
    assert interrupted.code == code, interrupted
    assert interrupted.err.splitlines()[-1].startswith(f"recordmill: {told}; finished shards stay")
    assert 0 < len(staged_shards(folder)) < 3
    assert [path.name for path in folder.iterdir() if path.suffix == ".tmp"] == []
    assert recordmill(*flags).code == 0
    assert len(shard_bytes(folder)) == 3


def test_shards_of_an_earlier_plan_are_not_left_over(tmp_path, recordmill):
    """An interrupted run, then images that arrive late: the plan has another number of shards."""
    rows = [image_row(number, f"{number}.jpg") for number in range(6)]
    instances = write_coco(tmp_path, rows, [], CATEGORIES)
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


def test_pictures_of_a_few_pixels(tmp_path, recordmill):
    for number, width in enumerate((1, 7, 8)):
        draw_jpeg(tmp_path / "images" / f"{number}.jpg", width=width, height=20)
    rows = [image_row(number, f"{number}.jpg", width, 20) for number, width in enumerate((1, 7, 8))]
    assert convert(recordmill, tmp_path, write_coco(tmp_path, rows, [], CATEGORIES)).code == 0
    assert recordmill("verify", tmp_path / "out").code == 0


def test_a_wrong_beam_flag_costs_no_data_set(sample, tmp_path, recordmill, copy_converted):
    copy_converted(tmp_path)
    before = shard_bytes(tmp_path)
    for flag in ("--nosuch=1", "--direct_num_workers=abc"):
        assert recordmill(*coco_flags(sample, tmp_path, "--overwrite"), "--", flag).code == 2
    assert shard_bytes(tmp_path) == before


def test_overwrite_keeps_the_old_shards_if_an_annotation_file_is_malformed(tmp_path, recordmill):
    draw_jpeg(tmp_path / "images" / "a.jpg")
    instances = write_coco(tmp_path, [image_row(1, "a.jpg")], [annotation(1, 1)], CATEGORIES)
    assert convert(recordmill, tmp_path, instances).code == 0
    before = shard_bytes(tmp_path / "out")
    instances.write_text(instances.read_text()[:-20])
    outcome = convert(recordmill, tmp_path, instances, "--overwrite")
    assert outcome.code == 1
    assert "is not JSON" in outcome.err
    assert shard_bytes(tmp_path / "out") == before
    assert recordmill("verify", tmp_path / "out").code == 0
