"""`recordmill extract --as`: a format is read back, written in another one, and read again."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from pycocotools import mask as coco_mask

from tests.conftest import (
    CATEGORIES,
    annotation,
    draw_jpeg,
    examples_by_name,
    image_row,
    manifest_of,
    read_examples,
    write_coco,
)

FORMATS = {"hf": "imagefolder"} | {name: name for name in ("yolo", "voc", "labelme", "ndjson", "cvat", "createml")}
HELD = {name: set[str]() for name in FORMATS} | {"hf": {"area", "caption", "crowd", "id"}}
"""Contents of a format besides names of images, boxes, classes and splits. docs/formats.md says the same."""
SPLITS = ("train", "val")
PREFIX = re.compile("((images/|JPEGImages/)?(train|val)/)*")
RARE = ["--split", "train=0.6,val=0.4", "--split-by", "rank", "--max-rejects", 0.2, "--num-shards", 2]


def contents(folder: Path, kept: set[str], masks: bool = False) -> dict[str, dict[str, list]]:
    """Objects of each image by split and name, without what a format does not hold."""
    found = {}
    for split in SPLITS:
        found[split] = {}
        for example in read_examples(folder, split):
            of_object = {name.removeprefix("image/object/"): values for name, values in example.items()}
            edges = [of_object[f"bbox/{edge}"] for edge in ("xmin", "ymin", "xmax", "ymax")]
            columns = [of_object["class/text"], np.round(np.transpose(edges), 6).tolist()]
            columns += [of_object[column] for column in ("area", "id") if column in kept]
            columns += [of_object["is_crowd"]] if "crowd" in kept else []
            if masks:
                size = [example["image/height"][0], example["image/width"][0]]
                columns.append(
                    [coco_mask.decode({"size": size, "counts": rle}).tobytes() for rle in of_object["mask/rle"]]
                )
            objects = list(zip(*columns, strict=True))
            if "crowd" not in kept:
                objects = [each for each, crowd in zip(objects, of_object["is_crowd"], strict=True) if not crowd]
            captions = sorted(example.get("image/caption", ())) if "caption" in kept else []
            name = PREFIX.sub("", example["image/filename"][0].decode())
            found[split][name] = [sorted(objects), captions, example["image/encoded"]]
    return found


def flat(found: dict[str, dict[str, list]]) -> dict[str, dict[str, list]]:
    """Contents with the names of files that NDJSON has, without folders."""
    return {split: {name.replace("/", "_"): rows for name, rows in images.items()} for split, images in found.items()}


@pytest.fixture
def step(recordmill, tmp_path):
    """Extracts a data set to a format, converts that, and returns the new data set."""

    def convert(source: Path, format_: str, *flags: object) -> Path:
        back, out = (tmp_path / f"{format_}-{name}" for name in ("back", "out"))
        extracted = recordmill("extract", source, back, "--as", format_)
        assert extracted.code == 0, extracted
        done = recordmill("convert", back, "--format", FORMATS[format_], *flags, "--output", out)
        assert done.code == 0, done
        splits = manifest_of(out)["splits"].values()
        assert not any(split["rejects"]["listed"] for split in splits if "rejects" in split)
        return out

    return convert


@pytest.mark.parametrize("format_", FORMATS)
def test_format(format_, sample, copy_converted, tmp_path, step):
    source = tmp_path / "source"
    copy_converted(source, *RARE, "--captions", sample.captions)
    original = flat if format_ == "ndjson" else dict
    expected = original(contents(source, HELD[format_]))
    assert sum(map(len, expected.values())) == 22
    assert contents(step(source, format_), HELD[format_]) == expected


@pytest.mark.parametrize(("first", "second"), [("yolo", "voc"), ("ndjson", "yolo")])
def test_from_format_to_format(first, second, copy_converted, tmp_path, step):
    """Data sets with the names that a format gives its images, and without what it does not hold."""
    source = tmp_path / "source"
    copy_converted(source, *RARE)
    original = flat if first == "ndjson" else dict
    assert contents(step(step(source, first), second), set()) == original(contents(source, set()))


@pytest.mark.parametrize(("format_", "last"), [("yolo", "m.jpg.jpg"), ("voc", "m_jpg.jpg")])
def test_names_that_look_like_other_files(format_, last, tmp_path, recordmill, step):
    names = ["README.jpg", "classes.jpg", "m.jpg.jpg"]
    images = [image_row(id_, name) for id_, name in enumerate(names, 1)]
    for id_, name in enumerate(names):
        draw_jpeg(tmp_path / name, colour=(id_, 0, 0))
    file = write_coco(tmp_path, images, [annotation(id_, id_) for id_ in (1, 2, 3)], CATEGORIES)
    source = tmp_path / "source"
    assert recordmill("convert", "--images", tmp_path, "--instances", file, "--output", source).code == 0
    found = examples_by_name(step(source, format_))
    assert sorted(PREFIX.sub("", name) for name in found) == ["README.jpg", "classes.jpg", last]
    assert all(len(example["image/object/bbox/xmin"]) == 1 for example in found.values())


def test_masks_are_exact(copy_converted, tmp_path, step):
    source = tmp_path / "source"
    copy_converted(source, *RARE, "--masks", "rle")
    yolo = step(source, "yolo", "--masks", "rle")
    assert contents(yolo, {"area"}, masks=True) == contents(source, {"area"}, masks=True)
    ndjson = step(yolo, "ndjson", "--masks", "rle")
    assert contents(ndjson, {"area"}, masks=True) == flat(contents(source, {"area"}, masks=True))
    cvat = step(yolo, "cvat", "--masks", "rle")
    assert contents(cvat, {"area"}, masks=True) == contents(source, {"area"}, masks=True)
    labelme = step(yolo, "labelme", "--masks", "rle")  # whose area is that of the box
    assert contents(labelme, set(), masks=True) == contents(source, set(), masks=True)


def keypoints(folder: Path) -> list[tuple]:
    """Names of images, x, y and visibility of the labelled keypoints."""
    found = []
    for example in (example for split in SPLITS for example in read_examples(folder, split)):
        x, y, visibility = (example[f"image/object/keypoint/{axis}"] for axis in ("x", "y", "visibility"))
        name = PREFIX.sub("", example["image/filename"][0].decode()).replace("/", "_")  # as NDJSON has it
        found += [(name, round(a, 5), round(b, 5), seen) for a, b, seen in zip(x, y, visibility, strict=True) if seen]
    return sorted(found)


@pytest.mark.parametrize("format_", ["yolo", "ndjson"])
def test_keypoints(format_, sample, copy_converted, tmp_path, step):
    copy_converted(tmp_path / "source", *RARE, "--keypoints", sample.keypoints)
    expected = keypoints(tmp_path / "source")
    assert len(expected) > 50
    assert keypoints(step(tmp_path / "source", format_)) == expected


def test_classes_of_images(sample, tmp_path, recordmill):
    assert recordmill("convert", sample.classes, "--format", "folder", "--output", tmp_path / "out").code == 0
    refused = recordmill("extract", tmp_path / "out", tmp_path / "voc", "--as", "voc")
    assert (refused.code, "have no objects" in refused.err) == (2, True)
    assert recordmill("extract", tmp_path / "out", tmp_path / "hf", "--as", "hf").code == 0
    rows = tmp_path / "hf" / "train"
    flags = ("--labels", rows / "metadata.jsonl", "--image-column", "file_name", "--label", "label")
    again = recordmill("convert", rows, "--format", "folder", *flags, "--output", tmp_path / "again")
    assert again.code == 0, again
    labels = [
        {each["image/filename"][0]: each["image/class/text"] for each in read_examples(tmp_path / name)}
        for name in ("out", "again")
    ]
    assert labels[0] == labels[1]


def test_classes_of_images_are_tags_of_ndjson(sample, tmp_path, recordmill, step):
    assert recordmill("convert", sample.classes, "--format", "folder", "--output", tmp_path / "out").code == 0
    again = step(tmp_path / "out", "ndjson")
    pairs = [
        {each["image/encoded"][0]: each["image/class/text"] for each in read_examples(folder)}
        for folder in (tmp_path / "out", again)
    ]
    assert pairs[0] == pairs[1]
    first, *_ = (tmp_path / "ndjson-back" / "dataset.ndjson").read_text().splitlines()
    assert json.loads(first)["task"] == "classify"
    back = recordmill("extract", again, tmp_path / "dir", "--as", "ndjson")  # whose layout could have objects
    assert (back.code, json.loads((tmp_path / "dir" / "dataset.ndjson").read_text().splitlines()[0])["task"]) == (
        0,
        "classify",
    )


def test_the_file_of_all_splits_is_written_by_a_rerun(copy_converted, tmp_path, recordmill, monkeypatch):
    copy_converted(tmp_path / "out", *RARE)
    with monkeypatch.context() as patch:
        patch.setattr("recordmill.pipelines.extract.join_lists", lambda *_: 1 / 0)
        assert recordmill("extract", tmp_path / "out", tmp_path / "dir", "--as", "ndjson").code == 1
    assert recordmill("extract", tmp_path / "out", tmp_path / "dir", "--as", "ndjson").code == 0
    assert sorted(path.name for path in (tmp_path / "dir").iterdir()) == ["dataset.ndjson", "images"]
    header, *lines = map(json.loads, (tmp_path / "dir" / "dataset.ndjson").read_text().splitlines())
    assert (header["type"], header["task"], header["path"], len(lines)) == ("dataset", "detect", ".", 22)
    assert all((tmp_path / "dir" / "images" / line["split"] / line["file"]).is_file() for line in lines)


@pytest.mark.parametrize("format_", ["coco", *FORMATS])
def test_labels_only(format_, copy_converted, tmp_path, recordmill):
    """The labels are those that are written with images."""
    copy_converted(tmp_path / "out", *RARE)
    for name, *more in (("all",), ("labels", "--labels-only")):
        done = recordmill("extract", tmp_path / "out", tmp_path / name, "--as", format_, *more)
        assert done.code == 0, done
    assert ("no images were written" in done.out, "recordmill convert" in done.out) == (True, True)
    whole, labels = (
        {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
        for folder in (tmp_path / "all", tmp_path / "labels")
    )
    assert labels == {file: data for file, data in whole.items() if file.suffix.lower() not in (".jpg", ".png")}
    assert len(whole) - len(labels) == 22


def test_labels_only_resumes_and_is_not_continued_with_images(copy_converted, tmp_path, recordmill, monkeypatch):
    copy_converted(tmp_path / "out", "--num-shards", 3)
    words = "extract", tmp_path / "out", tmp_path / "dir", "--as", "yolo"
    with monkeypatch.context() as patch:
        patch.setattr("recordmill.transforms.extract.write_documents.write_list", lambda *_: 1 / 0)
        assert recordmill(*words, "--labels-only").code == 1
    refused = recordmill(*words)
    assert (refused.code, "with other options" in refused.err) == (2, True), refused
    done = recordmill(*words, "--labels-only")
    assert (done.code, "3 shards were extracted" in done.out) == (0, True)
    files = [file.relative_to(tmp_path / "dir") for file in (tmp_path / "dir").rglob("*") if file.is_file()]
    assert {file.parts[0] for file in files} == {"data.yaml", "labels"}


def test_unfinished_extraction_of_another_format_is_refused(copy_converted, tmp_path, recordmill, monkeypatch):
    copy_converted(tmp_path / "out", "--num-shards", 3)
    with monkeypatch.context() as patch:
        patch.setattr("recordmill.transforms.extract.write_documents.write_list", lambda *_: 1 / 0)
        assert recordmill("extract", tmp_path / "out", tmp_path / "dir", "--as", "yolo").code == 1
    assert recordmill("extract", tmp_path / "out", tmp_path / "dir").code == 2
    done = recordmill("extract", tmp_path / "out", tmp_path / "dir", "--as", "yolo")
    assert (done.code, "3 shards were extracted" in done.out) == (0, True)
    assert len(list((tmp_path / "dir" / "labels").rglob("*.txt"))) == 22
    assert "data.yaml has no images for val" in done.out


def test_record_an_annotation_is_refused(copy_converted, tmp_path, recordmill):
    copy_converted(tmp_path / "out", "--layout", "keras")
    refused = recordmill("extract", tmp_path / "out", tmp_path / "dir", "--as", "yolo")
    assert (refused.code, "one record per annotation" in refused.err) == (2, True)
