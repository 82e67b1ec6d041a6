import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from recordmill.schemas.boxes import exact_edges_px, shortest_decimal, shortest_px
from recordmill.schemas.rejects import Reason
from tests.transforms.encoders.drawn_tasks import fit_box

sizes = st.integers(1, 8000)
places = st.floats(-2, 3) | st.just(1.0)


@given(sizes, st.data())
def test_box_with_three_decimals_comes_back_as_it_was(size, data):
    start = data.draw(st.integers(0, size * 1000 - 1))
    x, width = start / 1000, data.draw(st.integers(1, size * 1000 - start)) / 1000
    edges = np.float32(fit_box((x, x, width, width), size, size, "keep")[:4])
    assume(x + width <= size)  # some sums are beyond the edge by a rounding error
    assert exact_edges_px(edges, size, size) == (x, x, width, width)


@given(places, st.floats(1e-3, 3), sizes, st.sampled_from(["clip", "keep"]))
def test_box_gives_same_bits_again(place, length, size, policy):
    x, width = place * size, length * size
    fitted = fit_box((x, x, width, width), size, size, policy)
    assume(not isinstance(fitted, Reason))
    edges = np.float32(fitted[:4])
    assume(edges[1] < edges[3])
    box = exact_edges_px(edges, size, size)
    assert np.float32(fit_box(box, size, size, policy)[:4]).tolist() == edges.tolist()
    if policy == "clip":
        assert fit_box(box, size, size, "drop") is not Reason.BOX_OUTSIDE


@given(places, sizes)
def test_keypoint_gives_same_bits_again(place, size):
    fraction = np.float32(place)
    assert np.float32(shortest_px(fraction, size) / size) == fraction


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_decimal_gives_same_bits_again(value):
    assert np.float32(shortest_decimal(np.float32(value))) == np.float32(value)


@pytest.mark.parametrize("area", [0.0, 12.0, 702.105, 50.37, 1e-7, 184_512.5])
def test_an_area_comes_back_as_it_was(area):
    assert shortest_decimal(np.float32(area)) == area


def test_no_zero_is_negative():
    assert str(shortest_px(np.float32(-0.0), 640)) == "0.0"
