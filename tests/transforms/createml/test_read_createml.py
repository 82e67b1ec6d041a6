"""Tests for parse_images."""

import io
import json

import pytest

from recordmill.transforms.createml.read_createml import parse_images

CAT = {"label": "cat", "coordinates": {"x": 20, "y": 30, "width": 10, "height": 40}}


def parse(file: object):
    data = file if isinstance(file, bytes) else json.dumps(file).encode()
    return list(parse_images(io.BytesIO(data), "valid/a.json"))


@pytest.mark.parametrize(
    "row",
    [
        {"image": "1.jpg", "annotations": [CAT]},
        {"imagefilename": "1.jpg", "annotation": [CAT | {"type": "rectangle"}]},  # Turi Create's
    ],
)
def test_boxes_have_their_centre(row):
    (image,) = parse([row])
    assert (image.sample.file_name, image.faults, image.entry) == ("valid/1.jpg", (), "image 1")
    assert [(object_.category, object_.box, object_.frame) for object_ in image.sample.objects] == [
        ("cat", (15, 10, 10, 40), "px")
    ]


@pytest.mark.parametrize(
    ("bad", "detail"),
    [
        ({"label": "cat"}, "missing required field `coordinates`"),
        ({"label": 3, "coordinates": CAT["coordinates"]}, "Expected `str`, got `int`"),
        ({"label": "cat", "coordinates": {"x": 1, "y": 2, "width": 3}}, "missing required field `height`"),
        ({"label": "cat", "coordinates": CAT["coordinates"] | {"x": float("inf")}}, "Expected `float`"),
    ],
)
def test_a_fault_costs_its_annotation_only(bad, detail):
    (image,) = parse([{"image": "1.jpg", "annotations": [CAT, bad]}])
    assert len(image.sample.objects) == 1
    (fault,) = image.faults
    assert (fault.reason, fault.where) == ("malformed_annotation", "annotation 2 of 1.jpg")
    assert detail in fault.detail


@pytest.mark.parametrize("bad", [{"image": 7, "annotations": []}, {"annotations": []}, {"image": "1.jpg"}, [], None])
def test_a_fault_of_an_image_costs_that_image_only(bad):
    first, second = parse([bad, {"image": "1.jpg", "annotations": []}])
    assert (first.sample, first.faults[0].reason, second.sample.file_name) == (None, "malformed_image", "valid/1.jpg")
    assert first.faults[0].text("a.json").startswith("image 1 in a.json: ")


@pytest.mark.parametrize(
    ("file", "detail"),
    [
        (json.dumps([{"image": "1.jpg", "annotations": [CAT]}]).encode()[:50], "truncated"),
        ({"shapes": [], "imagePath": "1.jpg"}, "but LabelMe's JSON of one image"),
        ({"images": [], "annotations": [], "categories": []}, "but COCO's JSON"),
    ],
)
def test_files_of_which_nothing_can_be_used(file, detail):
    (image,) = parse(file)
    assert (image.sample, image.faults[0].reason) == (None, "malformed_labels")
    assert detail in image.faults[0].detail


def test_fields():
    file = [{"image": "1.jpg", "annotations": [CAT | {"confidence": 0.5}], "verified": True}]
    (image,) = parse_images(io.BytesIO(json.dumps(file).encode()), "a.json")
    assert (image.sample.objects[0].fields, image.sample.fields) == ({"confidence": 0.5}, {"verified": True})


@pytest.mark.parametrize("key", ["annotations", "label", "x"])
def test_a_file_with_a_key_twice_is_refused(key):
    data = json.dumps([{"image": "1.jpg", "annotations": [CAT]}]).replace(f'"{key}":', f'"{key}": 1, "{key}":')
    (image,) = parse(data.encode())
    assert image.sample is None
    assert f"the key {key!r} twice" in image.faults[0].detail
