"""Tests for parse_rows."""

import gzip
import io

import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.coco import BoxFormat
from recordmill.transforms.tfcsv.read_tfcsv import _check_columns, parse_rows

HEAD = "filename,width,height,class,xmin,ymin,xmax,ymax"


def parse(*rows: str, head: str = HEAD, encoding: str = "utf-8"):
    data = "\n".join((head, *rows, "")).encode(encoding)
    return list(parse_rows(io.BytesIO(data), "train/a.csv"))


def test_rows_of_an_image_are_its_objects():
    first, second = parse("1.jpg,40,30,cat,1,2,4,6", "1.jpg,40,30,dog,0,0,40,30.5", "2.jpg,8,9,cat,1,1,2,2")
    assert (first.sample.file_name, first.sample.width, first.sample.height) == ("train/1.jpg", 40, 30)
    assert [(object_.category, object_.box) for object_ in first.sample.objects] == [
        ("cat", (1, 2, 3, 4)),
        ("dog", (0, 0, 40, 30.5)),
    ]
    assert (second.sample.file_name, len(second.sample.objects)) == ("train/2.jpg", 1)


def test_columns_have_any_order_and_more_are_left_out():
    (image,) = parse("x,6,4,2,1,cat,1.jpg", head="pose,ymax,xmax,ymin,xmin,class,filename")
    assert (image.sample.objects[0].box, image.sample.width) == ((1, 2, 3, 4), None)


@pytest.mark.parametrize(
    ("head", "row", "bbox_format", "box", "read"),
    [
        (HEAD, "1.jpg,40,30,cat,1,2,4,6", None, (1, 2, 3, 4), ""),
        (
            "image,xmin,ymin,xmax,ymax,label",
            '1.jpg,"1",2,4,6,cat',
            None,
            (1, 2, 3, 4),
            "image, classes from label, boxes from xmin, ymin, xmax, ymax (left, top, right, bottom in pixels)",
        ),
        (
            "Filename,Width,Height,Class,XMin,YMin,XMax,YMax",
            "1.jpg,40,30,cat,1,2,4,6",
            None,
            (1, 2, 3, 4),
            "Filename, classes from Class, boxes from XMin, YMin, XMax, YMax (left, top, right, bottom in pixels)",
        ),
        (
            "filename,class,x_min,x_max,y_min,y_max,width,height",
            "1.jpg,cat,1,4,2,6,40,30",
            None,
            (1, 2, 3, 4),
            "filename, classes from class, boxes from x_min, y_min, x_max, y_max (left, top, right, bottom in pixels)",
        ),
        (
            "file_name,category,x,y,width,height,image_width,image_height",
            "1.jpg,cat,1,2,3,4,40,30",
            None,
            (1, 2, 3, 4),
            "file_name, classes from category, boxes from x, y, width, height (left, top, width, height in pixels)",
        ),
        (
            "path,label,cx,cy,w,h",
            "1.jpg,cat,2.5,4,3,4",
            None,
            (1, 2, 3, 4),
            "path, classes from label, boxes from cx, cy, w, h (centre x, centre y, width, height in pixels)",
        ),
        (
            "path,label,x,y,w,h",
            "1.jpg,cat,2.5,4,3,4",
            BoxFormat.CXCYWH,
            (1, 2, 3, 4),
            "path, classes from label, boxes from x, y, w, h (centre x, centre y, width, height in pixels)",
        ),
        *(
            (
                "image_path,label,bbox",
                f'1.jpg,cat,"{text}"',
                BoxFormat.REL_XYXY,
                (0.25, 0.5, 0.5, 0.5),
                "image_path, classes from label, boxes from bbox (left, top, right, bottom in fractions)",
            )
            for text in ("[0.25, 0.5, 0.75, 1]", "0.25 0.5 0.75 1", "(.25,.5,.75,1.0)", "[ 0.25  0.5 0.75 1. ]")
        ),
    ],
)
def test_names_of_columns(head, row, bbox_format, box, read):
    (image,) = parse_rows(io.BytesIO(f"{head}\n{row}\n".encode()), "a.csv", bbox_format)
    (object_,) = image.sample.objects
    assert (object_.category, object_.box, image.sample.file_name, image.faults) == ("cat", box, "1.jpg", ())
    assert object_.frame == ("fraction" if bbox_format is BoxFormat.REL_XYXY else "px")
    assert image.sample.width == (40 if "idth,image" in head or "40,30" in row else None)
    warnings = [f"d: images are read from the column {read}"] if read else []
    assert list(_check_columns(frozenset(image.notes), "d")) == warnings


def test_a_list_of_four_numbers_needs_its_format():
    rows = b'image,label,bbox\n1.jpg,cat,"[1, 2, 4, 6]"\n1.jpg,cat,"[1, 2, 4]"\n'
    (image,) = parse_rows(io.BytesIO(rows), "a.csv")
    assert [fault.detail for fault in image.faults] == ["the meaning of its four numbers is unknown"] * 2
    with pytest.raises(
        ConfigError, match=r"d: the name of the column bbox does not tell .* Add --bbox-format xywh for"
    ):
        list(_check_columns(frozenset(image.notes), "d"))
    (image,) = parse_rows(io.BytesIO(rows), "a.csv", BoxFormat.XYXY)
    assert [object_.box for object_ in image.sample.objects] == [(1, 2, 3, 4)]
    assert [fault.detail for fault in image.faults] == ["the box is not four numbers: '[1, 2, 4]'"]


def test_an_image_without_objects_has_empty_cells():
    (image,) = parse("1.jpg,40,30,,,,,")
    assert (image.sample.objects, image.faults) == ((), ())


def test_a_compressed_file():
    (image,) = parse_rows(io.BytesIO(gzip.compress(f"{HEAD}\n1.jpg,40,30,cat,1,2,4,6\n".encode())), "a.csv")
    assert image.sample.objects[0].box == (1, 2, 3, 4)


@pytest.mark.parametrize(
    ("row", "reason", "detail"),
    [
        (
            "1.jpg,40,30,cat,1,2,x,6",
            "malformed_box",
            "the box has a text that is not a number: xmin '1', ymin '2', xmax 'x'",
        ),
        ("1.jpg,40,30,cat,1,2,,6", "malformed_box", "xmax ''"),
        ("1.jpg,40,30,cat,1,2,nan,6", "malformed_box", "the box has a number that is not finite"),
        ("1.jpg,40,30,cat,4,2,1,6", "malformed_box", "left 4, top 2, right 1, bottom 6"),
    ],
)
def test_a_fault_costs_its_row_only(row, reason, detail):
    (image,) = parse("1.jpg,40,30,cat,1,2,4,6", row)
    assert [object_.box for object_ in image.sample.objects] == [(1, 2, 3, 4)]
    assert [(fault.reason, fault.line, detail in fault.detail) for fault in image.faults] == [(reason, 3, True)]


@pytest.mark.parametrize(
    ("row", "detail"), [(",40,30,cat,1,2,4,6", "no filename"), ("1.jpg,40", "2 cells instead of 8")]
)
def test_a_row_without_an_image(row, detail):
    first, bad = sorted(parse("1.jpg,40,30,cat,1,2,4,6", row), key=lambda image: image.sample is None)
    assert len(first.sample.objects) == 1
    assert [(fault.line, detail in fault.detail) for fault in bad.faults] == [(3, True)]


@pytest.mark.parametrize(
    ("images", "detail"),
    [
        (
            parse(head="filename,class,x,y"),
            "no column of boxes, such as xmin, ymin, xmax, ymax. The file has 'filename', 'class', 'x', 'y'",
        ),
        (parse(head="filename,kind,x,y,w,h"), "no column of classes, such as class. The file has"),
        (parse(head="picture,class,x,y,w,h"), "no column of images, such as filename. The file has"),
        (parse("1.jpg,40,30,katt\u00e9,1,2,4,6", head=f"{HEAD},é", encoding="latin-1"), "first line cannot be read"),
        (parse('1.jpg,40,30,"cat,1,2,4,6'), "a quote that is not closed"),
        (parse(head='{"images": [], "annotations": []}'), "COCO's JSON"),
    ],
)
def test_files_of_which_nothing_can_be_used(images, detail):
    *_, image = images
    assert (image.sample, image.faults[0].reason) == (None, "malformed_labels")
    assert detail in image.faults[0].detail


@pytest.mark.parametrize(
    ("rows", "sizes", "warnings"),
    [
        (["1.jpg,40,30,cat,1,2,4,6", "1.jpg,50,30,cat,0,0,1,1"], [40, 50], 0),  # their join is a reject
        (["1.jpg,0,30,cat,1,2,4,6", "1.jpg,0,30,cat,0,0,1,1"], [None], 0),
        (["1.jpg,40,,cat,1,2,4,6"], [None], 1),
        (["1.jpg,4O,30,cat,1,2,4,6"], [None], 1),
    ],
)
def test_sizes(rows, sizes, warnings):
    images = parse(*rows)
    assert [image.sample.width for image in images] == sizes
    assert ["is not two whole numbers" in text for image in images for text in image.warnings] == [True] * warnings


def test_fields():
    data = f"{HEAD},score,note\n1.jpg,40,30,cat,1,2,4,6,0.5,\n1.jpg,40,30,cat,1,2,4,6,,a b\n".encode()
    (image,) = parse_rows(io.BytesIO(data), "a.csv", has_fields=True)
    assert [object_.fields for object_ in image.sample.objects] == [{"score": "0.5"}, {"note": "a b"}]
    assert image.notes == ("field note", "field score")
