import msgspec
import pytest

from recordmill.schemas.dataset.manifest import InputRows
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.coco import AnnotationFile, AnnotationKind
from recordmill.schemas.layouts import LAYOUTS
from recordmill.transforms.coco.describe_files import describe_inputs, input_facts


def file(path: str, kind: AnnotationKind, unread=None, optional=None) -> AnnotationFile:
    return AnnotationFile(path, kind, 4, 9, (Category(1, "cat"),), unread=unread or {}, optional=optional or {})


def uncarried(*files: AnnotationFile, layout: str = "detection") -> list[tuple]:
    described = describe_inputs(files, LAYOUTS[layout])
    assert described == describe_inputs(reversed(files), LAYOUTS[layout])
    assert [(rows.images, rows.annotations) for rows in described] == [(4, 9)] * len(files)
    return [(rows.path, rows.kind, rows.uncarried) for rows in described]


def test_each_file_has_its_own():
    fields = {"file": {"info": 1}, "annotations": {"score": 3}}
    assert uncarried(file("b", AnnotationKind.INSTANCES, fields), file("a", AnnotationKind.CAPTIONS)) == [
        ("a", "captions", {}),
        ("b", "instances", fields),
    ]


def test_of_file_read_twice_what_neither_carries():
    instances = file("a", AnnotationKind.INSTANCES, {"file": {"info": 1}, "annotations": {"segmentation": 5, "x": 2}})
    stuff = file("a", AnnotationKind.STUFF, {"file": {"info": 1}, "annotations": {"area": 5, "bbox": 5, "x": 2}})
    assert uncarried(instances, stuff) == [
        ("a", "instances", {"file": {"info": 1}, "annotations": {"x": 2}}),
        ("a", "stuff", {}),
    ]


def test_keypoints_of_instances_are_keypoints_file_with_one():
    instances = file("a", AnnotationKind.INSTANCES, {"annotations": {"keypoints": 5, "num_keypoints": 5, "x": 1}})
    assert uncarried(instances)[0][2] == instances.unread
    assert uncarried(instances, file("b", AnnotationKind.KEYPOINTS))[0][2] == {"annotations": {"x": 1}}


LVIS = {"neg_category_ids": 2, "not_exhaustive_category_ids": 1}


@pytest.mark.parametrize(
    ("layout", "expected"),
    [("detection", {}), ("tfds", {"images": LVIS}), ("keras", {"annotations": {"iscrowd": 3}, "images": LVIS})],
)
def test_what_layout_has_no_feature_for(layout, expected):
    given = file("a", AnnotationKind.INSTANCES, {}, {"images": LVIS, "annotations": {"iscrowd": 3}})
    assert uncarried(given, layout=layout) == [("a", "instances", expected)]
    assert isinstance(describe_inputs([given], LAYOUTS[layout])[0], InputRows)


def test_input_facts():
    warned = msgspec.structs.replace(file("a.json", AnnotationKind.INSTANCES, {"file": {"info": 1}}), warnings=("odd",))
    facts = input_facts([warned], LAYOUTS["detection"], ("train", "val"), {})
    assert facts.inputs == {
        ("train", "a.json", "instances"): InputRows("a.json", "instances", 4, 9, {"file": {"info": 1}}),
        ("val", "a.json", "instances"): InputRows("a.json", "instances", 0, 0, {"file": {"info": 1}}),
    }
    assert facts.warnings == {("train", "odd")}


def test_panoptic_categories_not_said_to_be_things():
    panoptic = msgspec.structs.replace(
        file("p.json", AnnotationKind.PANOPTIC), categories=(Category(1, "cup"), Category(2, "wall", isthing=0))
    )
    other = msgspec.structs.replace(
        file("i.json", AnnotationKind.INSTANCES), categories=(Category(1, "cup", isthing=1),)
    )
    ((_, text),) = input_facts([panoptic], LAYOUTS["detection"], ("train",), {}).warnings
    assert text.startswith("p.json: 1 of 2 categories have no isthing (cup) and are written as stuff")
    assert not input_facts([panoptic, other], LAYOUTS["detection"], ("train",), {}).warnings
    assert not input_facts([file("s.json", AnnotationKind.STUFF)], LAYOUTS["detection"], ("train",), {}).warnings


def test_annotations_without_any_category():
    bare = msgspec.structs.replace(file("i.json", AnnotationKind.INSTANCES), categories=())
    captions = msgspec.structs.replace(file("c.json", AnnotationKind.CAPTIONS), categories=())
    ((_, text),) = input_facts([bare, captions], LAYOUTS["detection"], ("train",), {}).warnings
    assert text.startswith("i.json: no categories, so no annotation has a class")
    for others in ([captions], [bare, file("k.json", AnnotationKind.KEYPOINTS)]):
        assert input_facts(others, LAYOUTS["detection"], ("train",), {}).warnings == set()
