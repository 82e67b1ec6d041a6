"""Tests for parse_lines."""

import io
import json

import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.file_kinds import LFS_POINTER
from recordmill.transforms.vertex.read_vertex import parse_lines
from recordmill.transforms.vertex.vertex_options import VertexOptions

BOX = {"displayName": "cat", "xMin": "0.25", "yMin": "0.5", "xMax": 0.5, "yMax": 1}
USE = "aiplatform.googleapis.com/ml_use"


def line(*boxes: object, use: str = "", **more: object) -> str:
    row = {"imageGcsUri": "gs://b/1.jpg", "boundingBoxAnnotations": boxes, **more}
    return json.dumps(row | ({"dataItemResourceLabels": {USE: use}} if use else {}))


def parse(*lines: str, has_splits: bool = False, name: str = "a.jsonl"):
    return list(parse_lines(io.BytesIO("\n".join(lines).encode()), name, has_splits))


def test_json_lines():
    first, second = parse(line(BOX, BOX | {"displayName": "dog"}), "", line(imageGcsUri="sub/2.jpg"))
    assert [(object_.category, object_.box, object_.frame) for object_ in first.sample.objects] == [
        ("cat", (0.25, 0.5, 0.25, 0.5), "fraction"),
        ("dog", (0.25, 0.5, 0.25, 0.5), "fraction"),
    ]
    assert (first.sample.file_name, second.sample.file_name) == ("gs://b/1.jpg", "sub/2.jpg")


@pytest.mark.parametrize(
    ("row", "split", "box"),
    [
        ("TRAIN,gs://b/1.jpg,cat,0.25,0.5,,,0.5,1,,", "train", (0.25, 0.5, 0.25, 0.5)),
        ("validation,gs://b/1.jpg,cat,0.25,0.5,0.5,0.5,0.5,1,0.25,1", "val", (0.25, 0.5, 0.25, 0.5)),
        ("TEST,gs://b/1.jpg,cat,0.5,1,,,0.25,0.5,,", "test", (0.25, 0.5, 0.25, 0.5)),  # corners in another order
        ("TEST,gs://b/1.jpg", "test", None),
        ("TEST,gs://b/1.jpg,,,,,,,,,", "test", None),
    ],
)
def test_csv(row, split, box):
    (image,) = parse(row, has_splits=True, name="a.csv")
    assert (image.sample.file_name, image.sample.split) == ("gs://b/1.jpg", split)
    assert [object_.box for object_ in image.sample.objects] == ([box] if box else [])
    assert not image.faults


def test_csv_without_splits():
    (image,) = parse("gs://b/1.jpg,cat,0.25,0.5,,,0.5,1,,", name="a.csv")
    assert (image.sample.split, image.sample.objects[0].category) == ("", "cat")


@pytest.mark.parametrize(
    ("name", "bad", "reason", "detail"),
    [
        ("a.jsonl", line(BOX | {"xMax": 350}), "malformed_box", "edges 0.25, 0.5, 350, 1 are not in 0..1"),
        ("a.jsonl", line(BOX | {"xMax": float("nan")}), "malformed_annotation", "a number is NaN or Infinity"),
        ("a.jsonl", line(BOX | {"xMax": "nan"}), "malformed_annotation", "a number is NaN or Infinity"),
        ("a.jsonl", line(BOX | {"xMax": 0.2}), "malformed_box", "left 0.25, top 0.5, right 0.2, bottom 1"),
        ("a.jsonl", line({"displayName": "cat"}), "malformed_annotation", "missing required field `xMin`"),
        ("a.csv", "gs://b/1.jpg,cat,25,50,,,50,100,,", "malformed_box", "are not in 0..1"),
        ("a.csv", "gs://b/1.jpg,cat,0.5,0_5,0.6,0.7", "malformed_box", "are not points"),
        ("a.csv", "gs://b/1.jpg,cat,0.5,0.5", "malformed_box", "a box needs two corners (got 1)"),
        ("a.csv", "gs://b/1.jpg,cat,0.5,x,0.6,0.7", "malformed_box", "corners 0.5, x 0.6, 0.7 are not points"),
    ],
)
def test_a_fault_costs_its_box_only(name, bad, reason, detail):
    (image,) = parse("", bad, name=name)
    assert image.sample.objects == ()
    assert [(fault.reason, fault.line, detail in fault.detail) for fault in image.faults] == [(reason, 2, True)]


@pytest.mark.parametrize(
    ("name", "bad", "detail"),
    [
        ("a.jsonl", line()[:30], "Input data was truncated"),
        ("a.jsonl", line(imageGcsUri=7), "Expected `str`"),
        ("a.jsonl", line(classificationAnnotation={"displayName": "cat"}), "a class of the image instead of boxes"),
        ("a.jsonl", line(BOX), "it has no ml_use, but other lines have"),
        ("a.jsonl", line(use="dev"), "ml_use 'dev' is not a split"),
        ("a.jsonl", line(BOX).replace('"xMin"', '"xMax": 1, "xMin"'), "an object has the key 'xMax' twice"),
        ("a.csv", "UNASSIGNED,gs://b/1.jpg", "it has no ml_use, but other lines have"),
        ("a.csv", "TRAIN,,cat", "an image without a name"),
        ("a.jsonl", line(imageGcsUri=""), "an image without a name"),
    ],
)
def test_a_fault_of_an_image_costs_that_image_only(name, bad, detail):
    good = "TEST,gs://b/2.jpg" if name == "a.csv" else line(use="test")
    first, image, last = parse(good, bad, good, has_splits=True, name=name)
    assert (image.sample, first.sample.split, last.sample.split) == (None, "test", "test")
    assert (detail in image.faults[0].detail, image.faults[0].line) == (True, 2)


def test_csv_in_another_encoding_keeps_the_rows_before():
    data = b"gs://b/1.jpg\n" * 10_000 + "gs://b/é.jpg".encode("latin-1")
    *good, bad = parse_lines(io.BytesIO(data), "a.csv")
    assert good
    assert (bad.sample, "not valid CSV in UTF-8" in bad.faults[0].detail) == (None, True)


def test_splits_are_those_that_lines_have(tmp_path):
    (tmp_path / "a.jsonl").write_text("\n".join((line(use="training"), line(use="test"))))
    (tmp_path / "b.csv").write_text("gs://b/1.jpg,cat\nVALIDATION,gs://b/2.jpg\n")
    options = VertexOptions(data=str(tmp_path), output="out")
    assert options.source().splits == ("train", "val", "test")
    (tmp_path / "a.jsonl").unlink()
    (tmp_path / "b.csv").write_text("gs://b/1.jpg,cat\n")
    assert options.source().splits == ()
    (tmp_path / "b.csv").unlink()
    with pytest.raises(ConfigError, match=r"has no \.jsonl or \.csv file"):
        options.source()


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_a_pointer_of_git_lfs_is_an_error(tmp_path, name):
    (tmp_path / name).write_bytes(LFS_POINTER + b".github.com/spec/v1\noid sha256:4d\nsize 12\n")
    with pytest.raises(ConfigError, match=f"{name} is a Git LFS pointer"):
        VertexOptions(data=str(tmp_path), output="out").source()


def test_fields():
    box = BOX | {"annotationResourceLabels": {"colour": "red"}}
    data = line(box, dataItemResourceLabels={USE: "train", "place": "sea"}, more=1).encode()
    (image,) = parse_lines(io.BytesIO(data), "a.jsonl")
    assert image.sample.objects[0].fields == {"annotationResourceLabels": {"colour": "red"}}
    assert image.sample.fields == {"more": 1, "dataItemResourceLabels": {"place": "sea"}}
