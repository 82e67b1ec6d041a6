"""Convert CSV label files with one object per row to images."""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import BinaryIO, NamedTuple

from msgspec.structs import replace

from recordmill.schemas.errors import AnnotationFileError
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.inputs.tables import names_cure
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.annotated.source import ImageParts, LabelFault, LabelledImage, field_notes, parser
from recordmill.transforms.rows.read_rows import read_csv_texts

Cells = dict[str, str]


class RowFormat(NamedTuple):
    """Columns of a CSV format, and the functions that convert its rows.

    Attributes:
        required: Names of columns. The first one names the image.
        optional: Names of columns that are read if a file has them.
        make_sample: Convert the first row of an image; its ImageParts take warnings.
        make_object: Convert a row; the set takes notes. None for the row of an image without objects.
        image_columns: Columns in which the rows of an image should agree.
        has_fields: True if all further columns are open fields of the row's object.
    """

    required: tuple[str, ...]
    optional: tuple[str, ...]
    make_sample: Callable[[Cells, ImageParts], Sample]
    make_object: Callable[[Cells, set[str]], SampleObject | None]
    image_columns: tuple[str, ...] = ()
    has_fields: bool = False

    def further(self, names: Iterable[str]) -> list[str]:
        """Return the columns that are neither required nor optional."""
        return [name for name in names if name not in (*self.required, *self.optional)]


@parser
def read_csv_images(
    stream: BinaryIO, file: str, choose_format: Callable[[list[str]], RowFormat]
) -> Iterator[LabelledImage]:
    """Yield the images of a CSV file. Consecutive rows with the same image and image columns are one LabelledImage.

    Args:
        choose_format: Takes the names of the columns. An AnnotationFileError is a fault of the file.
    """
    chosen = list[RowFormat]()

    def choose_columns(names: list[str]) -> list[str]:
        row_format = choose_format(names)
        chosen.append(row_format)
        if missing := [name for name in row_format.required if name not in names]:
            listed = f"{', '.join(map(repr, names))}{names_cure(names)}"
            raise AnnotationFileError(f"no column {missing[0]!r}; the file has {listed}")
        columns = [*row_format.required, *(name for name in row_format.optional if name in names)]
        unwritten.update(field_notes(row_format.further(names)))
        return [*columns, *(row_format.further(names) if row_format.has_fields else ())]

    unwritten = set[str]()
    try:
        columns, text_rows = read_csv_texts(file, stream, choose_columns)
        (row_format,) = chosen
        key_columns = (row_format.required[0], *row_format.image_columns)
        indices = [columns.index(name) for name in key_columns if name in columns]
        for key, rows in groupby(text_rows, lambda row: [row.cells[index] for index in indices if row.cells]):
            if any(key[:1]):
                cells = [(row.number + 1, dict(zip(columns, row.cells, strict=True))) for row in rows]
                yield _build_image(cells, row_format, unwritten)
                unwritten.clear()
            else:
                for row in rows:
                    detail = row.fault or f"no {row_format.required[0]}"
                    yield LabelledImage(None, (LabelFault(Reason.MALFORMED_ANNOTATION, detail, row.number + 1),))
    except AnnotationFileError as error:
        raise UnusableError(Reason.MALFORMED_LABELS, str(error).removeprefix(file).lstrip(": ")) from error


def _build_image(rows: list[tuple[int, Cells]], row_format: RowFormat, notes: set[str]) -> LabelledImage:
    parts = ImageParts()
    parts.notes |= notes
    for line, cells in rows:
        with parts.rejecting(line=line):
            object_ = row_format.make_object(cells, parts.notes)
            if object_ and row_format.has_fields:
                object_ = replace(
                    object_, fields={name: cells[name] for name in row_format.further(cells) if cells[name]}
                )
            parts.objects += [object_] if object_ else []
    return parts.image(row_format.make_sample(rows[0][1], parts))
