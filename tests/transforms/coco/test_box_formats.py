import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.inputs.coco import BoxFormat
from recordmill.transforms.coco.guess_box_format import box_area_px2, box_xywh_px

_, XYXY, CXCYWH, REL_XYWH, REL_XYXY, REL_CXCYWH = BoxFormat


@pytest.mark.parametrize(
    ("format_", "numbers"),
    [
        (XYXY, (20.0, 10.0, 80.0, 35.0)),
        (REL_XYWH, (0.25, 0.25, 0.75, 0.625)),
        (REL_XYXY, (0.25, 0.25, 1.0, 0.875)),
        (CXCYWH, (50.0, 22.5, 60.0, 25.0)),
        (REL_CXCYWH, (0.625, 0.5625, 0.75, 0.625)),
    ],
)
def test_one_box_in_each_format(format_, numbers):
    assert box_xywh_px(numbers, format_, 80, 40) == (20.0, 10.0, 60.0, 25.0)


@given(
    st.sampled_from([XYXY, REL_XYWH, REL_XYXY]),
    st.tuples(st.integers(0, 10_000), st.integers(1, 10_000)),
    st.integers(1, 10_000),
)
def test_box_that_ends_at_edge_is_not_beyond_it_by_last_bit_of_float(format_, parts, side):
    low = parts[0] / sum(parts)
    third = {XYXY: float(side), REL_XYWH: parts[1] / sum(parts), REL_XYXY: 1.0}[format_]
    first = low * side if format_ is XYXY else low
    x, y, width, height = box_xywh_px((first, first, third, third), format_, side, side)
    assert (x, width) == (y, height)
    assert x + width <= side
    assert x + width == pytest.approx(side)


@pytest.mark.parametrize(
    ("format_", "area", "expected"),
    [
        (XYXY, 900.0, 900.0),
        (XYXY, 80.0 * 35.0, 1500.0),
        (XYXY, 0.5, 0.5),
        (REL_XYXY, 900.0, 900.0),
        (REL_XYXY, 0.46, 1500.0),
        (REL_XYWH, 0.46, 1500.0),
        (REL_XYWH, 1.0, 1500.0),
        (REL_XYWH, 1.5, 1.5),
    ],
)
def test_area_that_was_made_of_numbers_is_that_of_box(format_, area, expected):
    numbers = {XYXY: (20.0, 10.0, 80.0, 35.0)}.get(format_, (0.25, 0.25, 0.75, 0.625))
    assert box_area_px2(area, numbers, format_, (20.0, 10.0, 60.0, 25.0)) == expected
