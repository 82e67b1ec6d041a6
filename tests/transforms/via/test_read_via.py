"""Tests for parse_regions."""

import io
import json

import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.via.read_via import _check_via_notes, parse_regions

RECT = {"name": "rect", "x": 1, "y": 2, "width": 3, "height": 4}
POLYGON = {"name": "polygon", "all_points_x": [1, 4, 4], "all_points_y": [2, 2, 6]}


def region(shape: dict, **attributes: object) -> dict:
    return {"shape_attributes": shape, "region_attributes": attributes}


def parse(file: object, class_attribute: str = "", class_name: str = ""):
    data = file if isinstance(file, bytes) else json.dumps(file).encode()
    return list(parse_regions(io.BytesIO(data), "train/via.json", class_attribute, class_name, has_masks=True))


def with_regions(*regions: dict) -> dict:
    return {"1.jpg7": {"filename": "1.jpg", "size": 7, "regions": list(regions), "file_attributes": {}}}


VERSION_1 = {"1.jpg7": {"fileref": "", "filename": "1.jpg", "regions": {"0": region(RECT, kind="cat")}}}
PROJECT = {
    "_via_settings": {"core": {"default_filepath": "./images/"}},
    "_via_img_metadata": with_regions(region(RECT, kind="cat")),
}


@pytest.mark.parametrize(
    ("shape", "notes"),
    [
        (POLYGON, {"attribute kind", "polygons"}),
        ({"name": "circle", "cx": 5, "cy": 6, "r": 2}, {"attribute kind", "polygons"}),
        (POLYGON | {"all_points_x": [1, 4]}, {"attribute kind"}),
        (RECT, {"attribute kind"}),
    ],
)
def test_outlines_that_are_not_written(shape, notes):
    (image,) = parse_regions(io.BytesIO(json.dumps(with_regions(region(shape, kind="cat"))).encode()), "via.json")
    assert {*image.notes} == notes


def test_settings_in_another_encoding_are_a_fault():
    data = json.dumps(PROJECT).encode().replace(b"./images/", b"T\xfcr")
    (image,) = parse_regions(io.BytesIO(data), "via.json")
    assert "a text is not UTF-8" in image.faults[0].detail


@pytest.mark.parametrize(("file", "name"), [(VERSION_1, "train/1.jpg"), (PROJECT, "train/images/1.jpg")])
def test_versions(file, name):
    (image,) = parse(file)
    assert (image.sample.file_name, image.faults, image.entry) == (name, (), "the entry '1.jpg7'")
    assert [(object_.category, object_.box) for object_ in image.sample.objects] == [("cat", (1, 2, 3, 4))]


@pytest.mark.parametrize(
    ("shape", "box"),
    [
        (RECT, (1, 2, 3, 4)),
        (POLYGON, (1, 2, 3, 4)),
        ({"name": "circle", "cx": 5, "cy": 6, "r": 2}, (3, 4, 4, 4)),
        ({"name": "ellipse", "cx": 5, "cy": 6, "rx": 3, "ry": 2}, (2, 4, 6, 4)),
        ({"name": "ellipse", "cx": 5, "cy": 6, "rx": 3, "ry": 2, "theta": 1.5707963267948966}, (3, 3, 4, 6)),
        # x is at most sqrt(9 cos² 30° + 4 sin² 30°) = sqrt(7.75) from the centre, and y sqrt(5.25)
        (
            {"name": "ellipse", "cx": 5, "cy": 6, "rx": 3, "ry": 2, "theta": 0.5235987755982988},
            (2.21612, 3.70871, 5.56776, 4.58258),
        ),
    ],
)
def test_boxes(shape, box):
    (image,) = parse(with_regions(region(shape, kind="cat")))
    assert image.sample.objects[0].box == pytest.approx(box, abs=1e-5)


@pytest.mark.parametrize(
    ("names", "attributes", "category"),
    [
        ((), {"kind": "cat"}, "cat"),
        ((), {"kind": {"cat": True, "dog": False}}, "cat"),  # check boxes
        (("kind",), {"colour": "red", "kind": "cat"}, "cat"),
        ((), {"kind": 7}, "7"),
        ((), {"kind": ["cat"]}, "cat"),
        (("", "cat"), {}, "cat"),
        (("kind", "dog"), {"kind": ""}, "dog"),
        ((), {}, "it has no attribute, so no class; --class-name gives it one"),
        (("kind",), {"a": "b"}, "it has no attribute kind, so no class; --class-name gives it one"),
        ((), {"kind": {"cat": True, "dog": True}}, "it has 2 classes (cat, dog)"),
    ],
)
def test_classes(names, attributes, category):
    (image,) = parse(with_regions(region(RECT, **attributes)), *names)
    faults = [fault.detail for fault in image.faults]
    assert [*(object_.category for object_ in image.sample.objects), *faults] == [category]


OPTIONS = {"1": "chair", "2": "couch", "cup": "", "4": "table", "5": "table", "6": 7}


@pytest.mark.parametrize(
    ("value", "category"),
    [
        *(("1", "chair"), (2, "couch"), ({"2": True, "1": False}, "couch"), (["1"], "chair"), ("6", "7")),
        *(("cup", "cup"), ("4", "4"), ("5", "5"), ("8", "8")),  # no text, or one that two options have
    ],
)
def test_classes_are_the_texts_of_options(value, category):
    attributes = {"region": {"kind": {"type": "dropdown", "options": OPTIONS}}, "file": {}}
    file = PROJECT | {"_via_img_metadata": with_regions(region(RECT, kind=value)), "_via_attributes": attributes}
    for settings in (attributes, {"region": {**attributes["region"], "note": {"type": "text"}}}):
        (image,) = parse(file | {"_via_attributes": settings})
        assert [object_.category for object_ in image.sample.objects] == [category]
    for settings in ([], {"region": []}, {"region": {"kind": 1}}, {"region": {"kind": {"options": []}}}):
        (image,) = parse(PROJECT | {"_via_attributes": settings})
        assert [object_.category for object_ in image.sample.objects] == ["cat"]


@pytest.mark.parametrize(
    ("bad", "reason", "detail"),
    [
        (region({"name": "point", "cx": 1, "cy": 2}, kind="cat"), "empty_box", "a point has no area"),
        (region({"name": "rect", "x": 1}, kind="cat"), "malformed_annotation", "missing required field `y`"),
        (region(POLYGON | {"all_points_x": [1, 4]}, kind="cat"), "malformed_segmentation", "a polygon has 2 x and 3 y"),
        (region({"name": "star"}, kind="cat"), "malformed_annotation", "shape 'star' is not read"),
        ({"region_attributes": {}}, "malformed_annotation", "missing required field `shape_attributes`"),
        (region(RECT | {"x": float("nan")}, kind="cat"), "malformed_annotation", "a number is NaN or Infinity"),
    ],
)
def test_a_fault_costs_its_region_only(bad, reason, detail):
    (image,) = parse(with_regions(region(RECT, kind="cat"), bad))
    assert [object_.box for object_ in image.sample.objects] == [(1, 2, 3, 4)]
    assert [(fault.reason, detail in fault.detail) for fault in image.faults] == [(reason, True)]
    assert image.faults[0].where == "region 2 of 1.jpg"


def test_a_fault_of_an_image_costs_that_image_only():
    for name in (7, ""):
        bad, good = parse({"x": {"filename": name, "regions": []}} | with_regions())
        assert (bad.sample, bad.faults[0].reason, good.sample.file_name) == (None, "malformed_image", "train/1.jpg")


@pytest.mark.parametrize(
    ("file", "detail"),
    [
        (json.dumps(with_regions()).encode()[:30], "truncated"),
        ({"images": [], "annotations": [], "categories": []}, "its keys are images, annotations, categories"),
        ([], "it is not VIA's JSON"),
    ],
)
def test_files_of_which_nothing_can_be_used(file, detail):
    (image,) = parse(file)
    assert (image.sample, image.faults[0].reason) == (None, "malformed_labels")
    assert detail in image.faults[0].detail


def test_attributes_are_chosen_by_the_user():
    notes = frozenset({"attribute a", "attribute b"})
    with pytest.raises(ConfigError, match=r"the attributes a, b\. Add --class-attribute with"):
        list(_check_via_notes(notes, ""))
    with pytest.raises(
        ConfigError, match="--class-attribute c is not an attribute of any region; the attributes are a, b"
    ):
        list(_check_via_notes(notes, "c"))
    assert not list(_check_via_notes(notes, "a"))
    assert not list(_check_via_notes(frozenset({"attribute a"}), ""))


def test_fields():
    file = with_regions(region(RECT, kind="cat", score="0.5", colour={"red": True}, note=""))
    file["1.jpg7"]["file_attributes"] = {"caption": "a cat", "place": ""}
    (image,) = parse_regions(io.BytesIO(json.dumps(file).encode()), "via.json", "kind", has_fields=True)
    assert image.sample.objects[0].fields == {"region_attributes": {"score": "0.5", "colour": {"red": True}}}
    assert image.sample.fields == {"file_attributes": {"caption": "a cat"}}
    paths = ["file_attributes.caption", "region_attributes.colour.red", "region_attributes.score"]
    assert [note for note in image.notes if note.startswith("field ")] == [f"field {path}" for path in paths]


@pytest.mark.parametrize("key", ["1.jpg7", "0", "regions", "shape_attributes"])
def test_a_file_with_a_key_twice_is_refused(key):
    data = json.dumps(VERSION_1).replace(f'"{key}":', f'"{key}": {{}}, "{key}":').encode()
    (image,) = parse(data)
    assert image.sample is None
    assert image.faults[0].reason == "malformed_labels"
    assert f"the key {key!r} twice" in image.faults[0].detail


def test_options_whose_booleans_are_texts():
    (image,) = parse(with_regions(region(RECT, kind={"cat": "false", "dog": "true"})))
    assert [object_.category for object_ in image.sample.objects] == ["dog"]
    assert len(image.warnings) == 1
