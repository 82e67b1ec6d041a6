"""Tests for parse_shapes."""

import base64
import io
import json
import struct
import zlib

import numpy as np
import pytest

from recordmill.transforms.images.masks import grey_png
from recordmill.transforms.labelme.read_labelme import parse_shapes

CORNERS = [[1, 2], [4, 6]]
TRIANGLE = [[1, 2], [4, 2], [4, 6]]
OTHER = [[7, 1], [9, 1], [9, 3]]
MASK = base64.b64encode(grey_png(np.array([[1, 0], [1, 1]], np.uint8) * 255)).decode()


def shape(kind: str | None, points: list, label: str = "cat", **more) -> dict:
    return {"label": label, "points": points, "shape_type": kind, "flags": {}, **more}


def parse(file: object, name: str = "a/1.json"):
    data = file if isinstance(file, bytes) else json.dumps(file).encode()
    (image,) = parse_shapes(io.BytesIO(data), name, ("__ignore__",), has_masks=True)
    return image


def with_shapes(*shapes: object, **more) -> dict:
    return {"shapes": shapes, "imagePath": "1.jpg", "imageData": None, "imageHeight": 8, "imageWidth": 10, **more}


@pytest.mark.parametrize(
    ("shapes", "objects"),
    [
        ([shape("rectangle", CORNERS)], [((1, 2, 3, 4), "", None)]),
        ([shape("rectangle", CORNERS[::-1])], [((1, 2, 3, 4), "", None)]),
        ([shape("rectangle", [[1, 2], [4, 2], [4, 6], [1, 6]])], [((1, 2, 3, 4), "", None)]),  # X-AnyLabeling's
        ([shape("polygon", TRIANGLE)], [((1, 2, 3, 4), [[1, 2, 4, 2, 4, 6]], 6)]),
        ([shape(None, TRIANGLE)], [((1, 2, 3, 4), [[1, 2, 4, 2, 4, 6]], 6)]),  # before version 3.5
        ([shape("rotation", [*TRIANGLE, [1, 6]], direction=0)], [((1, 2, 3, 4), [[1, 2, 4, 2, 4, 6, 1, 6]], 12)]),
        (  # joined, as they have one label and one group; the last has another label
            [shape("polygon", points, group_id=1) for points in (TRIANGLE, OTHER)]
            + [shape("polygon", TRIANGLE, "dog", group_id=1)],
            [((1, 1, 8, 5), [[1, 2, 4, 2, 4, 6], [7, 1, 9, 1, 9, 3]], 8), ((1, 2, 3, 4), [[1, 2, 4, 2, 4, 6]], 6)],
        ),
        ([shape("polygon", TRIANGLE), shape("polygon", TRIANGLE)], [((1, 2, 3, 4), [[1, 2, 4, 2, 4, 6]], 6)] * 2),
        (  # rows 2 and 3 of columns 1 and 2, all but the pixel in row 2 and column 2
            [shape("mask", [[1, 2], [2, 3]], mask=MASK)],
            [((1, 2, 2, 2), {"size": [8, 10], "counts": [10, 2, 7, 1, 60]}, 3)],
        ),
    ],
)
def test_objects_of_shapes(shapes, objects):
    image = parse(with_shapes(*shapes))
    values = [
        (object_.box, json.loads(object_.segmentation or '""'), object_.area_px2) for object_ in image.sample.objects
    ]
    assert (values, image.faults) == (objects, ())
    assert (image.sample.width, image.sample.height) == (10, 8)


@pytest.mark.parametrize(
    ("shapes", "notes"),
    [
        ([shape("rectangle", CORNERS), shape("linestrip", TRIANGLE), shape("cuboid", TRIANGLE)], ()),
        ([shape("polygon", CORNERS)], ()),
        ([shape("rotation", [*TRIANGLE, [1, 6]])], ()),
        ([shape("polygon", TRIANGLE)], ("polygons",)),
        ([shape("circle", [[5, 5], [5, 8]])], ("polygons",)),
        ([shape("mask", [[1, 2], [2, 3]], mask=MASK)], ("polygons",)),
    ],
)
def test_outlines_that_are_not_written(shapes, notes):
    (image,) = parse_shapes(io.BytesIO(json.dumps(with_shapes(*shapes)).encode()), "1.json")
    assert image.notes == notes


def test_circle():
    (circle,) = parse(with_shapes(shape("circle", [[5, 5], [5, 8]]))).sample.objects
    assert circle.box == pytest.approx((2, 2, 6, 6))
    points = np.array(json.loads(circle.segmentation)[0]).reshape(-1, 2)
    assert np.hypot(*(points - 5).T) == pytest.approx(3)


@pytest.mark.parametrize(
    ("bad", "reason", "detail"),
    [
        (shape("point", [[1, 2]]), "empty_box", "a point has no area"),
        (shape("point", [[1, 2]], group_id=3), "empty_box", "a point has no area"),
        (shape("linestrip", TRIANGLE), "empty_box", "a linestrip has no area"),
        (shape("polygon", CORNERS), "malformed_segmentation", "a polygon has 2 points; it needs at least 3"),
        (shape("rectangle", TRIANGLE), "malformed_annotation", "shape_type rectangle of 3 points is not read"),
        (shape("cuboid", TRIANGLE), "malformed_annotation", "shape_type cuboid of 3 points is not read"),
        (shape("rectangle", [[1, float("nan")], [4, 6]]), "malformed_annotation", "a number is NaN or Infinity"),
        (shape("polygon", [[1, 2, 3]]), "malformed_annotation", "`array`"),
        ({"points": TRIANGLE}, "malformed_annotation", "missing required field `label`"),
        (shape("rectangle", CORNERS, "__ignore__"), "excluded", "label __ignore__ (--ignore-labels)"),
        (shape("mask", CORNERS, mask="AAAA"), "malformed_segmentation", "the image of a mask cannot be decoded"),
        (shape("mask", [[9, 7], [10, 8]], mask=MASK), "malformed_segmentation", "crosses the edge of its image"),
    ],
)
def test_a_fault_costs_its_shape_only(bad, reason, detail):
    image = parse(with_shapes(shape("rectangle", CORNERS), bad))
    assert [object_.box for object_ in image.sample.objects] == [(1, 2, 3, 4)]
    (fault,) = image.faults
    assert (fault.reason, fault.where == "shape 2", detail in fault.detail) == (reason, True, True)


def test_a_label_in_another_encoding_costs_its_shape_only():
    text = json.dumps(with_shapes(shape("rectangle", CORNERS, "é")), ensure_ascii=False)
    assert [fault.text("a") for fault in parse(text.encode("latin-1")).faults] == ["shape 1 in a: a text is not UTF-8"]


def test_faults_of_groups_name_all_shapes():
    image = parse(with_shapes(*[shape("polygon", points, group_id=1) for points in (TRIANGLE, CORNERS)]))
    assert [fault.text("a") for fault in image.faults] == [
        "shapes 1 and 2 in a: a polygon has 2 points; it needs at least 3"
    ]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("1.jpg", "a/1.jpg"),
        ("../b/1.jpg", "b/1.jpg"),
        ("..\\b\\1.jpg", "b/1.jpg"),
        ("../../1.jpg", "../1.jpg"),  # rejected when names are matched
        ("C:\\b\\1.jpg", "C:\\b\\1.jpg"),
    ],
)
def test_names_of_images(path, name):
    assert parse(with_shapes(imagePath=path)).sample.file_name == name


@pytest.mark.parametrize(
    ("file", "detail"),
    [
        (json.dumps(with_shapes()).encode()[:40], "truncated"),
        (b"", "truncated"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1", "a Git LFS pointer"),
        ({"images": [], "annotations": [], "categories": []}, "COCO's JSON, which --format coco reads"),
        ({"shapes": []}, "missing required field `imagePath`"),
        (with_shapes(shapes=None), "it is not LabelMe's JSON (Expected `array`, got `null`"),
        (with_shapes(imageHeight=None), "imageWidth is 10, imageHeight None"),
        (b'{"shapes": [1], "shapes": [], "imagePath": "1.jpg"}', "an object has the key 'shapes' twice"),
    ],
)
def test_files_of_which_nothing_can_be_used(file, detail):
    image = parse(file)
    assert image.sample is None
    assert detail in image.faults[0].detail


def test_sizes_that_are_texts_or_decimals():
    sample = parse(with_shapes(imageWidth="40", imageHeight=30.0)).sample
    assert (sample.width, sample.height) == (40, 30)


@pytest.mark.parametrize(
    ("value", "expected"), [("false", {}), ("yes", {"difficult": True}), (0, {}), (1.0, {"difficult": True})]
)
def test_booleans(value, expected):
    image = parse(with_shapes(shape("rectangle", CORNERS, difficult=value), flags={"sharp": value, "note": "dark"}))
    assert image.sample.objects[0].fields == expected
    assert image.sample.tags == (("sharp",) if expected else ())
    assert len(image.warnings) == isinstance(value, str)


def test_a_mask_in_an_image_of_a_billion_rows_is_a_fault():
    image = parse(with_shapes(shape("mask", CORNERS, mask=MASK), imageWidth=1000, imageHeight=10**9))
    assert [fault.reason for fault in image.faults] == ["mask_size_mismatch"]


def test_a_mask_of_too_many_pixels_is_not_decoded():
    size = struct.pack(">II", 1 << 20, 1 << 20)
    data = base64.b64decode(MASK)
    header = b"IHDR" + size + data[24:29]
    data = data[:12] + header + struct.pack(">I", zlib.crc32(header)) + data[33:]
    image = parse(with_shapes(shape("mask", CORNERS, mask=base64.b64encode(data).decode())))
    assert "1048576x1048576 pixels" in image.faults[0].detail


def test_attributes_of_objects_and_images():
    corners = [[3, 0], [6, 3], [3, 6], [0, 3]]
    rows = (shape("polygon", TRIANGLE, difficult=True), shape("rotation", corners), shape("polygon", TRIANGLE))
    image = parse(with_shapes(*rows, flags={"sharp": True, "dark": False, "__ignore__": True}))
    assert [object_.fields for object_ in image.sample.objects] == [{"difficult": True}, {}, {}]
    assert [object_.corners for object_ in image.sample.objects] == [(), (3, 0, 6, 3, 3, 6, 0, 3), ()]
    assert image.sample.tags == ("sharp",)


def test_an_image_that_is_held_has_its_label_file_as_path():
    assert [parse(with_shapes(imageData=data)).sample.path for data in ("AA==", "", None)] == ["a/1.json", "", ""]


def test_fields():
    row = shape("rectangle", CORNERS, group_id=3, score=0.5, description="a", attributes={"age": 7}, difficult=True)
    file = with_shapes(row | {"flags": {"far": True}}, flags={"sharp": True}, imageData="AA==", weather="sun")
    (image,) = parse_shapes(io.BytesIO(json.dumps(file).encode()), "1.json")
    expected = {"flags": {"far": True}, "group_id": 3, "score": 0.5, "description": "a", "attributes": {"age": 7}}
    assert image.sample.objects[0].fields == expected | {"difficult": True}
    assert image.sample.fields == {"weather": "sun"}
