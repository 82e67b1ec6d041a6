"""Tests for parse_boxes, and for what Open Images' folders hold."""

import io

import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.openimages.openimages_options import OpenimagesOptions
from recordmill.transforms.openimages.read_openimages import parse_boxes

HEAD = "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside"


def parse(*rows: str, head: str = HEAD):
    data = "\n".join((head, *rows)).encode()
    return list(parse_boxes(io.BytesIO(data), "a/boxes.csv", {"/m/1": "Cat"}))


def test_boxes():
    first, second = parse(
        "0a,xclick,/m/1,1,0.25,0.5,0.5,1,0,1.0,0,0,0",
        "0a,xclick,/m/2,1,0,1,0,1,1,0,True,0,-1",
        "0b.jpg,x,/m/1,1,0,1,0,1,0,-1,no,0,0",
    )
    values = [
        (object_.category, object_.box, object_.frame, object_.is_crowd, bool(object_.fields))
        for object_ in first.sample.objects
    ]
    assert values == [
        ("Cat", (0.25, 0.5, 0.25, 0.5), "fraction", False, True),
        ("/m/2", (0, 0, 1, 1), "fraction", True, False),
    ]
    assert (first.sample.file_name, second.sample.file_name) == ("0a.jpg", "0b.jpg")
    fields = ("Confidence", "IsDepiction", "IsInside", "IsOccluded", "Source")
    assert first.notes == ("class without a name", *(f"field {name}" for name in fields))
    assert second.notes == ()


def test_fields():
    data = b"ImageID,LabelName,XMin,XMax,YMin,YMax,IsGroupOf,Confidence,IsInside\n0a,a,0,1,0,1,0,0.5,\n"
    (image,) = parse_boxes(io.BytesIO(data), "boxes.csv", {}, has_fields=True)
    assert image.sample.objects[0].fields == {"Confidence": "0.5"}


@pytest.mark.parametrize(
    ("row", "reason", "detail"),
    [
        ("0a,x,/m/1,1,12,50,0.5,1,0,0,0,0,0", "malformed_box", "edges 12, 0.5, 50, 1 are not in 0..1"),
        ("0a,x,/m/1,1,0.5,0.25,0.5,1,0,0,0,0,0", "malformed_box", "left 0.5, top 0.5, right 0.25, bottom 1"),
        ("0a,x,/m/1,1,0,1,0,1,0,0,many,0,0", "malformed_annotation", "IsGroupOf must be 1, 0 or -1 (got 'many')"),
        ("0a,x,/m/1,1,,0.25,0.5,1,0,0,0,0,0", "malformed_box", "the box has a text that is not a number: XMin ''"),
    ],
)
def test_a_fault_costs_its_row_only(row, reason, detail):
    (image,) = parse(row, "0a,x,/m/1,1,0,1,0,1,0,0,0,0,0")
    assert len(image.sample.objects) == 1
    assert [(fault.reason, fault.line, detail in fault.detail) for fault in image.faults] == [(reason, 2, True)]


def test_labels_of_whole_images_are_no_boxes():
    (image,) = parse(head="ImageID,Source,LabelName,Confidence")
    assert "no column 'XMin'" in image.faults[0].detail


def read_source(folder, files: dict[str, str], **more: object):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return OpenimagesOptions(data=str(folder), output="out", **more).source()


NAMES = "LabelName,DisplayName\n/m/1,Cat\n\n/m/2,Dog\n"


def test_splits_by_files(tmp_path):
    files = {"oidv6-train-annotations-bbox.csv": HEAD, "validation-annotations-bbox.csv": HEAD, "train/x.csv": "x"}
    source = read_source(tmp_path, files | {"class-descriptions-boxable.csv": NAMES})
    assert (source.splits, [folder.split for folder in source.folders]) == (("train", "val"), [""])
    assert [source.is_label(name) for name in files] == [True, True, False]
    assert "the files oidv6-train-annotations-bbox.csv, validation-annotations-bbox.csv give" in source.warnings[0]
    stream = io.BytesIO(f"{HEAD}\n0a,x,/m/2,1,0,1,0,1,0,0,0,0,0\n".encode())
    (image,) = source.parse(stream, "validation-annotations-bbox.csv")
    assert (image.sample.split, image.sample.objects[0].category) == ("val", "Dog")


def test_splits_by_folders_as_fiftyone_writes_them(tmp_path):
    source = read_source(tmp_path, {"train/labels/detections.csv": HEAD, "train/metadata/classes.csv": NAMES})
    assert (source.splits, source.inputs) == (("train",), (f"{tmp_path}/train/metadata/classes.csv",))
    assert source.is_label("train/labels/detections.csv")


def test_no_names_of_classes(tmp_path):
    source = read_source(tmp_path, {"annotations-bbox.csv": HEAD})
    assert (source.splits, "Add --class-descriptions" in source.warnings[0]) == ((), True)


@pytest.mark.parametrize(
    ("files", "error"),
    [
        ({"train-annotations-bbox.csv": HEAD, "annotations-bbox.csv": HEAD}, "only some of .* name a split"),
        (
            {"class-descriptions.csv": NAMES, "class-descriptions-boxable.csv": NAMES},
            "Add --class-descriptions with one of them",
        ),
        ({"class-descriptions.csv": "/m/1,Cat\n/m/2\n"}, "line 2: a row must be a class and its name"),
        ({"class-descriptions.csv": "/m/1,Cat\n/m/1,Dog\n"}, "/m/1 is 'Cat' and 'Dog'. Keep one of them"),
    ],
)
def test_errors(tmp_path, files, error):
    with pytest.raises(ConfigError, match=error):
        read_source(tmp_path, files)
