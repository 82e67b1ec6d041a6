"""Draw scenes for the sample data set. Each object is drawn with the same call into the image and into a map of object
numbers. All annotations are computed from that map, so they are exact."""

import io
import math
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.rejects import Reason
from recordmill.transforms.images.masks import run_lengths

Points = list[tuple[float, float]]

# With gaps between the ids, as in COCO.
THINGS = (
    Category(1, "circle", "round"),
    Category(2, "square", "angular"),
    Category(4, "triangle", "angular"),
    Category(7, "star", "angular"),
    Category(11, "figure", "person"),
)
STUFF = (Category(92, "sky", "outdoor"), Category(95, "ground", "outdoor"))
KEYPOINTS = ("head", "left_hand", "right_hand", "left_foot", "right_foot")
SKELETON = ((1, 2), (1, 3), (1, 4), (1, 5))

_COLOURS = {
    "red": (214, 57, 49),
    "blue": (48, 96, 200),
    "green": (46, 150, 78),
    "yellow": (236, 190, 50),
    "white": (245, 245, 240),
}

_SKY, _GROUND = (150, 190, 220), (150, 130, 100)


class Thing(NamedTuple):
    """An object of a scene.

    Attributes:
        keypoints: x, y in pixels of a figure's KEYPOINTS. They may be outside the image.
    """

    category: Category
    colour: str
    is_crowd: bool
    keypoints: Sequence[tuple[int, int]] = ()


class Scene(NamedTuple):
    """A drawn image.

    Attributes:
        image: The image.
        numbers: int32 [height, width]: 1 for sky, 2 for ground, 3 + n for things[n].
    """

    image: Image.Image
    numbers: np.ndarray
    things: list[Thing]


def draw_scene(rng: random.Random, width: int, height: int, things: int, crowd: bool, grey: bool) -> Scene:
    """Return a scene of `things` objects in front of sky and ground. Later objects cover earlier ones."""
    image, numbers = Image.new("RGB", (width, height)), Image.new("I", (width, height))
    pens = ImageDraw.Draw(image), ImageDraw.Draw(numbers)
    horizon = int(height * rng.uniform(0.4, 0.7))
    _Brush(*pens, _SKY, 1).draw("rectangle", (0, 0, width, horizon))
    _Brush(*pens, _GROUND, 2).draw("rectangle", (0, horizon, width, height))
    drawn = []
    for index in range(things):
        category, colour = rng.choice(THINGS), rng.choice(list(_COLOURS))
        size = int(min(width, height) * rng.uniform(0.15, 0.4))
        # Some cross the image's edge, like real objects.
        x, y = rng.randint(-size // 4, width - size), rng.randint(-size // 4, height - size)
        brush = _Brush(*pens, _COLOURS[colour], index + 3)
        if crowd and index == 0:
            category = THINGS[0]
            for _ in range(12):
                spot = x + rng.randint(0, size), y + rng.randint(0, size)
                brush.draw("ellipse", (*spot, spot[0] + size // 4, spot[1] + size // 4))
            drawn.append(Thing(category, colour, True))
        elif category.name == "figure":
            points = _draw_figure(brush, x, y, size)
            drawn.append(Thing(category, colour, False, points))
        else:
            _draw_shape(brush, category.name, x, y, size)
            drawn.append(Thing(category, colour, False))
    return Scene(image.convert("L") if grey else image, np.asarray(numbers, np.int32), drawn)


class _Brush(NamedTuple):
    """Brush that draws on the image in a colour, and on the map of objects with a number."""

    image: ImageDraw.ImageDraw
    numbers: ImageDraw.ImageDraw
    colour: tuple[int, int, int]
    number: int

    def draw(self, shape: str, position: object, **kwargs: int) -> None:
        getattr(self.image, shape)(position, fill=self.colour, **kwargs)
        getattr(self.numbers, shape)(position, fill=self.number, **kwargs)


def _draw_shape(brush: _Brush, name: str, x: int, y: int, size: int) -> None:
    if name == "circle":
        brush.draw("ellipse", (x, y, x + size, y + size))
    elif name == "square":
        brush.draw("rectangle", (x, y, x + size, y + size))
    else:
        triangle = [(x + size / 2, y), (x + size, y + size), (x, y + size)]
        brush.draw("polygon", triangle if name == "triangle" else _star(x, y, size))


def _star(x: int, y: int, size: int) -> Points:
    centre, radius = (x + size / 2, y + size / 2), size / 2
    tips = ((index, radius if index % 2 == 0 else radius * 0.4) for index in range(10))
    return [
        (centre[0] + r * math.sin(index * math.pi / 5), centre[1] - r * math.cos(index * math.pi / 5))
        for index, r in tips
    ]


def _draw_figure(brush: _Brush, x: int, y: int, size: int) -> list[tuple[int, int]]:
    """Draw a stick figure; return its KEYPOINTS' x, y."""
    head = (x + size // 2, y + size // 8)
    neck, hip = (head[0], y + size // 4), (head[0], y + size * 5 // 8)
    hands = (x, y + size // 3), (x + size, y + size // 3)
    feet = (x + size // 8, y + size), (x + size * 7 // 8, y + size)
    limb = max(3, size // 10)
    for line in ((neck, hip), *((neck, hand) for hand in hands), *((hip, foot) for foot in feet)):
        brush.draw("line", line, width=limb)
    radius = size // 8
    brush.draw("ellipse", (head[0] - radius, head[1] - radius, head[0] + radius, head[1] + radius))
    return [head, *hands, *feet]


def object_mask(scene: Scene, number: int) -> np.ndarray:
    """Return the visible pixels of an object: bool [height, width]."""
    return scene.numbers == number


def bounding_box(mask: np.ndarray) -> list[int]:
    """Return x, y, width, height in pixels of the bounding box of a mask that is not empty."""
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    x, y = int(columns[0]), int(rows[0])
    return [x, y, int(columns[-1]) - x + 1, int(rows[-1]) - y + 1]


def encode_run_lengths(mask: np.ndarray) -> dict[str, list[int]]:
    """Return COCO's uncompressed run lengths: down the columns, zeros first.

    >>> encode_run_lengths(np.array([[False, True], [True, True]]))
    {'counts': [1, 3], 'size': [2, 2]}
    """
    return {"counts": run_lengths(mask).tolist(), "size": list(mask.shape)}


PASSED = "as it is"


class OddImage(NamedTuple):
    """An image file, and the expected outcome of its conversion.

    Attributes:
        name: Name of the file.
        becomes: PASSED, `jpeg` or `png` if it is transcoded, or its reject reason.
        width, height: Size in pixels in the JSON.
    """

    name: str
    data: bytes
    becomes: str
    width: int
    height: int


def draw_odd(scene: Image.Image) -> Iterator[OddImage]:  # long, as one table of all forms is read more easily
    """Yield `scene` (RGB, wider than high) in every unusual form."""
    width, height = scene.size
    grey = np.asarray(scene.convert("L"))
    deep = Image.fromarray(grey.astype(np.uint16) * 257)
    veil = np.dstack([np.asarray(scene), grey // 2 + 60])
    jpeg = encoded(scene, "JPEG", quality=90)
    png = encoded(scene, "PNG")
    for name, data, becomes in (
        ("progressive.jpg", encoded(scene, "JPEG", progressive=True), PASSED),
        ("cmyk.jpg", encoded(scene.convert("CMYK"), "JPEG"), PASSED),
        ("several.mpo", encoded(scene, "MPO", save_all=True, append_images=[scene]), PASSED),
        ("exif-not-meant.jpg", encoded(scene, "JPEG", exif=_exif(6)), PASSED),
        ("film-after-its-end.jpg", jpeg + b"\x00\x00\x00\x18ftypmp42", PASSED),
        ("a-png-really.jpg", png, PASSED),
        ("a-jpeg-really.png", jpeg, PASSED),
        ("palette.png", encoded(scene.quantize(16), "PNG"), PASSED),
        ("see-through.png", encoded(Image.fromarray(veil), "PNG"), PASSED),
        ("sixteen-bits.png", encoded(deep, "PNG"), PASSED),
        ("one-bit.png", encoded(scene.convert("1"), "PNG"), PASSED),
        ("moving.png", encoded(scene, "PNG", save_all=True, append_images=[scene.rotate(9)]), PASSED),
        ("picture.webp", encoded(scene, "WEBP", quality=95), "jpeg"),
        ("see-through.webp", encoded(Image.fromarray(veil), "WEBP", lossless=True), "png"),
        ("moving.webp", encoded(scene, "WEBP", save_all=True, append_images=[scene.rotate(9)]), "jpeg"),
        ("picture.gif", encoded(scene, "GIF"), "jpeg"),
        ("moving.gif", encoded(scene, "GIF", save_all=True, append_images=[scene.rotate(9)]), "jpeg"),
        ("picture.bmp", encoded(scene, "BMP"), "jpeg"),
        ("one-bit.bmp", encoded(scene.convert("1"), "BMP"), "jpeg"),
        ("picture.tif", encoded(scene, "TIFF"), "jpeg"),
        ("cmyk.tif", encoded(scene.convert("CMYK"), "TIFF"), "jpeg"),
        ("sixteen-bits.tif", encoded(deep, "TIFF"), "png"),
        ("picture.ppm", encoded(scene, "PPM"), "jpeg"),
        ("picture.jp2", encoded(scene, "JPEG2000"), "jpeg"),
        ("floats.tif", encoded(Image.fromarray(grey.astype(np.float32)), "TIFF"), Reason.UNSUPPORTED_FORMAT.value),
        ("icon.ico", encoded(scene, "ICO"), Reason.UNSUPPORTED_FORMAT.value),
        ("page.jpg", b"<!doctype html><title>404</title><script>alert(1)</script>", Reason.UNSUPPORTED_FORMAT.value),
        ("nothing.jpg", b"", Reason.IMAGE_UNREADABLE.value),
        ("cut.jpg", jpeg[: len(jpeg) // 2], Reason.IMAGE_UNREADABLE.value),
        ("cut.png", png[: len(png) // 2], Reason.IMAGE_UNREADABLE.value),
        ("flipped.png", _with_flipped_bit(png, b"IDAT", 40), Reason.IMAGE_UNREADABLE.value),
        ("twelve-bits.jpg", _with_flipped_bit(jpeg, b"\xff\xc0", 4), Reason.IMAGE_UNREADABLE.value),
        ("marker-in-the-scan.jpg", _with_marker_in_scan(jpeg), Reason.IMAGE_UNREADABLE.value),
    ):
        yield OddImage(name, data, becomes, width, height)
    # Stored on its side, as cameras do. The JSON has the upright size, as viewers show it.
    lying = scene.transpose(Image.Transpose.ROTATE_90)
    yield OddImage("upright.jpg", encoded(lying, "JPEG", exif=_exif(6)), "jpeg", width, height)
    yield OddImage("smaller.jpg", jpeg, Reason.SIZE_MISMATCH.value, width // 2, height // 2)


def encoded(image: Image.Image, format_: str, **how) -> bytes:
    """Return an image encoded in one of Pillow's formats."""
    stream = io.BytesIO()
    image.save(stream, format_, **how)
    return stream.getvalue()


def _exif(orientation: int) -> Image.Exif:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags


def _with_flipped_bit(data: bytes, mark: bytes, offset: int) -> bytes:
    """Flip a bit: in the compressed pixels of a PNG, or in a JPEG's precision, from 8 to 12 bits."""
    offset += data.index(mark)
    return data[:offset] + bytes((data[offset] ^ 4,)) + data[offset + 1 :]


def _with_marker_in_scan(jpeg: bytes) -> bytes:
    offset = jpeg.index(b"\xff\xda") + 100
    return jpeg[:offset] + b"\xff\x30" + jpeg[offset + 2 :]
