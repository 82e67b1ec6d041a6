"""A record as a picture: what is in it drawn over its image, its classes and texts below."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from textwrap import wrap
from typing import NamedTuple

from PIL import Image, ImageDraw

from recordmill.transforms.draw.draw_shapes import SIDE, draw_shapes, font, in_font, shortened
from recordmill.transforms.draw.overlay import Colour, Overlay
from recordmill.transforms.images.transcode_picture import for_jpeg

_PAPER, _INK, _PALE = (255, 255, 255), (20, 20, 20), (110, 110, 110)
_GAP_PX = 8
_LEAST_WIDTH_PX = 320
_MOST_LINES = 6
"""Of one text."""
_MOST_CLASSES = 24


class _Entry(NamedTuple):
    """What stands in a line below the picture: a text, with a patch of colour before it where it names a class."""

    text: str
    ink: Colour = _INK
    patch: Colour | None = None


def draw_record(picture: Image.Image, overlay: Overlay, side: int = SIDE) -> Image.Image:
    """The layers of an overlay side by side, each over a copy of the picture, and below them which classes there are,
    with their colours, and the overlay's texts.

    Args:
        picture: of any size and mode.
        side: the longer side of each copy, in pixels, at the most.

    Returns:
        RGB.
    """
    seen = for_jpeg(picture).convert("RGB")
    copies = [draw_shapes(seen, layer.shapes, side) for layer in overlay.layers]
    width, height = copies[0].size
    letters_px = max(13, max(width, height) // 48)
    whole_width = max(len(copies) * (width + _GAP_PX) - _GAP_PX, _LEAST_WIDTH_PX)
    lines = list(_lines(overlay, letters_px, whole_width))
    line_px = round(letters_px * 1.4)
    below = len(lines) * line_px + 2 * _GAP_PX if lines else 0
    whole = Image.new("RGB", (whole_width, height + below), _PAPER)
    pen = ImageDraw.Draw(whole)
    for number, (layer, copy) in enumerate(zip(overlay.layers, copies, strict=True)):
        whole.paste(copy, (number * (width + _GAP_PX), 0))
        if len(copies) > 1:
            place = number * (width + _GAP_PX) + width // 2, height - 4
            pen.text(place, layer.title, _PAPER, font(letters_px), "ms", stroke_width=2, stroke_fill=_INK)
    for number, line in enumerate(lines):
        _write(pen, line, height + _GAP_PX + number * line_px + line_px // 2, letters_px)
    return whole


def _write(pen: ImageDraw.ImageDraw, line: Iterable[_Entry], y: int, letters_px: int) -> None:
    letters, x = font(letters_px), float(_GAP_PX)
    for entry in line:
        if entry.patch:
            patch = (x, y - letters_px // 2, x + letters_px, y + letters_px // 2)
            pen.rectangle(patch, fill=entry.patch, outline=_PALE)
            x += 1.4 * letters_px
        pen.text((x, y), entry.text, fill=entry.ink, font=letters, anchor="lm")
        x += letters.getlength(entry.text) + letters_px


def _lines(overlay: Overlay, letters_px: int, width: int) -> Iterator[list[_Entry]]:
    """Classes side by side as far as there is room, then each text in lines of its own."""
    letters = font(letters_px)
    room, line, used = width - 2 * _GAP_PX, list[_Entry](), 0.0
    for entry in _classes(overlay):
        needed = letters.getlength(entry.text) + 2.4 * letters_px
        if line and used + needed > room:
            yield line
            line, used = [], 0.0
        line.append(entry)
        used += needed
    if line:
        yield line
    characters = max(12, int(room / letters.getlength("n")))
    for number, text in enumerate(overlay.lines):
        for part in wrap(in_font(text), characters, max_lines=_MOST_LINES, placeholder=" ..."):
            yield [_Entry(part, _INK if number else _PALE)]


def _classes(overlay: Overlay) -> Iterator[_Entry]:
    """The classes with their colours, the most frequent first; those of a map that are among the objects once."""
    counts: dict[tuple[str, Colour], int] = {}
    for layer in overlay.layers:
        for each, number in Counter((shape.name, shape.colour) for shape in layer.shapes if shape.name).most_common():
            counts.setdefault(each, number)
    for (name, colour), number in islice(counts.items(), _MOST_CLASSES):
        yield _Entry(f"{shortened(in_font(name))}{f' {number}' if number > 1 else ''}", _INK, colour)
    if len(counts) > _MOST_CLASSES:
        yield _Entry(f"and {len(counts) - _MOST_CLASSES} more classes")
