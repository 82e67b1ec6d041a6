import numpy as np
import pytest
from PIL import Image

from recordmill.transforms.draw.draw_record import draw_record
from recordmill.transforms.draw.overlay import Layer, Overlay, Shape

RED, BLUE, GROUND = (255, 0, 0), (0, 0, 255), (128, 128, 128)
BOX = (0.25, 0.25, 0.75, 0.75)
GREY = Image.new("RGB", (600, 400), GROUND)


def drawn(overlay: Overlay, picture: Image.Image = GREY, **more) -> np.ndarray:
    return np.asarray(draw_record(picture, overlay, **more))


def count(pixels: np.ndarray, colour: tuple[int, int, int]) -> int:
    return int((pixels == colour).all(axis=-1).sum())


def test_a_picture_without_anything_stays_as_it_is():
    assert (drawn(Overlay((Layer("objects"),))) == GROUND).all()


def test_texts_stand_below_and_the_picture_is_not_covered():
    pixels = drawn(Overlay((Layer("objects"),), ("a.jpg", "a caption")))
    assert (pixels[:400] == GROUND).all()
    assert len(pixels) > 430
    assert pixels[400:].min() < 100


def test_classes_have_patches_of_their_colours_below():
    shapes = (Shape("a", RED, BOX), Shape("b", BLUE, BOX), Shape("a", RED, BOX), Shape("", BLUE, BOX))
    below = drawn(Overlay((Layer("objects", shapes),)))[400:]
    assert count(below, RED) > 50
    assert count(below, BLUE) > 50


def test_layers_stand_side_by_side():
    layers = (Layer("objects", (Shape("a", RED, BOX),)), Layer("panoptic", (Shape("b", BLUE, BOX),)))
    pixels = drawn(Overlay(layers))
    assert pixels.shape[1] == 1208
    left, right = pixels[:400, :600], pixels[:400, 608:]
    assert (count(left, RED) > 0, count(left, BLUE), count(right, RED), count(right, BLUE) > 0) == (True, 0, 0, True)
    assert count(left[380:], (255, 255, 255)) > 20  # its title
    assert count(drawn(Overlay(layers[:1]))[380:400], (255, 255, 255)) == 0  # which one alone has not


def test_a_class_of_two_layers_is_named_once():
    once = drawn(Overlay((Layer("objects", (Shape("a", RED),)), Layer("panoptic"))))[400:]
    twice = drawn(Overlay((Layer("objects", (Shape("a", RED),)), Layer("panoptic", (Shape("a", RED),)))))[400:]
    assert (once == twice).all()
    assert count(once, RED) > 0


def test_many_classes_and_long_texts_need_no_more_than_a_page():
    shapes = tuple(Shape(f"class {number} " + "x" * 300, RED, BOX) for number in range(500))
    overlay = Overlay((Layer("objects", shapes),), ("y" * 300, "a word " * 2000))
    assert drawn(overlay).shape[0] < 1200


@pytest.mark.parametrize("text", ["שלום עולם", "猫" * 40, "\x1b[2J\x00", "🦊", "", "​"])
def test_any_text_can_be_drawn(text):
    overlay = Overlay((Layer("objects", (Shape(text, RED, BOX),)),), (text, text))
    assert drawn(overlay).shape[1] == 600


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16"])
def test_pictures_of_every_mode(mode):
    assert drawn(Overlay((Layer("objects"),), ("a",)), Image.new(mode, (60, 40))).shape[1] == 480


def test_16_bits_are_not_all_white():
    picture = Image.fromarray(np.full((40, 60), 0x8000, np.uint16))
    assert drawn(Overlay((Layer("objects"),)), picture)[0, 0].tolist() == [128, 128, 128]


def test_the_side_that_is_asked_for():
    assert drawn(Overlay((Layer("objects"),)), side=100).shape == (67, 320, 3)  # as wide as texts want it
