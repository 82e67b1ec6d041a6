import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from recordmill.transforms.masks.bitmaps import bitmap, mask_bounds, resized, run_lengths

SHAPES = st.tuples(st.integers(1, 20), st.integers(1, 20))


@given(arrays(bool, SHAPES))
def test_run_lengths_and_back(pixels):
    height, width = pixels.shape
    assert np.array_equal(bitmap(run_lengths(pixels), width, height), pixels)


@given(arrays(bool, SHAPES), st.booleans())
def test_bounds_of_a_mask_are_those_of_its_pixels(pixels, has_empty_runs):
    rows, columns = np.flatnonzero(pixels.any(axis=1)), np.flatnonzero(pixels.any(axis=0))
    expected = (rows[0], columns[0], rows[-1] + 1, columns[-1] + 1) if len(rows) else None
    runs = run_lengths(pixels)
    if has_empty_runs:  # a run of nothing within one, and another at its end
        runs = np.concatenate((runs[:1], [0, 0], runs[1:], [0] * (1 + len(runs) % 2)))
    assert mask_bounds(runs, pixels.shape[0]) == expected


@given(arrays(np.uint8, SHAPES), st.integers(1, 40), st.integers(1, 40))
def test_resized_as_pillow_does_it(pixels, width, height):
    expected = np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.NEAREST))
    found = resized(pixels, width, height)
    assert found.shape == (height, width)
    # Pillow counts in 16.16 fixed point: a middle on a border may fall to either side of it.
    rows, columns = (
        (np.arange(new) + 0.5) * old / new for new, old in ((height, pixels.shape[0]), (width, pixels.shape[1]))
    )
    inside = [np.abs(middles - middles.round()) > 1e-3 for middles in (rows, columns)]
    clear = np.ix_(*inside)
    assert np.array_equal(found[clear], expected[clear])


def test_colours_stay_together():
    pixels = np.arange(2 * 4 * 3, dtype=np.uint8).reshape(2, 4, 3)
    assert np.array_equal(resized(pixels, 2, 1), pixels[1:, 1::2])
