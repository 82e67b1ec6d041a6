"""What statistics count of an image."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from recordmill.schemas.statistics import PixelMeasures


class ImageFacts(NamedTuple):
    """What is counted of an image: what its records hold.

    Attributes:
        name: of its file.
        width, height: pixels; 0 where records have no picture.
        format: `jpeg`, `png` or `raw`; empty likewise.
        bytes: of the picture.
        boxes: ymin, xmin, ymax, xmax of each object, as fractions of height and width; None where records are not of
            objects.
        classes: class index of each object.
        captions: how many; None where records have none.
        segments: category indices of stuff, or of panoptic segments.
        is_continuation: whether the image was counted already, with other objects.
        measures: of the picture's pixels, if they were decoded.
        mask_bounds: ymin, xmin, ymax, xmax in pixels of each object's mask, or None of one without; None where records
            have no masks.
        sha256: hex digest of the picture; empty without one.
        image_class: class index of an image of one class; None of others.
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
    """Where an image's records are in a shard, see Example."""

    record: int
    offset: int
    bytes: int
