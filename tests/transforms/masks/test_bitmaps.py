import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from recordmill.transforms.masks.bitmaps import bitmap, mask_bounds, resized, run_lengths
from recordmill.transforms.masks.encode_masks import mask_rle

SHAPES = st.tuples(st.integers(1, 20), st.integers(1, 20))


@given(arrays(bool, SHAPES))
def test_run_lengths_and_back(pixels):
    height, width = pixels.shape
    assert np.array_equal(bitmap(run_lengths(pixels), width, height), pixels)


@given(SHAPES.flatmap(lambda shape: st.lists(arrays(bool, shape), max_size=3)))
def test_bounds_of_masks_are_those_of_their_pixels(masks):
    height, width = masks[0].shape if masks else (4, 3)
    expected = np.full((len(masks), 4), np.nan)
    for row, pixels in enumerate(masks):
        rows, columns = np.nonzero(pixels)
        if len(rows):
            expected[row] = rows.min(), columns.min(), rows.max() + 1, columns.max() + 1
    found = mask_bounds([mask_rle(run_lengths(pixels)) for pixels in masks], width, height)
    np.testing.assert_array_equal(found, expected)


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
