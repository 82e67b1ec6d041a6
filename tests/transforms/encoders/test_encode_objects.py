import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recordmill.schemas.inputs.annotations import Annotation, Category
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.rejects import Reason
from recordmill.transforms.blocks.image_tasks import object_columns
from recordmill.transforms.encoders.encode_objects import KeypointEncoder, fit_boxes
from tests.oracles.boxes import FittedBox, fit_box

POLICIES = ("clip", "drop", "keep")
SIDES = st.integers(1, 20_000)
# In sides of the image: mostly within, some far beyond.
PLACES = st.floats(-0.5, 0.9) | st.floats(-1e14, 1e14) | st.sampled_from([-0.0, 1e-30, 1.0, -1e-9])
LENGTHS = st.floats(0, 1.2) | st.floats(0, 1e14) | st.sampled_from([0.0, 1e-7, 1e-8, 1.0])


@st.composite
def boxes(draw) -> tuple[tuple[float, float, float, float], int, int]:
    """A box, and its image's width and height, in pixels."""
    width, height = draw(SIDES), draw(SIDES)
    x, box_width, y, box_height = (draw(numbers) for numbers in (PLACES, LENGTHS, PLACES, LENGTHS))
    return (x * width, y * height, box_width * width, box_height * height), width, height


def fit_one(bbox, width, height, policy) -> FittedBox | Reason:
    """The only box of an array as `fit_box` returns it."""
    (edges,), (is_clipped,), (is_empty,), (is_outside,) = fit_boxes(
        np.array([bbox], float), np.array([[width, height]]), policy
    )
    if is_empty or is_outside:
        return Reason.EMPTY_BOX if is_empty else Reason.BOX_OUTSIDE
    return FittedBox(*edges.tolist(), bool(is_clipped))


@pytest.mark.parametrize(
    ("bbox", "expected"),
    [
        ((0, 0, 100, 50), FittedBox(0.0, 0.0, 1.0, 1.0, False)),
        ((25, 10, 50, 20), FittedBox(0.2, 0.25, 0.6, 0.75, False)),
        ((-25, 10, 50, 20), FittedBox(0.2, 0.0, 0.6, 0.25, True)),
        ((75, 40, 50, 20), FittedBox(0.8, 0.75, 1.0, 1.0, True)),
        ((-5, -5, 200, 200), FittedBox(0.0, 0.0, 1.0, 1.0, True)),
        ((75, 10, 25.000001, 20), FittedBox(0.2, 0.75, 0.6, 1.0, True)),
        ((100, 0, 10, 10), Reason.EMPTY_BOX),
        ((0, 50, 10, 10), Reason.EMPTY_BOX),
        ((-10, 0, 10, 10), Reason.EMPTY_BOX),
        ((10, 10, 10, 0), Reason.EMPTY_BOX),
        ((99.9999999, 10, 10, 10), Reason.EMPTY_BOX),
        ((50, 10, 1e-7, 10), Reason.EMPTY_BOX),
        ((0, 10, 1e-7, 10), FittedBox(0.2, 0.0, 0.4, 1e-7 / 100, False)),
        ((-0.0, 10, 1e-50, 10), Reason.EMPTY_BOX),
        ((1e18, 10, 1e18, 10), Reason.EMPTY_BOX),
    ],
)
def test_clip(bbox, expected):
    assert fit_one(bbox, 100, 50, "clip") == expected


@given(st.lists(boxes()))
@example([((-0.0, -0.0, 50.0, 50.0), 100, 50)])
def test_equals_fit_box(rows):
    bboxes = np.array([bbox for bbox, _, _ in rows], float).reshape(-1, 4)
    frames = np.array([frame for _, *frame in rows], np.int64).reshape(-1, 2)
    for policy in POLICIES:
        fitted = fit_boxes(bboxes, frames, policy)
        for row, edges, *flags in zip(rows, *(column.tolist() for column in fitted), strict=True):
            expected = fit_box(*row, policy)
            if isinstance(expected, Reason):
                assert flags == [False, expected == Reason.EMPTY_BOX, expected == Reason.BOX_OUTSIDE]
            else:
                assert str([*edges, *flags]) == str([*expected, False, False])  # str tells -0.0 from 0.0


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
def test_without_keypoints_all_lists_but_counts_are_empty(labels):
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
def test_keypoints_are_padded_with_0(items, width, height):
    expected: dict[str, list] = {"num": [], "visibility": [], "x": [], "y": [], "text": []}
    for item in items:
        names = [name.encode() for name in LABELS.categories[item.category_id - 1].keypoints]
        missing = LABELS.keypoints - len(names)
        expected["text"] += names + [b""] * missing
        points = [*zip(*(item.keypoints_xyv[part::3] for part in range(3)), strict=True)]
        points += [(0.0, 0.0, 0.0)] * (LABELS.keypoints - len(points))
        expected["num"].append(sum(seen > 0 for _, _, seen in points))
        expected["visibility"] += [int(seen) for _, _, seen in points]
        expected["x"] += [x / width if seen else 0.0 for x, _, seen in points]
        expected["y"] += [y / height if seen else 0.0 for _, y, seen in points]
    assert str(encode(*items, width=width, height=height)) == str(expected)  # str tells -0.0 from 0.0
