import numpy as np
import pytest

from recordmill.schemas.boxes import exact_edges_px, exact_edges_px_array, shortest_decimals

_SIZES = (1, 2, 3, 7, 40, 100, 427, 640, 4000, 65_535)


def _draw_boxes(random: np.random.Generator, decimals: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return float32 [N, 4] edges of boxes with these decimals in pixels, and int64 [N, 2] widths and heights."""
    sizes = random.choice(_SIZES, (number, 2))
    corners = np.round(np.sort(random.uniform(-0.2, 1.2, (number, 2, 2)), axis=1) * sizes[:, None], decimals)
    fractions = corners / sizes[:, None]
    return fractions[:, :, ::-1].reshape(-1, 4).astype(np.float32), sizes


@pytest.mark.parametrize("decimals", [0, 1, 2, 3, 5, 17])
def test_array_has_numbers_of_single_boxes(decimals):
    edges, sizes = _draw_boxes(np.random.default_rng(decimals), decimals, 3_000)
    expected = [exact_edges_px(box, *size) for box, size in zip(edges, sizes.tolist(), strict=True)]
    assert exact_edges_px_array(edges, sizes).tolist() == list(map(list, expected))


@pytest.mark.parametrize(
    "edges",
    [
        (0.0, 0.0, 1.0, 1.0),
        (1e-45, 1e-42, 1e-40, 1e-39),  # subnormal
        (0.125, 0.0625, 0.375, 0.8125),  # halves at several decimals
        (-1e30, -3e38, 0.5, 3e38),
        (-16777217.0, -0.5, 16777216.0, 1.5),
    ],
)
@pytest.mark.parametrize("size", [(1, 1), (2, 5), (640, 427), (4, 65_535)])
def test_unusual_edges(edges, size):
    box = np.float32(edges)
    assert tuple(exact_edges_px_array(box[None], np.array([size]))[0].tolist()) == exact_edges_px(box, *size)


def test_halves_are_rounded_to_even_numbers_as_single_ones():
    """Coarse fractions, beyond the image: several decimals are the same float32, and a half has two neighbours."""
    fractions = np.float32(np.arange(1, 4_001) * 0.125 + 1e5)
    edges = np.column_stack([fractions, fractions, fractions + 8, fractions + 8])
    sizes = np.full((4_000, 2), 5)
    expected = [list(exact_edges_px(box, 5, 5)) for box in edges]
    assert exact_edges_px_array(edges, sizes).tolist() == expected


def test_decimals_have_the_bits_of_float32():
    bits = np.random.default_rng(3).integers(0, 1 << 32, 20_000, np.uint32)
    values = np.concatenate([bits.view(np.float32), np.float32([0.1, -0.0, 702.1057, 1e-45, np.inf])])
    values = values[~np.isnan(values)]
    decimals = shortest_decimals(values)
    assert (decimals.astype(np.float32).view(np.uint32) == values.view(np.uint32)).all()
    assert decimals[-5:-2].tolist() == [0.1, -0.0, 702.1057]
