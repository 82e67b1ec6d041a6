import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recordmill.schemas.inputs.annotations import Annotation, Category
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.rejects import Reason
from recordmill.transforms.blocks.image_tasks import object_columns
from recordmill.transforms.encoders.encode_objects import KeypointEncoder, fit_boxes
from tests.transforms.encoders.drawn_tasks import FittedBox, fit_box

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
    assert fit_box(bbox, 100, 50, "clip") == expected


@given(st.lists(boxes()), st.sampled_from(POLICIES))
@example([((-0.0, -0.0, 50.0, 50.0), 100, 50)], "clip")
def test_fit_boxes(rows, policy):
    bboxes = np.array([bbox for bbox, _, _ in rows], float).reshape(-1, 4)
    frames = np.array([frame for _, *frame in rows], np.int64).reshape(-1, 2)
    fitted = zip(rows, *(column.tolist() for column in fit_boxes(bboxes, frames, policy)), strict=True)
    for (box, width, height), edges, is_clipped, is_empty, is_outside in fitted:
        x, y, box_width, box_height = box
        edges_px = y, x, y + box_height, x + box_width
        inside_px = max(y, 0.0), max(x, 0.0), min(edges_px[2], float(height)), min(edges_px[3], float(width))
        in_record = [np.float32(edge / side) for edge, side in zip(inside_px, (height, width) * 2, strict=True)]
        assert is_empty == (in_record[0] >= in_record[2] or in_record[1] >= in_record[3])
        crosses = inside_px != edges_px and not is_empty
        assert (is_clipped, is_outside) == (crosses and policy == "clip", crosses and policy == "drop")
        if not (is_empty or is_outside):
            kept_px = inside_px if policy == "clip" else edges_px
            expected = [edge / side for edge, side in zip(kept_px, (height, width) * 2, strict=True)]
            assert str(edges) == str(expected)  # str tells -0.0 from 0.0


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
