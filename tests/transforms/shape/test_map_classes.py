import re

import numpy as np
import pytest

from recordmill.schemas.block import Block, ragged_texts
from recordmill.schemas.errors import CategoryError
from recordmill.schemas.inputs.annotations import (
    Category,
    ImageLabels,
    PanopticAnnotation,
    Segment,
    StuffAnnotation,
)
from recordmill.schemas.inputs.files import File
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.transforms.blocks.image_tasks import label_column, labels_of
from recordmill.transforms.shape.map_classes import ClassMapping, count_labels, map_block, map_labels

CAR, CAT, BUS = Category(1, "car", "things"), Category(3, "cat"), Category(6, "bus")
ROAD = Category(100, "road", isthing=0)


@pytest.mark.parametrize(
    ("labels", "new_names", "expected", "ids"),
    [
        pytest.param(LabelMap((CAR, CAT)), {1: "cat", 3: "car"}, [(1, "cat"), (3, "car")], {1: 1, 3: 3}, id="swap"),
        pytest.param(LabelMap((CAR, CAT, BUS)), {3: "cat", 6: "cat"}, [(3, "cat")], {3: 3, 6: 3}, id="unchanged first"),
        pytest.param(LabelMap((CAR, CAT, BUS)), {1: "cat", 3: "cat"}, [(1, "cat")], {1: 1, 3: 1}, id="unchanged last"),
        pytest.param(
            LabelMap((CAR, Category(2, "car"))), {1: "car", 2: "car"}, [(1, "car"), (2, "car")], {1: 1, 2: 2},
            id="equal names that do not change stay apart",
        ),
        pytest.param(
            LabelMap((CAR, Category(2, "car"))), {1: "auto", 2: "auto"}, [(1, "auto")], {1: 1, 2: 1},
            id="equal names that change are one class",
        ),
        pytest.param(LabelMap((CAR, BUS)), {}, [], {}, id="all dropped"),
    ],
)  # fmt: skip
def test_classes_of_one_name_become_first(labels, new_names, expected, ids):
    mapped, mapping = map_labels(labels, new_names)
    assert [(category.id, category.name) for category in mapped.categories] == expected
    assert mapping.ids == ids


def test_merged_class_has_properties_of_all_members():
    labels = LabelMap(
        (CAR, Category(2, "van", keypoints=("a", "b"), skeleton=((1, 2),))),
        (CAR, Category(7, "train", isthing=1), ROAD),
    )
    mapped, _ = map_labels(labels, {1: "vehicle", 2: "vehicle", 7: "vehicle", 100: "ground"})
    vehicle = Category(1, "vehicle", "things", ("a", "b"), ((1, 2),), 1)
    assert mapped == LabelMap((vehicle,), (vehicle, Category(100, "ground", isthing=0)))


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (ROAD, "class 'car' (id 1) is a thing and class 'road' (id 100) is stuff"),
        (Category(6, "bus", keypoints=("b",)), "class 'car' (id 1) and class 'bus' (id 6) have different keypoints"),
        (
            Category(6, "bus", keypoints=("a",), skeleton=((1, 1),)),
            "class 'car' (id 1) and class 'bus' (id 6) have different skeleton",
        ),
    ],
)
def test_classes_that_cannot_be_one(other, text):
    car = Category(1, "car", keypoints=("a",), skeleton=((1, 2),))
    labels = LabelMap((car,), (other,)) if other is ROAD else LabelMap((car, other))
    with pytest.raises(CategoryError, match=re.escape(f"{text}, so they cannot become one class 'x'")):
        map_labels(labels, {1: "x", other.id: "x"})


def _segment(id_, category_id):
    return Segment(id_, category_id, False)


def test_block_has_new_classes():
    labels = ImageLabels(
        regions=(StuffAnnotation(1, 100, b""), StuffAnnotation(2, 101, b"")),
        panoptic=(PanopticAnnotation(File("a.png"), "a.png", (_segment(8, 1), _segment(9, 101), _segment(10, 6))),),
        neg_category_ids=(6, 3),
        not_exhaustive_category_ids=(1,),
        tags=("car", "bus", "cat"),
    )
    block = Block(
        image_id=np.array([1, 2, 3]),
        labels=label_column([labels, ImageLabels(), ImageLabels()]),
        first_object_of_image=np.array([0, 3, 3, 4]),
        object_id=np.array([10, 11, 12, 13]),
        category_id=np.array([1, 3, 6, 3]),
    )
    mapping = ClassMapping({1: 1, 6: 1, 100: 90}, {"car": "vehicle", "bus": "vehicle"})
    mapped = map_block(block, mapping)
    mapped.check("map")
    assert mapped.first_object_of_image.tolist() == [0, 2, 2, 2]
    assert (mapped.object_id.tolist(), mapped.category_id.tolist()) == ([10, 12], [1, 1])
    assert labels_of(mapped)[0] == ImageLabels(
        regions=(StuffAnnotation(1, 90, b""),),
        panoptic=(PanopticAnnotation(File("a.png"), "a.png", (_segment(8, 1), _segment(10, 1)), (9,)),),
        neg_category_ids=(),
        not_exhaustive_category_ids=(1,),
        tags=("vehicle",),
    )
    assert count_labels(block) == (
        {1: 1, 3: 2, 6: 1},
        {100: 1, 101: 2, 1: 1, 6: 1},
        {"car": 1, "bus": 1, "cat": 1},
    )


@pytest.mark.parametrize(("is_federated", "expected"), [(True, (1,)), (False, ())])
def test_lvis_image_without_lists(is_federated, expected):
    """A car is annotated, and buses are unknown."""
    block = Block(
        image_id=np.array([1]),
        first_object_of_image=np.array([0, 1]),
        object_id=np.array([9]),
        category_id=np.array([1]),
    )
    mapped = map_block(block, ClassMapping({1: 1, 6: 1}, {}, is_federated))
    assert labels_of(mapped) == [ImageLabels(not_exhaustive_category_ids=expected)]


def test_images_of_dropped_class_are_dropped():
    block = Block(image_id=np.array([1, 2, 3]), class_name=ragged_texts(["car", "cat", "bus"]))
    mapped = map_block(block, ClassMapping({}, {"car": "vehicle", "bus": "vehicle"}))
    assert (mapped.image_id.tolist(), mapped.class_name.texts()) == ([1, 3], ["vehicle", "vehicle"])
    assert count_labels(block).images == {"car": 1, "cat": 1, "bus": 1}
