"""Columns of tables that hold boxes, by their names."""

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from recordmill.schemas.inputs.coco import BoxFormat
from recordmill.schemas.sizes import quote_blanks

_XYXY = ("xmin ymin xmax ymax", "x0 y0 x1 y1", "x1 y1 x2 y2", "left top right bottom", "minx miny maxx maxy")
_STARTS = {
    BoxFormat.XYWH: ("x y", "left top", "xmin ymin", "x1 y1"),
    BoxFormat.CXCYWH: ("cx cy", "xcenter ycenter", "centerx centery", "xcentre ycentre"),
}
_CODINGS = [
    *((names.split(), BoxFormat.XYXY) for names in (*_XYXY, "xtl ytl xbr ybr")),
    *(
        ([*start.split(), *size.split()], format_)
        for format_, starts in _STARTS.items()
        for start in starts
        for size in ("w h", "width height")
    ),
]
_LISTS = ("bbox", "bboxes", "boundingbox", "bndbox")
_IMAGES = ("filename", "path", "image", "imagepath", "imageuri", "file", "imagename", "img", "imgpath")
_CLASSES = ("class", "label", "classname", "category", "target", "categoryname")
_SIZES = ("imagewidth imageheight", "imgwidth imgheight", "width height")
_MARKS = re.compile(r"[^a-z0-9]+")
_PREFIX = re.compile(r"(bounding|b)?box(?=.)")


class ObjectColumns(NamedTuple):
    """Columns of a table with an object per row, as the table spells them.

    Attributes:
        box: The four columns of a box, or the column that has four numbers.
        format: Meaning of the four numbers; None for a single column, whose name does not tell.
        image, label: Columns of images and classes; "" without.
        sides: Columns of the image's width and height; () without.
    """

    box: tuple[str, ...]
    format: BoxFormat | None
    image: str
    label: str
    sides: tuple[str, ...]

    @property
    def used(self) -> tuple[str, ...]:
        return (self.image, self.label, *self.box)


def boxes_fault(path: str, names: Iterable[str], images: Sequence[str], label: str | None) -> str:
    """Return the error of a table of boxes that would become a table of one class per image; "" if it may be one.

    Args:
        names: Columns of the table.
        images: Folders of its images.
        label: Column of classes that the user named; None without.
    """
    names, is_csv = list(names), path.lower().endswith(".csv")
    columns = find_box_columns(names)
    if not columns or (label and label not in columns.box):
        return ""
    text = f"{path} has boxes ({', '.join(quote_blanks(columns.box))}), and a table of labels has one class per image. "
    is_openimages = {"ImageID", "LabelName"} <= {*names}
    if is_csv and (is_openimages or all(columns.used)):
        folders = [word for folder in images for word in ("--images", folder)]
        format_ = "openimages" if is_openimages else "tfcsv"
        command = shlex.join(["recordmill", "convert", path, *folders, "--format", format_, "-o", "OUT"])
        text += f"To read the boxes: {command}"
    elif is_csv:
        text += "To read the boxes, name the columns of images and classes filename and class"
    else:
        text += "To read the boxes, save it as CSV with the columns filename, class, xmin, ymin, xmax, ymax"
    return f"{text}. To read a class per image, add --label {shlex.quote(columns.label or 'COLUMN')}"


def find_box_columns(names: Iterable[str]) -> ObjectColumns | None:
    """Return the columns of boxes, by their names without case and marks; None without them. `width` and `height` are
    those of the image beside four edges, and of the box beside its corner.

    >>> columns = find_box_columns(["image", "XMin", "y_min", "XMax", "y_max", "label", "width", "height"])
    >>> columns.box, columns.format.value, columns.image, columns.label, columns.sides
    (('XMin', 'y_min', 'XMax', 'y_max'), 'xyxy', 'image', 'label', ('width', 'height'))
    >>> find_box_columns(["x", "y", "width", "height"]).format.value, find_box_columns(["x", "width"])
    ('xywh', None)
    """
    by_word, by_prefixed, by_lower, by_title = (dict[str, str]() for _ in range(4))
    for name in sorted(names, key=lambda name: not name.islower()):  # `xmin` before `XMin`
        word = _MARKS.sub("", name.lower())
        for columns in (by_word, by_lower if name.islower() else by_title):
            columns.setdefault(word, name)
        if prefix := _PREFIX.match(word):
            by_prefixed.setdefault(word[prefix.end() :], name)

    def find(words: Sequence[str]) -> str:
        return next((by_word[word] for word in words if word in by_word), "")

    quadruples = (
        (tuple(columns[word] for word in words), format_)
        for columns in (by_prefixed, by_lower, by_title, by_word)  # beside bbox_x, the column x is something else
        for words, format_ in _CODINGS
        if columns.keys() >= {*words}
    )
    box, format_ = next(quadruples, (tuple(filter(None, [find(_LISTS)])), None))
    if not box:
        return None
    pairs = (tuple(by_word.get(word, "") for word in pair.split()) for pair in _SIZES)
    sides = next((pair for pair in pairs if all(pair) and not {*pair} & {*box}), ())
    return ObjectColumns(box, format_, find(_IMAGES), find(_CLASSES), sides)
