import random
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.errors import WrongFlagError
from recordmill.schemas.inputs.boxes import box_area_px2, box_xywh_px
from recordmill.schemas.inputs.coco import BoxFormat
from recordmill.transforms.coco.coco_rows import AnnotationRow, MaskedRow
from recordmill.transforms.coco.sample_boxes import join_samples, sample_boxes, sample_step
from recordmill.transforms.join.guess_box_format import Guess, box_warnings, check_box_format, guess_box_format

XYWH, XYXY, CXCYWH, REL_XYWH, REL_XYXY, REL_CXCYWH = BoxFormat
SIZE = (640, 480)
SIZES = {1: SIZE}


def scattered(number: int, seed: int = 0) -> list[tuple[float, ...]]:
    """Boxes anywhere in an image, small and large, as x, y, width, height."""
    rng = random.Random(seed)
    boxes = []
    for _ in range(number):
        width, height = rng.uniform(10, 300), rng.uniform(10, 200)
        boxes.append((rng.uniform(2, 640 - width), rng.uniform(2, 480 - height), width, height))
    return boxes


def written(box: tuple[float, ...], format_: BoxFormat) -> tuple[float, ...]:
    x, y, width, height = box
    if format_ in (XYXY, REL_XYXY):
        width, height = x + width, y + height
    if format_ in (CXCYWH, REL_CXCYWH):
        x, y = x + width / 2, y + height / 2
    if format_.is_fraction:
        return x / 640, y / 480, width / 640, height / 480
    return x, y, width, height


def row(bbox: object, area: float | None = None, segmentation: object = None, image_id: int = 1) -> AnnotationRow:
    text = msgspec.Raw(msgspec.json.encode(bbox))
    if segmentation is None:
        return AnnotationRow(1, image_id, 1, text, area)
    return MaskedRow(1, image_id, 1, text, area, segmentation=msgspec.Raw(msgspec.json.encode(segmentation)))


def guess(rows: list[AnnotationRow], sizes=SIZES) -> Guess | None:
    return guess_box_format(sample_boxes(rows).boxes(sizes))


def formats(rows: list[AnnotationRow], sizes=SIZES) -> tuple[BoxFormat, ...] | None:
    best = guess(rows, sizes)
    return best[0] if best else None


def outline(box: tuple[float, ...]) -> list[list[float]]:
    x, y, width, height = box
    return [[x, y, x + width, y], [x + width, y + height, x, y + height]]


@pytest.mark.parametrize("area", [None, "box", "mask", "product"])
@pytest.mark.parametrize(
    ("format_", "expected"), [(XYWH, None), *((format_, (format_,)) for format_ in (XYXY, REL_XYWH, REL_XYXY))]
)
def test_many_boxes_are_known_by_where_they_are(format_, expected, area):
    rows = []
    for box in scattered(300):
        numbers = written(box, format_)
        areas = {"box": box[2] * box[3], "mask": 0.6 * box[2] * box[3], "product": numbers[2] * numbers[3]}
        rows.append(row(numbers, areas.get(area)))
    assert formats(rows) == expected


# Of a few boxes, or without the sizes of images


@pytest.mark.parametrize("number", [2, 3])
def test_two_boxes_are_enough_where_areas_or_polygons_say_it(number):
    boxes = scattered(number)
    assert formats([row(written(box, XYXY), box[2] * box[3]) for box in boxes], {}) == (XYXY,)
    assert formats([row(written(box, XYXY), None, outline(box)) for box in boxes], {}) == (XYXY,)
    assert formats([row(box, box[2] * box[3]) for box in boxes], {}) is None
    assert formats([row(box, None, outline(box)) for box in boxes], {}) is None


@pytest.mark.parametrize("more_boxes", [0, 3])
def test_two_boxes_across_edge_are_no_evidence(more_boxes):
    large = [row((30, 20, 620, 470))]
    inside = [row((0, 0, 620, 470))] * more_boxes
    assert formats(large * 2 + inside) is None
    assert formats(large * 3 + inside) == (XYXY,)


def test_few_boxes_across_edge():
    inside = [row((100, 100, 400, 300))]
    assert formats([row((30, 20, 620, 470))] * 4 + inside * 17) is None
    assert formats([row((30, 20, 620, 470))] * 4 + inside * 16) == (XYXY,)


def test_where_areas_are_boxes_most_must_be_across_edge():
    across, inside = [row((30, 20, 620, 470), 620 * 470)], [row((100, 100, 400, 300), 120_000)]
    assert formats(across * 9 + inside * 10) is None
    assert formats(across * 10 + inside * 10) == (XYXY,)


@pytest.mark.parametrize("format_", [REL_XYWH, REL_XYXY])
def test_single_box_of_fractions_is_known(format_):
    assert format_ in formats([row(written(scattered(1)[0], format_))])
    assert format_ in formats([row(written(scattered(1)[0], format_))], {})


@pytest.mark.parametrize("box", [(0.3, 0.01, 0.2, 1), (0.01, 0.3, 1, 0.2)])
def test_fractions_rounded_to_two_decimals(box):
    assert formats([row(box)]) == (REL_XYWH,)


def test_ambiguous_fractions():
    assert formats([row((0.1, 0.1, 0.5, 0.5))] * 9) == (REL_XYXY, REL_XYWH)


def test_fractions_of_no_format():
    assert formats([row((0.9, 0.9, 0.4, 0.4)), row((0.5, 0.1, 0.6, 0.2))]) == ()


@pytest.mark.parametrize("format_", [CXCYWH, REL_XYWH, REL_XYXY, REL_CXCYWH])
def test_boxes_elsewhere_than_their_polygons(format_):
    boxes = [(40 + 100 * number, 60, 20 + 10 * number, 70) for number in range(4)]
    rows = [row(written(box, format_), 9, outline(box)) for box in boxes]
    assert formats(rows) == (format_,)
    assert formats(rows[:2] + [row(box, 9, outline(box)) for box in boxes[:2]]) is None
    repeated = [row(written(box, CXCYWH), 9, [list(written(box, CXCYWH))]) for box in boxes]
    assert formats(repeated) is None


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda x, y, width, height: (640 - x - width, y, width, height), "they are mirrored from left to right"),
        (lambda x, y, width, height: (x, 480 - y - height, width, height), "they are mirrored from top to bottom"),
        (lambda x, y, width, height: (y, x, y + height, x + width), "they are y1, x1, y2, x2"),
        (lambda x, y, width, height: (x / 6.4, y / 4.8, width / 6.4, height / 4.8), "they are percentages of the "),
        (lambda x, y, width, height: (x / 0.64, y / 0.48, width / 0.64, height / 0.48), "they are thousandths of the "),
    ],
)
def test_changed_boxes_are_named(change, name):
    boxes = [(40 + 100 * number, 60, 20 + 10 * number, 70) for number in range(4)]
    formats, evidence = guess([row(change(*box), 9, outline(box)) for box in boxes])
    assert formats == ()
    assert evidence.startswith(f"4 of 4 boxes with polygons overlap them by less than half, and fit if {name}")


def test_swapped_x_and_y():
    boxes = [(20 * number, 60, 20, 70) for number in range(31)]  # in images of 640 x 480
    swapped = [(y, x, height, width) for x, y, width, height in boxes]
    beyond = (
        "7 of 31 boxes reach beyond the edge of their image, and none if x and y, or the images' width and height, "
    )
    assert guess([row(box) for box in swapped]) == ((), f"{beyond}are swapped")
    with_polygons = [row(box, 9, outline(right)) for box, right in zip(swapped, boxes, strict=True)]
    assert guess(with_polygons)[1].endswith("overlap them by less than half, and fit if x and y are swapped")


# No false alarm


def ordered(number: int) -> list[tuple[float, ...]]:
    """Large boxes that may be read as two corners, because width and height exceed x and y."""
    return [box for box in scattered(9 * number, 1) if box[2] >= box[0] and box[3] >= box[1]][:number]


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [row("x"), row([1, 2, 3])],
        [row((0, 0, 640, 480))] * 50,
        [row((0, 0, 0, 0))] * 50,
        [row((0.2, 0.3, 0, 0))] * 50,
        [row((1, 1, 640, 480))] * 50,
        [row((0, 0, 1, 1))] * 50,
        [row(box) for box in ordered(60)],
        [row(box, 0.3 * box[2] * box[3]) for box in ordered(60)],
        [row((x, y, w + 6, h + 4)) for x, y, w, h in scattered(300)],
        [row((x - 60, y - 60, w + 120, h + 120)) for x, y, w, h in scattered(300)],
        [row((1e17, 1, 1e18, 5))] * 4,
        [row((1e300, 1, 1e300, 5))] * 50,
    ],
    ids=[
        *(
            "none",
            "malformed",
            "whole images",
            "empty",
            "points",
            "counted from 1",
            "one pixel",
            "large",
            "large masks",
        ),
        *("across by rounding", "across on purpose", "huge", "beyond any image"),
    ],
)
def test_boxes_right_are_left_alone(rows):
    assert formats(rows) is None


@pytest.mark.parametrize("size", [(1, 1), (8, 8)])
def test_boxes_of_pixel_or_less_are_right_in_tiny_images(size):
    assert formats([row((0, 0, 0.5, 1))] * 50, {1: size}) is None
    assert formats([row((0, 0, 0.5, 1))] * 50, {1: (9, size[1])}) == (REL_XYXY, REL_XYWH)


def test_few_boxes_of_another_format():
    boxes = scattered(300)
    mixed = [row(written(box, REL_XYXY if index % 10 == 0 else XYWH)) for index, box in enumerate(boxes)]
    assert formats(mixed) is None


def test_a_few_odd_boxes_hide_nothing():
    odd = [row((600, 400, 10, 10))] * 3
    for format_ in (XYXY, REL_XYXY):
        assert formats([*(row(written(box, format_)) for box in scattered(300)), *odd]) == (format_,)


@given(st.lists(st.tuples(*[st.floats(0, 1)] * 4), min_size=1, max_size=30), st.booleans())
def test_valid_boxes_are_xywh(parts, has_area):
    rows = []
    for left, top, width, height in parts:
        x, y = left * 600, top * 440
        box = x, y, max(2, width * (640 - x)), max(2, height * (480 - y))
        rows.append(row(box, box[2] * box[3] if has_area else None))
    assert formats(rows) is None


# Boxes of other images


def test_boxes_of_shrunk_images():
    boxes = scattered(300)
    assert formats([row(box) for box in boxes], {1: (160, 120)}) == ()
    assert formats([row(box) for box in boxes[:20]], {1: (160, 120)}) == ()
    assert formats([row(box) for box in boxes[:19]], {1: (160, 120)}) is None


def test_boxes_that_begin_at_their_centres():
    assert formats([row(written(box, CXCYWH)) for box in scattered(60)]) == (CXCYWH,)
    off_the_edge = [row((0, 0, 200, 100))]  # as a centre, it would be
    assert formats([row(written(box, CXCYWH)) for box in scattered(60)] + off_the_edge) != (CXCYWH,)


@pytest.mark.parametrize(("number", "scale", "texts"), [(300, 0.5, 1), (90, 0.5, 0), (300, 0.7, 0)])
def test_boxes_drawn_on_smaller_images(number, scale, texts):
    boxes = sample_boxes([row([scale * edge for edge in box]) for box in scattered(number)])
    warnings = list(box_warnings("a.json", boxes.boxes(SIZES)))
    assert len(warnings) == texts
    assert all(text.startswith("a.json: none of 300 boxes reaches beyond 50% of the width") for text in warnings)
    assert list(box_warnings("a.json", boxes.boxes({}))) == []


# What is looked at


def test_sample_of_rows_is_independent_of_blocks():
    rows = [row((number, 0, 5, 5)) for number in range(25_000)]
    step = sample_step(25_000 * 72)
    assert step == 3
    for cuts in ([0, 25_000], [0, 1, 2, 24_000, 25_000]):
        blocks = [sample_boxes(rows[start:end][-start % step :: step]) for start, end in pairwise(cuts)]
        left_edges = join_samples(blocks).numbers[0]
        assert left_edges[0] == 0
        assert len(left_edges) == 8334
        assert np.all(np.diff(left_edges) == 3)


def test_columns_of_a_sample():
    rows = [
        row((1, 2, 3, 4), 9.5, [[5, 6, 7, 8, 1, 20]]),
        row((5, 6, 7, 8), None, {"counts": [3], "size": [1, 3]}, image_id=2),
        row((5, 6, 7, 8), None, [], image_id=2),
        row("x"),
    ]
    boxes = sample_boxes(rows).boxes(SIZES)
    nan = float("nan")
    np.testing.assert_equal(boxes.numbers.T, [[1, 2, 3, 4], [5, 6, 7, 8], [5, 6, 7, 8]])
    np.testing.assert_equal(boxes.sizes.T, [[640, 480], [nan, nan], [nan, nan]])
    np.testing.assert_equal(boxes.areas, [9.5, nan, nan])
    np.testing.assert_equal(boxes.extents.T, [[1, 6, 7, 20], [nan] * 4, [nan] * 4])


def check(boxes: list, sizes: dict = SIZES) -> None:
    check_box_format("a.json", sample_boxes([row(box) for box in boxes]).boxes(sizes))


def test_refusal_names_both_flags():
    check(scattered(9))
    with pytest.raises(
        WrongFlagError, match=r"^a\.json: .*--bbox-format rel-xyxy reads that format, --bbox-format xywh"
    ):
        check([written(box, REL_XYXY) for box in scattered(9)])
    with pytest.raises(WrongFlagError, match=r"shrunk.*: convert them, or --bbox-format xywh accepts") as caught:
        check(scattered(30), {1: (160, 120)})
    assert "reads" not in str(caught.value)


# Boxes and areas in pixels


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
def test_box_at_edge_is_inside(format_, parts, side):
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
