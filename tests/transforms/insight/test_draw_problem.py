import numpy as np
from PIL import Image

from recordmill.transforms.insight.draw_record import draw_problem
from recordmill.transforms.insight.overlay import Shape

GREY = Image.new("RGB", (320, 240), (90, 90, 90))
GOOD = Shape("cat", (0, 255, 0), (0.1, 0.1, 0.4, 0.4), np.ones((240, 320), bool))
THIN = Shape("cat", (0, 255, 0), (0.5, 0.5, 0.505, 0.7), np.ones((240, 320), bool))
MARK = (255, 0, 60)


def changed(marked: list[int]) -> tuple[float, set[tuple[int, int, int]]]:
    """Share of the pixels that are drawn over, and their colours."""
    pixels = np.asarray(draw_problem(GREY, [GOOD, THIN], marked, 320)).reshape(-1, 3)
    drawn = pixels[(pixels != 90).any(axis=1)]
    return len(drawn) / len(pixels), set(map(tuple, drawn.tolist()))


def test_outlines_leave_picture_visible():
    share, colours = changed([])
    assert 0 < share < 0.02
    assert colours == {(0, 255, 0)}


def test_suspicious_box_is_marked_among_good_ones():
    assert MARK in changed([1])[1]
    assert (0, 255, 0) not in changed([1])[1]
    ring = np.asarray(draw_problem(GREY, [GOOD, THIN], [1], 320))[100:140, 140:240]
    rows, _ = np.nonzero((ring == MARK).all(axis=2))
    assert rows.max() - rows.min() > 15  # around a box of 1 pixel
