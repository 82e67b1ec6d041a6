"""YOLO data sets from end to end."""

import re
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from tests.conftest import SHARED_DATA, draw_jpeg, examples_by_name, manifest_of, read_examples, rejects_of

REAL = SHARED_DATA / "formats"
HUB = REAL / "yolo_hub" / "example_datasets"
needs_real_data = pytest.mark.skipif(not REAL.exists(), reason="the real data sets are not on this machine")
DATA = "train: images/train\nval: images/val\nnames: {0: cat, 1: dog}\n"


@pytest.fixture
def folder(tmp_path) -> Path:
    """Four images of 40x30; one of them has no label file, one an empty one, and a label file has no image."""
    for name in ("train/1", "train/2", "train/3", "val/4"):
        draw_jpeg(tmp_path / "data" / "images" / f"{name}.jpg")
    labels = {
        "train/1": "0 0.5 0.5 0.5 0.2\n1 0.25 0.5 0.5 1\n1 0.5 0.5 0.5\n",
        "train/2": "",
        "val/4": "1 0.9 0.9 0.2 0.2",
        "val/5": "1 0.9 0.9 0.2 0.2",
    }
    for name, text in labels.items():
        path = tmp_path / "data" / "labels" / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "data" / "labels" / "train.cache").write_bytes(b"\x80\x04.")
    (tmp_path / "data" / "data.yaml").write_text(DATA)
    return tmp_path


def flags(folder: Path, *more: object) -> list[object]:
    return ["convert", folder / "data", "--format", "yolo", "--output", folder / "out", "--max-rejects", 0.5, *more]


def test_stratified_splits(folder, recordmill):
    (folder / "data" / "data.yaml").write_text("train: images/train\nnames: {0: cat, 1: dog}\n")
    (folder / "data" / "labels" / "train" / "3.txt").write_text("1 0.5 0.5 0.5 0.5\n")
    done = recordmill(*flags(folder, "--split", "one=0.5,two=0.5", "--stratify"))
    assert done.code == 0, done
    names = [name for split in ("one", "two") for name in examples_by_name(folder / "out", split)]
    assert sorted(names) == ["images/train/1.jpg", "images/train/2.jpg", "images/train/3.jpg"]


def test_all_splits_in_one_run(folder, recordmill):
    before = {path: path.stat().st_mtime_ns for path in (folder / "data").rglob("*")}
    done = recordmill(*flags(folder))
    assert done.code == 0, done
    assert {path: path.stat().st_mtime_ns for path in (folder / "data").rglob("*")} == before
    train = examples_by_name(folder / "out")
    assert sorted(train) == ["images/train/1.jpg", "images/train/2.jpg", "images/train/3.jpg"]
    first = train["images/train/1.jpg"]
    assert first["image/object/bbox/xmin"] == [0.25, 0]
    assert first["image/object/bbox/ymax"] == pytest.approx([0.6, 1])
    assert first["image/object/area"] == [120, 600]
    assert (first["image/object/class/text"], first["image/object/class/label"]) == ([b"cat", b"dog"], [1, 2])
    assert first["image/object/category_id"] == [0, 1]
    assert not train["images/train/2.jpg"]["image/object/id"]
    assert examples_by_name(folder / "out", "val")["images/val/4.jpg"]["image/object/bbox/xmax"] == [1]
    splits = manifest_of(folder / "out")["splits"]
    assert [splits["train"]["annotations"][what] for what in ("rows", "objects", "boxes_clipped")] == [3, 2, 0]
    assert [(line["file_name"], line["annotations"], line["detail"]) for line in rejects_of(folder / "out")] == [
        (
            "images/train/1.jpg",
            0,
            "labels/train/1.txt, line 3: 4 columns; a box has 5, a polygon 7, 9 or more: '1 0.5 0.5 0.5'",
        ),
        ("labels/val/5.txt", 1, "labels/val/5.txt: no image has this label file of 1 label"),
    ]
    assert [splits["val"]["images"][what] for what in ("rows", "written")] == [2, 1]
    assert [splits["val"]["annotations"][what] for what in ("rows", "objects", "of_rejected_images")] == [2, 1, 1]
    assert re.search("no objects +2 of the written images", done.out)
    assert splits["train"]["warnings"] == [
        "images without a label file: 1; they are written without objects, as background ('images/train/3.jpg')",
    ]
    assert recordmill("verify", folder / "out").code == 0


def test_lists_of_images(folder, recordmill):
    data = folder / "data"
    (data / "data.yaml").write_text("train: [train.txt, images/val]\nval: val.txt\nnames: [cat, dog]\n")
    (data / "train.txt").write_text(f"./images/train/1.jpg\n{data}/images/train/2.jpg\nimages/train/1.jpg\n")
    (data / "val.txt").write_text("images/train/3.jpg\nimages/train/gone.jpg\n/elsewhere/1.jpg\n../1.jpg\n")
    assert recordmill(*flags(folder)).code == 0
    assert sorted(examples_by_name(folder / "out")) == ["images/train/1.jpg", "images/train/2.jpg", "images/val/4.jpg"]
    assert list(examples_by_name(folder / "out", "val")) == ["images/train/3.jpg"]
    reasons = Counter(line["reason"] for line in rejects_of(folder / "out"))
    assert reasons == {"image_missing": 1, "unsafe_file_name": 2, "malformed_annotation": 1, "label_without_image": 1}


def test_classes_txt_splits_by_flag(folder, recordmill):
    (folder / "data" / "data.yaml").unlink()
    (folder / "data" / "labels" / "classes.txt").write_text("cat\ndog\n")
    more = "--split", "train=0.5,test=0.5", "--split-by", "rank", "--categories", "dog"
    assert recordmill(*flags(folder, *more)).code == 0
    splits = manifest_of(folder / "out")["splits"]
    assert [split["images"]["written"] for split in splits.values()] == [2, 2]
    assert sum(split["class_counts"][0] for split in splits.values()) == 2
    assert sum(split["annotations"]["filtered"].get("category", 0) for split in splits.values()) == 1


def test_image_that_lies_on_its_side_is_turned(folder, recordmill):
    path = folder / "data" / "images" / "train" / "1.jpg"
    exif = Image.Exif()
    exif[274] = 6
    Image.new("RGB", (40, 30)).save(path, "JPEG", exif=exif)
    assert recordmill(*flags(folder, "--min-area", 200)).code == 0
    first = examples_by_name(folder / "out")["images/train/1.jpg"]
    assert (first["image/width"], first["image/height"], first["image/object/bbox/xmin"]) == ([30], [40], [0])
    assert manifest_of(folder / "out")["splits"]["train"]["annotations"]["filtered"] == {"area": 1}


def test_what_looks_like_labels_is_said(folder, recordmill):
    (folder / "data" / "labels" / "train" / "3.TXT").write_text("0 0.5 0.5 0.5 0.2\n")
    draw_jpeg(folder / "data" / "images" / "train" / "1.png")
    done = recordmill(*flags(folder))
    assert done.code == 0, done
    reasons = Counter(line["reason"] for line in rejects_of(folder / "out"))
    assert reasons["label_without_image"] == 2
    assert "images that share a label file, because their names differ only by the suffix: 1" in done.out


def test_what_is_no_label_without_image(folder, recordmill):
    labels = folder / "data" / "labels" / "val"
    for name, text in {
        "notes": "as of 2021",
        "classes": "0 0.5 0.5 0.5 0.2",
        "empty": "",
        "7": "0 .5 .5 .2 .2",
    }.items():
        (labels / f"{name}.txt").write_text(text)
    (folder / "exclude").write_text("images/val/5.jpg\nimages/val/7.jpg\nimages/train/2.jpg\n")
    assert recordmill(*flags(folder, "--exclude", folder / "exclude")).code == 0
    reasons = Counter(line["reason"] for line in rejects_of(folder / "out"))
    assert reasons == {"malformed_annotation": 1, "excluded": 1}
    warnings = " ".join(manifest_of(folder / "out")["splits"]["train"]["warnings"])
    assert (
        "without a label of the format: 2; they are skipped ('labels/val/empty.txt', 'labels/val/notes.txt')"
        in warnings
    )
    (folder / "data" / "images" / "val" / "4.jpg").unlink()
    refused = recordmill(*(0.2 if word == 0.5 else word for word in flags(folder, "--overwrite")))
    assert (refused.code, "3 of 3 label files in labels/val have no image" in refused.err) == (2, True), refused


def test_images_elsewhere_have_labels_below_data(folder, recordmill):
    (folder / "pictures").mkdir()
    (folder / "data" / "images").rename(folder / "pictures" / "images")
    more = "--images", folder / "pictures"
    (folder / "data" / "labels" / "val" / "4.txt").write_text("")
    assert recordmill(*flags(folder, *more)).code == 0
    splits = manifest_of(folder / "out")["splits"]
    assert [split["annotations"]["objects"] for split in splits.values()] == [2, 0]
    assert "no image of the split val has a label" in " ".join(splits["val"]["warnings"])
    (folder / "data" / "labels").rename(folder / "no_labels")
    refused = recordmill(*flags(folder, *more, "--overwrite"))
    assert (refused.code, "'images/train/1.jpg' lacks the label file 'labels/train/1.txt'" in refused.err) == (2, True)
    assert recordmill(*flags(folder, *more, "--overwrite", "--allow-empty", "--dry-run")).code == 0


@needs_real_data
@pytest.mark.parametrize(
    ("data", "task", "more"),
    [
        (HUB / "coco8", "detect", ()),
        (HUB / "coco8-seg", "segment", ("--masks", "rle")),
        (HUB / "coco8-pose", "pose", ()),
        (HUB / "dota8", "obb", ("--task", "obb")),
        (REAL / "yolo_kayisi", "detect", ()),
    ],
)
def test_real_data(data, task, more, tmp_path, recordmill):
    """Each number of each line equals that of an independent reader."""
    assert recordmill("convert", data, "--format", "yolo", "--output", tmp_path, "--boxes", "keep", *more).code == 0
    assert recordmill("verify", tmp_path).code == 0
    images = 0
    for split, folder in (("train", "train"), ("val", "val*"), ("test", "test")):
        labels = {path.stem: path for path in data.glob(f"labels/{folder}/*.txt")}
        labels |= {path.stem: path for path in data.glob(f"{folder}/labels/*.txt")}
        for example in read_examples(tmp_path, split):
            images += 1
            lines = labels[Path(example["image/filename"][0].decode()).stem].read_text().splitlines()
            rows = [[float(number) for number in line.split()] for line in lines]
            boxes = [
                (row[1] - row[3] / 2, row[2] - row[4] / 2, row[1] + row[3] / 2, row[2] + row[4] / 2)
                if task in ("detect", "pose")
                else (min(row[1::2]), min(row[2::2]), max(row[1::2]), max(row[2::2]))
                for row in rows
            ]
            found = [example[f"image/object/bbox/{edge}"] for edge in ("xmin", "ymin", "xmax", "ymax")]
            assert sorted(zip(*found, strict=True)) == [pytest.approx(box, abs=3e-6) for box in sorted(boxes)]
            assert sorted(example["image/object/category_id"]) == sorted(int(row[0]) for row in rows)
            if task == "pose":
                numbers = [sum(visibility > 0 for visibility in row[7::3]) for row in rows]
                assert sorted(example["image/object/keypoint/num"]) == sorted(numbers)
            if task == "obb":
                corners = [number for row in rows for number in row[1:]]
                assert sorted(example["image/object/obb"]) == pytest.approx(sorted(corners), abs=1e-6)
            if task == "segment":
                assert all(map(len, example["image/object/mask/rle"]))
    assert images == len([path for path in data.glob("**/*.jpg") if "kayisi-1" not in path.parts])
