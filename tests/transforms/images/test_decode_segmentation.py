import contextlib
import io
import json
import pickle
import time

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO

from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.images import decode_segmentation
from recordmill.transforms.images.decode_segmentation import compress_segmentation, decode_counts, run_bounds_px
from recordmill.transforms.images.masks import bitmap, mask_png, run_lengths
from tests.conftest import SHARED_DATA

COCO_MINI = SHARED_DATA / "coco_mini" / "annotations"
WIDTH, HEIGHT = 12, 9
BITMAPS = hnp.arrays(np.uint8, hnp.array_shapes(min_dims=2, max_dims=2, max_side=12), elements=st.integers(0, 1))

SQUARE = np.zeros((HEIGHT, WIDTH), np.uint8)
SQUARE[2:6, 1:5] = 1
TRIANGLE = coco_mask.decode(coco_mask.frPyObjects([[6, 1, 11, 1, 11, 8]], HEIGHT, WIDTH))[:, :, 0]
SQUARE_RUNS = [11, 4, 5, 4, 5, 4, 5, 4, 66]
SQUARE_COUNTS = coco_mask.encode(np.asfortranarray(SQUARE))["counts"].decode()


def decode(value: object, width: int = WIDTH, height: int = HEIGHT) -> np.ndarray:
    return decode_text(json.dumps(value).encode(), width, height)


def decode_text(text: bytes, width: int, height: int) -> np.ndarray:
    return decode_counts(compress_segmentation(text, width, height), width, height)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        pytest.param([[1, 2, 1, 6, 5, 6, 5, 2]], SQUARE, id="polygon"),
        pytest.param([[1.0, 2, 1, 6, 5, 6, 5, 2], [6, 1, 11, 1, 11, 8]], SQUARE | TRIANGLE, id="polygons"),
        pytest.param([1, 2, 1, 6, 5, 6, 5, 2], SQUARE, id="flat_polygon"),
        pytest.param([[1, 2, 4, 4]], SQUARE, id="box"),
        pytest.param([1, 2, 4, 4], SQUARE, id="flat_box"),
        pytest.param([[1, 2, 4, 4], [6, 1, 11, 1, 11, 8]], SQUARE | TRIANGLE, id="box_beside_polygon"),
        pytest.param([[6, 1, 11, 1, 11, 8], [1, 2, 4, 4]], SQUARE | TRIANGLE, id="polygon_beside_box"),
        pytest.param([[], [1, 2, 4, 4]], SQUARE, id="nothing_beside_box"),
        pytest.param([[1, 2, 4, 2], [1, 4, 4, 2]], SQUARE, id="touching_boxes"),
        pytest.param([[1, 2, 4, 4], [2, 3, 1, 1]], SQUARE, id="box_within_box"),
        pytest.param([[1, 2, 4, 4], [1, 2, 4, 4]], SQUARE, id="box_twice"),
        pytest.param([[0, 0, WIDTH, 4], [0, 4, WIDTH, 5]], np.ones_like(SQUARE), id="boxes_that_fill_the_image"),
        pytest.param([[-5, -5, 500, 500]], np.ones_like(SQUARE), id="box_beyond_the_image"),
        pytest.param([[50, 50, 9, 9], [-9, 2, 5, 5]], np.zeros_like(SQUARE), id="boxes_outside"),
        pytest.param({"counts": SQUARE_RUNS, "size": [HEIGHT, WIDTH]}, SQUARE, id="run_lengths"),
        pytest.param({"counts": SQUARE_COUNTS, "size": [HEIGHT, WIDTH]}, SQUARE, id="compressed_run_lengths"),
        pytest.param({"counts": [0, 0, *SQUARE_RUNS, 0, 0], "size": [HEIGHT, WIDTH]}, SQUARE, id="runs_of_0"),
        pytest.param({"size": [HEIGHT, WIDTH], "counts": [0, 108], "more": [[{}]]}, np.ones_like(SQUARE), id="ones"),
    ],
)
def test_every_form_becomes_its_mask(form, expected):
    np.testing.assert_array_equal(bitmap(decode(form), WIDTH, HEIGHT), expected)


@pytest.mark.parametrize("text", [b"", b"null", b"[]", b"[[]]", b"[[], []]", b" [ ] "])
def test_no_mask_is_one_run_of_zeros(text):
    assert decode_text(text, 4, 3).tolist() == [12]


NUMBERS = st.integers(-5, 20) | st.floats(-5, 20)
POLYGONS = st.lists(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=3, max_size=7), min_size=1, max_size=4)


@given(POLYGONS, st.integers(1, 15), st.integers(1, 15))
def test_polygons_are_drawn_and_united_as_by_pycocotools(points, width, height):
    polygons = [[number for point in polygon for number in point] for polygon in points]
    expected = coco_mask.decode(coco_mask.merge(coco_mask.frPyObjects(polygons, height, width)))
    found = compress_segmentation(json.dumps(polygons).encode(), width, height)
    assert found == coco_mask.encode(expected)["counts"]


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=4))
def test_boxes_are_drawn_as_by_pycocotools(boxes):
    expected = coco_mask.decode(coco_mask.frPyObjects(np.array(boxes, np.float64), HEIGHT, WIDTH)).max(axis=2)
    assert decode(boxes).tolist() == run_lengths(expected != 0).tolist()


@given(BITMAPS)
@example(np.ones((1, 7), np.uint8))
@example(np.zeros((7, 1), np.uint8))
def test_run_lengths_come_back(pixels):
    height, width = pixels.shape
    runs = run_lengths(pixels != 0).tolist()
    assert decode({"counts": runs, "size": [height, width]}, width, height).tolist() == runs
    counts = coco_mask.encode(np.asfortranarray(pixels))["counts"].decode()
    assert decode({"counts": counts, "size": [height, width]}, width, height).tolist() == runs


@given(st.lists(st.integers(1, 40_000), min_size=1, max_size=12))
def test_compressed_numbers_of_several_characters_come_back(runs):
    height = sum(runs)
    (compressed,) = coco_mask.frPyObjects([{"counts": runs, "size": [height, 1]}], height, 1)
    assert decode({"counts": compressed["counts"].decode(), "size": [height, 1]}, 1, height).tolist() == runs


def rle(counts: object, size: object = (3, 4)) -> bytes:
    return json.dumps({"counts": counts, "size": size}).encode()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"[[1, 2]]", r"a polygon of 2 numbers: '\[\[1, 2\]\]'$"),
        (b"[[1, 2, 3, 4, 5]]", "a polygon of 5 numbers"),
        (b"[[0, 0, 1, 0, 1, 1], [1]]", "a polygon of 1 numbers"),
        (b"[[0, 0, 1, 0, 1, 1], 5]", "numbers mixed with lists of numbers"),
        (b'[[0, 0, 1, 0, 1, "NaN"]]', r"got `str` - at `\$\[0\]\[5\]`"),
        (b"[[0, 0, 1, 0, NaN, 1]]", "malformed"),
        (b"[[0, 0, 1, 0, true, 1]]", "got `bool`"),
        (b"[[[0, 0], [1, 0], [1, 1]]]", "got `array`"),
        (b"[[0, 0, 1e9, 0, 1, 1]]", "coordinates beyond any image"),
        (b"[[0, 0, -1e300, 0, 1, 1]]", "coordinates beyond any image"),
        (b"[[1e308, 0, 1e308, 1]]", "coordinates beyond any image"),
        (b"[[0, 0, 1e999, 0, 1, 1]]", "out of range"),
        (b"[[0, 0, 1e7, 0, 1e7, 1]]", "edges of 20000001 px; the limit is 400000"),
        (b"5", "got `int`"),
        (b"{}", "missing required field `counts`: '{}'"),
        (b'{"counts": [12]}', "missing required field `size`"),
        (rle([12], None), "got `null`"),
        (rle([12], [1 << 70, 4]), "Expected `int`"),
        (rle([12.0]), "got `float`"),
        (rle([13, -1]), ">= 0"),
        (rle([10**30]), "<= 9223372036854775807"),
        (rle([(1 << 63) - 1]), "a run of 9223372036854775807 pixels in an image of 12"),
        (rle([1 << 62, 1 << 62, 1 << 62, 1 << 62, 12]), "a run of 4611686018427387904 pixels"),
        (rle([11]), "runs of 11 pixels in an image of 12"),
        (rle([12, 1]), "runs of 13 pixels in an image of 12"),
        (rle(""), "no run lengths"),
        (rle("<0 "), "a character that compressed counts do not have"),
        (rle("/"), "a character that compressed counts do not have"),
        (rle("ü"), "a character that compressed counts do not have"),
        (rle("P"), "end within a number"),
        (rle("PPPPPPP0"), "more than 7 characters"),
        (rle("O"), "a run of -1 pixels in an image of 12"),
        (rle("1234N"), "runs of 13 pixels in an image of 12"),
        (rle("oooooo0"), "a run of 1073741823 pixels"),
        (b'{"counts": "\xff", "size": [3, 4]}', "utf-8"),
        (b'{"counts": "\\ud800", "size": [3, 4]}', "surrogate"),
        (b"[[0, 0, 1, 0, 1, 1]", "truncated"),
        (b"[[0, 0, 1, 0, 1, 1]] x", "trailing"),
        (b" ", "truncated"),
        (b'{"a": ' + b"[" * 100_000, "nested too deeply"),
    ],
)
def test_malformed_is_named(text, message):
    with pytest.raises(UnusableError, match=message) as caught:
        compress_segmentation(text, width=4, height=3)
    assert caught.value.reason is Reason.MALFORMED_SEGMENTATION
    assert len(str(caught.value)) < 220
    assert "\n" not in str(caught.value)


def test_of_long_text_message_shows_beginning():
    with pytest.raises(UnusableError) as caught:
        compress_segmentation(b"[[" + b"1," * 50_000 + b"1]]", 4, 3)
    assert str(caught.value) == f"a polygon of 50001 numbers: '[[{'1,' * 39}'…"


@pytest.mark.parametrize("size", [[4, 3], [3], [-3, -4], [1 << 40, 1 << 40], [7] * 5000])
def test_another_size_is_named_with_both(size):
    with pytest.raises(UnusableError) as caught:
        compress_segmentation(rle([12], size), width=4, height=3)
    assert caught.value.reason is Reason.MASK_SIZE_MISMATCH
    found = f"run lengths of size {str(size)[:60]} for an image of size [3, 4] (height, width)"
    assert str(caught.value) == found


def test_error_crosses_process_borders():
    error = pickle.loads(pickle.dumps(UnusableError(Reason.MASK_SIZE_MISMATCH, "found")))
    assert (error.reason, str(error)) == (Reason.MASK_SIZE_MISMATCH, "found")


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-3, 15)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.text(st.characters(min_codepoint=46, max_codepoint=113), max_size=6)
)
KEYS = st.sampled_from(["counts", "size"]) | st.text(max_size=3)
JSON = st.recursive(LEAVES, lambda of: st.lists(of, max_size=8) | st.dictionaries(KEYS, of, max_size=3), max_leaves=12)
NEARLY = st.fixed_dictionaries(
    {"counts": LEAVES | st.lists(st.integers(-1, 12), max_size=6), "size": st.just([3, 4]) | JSON}
)


@settings(max_examples=400)
@given((JSON | NEARLY).map(lambda value: json.dumps(value).encode()) | st.binary(max_size=40))
@example(b'{"counts":"<","size":[3,4]}')
@example(b"[[0,0,4,3],[1e-320,-0.0,5e7,1]]")
def test_it_becomes_runs_or_segmentation_error(text):
    with contextlib.suppress(UnusableError):
        runs = decode_text(text, width=4, height=3)
        assert runs.dtype == np.int64
        assert runs.min() >= 0
        assert runs.sum() == 12


@pytest.mark.parametrize(
    ("text", "legal"),
    [
        pytest.param(json.dumps([[0, 0, 1e8, 1e8] * 2]).encode(), False, id="long_edges"),
        pytest.param(json.dumps([[0, 0, 600, 0] * 5000]).encode(), False, id="many_long_edges"),
        pytest.param(json.dumps([[0, 0, 600, 0] * 500]).encode(), True, id="as_many_edges_as_are_drawn"),
        pytest.param(json.dumps([[0, 0, 600, 0] * 512]).encode(), True, id="exactly_as_many"),
        pytest.param(
            json.dumps([[5, 5, 9, 5, 9, 9], [-100, 0, 100, 0] * 1537]).encode(), False, id="the_longest_edges"
        ),
        pytest.param(json.dumps([[5, 5, 9, 5, 9, 9]] * 3000).encode(), True, id="many_polygons"),
        pytest.param(json.dumps([[5, 5] * 100_000]).encode(), True, id="one_point_over_and_over"),
        pytest.param(rle([1] * 307_200, [480, 640]), True, id="every_other_pixel"),
        pytest.param(rle([0] * 500_000 + [307_200], [480, 640]), True, id="runs_of_0"),
        pytest.param(rle("0" * 1_000_000, [480, 640]), False, id="compressed_runs_of_0"),
        pytest.param(rle("P" * 1_000_000, [480, 640]), False, id="one_endless_number"),
        pytest.param(rle("ooooooO" * 100_000, [480, 640]), False, id="differences_without_end"),
        pytest.param(b"[" * 1_000_000, False, id="depth"),
    ],
)
def test_hostile_input_is_done_with_soon(text, legal):
    began = time.perf_counter()
    try:
        assert decode_text(text, 640, 480).sum() == 640 * 480
        assert legal
    except UnusableError:
        assert not legal
    assert time.perf_counter() - began < 10


@given(hnp.arrays(bool, hnp.array_shapes(min_dims=2, max_dims=2, max_side=5)), st.booleans())
def test_bounds_of_run_lengths_are_those_of_their_pixels(mask, is_compressed):
    counts = (
        coco_mask.encode(np.asfortranarray(mask, np.uint8))["counts"].decode() if is_compressed else run_lengths(mask)
    )
    y, x = np.nonzero(mask)
    expected = (min(x), min(y), max(x) + 1, max(y) + 1) if len(x) else None
    text = json.dumps({"counts": np.array(counts).tolist(), "size": mask.shape}).encode()
    assert run_bounds_px(text) == expected


@pytest.mark.parametrize("text", [b"{", b'{"counts": [4], "size": [-2, -2]}', b'{"counts": [4], "size": [2]}', b"[]"])
def test_no_run_lengths_have_no_bounds(text):
    assert run_bounds_px(text) is None


def test_polygons_in_images_of_more_than_50_million_pixels():
    polygon = [[1, 0, 9, 0, 9, 7999, 5, 8200]]
    runs, narrow = decode(polygon, 8000, 8000), decode(polygon, 10, 8000)  # pycocotools draws the narrow one
    assert runs.tolist() == [*narrow[:-1].tolist(), 8000 * 7990 + int(narrow[-1])]
    with pytest.raises(UnusableError, match="polygons down to 1000000 px in an image of 8000x8000 pixels"):
        decode([[0, 0, 9, 0, 9, 1e6]], 8000, 8000)


@settings(max_examples=200, deadline=None)
@given(POLYGONS)
def test_polygons_that_are_drawn_with_free_rows_below_are_those_of_pycocotools(polygons):
    polygons = [[number for point in polygon for number in point] for polygon in polygons]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode_segmentation, "_MAX_RUNS_OF_6_PX", 1)
        runs = decode(polygons)
    expected = coco_mask.decode(coco_mask.merge(coco_mask.frPyObjects(polygons, HEIGHT, WIDTH)))
    np.testing.assert_array_equal(bitmap(runs, WIDTH, HEIGHT), expected)


@pytest.mark.skipif(not COCO_MINI.exists(), reason="no real data on this machine")
def test_real_annotations_are_as_pycocotools_draws_them():
    import tensorflow as tf

    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(str(COCO_MINI / "instances_train2017.json"))
    assert len(coco.anns) > 600
    for number, annotation in enumerate(coco.anns.values()):
        width, height = (coco.imgs[annotation["image_id"]][side] for side in ("width", "height"))
        expected = coco.annToMask(annotation)
        compressed = compress_segmentation(json.dumps(annotation["segmentation"]).encode(), width, height)
        png = mask_png(decode_counts(compressed, width, height), width, height)
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(png))), expected)
        assert compressed == coco_mask.encode(np.asfortranarray(expected))["counts"]
        if number % 25 == 0 or annotation["iscrowd"]:
            np.testing.assert_array_equal(tf.io.decode_png(png, channels=1).numpy()[:, :, 0], expected)
