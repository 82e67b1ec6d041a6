"""Draw a record: annotations over the image, classes and texts below. Also draw thumbnails of possible problems, with
thin outlines and marks on the suspicious boxes."""

import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from textwrap import wrap

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from recordmill.transforms.images.masks import resize_nearest
from recordmill.transforms.images.open_image import convert_for_jpeg
from recordmill.transforms.insight.charts import format_percent
from recordmill.transforms.insight.overlay import Colour, Overlay, Shape, text_colour

SIDE = 1024
"""Default for the maximum of the longer side of a drawn image, in pixels."""
_LEAST_SIDE = 512
"""Smaller images are enlarged by an integer factor up to this side, in pixels. Otherwise names would cover them."""
_HALO = (0, 0, 0)
_MASK_WEIGHT = 0.45
_LONGEST_NAME = 24
_FULL = 0.9
_LEAST_REGION = 0.004
"""Minimum share of the image for a region with a name."""

_NO_CHARACTER = "\uffff"
_LIKE = str.maketrans(
    {"‐": "-", "–": "-", "—": "-", "‘": "'", "’": "'", "ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d"}
)
"""Letters that Unicode does not decompose."""

_Box = tuple[float, float, float, float]  # left, top, right, bottom in pixels

_MARK, _OTHER = (255, 0, 60), (225, 225, 225)
_SMALL_PX = 24
_RING_PX = 10


def drawing_size(width: int, height: int, side: int = SIDE) -> tuple[int, int]:
    """Return the size in pixels at which an image of `width` x `height` pixels is drawn.

    >>> drawing_size(640, 480), drawing_size(4000, 3000), drawing_size(32, 16)
    ((640, 480), (1024, 768), (512, 256))
    """
    longest = max(width, height)
    scale: float = max(1, min(side, _LEAST_SIDE) // longest) if longest <= side else side / longest
    return max(1, round(width * scale)), max(1, round(height * scale))


def draw_shapes(image: Image.Image, shapes: Sequence[Shape], side: int = SIDE, names: bool = True) -> Image.Image:
    """Return a copy of an image with drawn shapes.

    Args:
        image: Image of any size and mode.
        side: Maximum of the longer side of the result, in pixels.
        names: True to draw the names of boxes and regions.

    Returns:
        RGB image of `drawing_size`.
    """
    size = drawing_size(*image.size, side)
    resampling = Image.Resampling.NEAREST if size[0] > image.width else Image.Resampling.LANCZOS
    drawing = image.convert("RGB").resize(size, resampling)  # resize() copies even at the same size
    drawing = _draw_masks(drawing, shapes)
    pen = ImageDraw.Draw(drawing)
    line = max(2, max(size) // 320)
    for shape in sorted(shapes, key=_box_area, reverse=True):
        if shape.box_yxyx_frac is not None:
            _draw_box(pen, _box_px(shape, size), shape, line)
    for shape in shapes:
        _draw_keypoints(pen, shape, size, line)
    if names:
        _draw_names(pen, shapes, size, line)
    return drawing


def _box_area(shape: Shape) -> float:
    if shape.box_yxyx_frac is None:
        return 0.0
    ymin, xmin, ymax, xmax = shape.box_yxyx_frac
    return (ymax - ymin) * (xmax - xmin)


def _box_px(shape: Shape, size: tuple[int, int]) -> _Box:
    """Return a box's outermost pixels, clipped to the image."""
    assert shape.box_yxyx_frac is not None
    ymin, xmin, ymax, xmax = shape.box_yxyx_frac
    left, right = (min(max(x * size[0], 0), size[0]) for x in (xmin, xmax))
    top, bottom = (min(max(y * size[1], 0), size[1]) for y in (ymin, ymax))
    return left, top, max(left, right - 1), max(top, bottom - 1)


def _draw_masks(drawing: Image.Image, shapes: Sequence[Shape]) -> Image.Image:
    """Tint and outline masks; the smallest is on top."""
    masks = [(shape.colour, resize_nearest(shape.mask, *drawing.size)) for shape in shapes if shape.mask is not None]
    if not masks:
        return drawing
    masks.sort(key=lambda colour_mask: -int(colour_mask[1].sum()))
    pixels = np.asarray(drawing).astype(np.float32)
    tint, weight = np.zeros_like(pixels), np.zeros((*pixels.shape[:2], 1), np.float32)
    for colour, mask in masks:
        tint[mask], weight[mask] = colour, _MASK_WEIGHT
        weight[mask & ~_inner_pixels(mask)] = 1
    return Image.fromarray(np.round((1 - weight) * pixels + weight * tint).astype(np.uint8))


def _inner_pixels(mask: np.ndarray) -> np.ndarray:
    """Return the pixels of a mask whose 4 neighbours are in the mask. Pixels outside the image count as in the mask."""
    around = np.pad(mask, 1, constant_values=True)
    inner = around[:-2, 1:-1] & around[2:, 1:-1] & around[1:-1, :-2] & around[1:-1, 2:]
    return np.asarray(inner & mask)


def _draw_box(pen: ImageDraw.ImageDraw, box: _Box, shape: Shape, line: int) -> None:
    """Draw a box in the colour of its class, with a dark edge for bright backgrounds. Crowds are dashed."""
    left, top, right, bottom = map(round, box)
    pen.rectangle((left - 1, top - 1, right + 1, bottom + 1), outline=_HALO)
    if not shape.is_crowd:
        pen.rectangle((left, top, right, bottom), outline=shape.colour, width=line)
        return
    dash = 4 * line
    for start in range(left, right + 1, 2 * dash):
        for y in (top, bottom - line + 1):
            pen.rectangle((start, y, min(start + dash, right), y + line - 1), fill=shape.colour)
    for start in range(top, bottom + 1, 2 * dash):
        for x in (left, right - line + 1):
            pen.rectangle((x, start, x + line - 1, min(start + dash, bottom)), fill=shape.colour)


def _draw_keypoints(pen: ImageDraw.ImageDraw, shape: Shape, size: tuple[int, int], line: int) -> None:
    """Draw keypoints, joined by the skeleton. Hidden keypoints are hollow."""
    points = [(x * size[0], y * size[1]) for x, y, _ in shape.keypoints]
    seen = [visibility > 0 for _, _, visibility in shape.keypoints]
    joined = [
        (points[one - 1], points[other - 1])
        for one, other in shape.skeleton
        if min(one, other) > 0 and max(one, other) <= len(points) and seen[one - 1] and seen[other - 1]
    ]
    for width, colour in ((line + 2, _HALO), (line, shape.colour)):
        for ends in joined:
            pen.line(ends, fill=colour, width=width)
    for (x, y), (_, _, visibility) in zip(points, shape.keypoints, strict=True):
        if visibility > 0:
            fill = shape.colour if visibility > 1 else (255, 255, 255)
            pen.circle((x, y), 1.5 * line + 1, fill=_HALO)
            pen.circle((x, y), 1.5 * line, fill=fill, outline=shape.colour, width=max(1, line // 2))


def _draw_names(pen: ImageDraw.ImageDraw, shapes: Sequence[Shape], size: tuple[int, int], line: int) -> None:
    """Draw names where there is space. A name that would cover another name is skipped."""
    letters = font(max(12, max(size) // 45))
    tags: list[_Box] = []
    for shape in sorted(shapes, key=_box_area):
        text = shorten_name(replace_missing_glyphs(shape.name))
        if not text:
            continue
        left, top, right, bottom = letters.getbbox(text)
        width, height = right - left + 6, bottom - top + 6
        for x, y in _name_positions(shape, size, width, height, line):
            tag = x, y, x + width - 1, y + height - 1
            if not any(_overlap(tag, other) for other in tags):
                pen.rectangle(tag, fill=shape.colour)
                pen.text((x + 3 - left, y + 3 - top), text, fill=text_colour(shape.colour), font=letters)
                tags.append(tag)
                break


def _name_positions(
    shape: Shape, size: tuple[int, int], width: float, height: float, line: int
) -> Iterator[tuple[float, float]]:
    """Yield positions for a name of `width` x `height` pixels: above, inside, below a box; middle of a region."""
    if shape.box_yxyx_frac is not None:
        left, top, right, bottom = _box_px(shape, size)
        corners = [
            (left, top - height),
            (left, top + line),
            (right - width + 1, top + line),
            (left, bottom + 1),
            (left + line, bottom - height - line),
            (right - width + 1, bottom - height - line),
        ]
    elif shape.mask is not None and shape.mask.mean() > _LEAST_REGION:
        middle = find_middle(resize_nearest(shape.mask, *size))
        corners = [(middle[0] - width / 2, middle[1] - height / 2)]
    else:
        return
    for x, y in corners:
        inside = min(max(0, x), size[0] - width), min(max(0, y), size[1] - height)
        yield max(0, round(inside[0])), max(0, round(inside[1]))


def find_middle(mask: np.ndarray) -> tuple[int, int]:
    """Return x and y of a pixel near the middle of a mask: of the rows with the most pixels take the middle row, and
    there the middle of the longest run."""
    sums = mask.sum(axis=1)
    full = np.flatnonzero(sums >= _FULL * sums.max())
    y = int(full[len(full) // 2])
    edges = np.flatnonzero(np.diff(mask[y].astype(np.int8), prepend=0, append=0))
    begins, ends = edges[::2], edges[1::2]
    longest = int(np.argmax(ends - begins))
    return int(begins[longest] + ends[longest]) // 2, y


def _overlap(one: _Box, other: _Box) -> bool:
    return one[0] <= other[2] and other[0] <= one[2] and one[1] <= other[3] and other[1] <= one[3]


def shorten_name(name: str) -> str:
    """Shorten a name, so that its image stays visible.

    >>> shorten_name("a" * 300)
    'aaaaaaaaaaaaaaaaaaaaa...'
    """
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."


@lru_cache(maxsize=16)
def font(size_px: int) -> ImageFont.FreeTypeFont:
    face = ImageFont.load_default(size_px)
    assert isinstance(face, ImageFont.FreeTypeFont)  # Pillow built without FreeType returns another type
    return face


def replace_missing_glyphs(text: str) -> str:
    r"""Replace characters that the font lacks: by the letter without accents, else by the escaped code point.

    >>> replace_missing_glyphs("Bär – 猫"), replace_missing_glyphs("\x1b[2J")
    ('Bar - \\u732b', '\\x1b[2J')
    """
    return "".join(map(_replace_missing_glyph, text.translate(_LIKE)))


@lru_cache(maxsize=4096)
def _replace_missing_glyph(char: str) -> str:
    if _has_glyph(char):
        return char
    bare = "".join(part for part in unicodedata.normalize("NFKD", char) if not unicodedata.combining(part))
    return bare if bare and all(map(_has_glyph, bare)) else char.encode("unicode_escape").decode()


def _has_glyph(char: str) -> bool:
    known = font(16)
    return char.isprintable() and bytes(known.getmask(char)) != bytes(known.getmask(_NO_CHARACTER))


_PAPER, _INK, _PALE = (255, 255, 255), (20, 20, 20), (110, 110, 110)
_GAP_PX = 8
_LEAST_WIDTH_PX = 320
_MOST_LINES = 6
"""Maximum number of lines of one text."""
_MOST_CLASSES = 24


_Entry = tuple[str, Colour, Colour | None]  # text, its colour, and the colour of a patch before it


def draw_record(image: Image.Image, overlay: Overlay, side: int = SIDE) -> Image.Image:
    """Draw the layers of an overlay side by side, each over a copy of the image. Below are the classes with their
    colours, and the texts of the overlay.

    Args:
        image: Image of any size and mode.
        side: Maximum of the longer side of each copy, in pixels.

    Returns:
        RGB image.
    """
    background = convert_for_jpeg(image).convert("RGB")
    copies = [
        draw_shapes(background if layer.depth_m is None else draw_depth(layer.depth_m), layer.shapes, side)
        for layer in overlay.layers
    ]
    width, height = copies[0].size
    letters_px = max(13, max(width, height) // 48)
    whole_width = max(len(copies) * (width + _GAP_PX) - _GAP_PX, _LEAST_WIDTH_PX)
    lines = list(_text_lines(overlay, letters_px, whole_width))
    line_px = round(letters_px * 1.4)
    below = len(lines) * line_px + 2 * _GAP_PX if lines else 0
    whole = Image.new("RGB", (whole_width, height + below), _PAPER)
    pen = ImageDraw.Draw(whole)
    for number, (layer, copy) in enumerate(zip(overlay.layers, copies, strict=True)):
        whole.paste(copy, (number * (width + _GAP_PX), 0))
        if len(copies) > 1:
            middle = number * (width + _GAP_PX) + width // 2, height - 4
            pen.text(middle, layer.title, _PAPER, font(letters_px), "ms", stroke_width=2, stroke_fill=_INK)
    for number, line in enumerate(lines):
        _write_line(pen, line, height + _GAP_PX + number * line_px + line_px // 2, letters_px)
    return whole


def draw_depth(metres: np.ndarray) -> Image.Image:
    """Return the colours of a depth map, from the least to the largest known depth: RGB image.

    Args:
        metres: float32 [height, width]; 0, unknown, is black.
    """
    known = metres > 0
    least, largest = (float(metres[known].min()), float(metres[known].max())) if known.any() else (0.0, 1.0)
    shares = (metres - least) / (largest - least or 1)
    at = np.linspace(0, 1, len(_RAMP))
    channels = [np.interp(shares, at, channel) for channel in np.transpose(_RAMP)]
    return Image.fromarray((np.stack(channels, -1).round() * known[..., None]).astype(np.uint8))


_RAMP: tuple[Colour, ...] = ((253, 231, 37), (94, 201, 98), (33, 145, 140), (59, 82, 139), (68, 1, 84))
"""Colours of depths, near to far: viridis, from its end, with even steps."""


def _depth_labels(metres: np.ndarray) -> Iterator[tuple[str, Colour | None]]:
    """Yield depths with the colours that `draw_depth` gives them, and the share of unknown pixels."""
    known = metres[metres > 0]
    if len(known):
        least, largest = float(known.min()), float(known.max())
        steps = np.linspace(least, largest, len(_RAMP)).tolist() if largest > least else [least]
        yield from ((f"{step:.3g} m", colour) for step, colour in zip(steps, _RAMP, strict=False))
    if len(known) < metres.size:
        yield f"unknown {format_percent(1 - len(known) / metres.size)}", _HALO


def _write_line(pen: ImageDraw.ImageDraw, line: Iterable[_Entry], y: int, letters_px: int) -> None:
    letters, x = font(letters_px), float(_GAP_PX)
    for text, ink, patch_colour in line:
        if patch_colour:
            patch = (x, y - letters_px // 2, x + letters_px, y + letters_px // 2)
            pen.rectangle(patch, fill=patch_colour, outline=_PALE)
            x += 1.4 * letters_px
        pen.text((x, y), text, fill=ink, font=letters, anchor="lm")
        x += letters.getlength(text) + letters_px


def _text_lines(overlay: Overlay, letters_px: int, width: int) -> Iterator[list[_Entry]]:
    """Yield lines of classes side by side, then of texts."""
    letters = font(letters_px)
    room, line, used = width - 2 * _GAP_PX, list[_Entry](), 0.0
    for text, colour in _class_labels(overlay):
        entry_width = letters.getlength(text) + 2.4 * letters_px
        if line and used + entry_width > room:
            yield line
            line, used = [], 0.0
        line.append((text, _INK, colour))
        used += entry_width
    if line:
        yield line
    characters = max(12, int(room / letters.getlength("n")))
    for number, text in enumerate(overlay.lines):
        for part in wrap(replace_missing_glyphs(text), characters, max_lines=_MOST_LINES, placeholder=" ..."):
            yield [(part, _INK if number else _PALE, None)]


def _class_labels(overlay: Overlay) -> Iterator[tuple[str, Colour | None]]:
    """Yield each class with its colour once, most frequent first, objects' before maps', then depths."""
    counts: dict[tuple[str, Colour], int] = {}
    for layer in overlay.layers:
        layer_counts = Counter((shape.name, shape.colour) for shape in layer.shapes if shape.name)
        for name_colour, number in layer_counts.most_common():
            counts.setdefault(name_colour, number)
    for (name, colour), number in islice(counts.items(), _MOST_CLASSES):
        yield f"{shorten_name(replace_missing_glyphs(name))}{f' {number}' if number > 1 else ''}", colour
    if len(counts) > _MOST_CLASSES:
        yield f"and {len(counts) - _MOST_CLASSES} more classes", None
    for layer in overlay.layers:
        if layer.depth_m is not None:
            yield from _depth_labels(layer.depth_m)


def draw_problem(image: Image.Image, shapes: Sequence[Shape], marked: Collection[int], side: int) -> Image.Image:
    """Return an image with box outlines, without masks and names.

    Args:
        marked: Indices of suspicious shapes. Small suspicious shapes get a ring, and other boxes are pale.
        side: Maximum of the longer side of the result, in pixels.
    """
    drawing = draw_shapes(image, (), side)
    pen = ImageDraw.Draw(drawing)
    is_marked = frozenset(marked)
    for index, shape in enumerate(shapes):
        if index not in is_marked and shape.box_yxyx_frac is not None:
            pen.rectangle([*map(round, _box_px(shape, drawing.size))], outline=_OTHER if marked else shape.colour)
    for shape in (shapes[index] for index in marked if shapes[index].box_yxyx_frac is not None):
        left, top, right, bottom = map(round, _box_px(shape, drawing.size))
        pen.rectangle((left - 1, top - 1, right + 1, bottom + 1), outline=_HALO)
        pen.rectangle((left, top, right, bottom), outline=_MARK, width=3)
        if min(right - left, bottom - top) < _SMALL_PX:
            ring = left - _RING_PX, top - _RING_PX, right + _RING_PX, bottom + _RING_PX
            pen.ellipse(ring, outline=_HALO, width=5)
            pen.ellipse(ring, outline=_MARK, width=3)
    return drawing
