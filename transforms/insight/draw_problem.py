"""Small pictures of possible problems: outlines that leave the picture visible, and marks on the suspicious boxes."""

from collections.abc import Collection, Sequence

from PIL import Image, ImageDraw

from recordmill.transforms.insight.draw_record import box_pixels, draw_shapes
from recordmill.transforms.insight.overlay import Colour, Shape

_MARK, _HALO, _OTHER = (255, 0, 60), (0, 0, 0), (225, 225, 225)
_SMALL_PX = 24
_RING_PX = 10


def draw_problem(picture: Image.Image, shapes: Sequence[Shape], marked: Collection[int], side: int) -> Image.Image:
    """Return a picture with outlines of its boxes, without masks and names.

    Args:
        marked: Indices of suspicious shapes. Around a small one there is a ring. Other boxes are pale then.
        side: Longer side of the result, in pixels, at most.
    """
    drawn = draw_shapes(picture, (), side)
    pen = ImageDraw.Draw(drawn)
    for index, shape in enumerate(shapes):
        if index not in marked:
            _outline(pen, shape, drawn.size, _OTHER if marked else shape.colour, 1)
    for index in marked:
        _outline(pen, shapes[index], drawn.size, _MARK, 3)
    return drawn


def _outline(pen: ImageDraw.ImageDraw, shape: Shape, size: tuple[int, int], colour: Colour, width: int) -> None:
    if shape.box_yxyx_frac is None:
        return
    left, top, right, bottom = map(round, box_pixels(shape.box_yxyx_frac, size))
    if width > 1:
        pen.rectangle((left - 1, top - 1, right + 1, bottom + 1), outline=_HALO)
    pen.rectangle((left, top, right, bottom), outline=colour, width=width)
    if width > 1 and min(right - left, bottom - top) < _SMALL_PX:
        ring = left - _RING_PX, top - _RING_PX, right + _RING_PX, bottom + _RING_PX
        pen.ellipse(ring, outline=_HALO, width=width + 2)
        pen.ellipse(ring, outline=colour, width=width)
