"""Boxes from pixels to fractions."""

import struct

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from recordmill.schemas.rejects import Reason
from recordmill.transforms.examples.boxes import FittedBox, fit_box

POLICIES = ("clip", "drop", "keep")
SIDES = st.integers(1, 20_000)
# In sides of the image: mostly within, some far beyond.
PLACES = st.floats(-0.5, 0.9) | st.floats(-1e14, 1e14)
LENGTHS = st.floats(0, 1.2) | st.floats(0, 1e14)
BEGINNINGS = st.floats(-0.5, 0.9) | st.floats(-1e14, 0.9)
REACHES = st.floats(1e-3, 1.2) | st.floats(1e-3, 1e14)


Box = tuple[tuple[float, float, float, float], int, int]


@st.composite
def any_boxes(draw) -> Box:
    """A box, and its image's width and height, in pixels."""
    width, height = draw(SIDES), draw(SIDES)
    x, box_width, y, box_height = (draw(numbers) for numbers in (PLACES, LENGTHS, PLACES, LENGTHS))
    return (x * width, y * height, box_width * width, box_height * height), width, height


@st.composite
def boxes_in_sight(draw) -> Box:
    """Of those, such as reach into their image, from however far outside."""
    width, height = draw(SIDES), draw(SIDES)
    x, y = draw(BEGINNINGS), draw(BEGINNINGS)
    box_width, box_height = draw(REACHES) - min(x, 0), draw(REACHES) - min(y, 0)
    return (x * width, y * height, box_width * width, box_height * height), width, height


# Of boxes anywhere, two of three are empty, and tests of what is left would mostly draw in vain.
boxes = st.one_of(boxes_in_sight(), boxes_in_sight(), any_boxes())


def float32(number: float) -> float:
    """As the record keeps it."""
    return struct.unpack("<f", struct.pack("<f", number))[0]


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
        ((0, -10, 10, 10), Reason.EMPTY_BOX),
        ((10, 10, 0, 10), Reason.EMPTY_BOX),
        ((10, 10, 10, 0), Reason.EMPTY_BOX),
        ((99.9999999, 10, 10, 10), Reason.EMPTY_BOX),
        ((10, 49.9999999, 10, 10), Reason.EMPTY_BOX),
        ((50, 10, 1e-7, 10), Reason.EMPTY_BOX),
        ((0, 10, 1e-7, 10), FittedBox(0.2, 0.0, 0.4, 1e-7 / 100, False)),
        ((-0.0, 10, 1e-50, 10), Reason.EMPTY_BOX),
    ],
)
def test_clip(bbox, expected):
    assert fit_box(bbox, width=100, height=50, policy="clip") == expected


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("clip", FittedBox(0.2, 0.75, 0.6, 1.0, True)),
        ("drop", Reason.BOX_OUTSIDE),
        ("keep", FittedBox(0.2, 0.75, 0.6, 1.25, False)),
    ],
)
def test_a_box_that_crosses_the_edge_under_each_policy(policy, expected):
    assert fit_box((75, 10, 50, 20), width=100, height=50, policy=policy) == expected


@given(boxes)
def test_edges_keep_their_order(box):
    fitted = [found for policy in POLICIES if isinstance(found := fit_box(*box, policy), FittedBox)]
    assume(fitted)
    for found in fitted:
        assert found.xmin_frac <= found.xmax_frac
        assert found.ymin_frac <= found.ymax_frac


@given(boxes)
def test_a_box_has_an_area_in_the_record_too(box):
    fitted = fit_box(*box, "clip")
    assume(isinstance(fitted, FittedBox))
    assert float32(fitted.xmin_frac) < float32(fitted.xmax_frac)
    assert float32(fitted.ymin_frac) < float32(fitted.ymax_frac)


@given(boxes)
def test_fractions_are_within_0_and_1_when_clipped(box):
    fitted = fit_box(*box, "clip")
    assume(isinstance(fitted, FittedBox))
    for edge in fitted[:4]:
        assert 0 <= edge <= 1
        assert 0 <= float32(edge) <= 1


@given(boxes)
def test_every_policy_finds_the_same_boxes_empty(box):
    empty = {policy: fit_box(*box, policy) == Reason.EMPTY_BOX for policy in POLICIES}
    assert empty in (dict.fromkeys(POLICIES, True), dict.fromkeys(POLICIES, False))


@given(boxes)
def test_what_drop_rejects_clip_cuts_and_keep_leaves_as_it_is(box):
    clipped, dropped, kept = (fit_box(*box, policy) for policy in POLICIES)
    assume(isinstance(clipped, FittedBox))
    assert clipped.clipped == (dropped == Reason.BOX_OUTSIDE)
    (x, y, box_width, box_height), width, height = box
    assert kept == (y / height, x / width, (y + box_height) / height, (x + box_width) / width, False)
    if not clipped.clipped:
        assert clipped == dropped == kept
