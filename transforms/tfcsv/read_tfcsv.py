"""Convert rows `filename,width,height,class,xmin,ymin,xmax,ymax`, in pixels, to objects."""

from collections.abc import Iterator
from functools import partial
from typing import BinaryIO

from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.transforms.annotated.csv_rows import Cells, RowFormat, read_csv_images
from recordmill.transforms.annotated.naming import edges_box, find_labels, naming_source, resolve_image_name
from recordmill.transforms.annotated.shapes import finite_numbers, sides_px
from recordmill.transforms.annotated.source import ImageParts, LabelledImage, Source
from recordmill.transforms.tfcsv.tfcsv_options import TfcsvOptions

_EDGES = ("xmin", "ymin", "xmax", "ymax")
_REQUIRED = ("filename", "class", *_EDGES)
_SIDES = ("width", "height")


def source(options: TfcsvOptions) -> Source:
    labels = find_labels(options, _is_csv)
    parse = partial(parse_rows, has_fields=bool(options.fields))
    return naming_source(options, labels, parse, text_fields=True)


def _is_csv(name: str) -> bool:
    return name.lower().endswith(".csv")


def parse_rows(stream: BinaryIO, file: str, has_fields: bool = False) -> Iterator[LabelledImage]:
    """Yield the images of a file.

    Args:
        has_fields: True if records store open fields.

    >>> import io
    >>> data = b"filename,width,height,class,xmin,ymin,xmax,ymax\\n1.jpg,40,30,cat,1,2,4,6\\n1.jpg,40,30,cat,9,2,4,6\\n"
    >>> image, = parse_rows(io.BytesIO(data), "train/_annotations.csv")
    >>> image.sample.file_name, image.sample.objects[0].box, image.faults[0].line
    ('train/1.jpg', (1.0, 2.0, 3.0, 4.0), 3)
    """

    def make_sample(cells: Cells, parts: ImageParts) -> Sample:
        width, height = sides_px(cells.get("width", ""), cells.get("height", ""), parts.warnings)
        return Sample(resolve_image_name(file, cells["filename"]), width=width, height=height)

    row_format = RowFormat(_REQUIRED, _SIDES, make_sample, _convert_tfcsv_row, _SIDES, has_fields)
    yield from read_csv_images(stream, file, row_format)


def _convert_tfcsv_row(cells: Cells, notes: set[str]) -> SampleObject | None:
    if not any(cells[column] for column in _REQUIRED[1:]):
        return None
    edges = finite_numbers({column: cells[column] for column in _EDGES}, "the box")
    return SampleObject(cells["class"], edges_box(*edges))
