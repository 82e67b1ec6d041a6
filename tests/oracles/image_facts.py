"""Values of an image that statistics count."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from recordmill.schemas.statistics import PixelMeasures


class ImageFacts(NamedTuple):
    """Contents of an image's records: a row of `FactColumns`, None where records have no such column.

    Attributes:
        boxes: ymin, xmin, ymax, xmax of all objects, as fractions of height and width.
        captions: their number.
        mask_bounds: ymin, xmin, ymax, xmax in pixels of each object's mask; None for an object without one.
    """

    name: str
    width: int = 0
    height: int = 0
    format: str = ""
    bytes: int = 0
    boxes: tuple[Sequence[float], Sequence[float], Sequence[float], Sequence[float]] | None = None
    classes: Collection[int] = ()
    captions: int | None = None
    segments: Collection[int] = ()
    is_continuation: bool = False
    measures: PixelMeasures | None = None
    mask_bounds: Sequence[tuple[int, int, int, int] | None] | None = None
    sha256: str = ""
    image_class: int | None = None


class RecordPlace(NamedTuple):
    """Place of an image's records in a shard, see Example."""

    record: int
    offset: int
    bytes: int
