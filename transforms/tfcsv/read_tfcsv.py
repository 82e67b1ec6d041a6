"""Convert rows with an object each, `filename,width,height,class,xmin,ymin,xmax,ymax` for example, to images."""

import re
from collections.abc import Iterator
from functools import partial
from typing import BinaryIO

from recordmill.schemas.errors import AnnotationFileError, ConfigError
from recordmill.schemas.inputs.box_columns import ObjectColumns, find_box_columns
from recordmill.schemas.inputs.boxes import box_xywh_px
from recordmill.schemas.inputs.coco import BoxFormat
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.schemas.sizes import quote_blanks
from recordmill.transforms.annotated.csv_rows import Cells, RowFormat, read_csv_images
from recordmill.transforms.annotated.naming import edges_box, find_labels, naming_source, resolve_image_name
from recordmill.transforms.annotated.shapes import finite_numbers, sides_px
from recordmill.transforms.annotated.source import ImageParts, LabelledImage, Source
from recordmill.transforms.tfcsv.tfcsv_options import TfcsvOptions

_USUAL = ("filename", "class", "xmin", "ymin", "xmax", "ymax")
_COLUMNS, _NO_FORMAT = "columns ", "bbox_format "
"""Beginnings of notes: columns with other names, and a column of boxes whose format is unknown."""
_MEANINGS = {
    BoxFormat.XYXY: "left, top, right, bottom",
    BoxFormat.XYWH: "left, top, width, height",
    BoxFormat.CXCYWH: "centre x, centre y, width, height",
}
_BETWEEN = re.compile(r"[\s,;()\[\]]+")
"""Marks between the numbers of a list: `[1, 2, 3, 4]`, `(1, 2, 3, 4)`, `1 2 3 4`."""


def source(options: TfcsvOptions) -> Source:
    labels = find_labels(options, _is_csv)
    format_ = BoxFormat(options.bbox_format) if options.bbox_format else None
    parse = partial(parse_rows, bbox_format=format_, has_fields=bool(options.fields))
    return naming_source(options, labels, parse, check=partial(_check_columns, path=options.data), text_fields=True)


def _is_csv(name: str) -> bool:
    return name.lower().endswith(".csv")


def _check_columns(notes: frozenset[str], path: str) -> Iterator[str]:
    """Yield the columns that were read, if their names are not the usual ones.

    Raises:
        ConfigError: The format of boxes is unknown.
    """
    for note in sorted(notes):
        if note.startswith(_NO_FORMAT):
            raise ConfigError(
                f"{path}: the name of the column {note.removeprefix(_NO_FORMAT)} does not tell what its four numbers "
                "are. Add --bbox-format xywh for left, top, width, height, or --bbox-format xyxy for left, top, right, "
                "bottom"
            )
    yield from (f"{path}: {note.removeprefix(_COLUMNS)}" for note in sorted(notes) if note.startswith(_COLUMNS))


def parse_rows(
    stream: BinaryIO, file: str, bbox_format: BoxFormat | None = None, has_fields: bool = False
) -> Iterator[LabelledImage]:
    """Yield the images of a file.

    Args:
        bbox_format: Meaning of the four numbers of a box; None for the meaning of the columns' names.
        has_fields: True if records store open fields.

    >>> import io
    >>> data = b"filename,width,height,class,xmin,ymin,xmax,ymax\\n1.jpg,40,30,cat,1,2,4,6\\n1.jpg,40,30,cat,9,2,4,6\\n"
    >>> image, = parse_rows(io.BytesIO(data), "train/_annotations.csv")
    >>> image.sample.file_name, image.sample.objects[0].box, image.faults[0].line
    ('train/1.jpg', (1.0, 2.0, 3.0, 4.0), 3)
    """
    yield from read_csv_images(
        stream, file, partial(_choose_format, file=file, bbox_format=bbox_format, has_fields=has_fields)
    )


def _choose_format(names: list[str], file: str, bbox_format: BoxFormat | None, has_fields: bool) -> RowFormat:
    """Return the format of rows with these columns.

    Raises:
        AnnotationFileError: A column is missing.
    """
    columns = find_box_columns(names)
    if not columns or not all(columns.used):
        missing = "boxes, such as xmin, ymin, xmax, ymax"
        if columns:
            missing = "classes, such as class" if columns.image else "images, such as filename"
        raise AnnotationFileError(f"no column of {missing}. The file has {', '.join(map(repr, names))}")
    format_ = bbox_format or columns.format

    def make_sample(cells: Cells, parts: ImageParts) -> Sample:
        sides = [cells[name] for name in columns.sides] or ["", ""]
        width, height = sides_px(sides[0], sides[1], parts.warnings)
        return Sample(resolve_image_name(file, cells[columns.image]), width=width, height=height)

    def make_object(cells: Cells, notes: set[str]) -> SampleObject | None:
        notes |= column_notes
        is_empty = not any(cells[name] for name in columns.used[1:])
        return None if is_empty else _convert_tfcsv_row(cells, columns, format_)

    column_notes = {_NO_FORMAT + columns.box[0]} if format_ is None else set()
    if format_ and columns.used != _USUAL:
        unit = "fractions" if format_.is_fraction else "pixels"
        meaning = f"{_MEANINGS[BoxFormat(format_.value.removeprefix('rel-'))]} in {unit}"
        image, label, *box = quote_blanks(columns.used)
        column_notes.add(
            f"{_COLUMNS}images are read from the column {image}, classes from {label}, boxes from {', '.join(box)} "
            f"({meaning})"
        )
    return RowFormat(columns.used, columns.sides, make_sample, make_object, columns.sides, has_fields)


def _convert_tfcsv_row(cells: Cells, columns: ObjectColumns, format_: BoxFormat | None) -> SampleObject:
    """Return the object of a row.

    Raises:
        UnusableError: The box is unusable.
    """
    if format_ is None:
        raise UnusableError(Reason.MALFORMED_BOX, "the meaning of its four numbers is unknown")
    texts = {name: cells[name] for name in columns.box}
    if len(texts) == 1:
        (text,) = texts.values()
        parts = list(filter(None, _BETWEEN.split(text)))
        if len(parts) != 4:
            raise UnusableError(Reason.MALFORMED_BOX, f"the box is not four numbers: {text[:40]!r}")
        texts = {f"number {number}": part for number, part in enumerate(parts, 1)}
    x, y, third, fourth = finite_numbers(texts, "the box")
    box = x, y, third, fourth
    if format_ in (BoxFormat.XYXY, BoxFormat.REL_XYXY):
        box = edges_box(*box)
    elif format_ in (BoxFormat.CXCYWH, BoxFormat.REL_CXCYWH):
        box = box_xywh_px(box, BoxFormat.CXCYWH, 0, 0)
    return SampleObject(cells[columns.label], box, "fraction" if format_.is_fraction else "px")
