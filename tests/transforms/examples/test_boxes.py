import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recordmill.schemas.rejects import Reason
from recordmill.transforms.examples.boxes import fit_boxes
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
