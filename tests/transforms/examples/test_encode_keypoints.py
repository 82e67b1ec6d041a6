import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.annotations import Annotation, Category
from recordmill.schemas.labels import LabelMap
from recordmill.transforms.blocks.image_tasks import object_columns
from recordmill.transforms.examples.encode_keypoints import KeypointEncoder
from tests.oracles import encode_keypoints

PERSON = Category(1, "person", keypoints=("nose", "left été", "right ear"))
HAND = Category(2, "hand", keypoints=("thumb",))
TREE = Category(3, "tree")
LABELS = LabelMap((PERSON, HAND, TREE))


def annotation(category: Category, *xyv: float) -> Annotation:
    return Annotation(7, category.id, (0.0, 0.0, 1.0, 1.0), 1.0, False, b"", xyv)


def encode(*annotations: Annotation, labels: LabelMap = LABELS, width: int = 40, height: int = 20) -> dict[str, list]:
    index = labels.index_by_id()
    classes = np.array([index[each.category_id] for each in annotations], np.int64)
    frame_px = np.full((len(annotations), 2), (width, height))
    keypoints = object_columns(annotations).get("keypoints_xyv")
    values = KeypointEncoder(labels).encode(keypoints, classes, frame_px)
    names = values.pop("text").rows()
    found = {source.removeprefix("objects.keypoint_"): column.ravel().tolist() for source, column in values.items()}
    return found | {"text": [name for row in names for name in read_items(row)]}


def read_items(data: bytes) -> list[bytes]:
    """Bytes whose lengths are less than 128."""
    items = []
    while data:
        items.append(data[2 : 2 + data[1]])
        data = data[2 + data[1] :]
    return items


def test_objects_with_all_keypoints_with_fewer_and_with_none():
    person = annotation(PERSON, 10, 5, 2, 40, 20, 1, 20, 10, 2)
    assert encode(person, annotation(HAND, 20, 5, 1), annotation(TREE)) == {
        "num": [3, 1, 0],
        "text": [b"nose", "left été".encode(), b"right ear", b"thumb", b"", b"", b"", b"", b""],
        "visibility": [2, 1, 2, 1, 0, 0, 0, 0, 0],
        "x": [0.25, 1.0, 0.5, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0],
        "y": [0.25, 1.0, 0.5, 0.25, 0.0, 0.0, 0.0, 0.0, 0.0],
    }


@pytest.mark.parametrize("labels", [LabelMap((TREE,)), LabelMap(())])
def test_without_keypoints_all_lists_but_the_counts_are_empty(labels):
    annotations = [annotation(category) for category in labels.categories]
    expected = {"num": [0] * len(annotations), "text": [], "visibility": [], "x": [], "y": []}
    assert encode(*annotations, labels=labels) == expected
    assert encode() == {"num": [], "text": [], "visibility": [], "x": [], "y": []}


POINTS = st.tuples(st.floats(-1e18, 1e18), st.floats(-1e18, 1e18), st.sampled_from([0.0, 1.0, 2.0]))


@st.composite
def annotations(draw) -> Annotation:
    category = draw(st.sampled_from(LABELS.categories))
    points = draw(st.just([]) | st.lists(POINTS, min_size=len(category.keypoints), max_size=len(category.keypoints)))
    return annotation(category, *(number for point in points for number in point))


@given(st.lists(annotations(), max_size=5), st.integers(1, 5000), st.integers(1, 5000))
def test_every_object_has_as_many_of_each_and_none_is_moved(items, width, height):
    found = encode(*items, width=width, height=height)
    assert {name: len(values) for name, values in found.items()} == {
        "num": len(items),
        **dict.fromkeys(("text", "visibility", "x", "y"), LABELS.keypoints * len(items)),
    }
    oracle = encode_keypoints.KeypointEncoder(LABELS).encode(items, width, height)
    assert {f"objects.keypoint_{name}": str(values) for name, values in found.items()} == {
        source: str(values) for source, values in oracle.items()
    }
