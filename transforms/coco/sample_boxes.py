"""Sample the boxes of a COCO file, to guess their format."""

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from recordmill.schemas.inputs.boxes import BOX, LARGEST
from recordmill.transforms.coco.coco_rows import AnnotationRow, polygon_bounds
from recordmill.transforms.coco.file_fields import field_text
from recordmill.transforms.join.guess_box_format import Boxes

_SAMPLE = 10_000
"""Number of evenly spaced rows to sample. The time is then the same for a file of any size."""
_ROW_BYTES = 60
"""Minimum size of a row. Rows with polygons are ten times as large, so that fewer rows are sampled."""
_FRACTION = rb"\s*(?:[0-9](?:\.[0-9]+)?[eE]-[0-9]+|0(?:\.[0-9]+)?|1(?:\.0+)?)\s*"
_FRACTIONS = re.compile(rb"\[" + rb",".join([_FRACTION] * 4) + rb"\]")


def fraction_boxes(rows: Iterable[AnnotationRow]) -> list[AnnotationRow]:
    """Return the rows whose `bbox` is within 0..1, and not of whole numbers. The text decides, because all rows of a
    file are looked at."""
    return [
        row for row in rows if _FRACTIONS.fullmatch(row.bbox) and any(number % 1 for number in BOX.decode(row.bbox))
    ]


class SampledBoxes(NamedTuple):
    """Columns of Boxes for a sample of rows, with image ids in place of sizes.

    Attributes:
        image_ids: int64 [N].
    """

    image_ids: np.ndarray
    numbers: np.ndarray
    areas: np.ndarray
    extents: np.ndarray

    def boxes(self, sizes: Mapping[int, tuple[int, int]]) -> Boxes:
        """Return Boxes with image sizes. `sizes` has width and height in pixels by image id."""
        unknown = (np.nan, np.nan)
        image_sizes = [sizes.get(image_id, unknown) for image_id in self.image_ids.tolist()]
        return Boxes(self.numbers, np.array(image_sizes, float).reshape(-1, 2).T, self.areas, self.extents)


def sample_step(file_bytes: int) -> int:
    """Return the step between sampled rows of a file of this size, for about _SAMPLE rows at most."""
    return max(1, file_bytes // (_SAMPLE * _ROW_BYTES))


def sample_boxes(rows: Sequence[AnnotationRow]) -> SampledBoxes:
    """Return the boxes of rows. Malformed boxes are skipped."""
    unknown = (np.nan,) * 4
    image_ids, numbers, areas, extents = [], [], [], []
    for row in rows:
        with contextlib.suppress(msgspec.DecodeError):
            box = BOX.decode(row.bbox)
            if max(map(abs, box)) <= LARGEST:
                image_ids.append(row.image_id)
                numbers.append(box)
                areas.append(np.nan if row.area is None else row.area)
                extents.append(polygon_bounds(field_text(row, "segmentation")) or unknown)
    return SampledBoxes(
        np.array(image_ids, np.int64),
        np.array(numbers, float).reshape(-1, 4).T,
        np.array(areas, float),
        np.array(extents, float).reshape(-1, 4).T,
    )


def join_samples(samples: Sequence[SampledBoxes]) -> SampledBoxes:
    return SampledBoxes(*(np.concatenate(columns, axis=-1) for columns in zip(*samples, strict=True)))
