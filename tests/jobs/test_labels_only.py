"""`recordmill convert --labels-only`: labels of another format beside linked images."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import recordmill as library
from recordmill.launch.runners.beam_options import beam_options
from recordmill.launch.verbs import convert_labels
from recordmill.schemas.errors import ConfigError, JobError
from recordmill.transforms.coco.coco_options import CocoOptions
from tests.conftest import CATEGORIES, SQUARE, annotation, draw_jpeg, image_row, write_coco

RUNS = {"counts": [0, 30 * 40], "size": [30, 40]}


@pytest.fixture
def data(tmp_path) -> Path:
    """Two images, of which one has polygons and a crowd, and a row without its file."""
    for number, name in enumerate(("a.jpg", "b/c.jpg")):
        draw_jpeg(tmp_path / "data" / "images" / name, colour=(number, 0, 0))
    two = [[1.25, 2, 9, 2, 9, 8.5], [10, 5, 20, 5, 20, 15]]
    objects = [
        annotation(1, 1, (10, 5, 10, 10), 3, segmentation=SQUARE),
        annotation(2, 1, (1.25, 2, 18.75, 13), 1, segmentation=two, track_id=7),
        annotation(3, 1, (0, 0, 40, 30), 1, iscrowd=1, segmentation=RUNS),
        annotation(4, 2, (0, 0, 0, 3), 1),
        annotation(5, 3),
    ]
    images = [image_row(1, "a.jpg"), image_row(2, "b/c.jpg"), image_row(3, "missing.jpg")]
    write_coco(tmp_path / "data", images, objects, CATEGORIES)
    return tmp_path / "data"


@pytest.fixture
def labels(recordmill, data, tmp_path) -> Callable[..., Any]:
    def run(format_: str, *flags: object):
        source = ["--images", data / "images", "--instances", data / "instances.json"]
        target = ["--labels-only", "--as", format_, "--output", tmp_path / "out", "--max-rejects", 0.5]
        return recordmill("convert", *source, *target, *flags)

    return run


def test_polygons_are_those_of_the_source_and_images_are_links(labels, data, tmp_path):
    done = labels("yolo")
    assert done.code == 0, done
    out = tmp_path / "out"
    assert sorted(os.listdir(out)) == ["data.yaml", "images", "labels", "rejects.jsonl"]
    square = [0.25, 1 / 6, 0.5, 1 / 6, 0.5, 0.5, 0.25, 0.5]
    lines = [line.split() for line in (out / "labels/train/a.txt").read_text().splitlines()]
    assert [line[0] for line in lines] == ["1", "0"]
    assert list(map(float, lines[0][1:])) == pytest.approx(square, abs=1e-9)
    joined = [(1.25, 2), (9, 2), (9, 8.5), (1.25, 2), (10, 5), (20, 5), (20, 15), (10, 5), (1.25, 2)]
    assert lines[1][1:] == [f"{side:.10g}" for x, y in joined for side in (x / 40, y / 30)]
    assert (out / "labels/train/b/c.txt").read_text() == ""
    for name in ("a.jpg", "b/c.jpg"):
        assert os.path.samefile(out / "images/train" / name, data / "images" / name)
    rejects = list(map(json.loads, (out / "rejects.jsonl").read_text().splitlines()))
    assert sorted((reject["what"], reject["id"], reject["reason"]) for reject in rejects) == [
        ("annotation", 4, "empty_box"),
        ("image", 3, "image_missing"),
    ]
    assert "2 images, 1.3 kB, are in" in done.out
    assert "(2 linked)" in done.out
    assert "crowds 1" in done.out


@pytest.mark.parametrize("flag", ["--dry_run=True", "--template_location=gs://bucket/template"])
def test_two_jobs_have_no_template_and_no_dry_run_of_beam(data, tmp_path, flag):
    options = CocoOptions(
        images=[str(data / "images")],
        instances=[str(data / "instances.json")],
        output=str(tmp_path / "out"),
        labels_only=True,
        **{"as": "yolo"},
    )
    with pytest.raises(ConfigError, match="no template and no dry run"):
        convert_labels.convert_labels(options, pytest.fail, "none", beam_options(["--runner=DataflowRunner", flag]))


def test_coco_gets_its_own_labels(labels, data, tmp_path):
    assert labels("coco", "--fields", "track_id").code == 0
    wanted = json.loads((data / "instances.json").read_text())
    document = json.loads((tmp_path / "out/annotations/instances_train.json").read_text())
    rows = {row["id"]: row for row in document["annotations"]}
    for row in wanted["annotations"][:3]:
        own = rows[row["id"]]
        shape = own.pop("segmentation")
        assert shape == row.pop("segmentation") or isinstance(shape["counts"], str)
        assert own == row


@pytest.mark.parametrize(("flags", "task"), [([], 6), (["--masks", "none"], 4)])
def test_masks_none_leaves_boxes(flags, task, labels, tmp_path):
    assert labels("yolo", *flags).code == 0
    line, *_ = (tmp_path / "out/labels/train/a.txt").read_text().splitlines()
    assert len(line.split()) - 1 == (8 if task == 6 else 4)


def test_class_folders_have_formats_that_store_classes(recordmill, tmp_path):
    for number, name in enumerate(("cat/1.jpg", "dog/2.jpg")):
        draw_jpeg(tmp_path / "data" / name, colour=(number, 0, 0))
    words = ["convert", tmp_path / "data", "--labels-only", "--output", tmp_path / "out", "--as"]
    refused = recordmill(*words, "yolo")
    assert (refused.code, os.path.exists(tmp_path / "out")) == (2, False)
    assert "Give --as coco, --as hf" in refused.err
    assert recordmill(*words, "hf").code == 0
    rows = map(json.loads, (tmp_path / "out/train/metadata.jsonl").read_text().splitlines())
    assert {row["file_name"]: row["label"] for row in rows} == {"cat/1.jpg": "cat", "dog/2.jpg": "dog"}


def test_killed_run_resumes_and_another_command_is_refused(labels, tmp_path, monkeypatch):
    def stop(*_: object) -> None:
        raise JobError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(convert_labels, "run_extract", stop)
        assert labels("yolo").code == 1
    out = tmp_path / "out"
    assert os.listdir(out) == [".recordmill-extract"]
    refused = labels("voc")
    assert refused.code == 2
    assert "has an unfinished run of other data, with other options" in refused.err
    done = labels("yolo")
    assert (done.code, "Resuming an unfinished run in" in done.out) == (0, True)
    assert sorted(os.listdir(out)) == ["data.yaml", "images", "labels", "rejects.jsonl"]
    again = labels("yolo")
    assert (again.code, "exists and is not empty" in again.err) == (2, True)


def test_summary_that_cannot_be_printed_leaves_no_state(labels, tmp_path, monkeypatch):
    """`| head` closes the pipe."""

    def stop(*_: object) -> None:
        raise JobError("closed")

    monkeypatch.setattr(convert_labels, "_print_summary", stop)
    assert labels("yolo").code == 1
    assert sorted(os.listdir(tmp_path / "out")) == ["data.yaml", "images", "labels", "rejects.jsonl"]


def test_run_without_a_finished_shard_may_be_replaced(labels, data, tmp_path):
    assert labels("yolo", "--max-rejects", 0).code == 1
    os.remove(data / "instances.json")
    write_coco(data, [image_row(1, "a.jpg")], [annotation(1, 1)], CATEGORIES)
    assert labels("yolo", "--max-rejects", 0).code == 0
    assert not os.path.exists(tmp_path / "out/rejects.jsonl")


def test_image_that_changes_between_the_steps_is_a_fault(labels, data, tmp_path, monkeypatch):
    extract = convert_labels.run_extract

    def change_first(*arguments: Any) -> Any:
        draw_jpeg(data / "images/a.jpg", colour=(9, 9, 9))
        return extract(*arguments)

    monkeypatch.setattr(convert_labels, "run_extract", change_first)
    done = labels("yolo")
    assert (done.code, "train: image_missing:" in done.out) == (1, True)
    last = json.loads((tmp_path / "out/rejects.jsonl").read_text().splitlines()[-1])
    assert (last["what"], last["reason"]) == ("image", "image_missing")
    assert not os.path.exists(tmp_path / "out/images/train/a.jpg")


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        (["--gzip", "--max-side", 9], "--labels-only writes no records, so --gzip, --max-side would do nothing"),
        (["--masks", "png"], "Leave --masks png out"),
        (["--duplicates", "fail"], "Add --check decode"),
        (["--part", "0/2"], "so --part would do nothing"),
    ],
)
def test_options_of_records_are_refused(flags, fault, labels, tmp_path):
    refused = labels("yolo", *flags)
    assert (refused.code, os.path.exists(tmp_path / "out")) == (2, False)
    assert fault in refused.err


def test_output_in_the_data_is_refused(labels, data):
    refused = labels("yolo", "--output", data / "images" / "out")
    assert refused.code == 2
    assert "is in" in refused.err
    assert sorted(os.listdir(data / "images")) == ["a.jpg", "b"]


def test_error_before_any_label_leaves_no_folder(labels, data, tmp_path):
    (data / "instances.json").write_text("{}")
    assert labels("yolo").code
    assert not os.path.exists(tmp_path / "out")


def test_plan_writes_nothing(labels, tmp_path):
    plan = labels("yolo", "--dry-run")
    assert plan.code == 0, plan
    assert "shards" not in plan.out
    assert "image/file" not in plan.out
    assert not os.path.exists(tmp_path / "out")


def test_images_that_readers_would_turn_or_not_decode_are_copied(recordmill, tmp_path):
    """COCO's sizes say which frame the labels have."""
    folder = tmp_path / "images"
    folder.mkdir()
    exif = Image.Exif()
    exif[0x0112] = 6
    for name, image, more in (
        ("stored.jpg", Image.new("RGB", (40, 30)), {"exif": exif}),
        ("upright.jpg", Image.new("RGB", (40, 30), "red"), {"exif": exif}),
        ("a.gif", Image.new("P", (40, 30)), {}),
        ("w.webp", Image.new("RGB", (40, 30)), {}),
    ):
        image.save(folder / name, **more)
    images = [image_row(1, "stored.jpg"), image_row(2, "upright.jpg", 30, 40)]
    images += [image_row(3, "a.gif"), image_row(4, "w.webp")]
    file = write_coco(tmp_path, images, [annotation(number, number) for number in range(1, 5)], CATEGORIES)
    flags = ["--labels-only", "--as", "yolo", "--output", tmp_path / "out"]
    done = recordmill("convert", "--images", folder, "--instances", file, *flags)
    assert (done.code, "(1 linked, 3 copied)" in done.out) == (0, True), done
    found = {}
    for path in (tmp_path / "out/images/train").iterdir():
        with Image.open(path) as image:
            found[path.name] = image.size, image.getexif().get(0x0112, 1), path.stat().st_nlink
    assert found == {
        "stored.jpg": ((40, 30), 1, 1),
        "upright.jpg": ((30, 40), 1, 1),
        "a.gif.jpg": ((40, 30), 1, 1),
        "w.webp": ((40, 30), 1, 2),
    }


def test_from_python(data, tmp_path):
    options = {"instances": str(data / "instances.json"), "max_rejects": 0.5, "progress": "none"}
    out = str(tmp_path / "out")
    assert library.convert(str(data / "images"), out, labels_only=True, as_="voc", **options) == out
    assert os.path.exists(f"{out}/Annotations/train/a.xml")


def test_masks_of_whole_images_become_maps_of_coco(recordmill, tmp_path):
    """`--masks` is for objects, so it has no default in formats without any."""
    for folder, values in (("images", 200), ("masks", 1)):
        (tmp_path / "data" / folder).mkdir(parents=True)
        Image.new("L", (40, 30), values).save(tmp_path / "data" / folder / "1.png")
    flags = ["--class-names", "sky,road", "--labels-only", "--output", tmp_path / "out"]
    done = recordmill("convert", tmp_path / "data", *flags)
    assert done.code == 0, done
    (path,) = (tmp_path / "out" / "masks").rglob("1.png")
    with Image.open(path) as image:
        assert image.getextrema() == (1, 1)


def test_panoptic_segments_stay(recordmill, sample, tmp_path):
    folder = Path(sample.panoptic).parent.parent
    flags = ["--panoptic", sample.panoptic, "--panoptic-masks", folder / "panoptic", "--labels-only"]
    done = recordmill("convert", folder / "images", *flags, "--output", tmp_path / "out", "--max-rejects", 0.2)
    assert done.code == 0, done
    wanted = {
        row["image_id"]: row["segments_info"] for row in json.loads(Path(sample.panoptic).read_text())["annotations"]
    }
    rows = json.loads((tmp_path / "out/annotations/panoptic_train.json").read_text())["annotations"]
    assert rows
    for row in rows:
        ids = [(segment["id"], segment["category_id"], segment["area"]) for segment in row["segments_info"]]
        assert ids == [(one["id"], one["category_id"], one["area"]) for one in wanted[row["image_id"]]]
