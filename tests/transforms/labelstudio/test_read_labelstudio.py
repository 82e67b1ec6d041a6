"""Tests for parse_tasks, and for the codes of uploads."""

import io
import json
from collections import Counter

import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.annotated.naming import MASKS, NUMBER_TEXTS
from recordmill.transforms.labelstudio.labelstudio_options import LabelstudioOptions
from recordmill.transforms.labelstudio.read_labelstudio import _check_tasks, parse_tasks
from tests.conftest import draw_jpeg

SHAPE = {"x": 25, "y": 50, "width": 10, "height": 20, "rotation": 0}
BOX = SHAPE | {"rectanglelabels": ["Cat"]}


def result(kind: str = "rectanglelabels", value: object = BOX, **more: object) -> dict:
    return {"type": kind, "value": value, "original_width": 200, "original_height": 100, "image_rotation": 0, **more}


def task(*annotations: list, **data: str) -> dict:
    rows = [{"result": results} for results in annotations]
    return {"data": data or {"image": "/data/upload/1/48c220e9-1.jpg"}, "annotations": rows, "predictions": []}


def parse(file: object, **keywords: object):
    data = file if isinstance(file, bytes) else json.dumps(file).encode()
    return list(parse_tasks(io.BytesIO(data), "a.json", **({"has_masks": True} | keywords)))


@pytest.mark.parametrize(
    ("shape", "box", "ring"),
    [
        (result(), (0.25, 0.5, 0.1, 0.2), None),
        # 20 × 20 pixels, turned by 90° about (50, 50): from x 30 to 50 of 200, and y 50 to 70 of 100
        (result(value=BOX | {"rotation": 90}), (0.15, 0.5, 0.1, 0.2), [0.25, 0.5, 0.25, 0.7, 0.15, 0.7, 0.15, 0.5]),
        (
            result(value=BOX | {"rotation": 30}),  # a corner is 20 * (cos 30°, sin 30°) = (17.32, 10) pixels further
            (0.2, 0.5, 0.136603, 0.273205),
            [0.25, 0.5, 0.336603, 0.6, 0.286603, 0.773205, 0.2, 0.673205],
        ),
        (
            result("polygonlabels", {"points": [[10, 20], [40, 20], [40, 60]], "polygonlabels": ["Cat"]}),
            (0.1, 0.2, 0.3, 0.4),
            [0.1, 0.2, 0.4, 0.2, 0.4, 0.6],
        ),
        (
            result("labels", {"x": 25, "y": 50, "width": 10, "height": 20, "labels": ["Cat"]}),
            (0.25, 0.5, 0.1, 0.2),
            None,
        ),
    ],
)
def test_shapes(shape, box, ring):
    (image,) = parse([task([shape])])
    (object_,) = image.sample.objects
    assert (object_.category, object_.frame, object_.box) == ("Cat", "fraction", pytest.approx(box, abs=1e-6))
    assert json.loads(object_.segmentation or "null") == (ring and [pytest.approx(ring, abs=1e-6)])
    assert object_.corners == (pytest.approx(ring, abs=1e-6) if shape["value"].get("rotation") else ())
    assert (image.sample.width, image.sample.height, image.faults, image.entry) == (200, 100, (), "task 1")


@pytest.mark.parametrize(("turn", "box"), [(0, (0.2, 0.45, 0.6, 0.1)), (90, (0.475, -0.1, 0.05, 1.2))])
def test_ellipses_turn_about_their_centre(turn, box):
    value = {"x": 50, "y": 50, "radiusX": 30, "radiusY": 5, "rotation": turn, "ellipselabels": ["Cat"]}
    (image,) = parse([task([result("ellipselabels", value)])])
    assert image.sample.objects[0].box == pytest.approx(box)


@pytest.mark.parametrize(
    ("shape", "notes"),
    [
        (result("polygonlabels", {"points": [[10, 20], [40, 20], [40, 60]], "polygonlabels": ["Cat"]}), {MASKS}),
        (result("polygonlabels", {"points": [[10, 20], [40, 20]], "polygonlabels": ["Cat"]}), set()),
        (result("brushlabels", {"rle": [], "brushlabels": ["Cat"]}), set()),
        (result(), set()),
        (result(value=BOX | {"rotation": 90}), set()),
    ],
)
def test_outlines_that_are_not_written(shape, notes):
    (image,) = parse([task([shape])], has_masks=False)
    assert {*image.notes} & {MASKS} == notes


def test_an_object_has_each_of_its_labels():
    (image,) = parse([task([result(value=BOX | {"rectanglelabels": ["Cat", "Black"]})])])
    assert [object_.category for object_ in image.sample.objects] == ["Cat", "Black"]


def test_a_shape_and_its_labels_may_be_two_results():
    shape = {key: value for key, value in BOX.items() if key != "rectanglelabels"}
    (image,) = parse(
        [task([result("rectangle", shape, id="a"), result("labels", shape | {"labels": ["Cat"]}, id="a")])]
    )
    assert ([object_.category for object_ in image.sample.objects], image.faults) == (["Cat"], ())


@pytest.mark.parametrize(
    ("bad", "reason", "detail"),
    [
        (result("keypointlabels", {"x": 1, "y": 2, "width": 1, "keypointlabels": ["a"]}), "empty_box", "has no area"),
        (result("brushlabels", {"rle": [], "brushlabels": ["a"]}), "malformed_segmentation", "masks of brushes"),
        (result(value=BOX | {"x": "a"}), "malformed_annotation", "Expected `float`"),
        (result(value=BOX | {"x": 250}), "malformed_box", "are not in 0..1"),
        (result(value=BOX | {"rotation": 5}, original_width=10**400), "malformed_box", "beyond any image"),
        (
            result("polygonlabels", {"points": [[1, 1], [150, 1], [9, 300]], "polygonlabels": ["a"]}),
            "malformed_box",
            "not in 0..1",
        ),
        (result(value=BOX | {"rectanglelabels": []}), "unknown_category", "a rectangle without a label"),
        (result(image_rotation=90), "malformed_box", "the image was turned by 90 degrees"),
        (
            result(value=BOX | {"rotation": 5}, original_width=None),
            "malformed_box",
            "a rotation without original_width",
        ),
        ({"value": BOX}, "malformed_annotation", "missing required field `type`"),
        ({"type": "rectanglelabels"}, "malformed_annotation", "a result of type rectanglelabels without a value"),
    ],
)
def test_a_fault_costs_its_result_only(bad, reason, detail):
    (image,) = parse([task([result(), bad])])
    assert len(image.sample.objects) == 1
    (fault,) = image.faults
    assert (fault.reason, fault.where == "result 2 of task 1", detail in fault.detail) == (reason, True, True)


@pytest.mark.parametrize(
    ("data", "keywords", "name"),
    [
        ({"image": "/data/upload/1/48c220e9-1.jpg"}, {}, "/data/upload/1/48c220e9-1.jpg"),
        ({"image": "/data/upload/1/48c220e9-1.jpg"}, {"drops_code": True}, "/data/upload/1/1.jpg"),
        ({"image": "/data/local-files/?d=a%20b/1.jpg"}, {}, "a b/1.jpg"),
        ({"image": "https://h/1.jpg?sign=x"}, {}, "https://h/1.jpg"),
        ({"picture": "1.jpg", "text": "cat"}, {}, "1.jpg"),
        ({"left": "1.jpg", "right": "2.jpg"}, {"image_key": "right"}, "2.jpg"),
        ({"left": "1.jpg", "right": "2.jpg"}, {}, "data has several images (left, right). Add --image-key"),
        ({"text": "cat"}, {}, "data has no image"),
        ({"image": "1.jpg"}, {"image_key": "photo"}, "data has no image photo"),
    ],
)
def test_names_of_images(data, keywords, name):
    (image,) = parse([task(**data)], **keywords)
    assert name == (image.sample.file_name if image.sample else image.faults[0].detail)


@pytest.mark.parametrize(("choice", "labels"), [("first", ["Cat"]), ("last", ["Dog"]), ("all", ["Cat", "Dog"])])
def test_several_annotations(choice, labels):
    rows = task([result()], [result(value=BOX | {"rectanglelabels": ["Dog"]})])
    rows["annotations"].append({"result": [result()], "was_cancelled": True})
    (image,) = parse([rows], choice=choice)
    assert [object_.category for object_ in image.sample.objects] == labels
    assert not list(_check_tasks(frozenset(image.notes), choice, []))
    with pytest.raises(ConfigError, match="Add --of-several first, last or all"):
        list(_check_tasks(frozenset(image.notes), "", []))


def test_fractions_are_an_error():
    small = result(value=BOX | {"x": 0.25, "y": 0.5, "width": 0.1, "height": 0.2})
    fractions, both = (parse([task(results)])[0].notes for results in ([small], [small, result()]))
    assert not list(_check_tasks(frozenset(both), "", []))
    with pytest.raises(ConfigError, match="Label Studio has percent"):
        list(_check_tasks(frozenset(fractions), "", []))


@pytest.mark.parametrize(
    ("more", "number"),
    [
        ([result(original_width=64, original_height=48)], 1),
        ([result(original_width=None, original_height=None)], 1),
        ([result(original_width=64, original_height=48), result(value=BOX | {"x": 25.5}, original_width=64)], 0),
        ([result()], 0),
    ],
)
def test_whole_numbers_in_small_images_may_be_pixels(more, number):
    (image,) = parse([task(more)])
    assert ["may be pixels" in text for text in _check_tasks(frozenset(image.notes), "", [])] == [True] * number


def test_notes():
    results = [result("choices", {"choices": ["sharp"]}), result("textarea", {"text": ["a cat"]})]
    (image,) = parse([task(results) | {"predictions": [1]}])
    assert image.sample.tags == ("sharp",)
    assert list(_check_tasks(frozenset(image.notes), "", [])) == ["tasks have predictions, which are not read"]
    assert image.sample.fields["textarea"] == ["a cat"]


CANCELLED = [{"result": [result()], "was_cancelled": True}]


@pytest.mark.parametrize(
    ("rows", "beginning"),
    [
        ({"annotations": CANCELLED}, "tasks that were skipped: {number}; "),
        ({"annotations": []}, "tasks that are not annotated: {number}; "),
        ({"annotations": None}, "tasks that are not annotated: {number}; "),
        ({"annotations": None, "completions": CANCELLED}, "tasks that were skipped: {number}; "),
        ({"annotations": [{"result": []}]}, ""),
        ({"annotations": [*CANCELLED, {"result": []}]}, ""),
    ],
)
@pytest.mark.parametrize("is_background", [False, True])
def test_unfinished_tasks(rows, beginning, is_background):
    (image,) = parse([task() | rows], is_background=is_background)
    assert (image.sample.objects, image.is_omitted) == ((), bool(beginning) and not is_background)
    assert [text.startswith(beginning) for text in image.warnings] == [True] * bool(beginning)
    assert ["as background" in text for text in image.warnings] == [is_background] * bool(beginning)


def test_results_that_are_not_read_are_counted_by_kind():
    relation = {"type": "relation", "from_id": "a", "to_id": "b", "direction": "right", "labels": []}
    results = [
        result(id="a", meta={"text": ["torn"]}),
        result("choices", SHAPE | {"choices": ["red"]}, id="gone", from_name="colour"),
        result("ranker", {"ranker": [1]}, id="a"),
        result("vectorlabels", {"vertices": [], "vectorlabels": ["Cat"]}, id="b"),
        relation,
        relation,
    ]
    (image,) = parse([task(results)])
    assert [given.fields for given in image.sample.objects] == [{"score": None, "meta": {"text": ["torn"]}}]
    unread = {"choices": 1, "ranker": 1, "relation": 2, "vectorlabels": 1}
    texts = {f"results of type {kind} are not read: {{number}}": number for kind, number in unread.items()}
    assert (Counter(image.warnings), image.faults) == (texts, ())


def test_the_number_of_a_rejected_shape_is_not_the_images():
    results = [result(value=SHAPE, id="a"), result("number", {"number": 7}, id="a", from_name="age")]
    (image,) = parse([task(results)])
    assert (len(image.faults), image.sample.fields) == (1, {"lead_time": None, "data": {}})


@pytest.mark.parametrize(
    ("file", "detail"),
    [
        (json.dumps([task([result()])]).encode()[:90], "truncated"),
        ([{"image": "1.jpg", "annotations": []}], "missing required field `data`"),
        ({"images": [], "annotations": [], "categories": []}, "COCO's JSON"),
    ],
)
def test_files_and_tasks_of_which_nothing_can_be_used(file, detail):
    (image,) = parse(file)
    assert (image.sample, detail in image.faults[0].detail) == (None, True)


@pytest.mark.parametrize(
    ("name", "asked", "is_dropped"),
    [
        ("1.jpg", None, True),
        ("48c220e9-1.jpg", None, False),
        ("1.jpg", "keep", False),
        ("48c220e9-1.jpg", "drop", True),
    ],
)
def test_codes_of_uploads_are_dropped_if_no_image_has_one(tmp_path, name, asked, is_dropped):
    draw_jpeg(tmp_path / name)
    source = LabelstudioOptions(data=str(tmp_path), output="out", upload_prefix=asked).source()
    (image,) = source.parse(io.BytesIO(json.dumps([task([result()])]).encode()), "a.json")
    assert (image.sample.file_name == "/data/upload/1/1.jpg") is is_dropped
    assert len(list(source.check(frozenset(image.notes)))) == (is_dropped and asked is None)


def test_fields():
    results = [
        result(id="a", score=0.5),
        result("choices", SHAPE | {"choices": ["red"]}, id="a", from_name="colour"),
        result("textarea", SHAPE | {"text": ["wet"]}, id="a", from_name="note"),
        result("number", {"number": 7}, id="b", from_name="age"),
        result("rating", {"rating": 4}, id="c", from_name="quality"),
        result("choices", {"choices": ["sharp"]}, id="d", from_name="focus"),
    ]
    file = task(results, image="/data/1.jpg", place="sea")
    file["annotations"][0]["lead_time"] = 1.5
    (image,) = parse([file])
    assert [one.fields for one in image.sample.objects] == [
        {"score": 0.5, "meta": None, "colour": ["red"], "note": ["wet"]}
    ]
    assert image.sample.fields == {"lead_time": 1.5, "data": {"place": "sea"}, "age": 7, "quality": 4}
    assert image.sample.tags == ("sharp",)


def test_a_file_with_a_key_twice_is_refused():
    data = json.dumps([task([result()])]).replace('"result":', '"result": [], "result":').encode()
    (image,) = parse(data)
    assert (image.sample, "the key 'result' twice" in image.faults[0].detail) == (None, True)


@pytest.mark.parametrize(("flag", "objects"), [("false", 1), ("1", 0), (0, 1)])
def test_a_cancelled_annotation_may_say_so_in_a_text(flag, objects):
    tasks = task([result()])
    tasks["annotations"][0]["was_cancelled"] = flag
    (image,) = parse([tasks])
    assert (len(image.sample.objects), NUMBER_TEXTS in image.warnings) == (objects, isinstance(flag, str))
