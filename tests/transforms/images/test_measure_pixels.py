import io
import random

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFilter

from recordmill.schemas.statistics import PixelMeasures
from recordmill.transforms.images.measure_pixels import measure_file, measure_pixels


def scene(seed: int, width: int = 320, height: int = 240) -> Image.Image:
    of = random.Random(seed)
    image = Image.new("RGB", (width, height), tuple(of.randrange(256) for _ in range(3)))
    draw = ImageDraw.Draw(image)
    for _ in range(12):
        x, y, size = of.randrange(width), of.randrange(height), of.randrange(20, 120)
        draw.ellipse((x - size, y - size // 2, x + size, y + size // 2), tuple(of.randrange(256) for _ in range(3)))
    return image


def of_jpeg(image: Image.Image) -> PixelMeasures:
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=90)
    return measure_file(stream.getvalue(), "jpeg")


def test_a_picture_without_content_has_no_sharpness():
    grey = measure_pixels(Image.new("L", (300, 200), 77), 300, 200)
    assert grey == PixelMeasures(77, 77, 0.0)
    assert measure_pixels(Image.new("1", (1, 1), 1), 1, 1) == PixelMeasures(255, 255, 0.0)


def test_levels_are_those_of_the_darkest_and_the_brightest_places():
    picture = Image.new("L", (400, 200), 200)
    picture.paste(30, (0, 0, 80, 200))
    found = measure_pixels(picture, 400, 200)
    assert (found.dark, found.bright) == (30, 200)
    picture.paste(200, (0, 0, 72, 200))  # less than 5 % of the pixels are left
    assert measure_pixels(picture, 400, 200).dark == 200


def test_sharpness_is_the_deviation_of_edges_by_contrast():
    levels = np.random.default_rng(1).integers(40, 200, (48, 64))
    levels[:2] = 240  # 4 % of them
    found = measure_pixels(Image.fromarray(levels.astype(np.uint8)), 64, 48)
    around = np.lib.stride_tricks.sliding_window_view(levels, (3, 3)).sum((2, 3))
    edges = np.clip(9 * levels[1:-1, 1:-1] - around, 0, 255)
    assert found.bright == 240
    assert found.sharpness == pytest.approx(edges.std() / (240 - found.dark))


def test_a_blurred_picture_is_less_sharp_whatever_its_light():
    sharp = scene(3)
    blurred = sharp.filter(ImageFilter.GaussianBlur(14))
    dim = [picture.point(lambda level: level // 3) for picture in (sharp, blurred)]
    for clear, soft in ((sharp, blurred), dim):
        assert of_jpeg(soft).sharpness < 0.15 < of_jpeg(clear).sharpness


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "I"])
@pytest.mark.parametrize("size", [(1, 1), (3, 900), (500, 400)])
def test_every_kind_of_picture_can_be_measured(mode, size):
    picture = scene(1, *size).convert("I" if mode == "I;16" else mode)
    found = measure_pixels(picture.convert(mode) if mode == "I;16" else picture, *size)
    assert 0 <= found.dark <= found.bright <= 255
