import numpy as np
import pytest
from PIL import Image

from recordmill.transforms.insight.draw_record import (
    _depth_labels,
    draw_depth,
    draw_problem,
    draw_record,
    draw_shapes,
    drawing_size,
    find_middle,
)
from recordmill.transforms.insight.overlay import Layer, Overlay, Shape, class_colour, text_colour

RED, BLUE, GROUND = (255, 0, 0), (0, 0, 255), (128, 128, 128)


def drawn(*shapes: Shape, size: tuple[int, int] = (600, 400), names: bool = False, **more) -> np.ndarray:
    return np.asarray(draw_shapes(Image.new("RGB", size, GROUND), shapes, names=names, **more))


def is_colour(pixels: np.ndarray, colour: tuple[int, int, int]) -> np.ndarray:
    return (pixels == colour).all(axis=-1)


@pytest.mark.parametrize(
    ("box", "low", "high"),
    [
        ((0.25, 0.5, 0.75, 1.0), [100, 300], [299, 599]),
        ((-1.0, -1.0, 2.0, 0.5), [0, 0], [399, 299]),  # beyond the image
    ],
)
def test_box_has_its_edges_where_its_fractions_say(box, low, high):
    pixels = drawn(Shape("a", RED, box))
    edges = np.argwhere(is_colour(pixels, RED))
    assert (edges.min(axis=0).tolist(), edges.max(axis=0).tolist()) == (low, high)
    assert pixels[150, 450].tolist() == list(GROUND)  # within a box nothing is covered
    assert is_colour(drawn(Shape("a", RED, (0.5, 0.5, 0.5, 0.5))), RED).any()  # without area


def test_a_crowd_is_dashed():
    whole, dashed = (
        is_colour(drawn(Shape("a", RED, (0.25, 0.25, 0.75, 0.75), is_crowd=crowd)), RED).sum() for crowd in (0, 1)
    )
    assert 0.4 * whole < dashed < 0.7 * whole


def test_mask_tints_its_pixels_and_has_outline():
    mask = np.zeros((400, 600), bool)
    mask[100:200, 300:500] = True
    pixels = drawn(Shape("a", RED, mask=mask))
    assert pixels[100, 400].tolist() == pixels[199, 300].tolist() == list(RED)
    assert pixels[150, 400].tolist() == [185, 70, 70]
    assert (pixels[~mask] == GROUND).all()


def test_of_masks_that_overlap_smallest_shows():
    small, large = np.zeros((2, 400, 600), bool)
    small[100:200, 300:400] = large[50:350, 50:550] = True
    for shapes in [(small, RED), (large, BLUE)], [(large, BLUE), (small, RED)]:
        pixels = drawn(*(Shape("", colour, mask=mask) for mask, colour in shapes))
        assert pixels[150, 350].tolist() == [185, 70, 70]
        assert pixels[250, 350].tolist() == [70, 70, 185]


def test_mask_of_another_size_is_stretched_over_image():
    pixels = drawn(Shape("a", RED, mask=np.array([[False, True]])))
    assert (pixels[200, 299].tolist(), pixels[200, 450].tolist()) == (list(GROUND), [185, 70, 70])


def test_keypoints_are_joined_where_both_are_labelled():
    points = ((0.25, 0.5, 2), (0.75, 0.5, 1), (0.5, 0.25, 0))
    pixels = drawn(Shape("a", RED, keypoints=points, skeleton=((1, 2), (1, 3), (2, 9))))
    assert pixels[200, 300].tolist() == list(RED)  # between the first two
    assert pixels[100, 300].tolist() == list(GROUND)  # the third is not labelled
    assert pixels[150, 225].tolist() == list(GROUND)  # nor is there a line to it
    assert pixels[200, 150].tolist() == list(RED)
    assert pixels[200, 450].tolist() == [255, 255, 255]  # hidden, so hollow


def test_names_do_not_overlap():
    box = (0.25, 0.25, 0.75, 0.75)
    tags = is_colour(drawn(Shape("aaa", RED, box), names=True)[:97], RED)
    assert tags.any()
    two = drawn(Shape("aaa", RED, box), Shape("aaa", BLUE, box), names=True)
    assert min(is_colour(two, colour).sum() for colour in (RED, BLUE)) > 200
    assert not is_colour(drawn(Shape("aaa", RED, box))[:97], RED).any()


def test_no_name_reaches_out_of_image():
    shapes = [Shape("n" * 300, RED, (y, x, y + 0.01, x + 0.01)) for y in (0.0, 0.99) for x in (0.0, 0.99)]
    assert drawn(*shapes, size=(16, 16), names=True).shape == (512, 512, 3)


@pytest.mark.parametrize(
    ("size", "side", "expected"),
    [
        ((600, 400), 300, (300, 200)),
        ((100, 80), 300, (300, 240)),
        ((1, 1), 1024, (512, 512)),
        ((1, 3000), 1024, (1, 1024)),
        ((20000, 3), 1024, (1024, 1)),
    ],
)
def test_images_of_any_shape_are_drawn(size, side, expected):
    shape = Shape("a", RED, (0.0, 0.0, 1.0, 1.0), np.ones(size[::-1], bool))
    assert drawn(shape, size=size, names=True, side=side).shape == (*expected[::-1], 3)
    assert drawing_size(*size, side) == expected


def test_region_has_its_name_within_it():
    mask = np.zeros((400, 600), bool)
    mask[100:300, 200:400] = True
    tag = np.argwhere(is_colour(drawn(Shape("aaa", RED, mask=mask), names=True)[110:290, 210:390], RED))
    assert np.abs((tag.min(axis=0) + tag.max(axis=0)) / 2 - (89.5, 89.5)).max() < 3
    mask = np.zeros((10, 12), bool)
    mask[2:5, :] = mask[:, 3] = True
    x, y = find_middle(mask)
    assert mask[y, x]
    ring = np.ones((9, 9), bool)
    ring[3:6, 3:6] = False
    x, y = find_middle(ring)
    assert ring[y, x]


def test_colours_of_neighbouring_classes_differ():
    colours = np.array([class_colour(index) for index in range(80)])
    apart = np.abs(colours[:, None] - colours[None]).sum(axis=-1) + 765 * np.eye(80, dtype=int)
    assert len({tuple(colour) for colour in colours.tolist()}) == 80
    assert min(apart[index, index + 1] for index in range(79)) > 150


def test_ink_reads_on_every_colour():
    for index in range(80):
        colour = class_colour(index)
        light, dark = sorted((_luminance(colour), _luminance(text_colour(colour))), reverse=True)
        assert (light + 0.05) / (dark + 0.05) > 4.3


def _luminance(colour: tuple[int, int, int]) -> float:
    red, green, blue = (
        channel / 3294.6 if channel <= 10 else ((channel / 255 + 0.055) / 1.055) ** 2.4 for channel in colour
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


BOX = (0.25, 0.25, 0.75, 0.75)
GREY = Image.new("RGB", (600, 400), GROUND)


def drawn_record(overlay: Overlay, image: Image.Image = GREY, **more) -> np.ndarray:
    return np.asarray(draw_record(image, overlay, **more))


def test_texts_stand_below_and_image_is_not_covered():
    assert (drawn_record(Overlay((Layer("objects"),))) == GROUND).all()
    pixels = drawn_record(Overlay((Layer("objects"),), ("a.jpg", "a caption")))
    assert (pixels[:400] == GROUND).all()
    assert len(pixels) > 430
    assert pixels[400:].min() < 100


def test_classes_have_patches_of_their_colours_below():
    shapes = (Shape("a", RED, BOX), Shape("b", BLUE, BOX), Shape("a", RED, BOX), Shape("", BLUE, BOX))
    below = drawn_record(Overlay((Layer("objects", shapes),)))[400:]
    assert is_colour(below, RED).sum() > 50
    assert is_colour(below, BLUE).sum() > 50


def test_a_patch_stands_apart_from_the_name_before_it():
    shapes = (Shape("a long name", RED, BOX), Shape("b", BLUE, BOX))
    below = drawn_record(Overlay((Layer("objects", shapes),)))[400:]
    patch = np.flatnonzero(is_colour(below, BLUE).any(axis=0)).min()
    ink = np.flatnonzero((below[:, :patch].max(axis=2) < 100).any(axis=0))
    assert patch - ink.max() > 5


def test_layers_stand_side_by_side():
    layers = (Layer("objects", (Shape("a", RED, BOX),)), Layer("panoptic", (Shape("b", BLUE, BOX),)))
    pixels = drawn_record(Overlay(layers))
    assert pixels.shape[1] == 1208
    left, right = pixels[:400, :600], pixels[:400, 608:]
    assert [bool(is_colour(left, colour).any()) for colour in (RED, BLUE)] == [True, False]
    assert [bool(is_colour(right, colour).any()) for colour in (RED, BLUE)] == [False, True]
    assert is_colour(left[380:], (255, 255, 255)).sum() > 20  # its title
    assert not is_colour(drawn_record(Overlay(layers[:1]))[380:400], (255, 255, 255)).any()  # which one alone has not


def test_depths_have_the_colours_of_their_legend():
    """Least, middle and largest depth; unknown pixels are black, whatever the depths are."""
    drawing = np.asarray(draw_depth(np.float32([[0, 2], [5, 8]])))
    assert drawing.tolist() == [[[0, 0, 0], [253, 231, 37]], [[33, 145, 140], [68, 1, 84]]]
    depth_m = np.float32([[0, 2, 5, 8]])
    assert list(_depth_labels(depth_m)) == [
        ("2 m", (253, 231, 37)),
        ("3.5 m", (94, 201, 98)),
        ("5 m", (33, 145, 140)),
        ("6.5 m", (59, 82, 139)),
        ("8 m", (68, 1, 84)),
        ("unknown 25%", (0, 0, 0)),
    ]
    assert list(_depth_labels(np.zeros((2, 2), np.float32))) == [("unknown 100%", (0, 0, 0))]
    assert list(_depth_labels(np.full((2, 2), 3, np.float32))) == [("3 m", (253, 231, 37))]


def test_depth_is_drawn_in_place_of_its_image():
    depth = Layer("depth", depth_m=np.repeat(np.float32([[1, 3]]), 40, axis=0).repeat(30, axis=1))
    drawn = np.asarray(draw_record(Image.new("RGB", (60, 40), (9, 9, 9)), Overlay((Layer("semantic"), depth)), side=60))
    assert drawn[10, 5].tolist() == [9, 9, 9]
    assert drawn[10, 60 + 8 + 5].tolist() == [253, 231, 37]
    assert drawn[10, 60 + 8 + 55].tolist() == [68, 1, 84]


def test_class_of_two_layers_is_named_once():
    once = drawn_record(Overlay((Layer("objects", (Shape("a", RED),)), Layer("panoptic"))))[400:]
    twice = drawn_record(Overlay((Layer("objects", (Shape("a", RED),)), Layer("panoptic", (Shape("a", RED),)))))[400:]
    assert (once == twice).all()
    assert is_colour(once, RED).any()


def test_many_classes_and_long_texts_need_no_more_than_page():
    shapes = tuple(Shape(f"class {number} " + "x" * 300, RED, BOX) for number in range(500))
    overlay = Overlay((Layer("objects", shapes),), ("y" * 300, "a word " * 2000))
    assert drawn_record(overlay).shape[0] < 1200


@pytest.mark.parametrize("text", ["שלום עולם", "猫" * 40, "\x1b[2J\x00", "🦊", "", "​"])
def test_any_text_can_be_drawn(text):
    overlay = Overlay((Layer("objects", (Shape(text, RED, BOX),)),), (text, text))
    assert drawn_record(overlay).shape[1] == 600


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16"])
def test_images_of_every_mode(mode):
    image = Image.new(mode, (60, 40))
    before = image.tobytes()
    assert drawn_record(Overlay((Layer("objects", (Shape("a", RED, BOX),)),), ("a",)), image).shape[1] == 480
    assert image.tobytes() == before


def test_16_bits_are_not_all_white():
    image = Image.fromarray(np.full((40, 60), 0x8000, np.uint16))
    assert drawn_record(Overlay((Layer("objects"),)), image)[0, 0].tolist() == [128, 128, 128]


def test_the_side_that_is_asked_for():
    assert drawn_record(Overlay((Layer("objects"),)), side=100).shape == (67, 320, 3)  # as wide as texts want it


GOOD = Shape("cat", (0, 255, 0), (0.1, 0.1, 0.4, 0.4), np.ones((400, 600), bool))
THIN = Shape("cat", (0, 255, 0), (0.5, 0.5, 0.502, 0.7), np.ones((400, 600), bool))
MARK = (255, 0, 60)


def test_outlines_leave_image_visible():
    pixels = np.asarray(draw_problem(GREY, [GOOD, THIN], [], 600))
    assert 400 < is_colour(pixels, GOOD.colour).sum() == (pixels != GROUND).any(axis=-1).sum() < 0.02 * 600 * 400


def test_suspicious_box_is_marked_among_good_ones():
    pixels = np.asarray(draw_problem(GREY, [GOOD, THIN], [1], 600))
    assert not is_colour(pixels, GOOD.colour).any()
    rows, _ = np.nonzero(is_colour(pixels, MARK))
    assert 15 < rows.max() - rows.min() < 40  # a ring around a box of 1 pixel
