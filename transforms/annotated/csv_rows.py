"""Rows of CSV label files, an object each, become images."""

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import BinaryIO, NamedTuple

from recordmill.schemas.errors import AnnotationFileError
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.annotated.source import ImageParts, LabelFault, LabelledImage, parser
from recordmill.transforms.rows.read_rows import read_csv_texts

Cells = dict[str, str]


class RowFormat(NamedTuple):
    """Columns of a format, and how its rows become objects.

    Attributes:
        required: names of columns; the first one names the image.
        optional: names of columns that are read if they are there.
        sample_of: takes the first row of an image, and what is found of it.
        object_of: takes a row, and notes. None if the row is that of an image without objects.
        of_image: columns in which the rows of an image should agree.
    """

    required: tuple[str, ...]
    optional: tuple[str, ...]
    sample_of: Callable[[Cells, ImageParts], Sample]
    object_of: Callable[[Cells, set[str]], SampleObject | None]
    of_image: tuple[str, ...] = ()


@parser
def read_images(stream: BinaryIO, file: str, how: RowFormat) -> Iterator[LabelledImage]:
    """Yield the images of a CSV file. Consecutive rows of one image that agree on it are one LabelledImage."""

    def choose(names: list[str]) -> list[str]:
        if missing := [name for name in how.required if name not in names]:
            raise AnnotationFileError(f"no column {missing[0]!r}; it has {', '.join(map(repr, names))}")
        return [*how.required, *(name for name in how.optional if name in names)]

    try:
        columns, text_rows = read_csv_texts(file, stream, choose)
        places = [columns.index(name) for name in (how.required[0], *how.of_image) if name in columns]
        for key, rows in groupby(text_rows, lambda row: [row.cells[place] for place in places if row.cells]):
            if any(key[:1]):
                yield _image([(row.number + 1, dict(zip(columns, row.cells, strict=True))) for row in rows], how)
            else:
                for row in rows:
                    detail = row.fault or f"no {how.required[0]}"
                    yield LabelledImage(None, (LabelFault(Reason.MALFORMED_ANNOTATION, detail, row.number + 1),))
    except AnnotationFileError as error:
        raise UnusableError(Reason.MALFORMED_LABELS, str(error).removeprefix(file).lstrip(": ")) from error


def _image(rows: list[tuple[int, Cells]], how: RowFormat) -> LabelledImage:
    found = ImageParts()
    for line, cells in rows:
        with found.rejecting(line=line):
            each = how.object_of(cells, found.notes)
            found.objects += [each] if each else []
    return found.image(how.sample_of(rows[0][1], found))
