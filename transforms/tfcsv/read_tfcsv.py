"""Rows `filename,width,height,class,xmin,ymin,xmax,ymax`, in pixels, become objects."""

from collections.abc import Iterator
from typing import BinaryIO

from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.annotated.csv_rows import Cells, RowFormat, read_images
from recordmill.transforms.annotated.naming import edges_box, find_labels, image_name, naming_source
from recordmill.transforms.annotated.shapes import finite_numbers
from recordmill.transforms.annotated.source import LabelledImage, Source
from recordmill.transforms.tfcsv.tfcsv_options import TfcsvOptions

_EDGES = ("xmin", "ymin", "xmax", "ymax")
_REQUIRED = ("filename", "class", *_EDGES)
_NO_SIZE = "size"


def source(options: TfcsvOptions) -> Source:
    labels = find_labels(options, _is_csv)
    return naming_source(options, labels, parse_rows, check=_check)


def _is_csv(name: str) -> bool:
    return name.lower().endswith(".csv")


def _check(notes: frozenset[str]) -> Iterator[str]:
    if _NO_SIZE in notes:
        yield "rows have a width or height that is no size, so it is not compared with that of the image"


def parse_rows(stream: BinaryIO, file: str) -> Iterator[LabelledImage]:
    """Yield the images of a file.

    >>> import io
    >>> data = b"filename,width,height,class,xmin,ymin,xmax,ymax\\n1.jpg,40,30,cat,1,2,4,6\\n1.jpg,40,30,cat,9,2,4,6\\n"
    >>> image, = parse_rows(io.BytesIO(data), "train/_annotations.csv")
    >>> image.sample.file_name, image.sample.objects[0].box, image.faults[0].line
    ('train/1.jpg', (1.0, 2.0, 3.0, 4.0), 3)
    """

    def sample_of(cells: Cells, notes: set[str]) -> Sample:
        sides = [cells.get(side, "") for side in ("width", "height")]
        if all(side.isdecimal() and int(side) for side in sides):
            return Sample(image_name(file, cells["filename"]), width=int(sides[0]), height=int(sides[1]))
        notes |= {_NO_SIZE} if any(sides) else set()
        return Sample(image_name(file, cells["filename"]))

    yield from read_images(stream, file, RowFormat(_REQUIRED, ("width", "height"), sample_of, _object))


def _object(cells: Cells, notes: set[str]) -> SampleObject | None:
    if not any(cells[column] for column in _REQUIRED[1:]):
        return None
    if not cells["class"]:
        raise UnusableError(Reason.UNKNOWN_CATEGORY, "no class")
    edges = finite_numbers({column: cells[column] for column in _EDGES}, "of the box")
    return SampleObject(cells["class"], edges_box(*edges))
