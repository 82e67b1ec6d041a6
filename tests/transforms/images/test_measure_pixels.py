import random

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFilter

from recordmill.schemas.statistics import PixelMeasures
from recordmill.transforms.images.measure_pixels import HASH_SIDE, measure_file, measure_pixels, perceptual_hashes
from recordmill.transforms.insight.find_duplicates import NEAR_BITS, bits_set
from recordmill.transforms.sample.draw_scene import encoded


def scene(seed: int, width: int = 320, height: int = 240) -> Image.Image:
    of = random.Random(seed)
    image = Image.new("RGB", (width, height), tuple(of.randrange(256) for _ in range(3)))
    draw = ImageDraw.Draw(image)
    for _ in range(12):
        x, y, size = of.randrange(width), of.randrange(height), of.randrange(20, 120)
        draw.ellipse((x - size, y - size // 2, x + size, y + size // 2), tuple(of.randrange(256) for _ in range(3)))
    return image


def of_jpeg(image: Image.Image) -> PixelMeasures:
    return measure_file(encoded(image, "JPEG", quality=90), "jpeg")


def test_image_without_content_has_no_sharpness():
    grey = measure_pixels(Image.new("L", (300, 200), 77), 300, 200)
    assert grey == PixelMeasures(77, 77, 0.0)
    assert measure_pixels(Image.new("1", (1, 1), 1), 1, 1) == PixelMeasures(255, 255, 0.0)


def test_levels_are_darkest_and_brightest_places():
    image = Image.new("L", (400, 200), 200)
    image.paste(30, (0, 0, 80, 200))
    found = measure_pixels(image, 400, 200)
    assert (found.dark, found.bright) == (30, 200)
    image.paste(200, (0, 0, 72, 200))  # less than 5 % of the pixels are left
    assert measure_pixels(image, 400, 200).dark == 200


@pytest.mark.parametrize("width", [3, 64])
def test_sharpness_is_deviation_of_edges_by_contrast(width):
    levels = np.random.default_rng(1).integers(40, 200, (48, width))
    levels[:2] = 240  # 4 % of them
    found = measure_pixels(Image.fromarray(levels.astype(np.uint8)), width, 48)
    around = np.lib.stride_tricks.sliding_window_view(levels, (3, 3)).sum((2, 3))
    edges = np.clip(9 * levels[1:-1, 1:-1] - around, 0, 255)
    assert found.bright == 240
    assert found.sharpness == pytest.approx(edges.std() / (240 - found.dark))


def test_blur_lowers_sharpness_in_any_light():
    sharp = scene(3)
    blurred = sharp.filter(ImageFilter.GaussianBlur(14))
    dim = [image.point(lambda level: level // 3) for image in (sharp, blurred)]
    for clear, soft in ((sharp, blurred), dim):
        assert of_jpeg(soft).sharpness < 0.15 < of_jpeg(clear).sharpness


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "I"])
@pytest.mark.parametrize("size", [(1, 1), (3, 900), (500, 400)])
def test_every_kind_of_image_can_be_measured(mode, size):
    image = scene(1, *size).convert("I" if mode == "I;16" else mode)
    found = measure_pixels(image.convert(mode) if mode == "I;16" else image, *size)
    assert 0 <= found.dark <= found.bright <= 255


def hashes(*grey: bytes) -> np.ndarray:
    return perceptual_hashes(np.frombuffer(b"".join(grey), np.uint8).reshape(-1, HASH_SIDE, HASH_SIDE))


def of_file(image: Image.Image, quality: int = 90) -> bytes:
    return measure_file(encoded(image, "JPEG", quality=quality), "jpeg").grey


@pytest.mark.parametrize("seed", range(5))
def test_hash_hardly_changes_with_size_and_compression(seed):
    image = scene(seed, 333, 251)
    hashed, *copies = hashes(
        of_file(image),
        of_file(image, quality=60),
        of_file(image.resize((166, 125))),
        of_file(image.resize((666, 502))),
        measure_pixels(image, *image.size).grey,
        measure_pixels(image.quantize(64), *image.size).grey,
        measure_pixels(image.convert("RGBA"), *image.size).grey,
        of_file(image.crop((4, 3, 329, 248))),
    )
    others = hashes(*(of_file(scene(other)) for other in range(100, 130)))
    assert bits_set(copies ^ hashed).max() <= NEAR_BITS < bits_set(others ^ hashed).min()


def test_hash_is_of_lowest_frequencies_lowest_first():
    """By another way: each coefficient as the sum that defines it."""
    grey = np.random.default_rng(3).integers(0, 256, (HASH_SIDE, HASH_SIDE), dtype=np.uint8)
    wave = [[np.cos(np.pi * f * (2 * x + 1) / (2 * HASH_SIDE)) for x in range(HASH_SIDE)] for f in range(9)]
    pairs = sorted(((r, c) for r in range(9) for c in range(9) if r or c), key=lambda pair: (sum(pair), pair))[:64]
    values = [sum(wave[r][y] * wave[c][x] * float(grey[y, x]) for y in range(32) for x in range(32)) for r, c in pairs]
    bits = "".join("1" if value > sorted(values)[31] + 100 else "0" for value in values)
    assert bin(int(hashes(grey.tobytes())[0])) == bin(int(bits, 2))


def test_image_is_hashed_alike_alone_and_among_others():
    greys = [of_file(scene(seed)) for seed in range(7)]
    assert hashes(*greys).tolist() == [int(hashes(grey)[0]) for grey in greys]
    assert all(hashes(*greys) != 0)
    assert hashes().tolist() == []


def test_flat_shape_has_one_hash_in_all_sizes():
    """Half of its frequencies are 0, and noise would decide about them."""
    circle = Image.new("L", (65, 65), 200)
    ImageDraw.Draw(circle).ellipse((8, 8, 56, 56), 90)
    hashed, *copies = hashes(
        measure_pixels(circle, 65, 65).grey,
        *(of_file(circle.resize((side, side)), quality) for side in (33, 65, 130) for quality in (60, 90)),
    )
    assert bits_set(copies ^ hashed).max() <= NEAR_BITS
