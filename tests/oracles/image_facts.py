"""What statistics count of an image, from the values of its record."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from recordmill.schemas.features import CLASS_OF_ROW, FeatureTable
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


NO_FACTS = ImageFacts("")


class RecordPlace(NamedTuple):
    """Where an image's records are in a shard, see Example."""

    record: int
    offset: int
    bytes: int


EDGES = ("ymin", "xmin", "ymax", "xmax")


class FactsOfValues:
    """Facts of images whose records are of one table."""

    def __init__(self, table: FeatureTable):
        self._has_objects = "objects.class_index" in table.sources
        self._has_captions = "captions.text" in table.sources
        self._class = class_source(table)

    def __call__(
        self,
        values: Mapping[str, Any],
        is_continuation: bool = False,
        measures: PixelMeasures | None = None,
        mask_bounds: Sequence[tuple[int, int, int, int] | None] | None = None,
    ) -> ImageFacts:
        """
        Args:
            values: as `recordmill.transforms.encoders.encode_examples` makes them, by source.
        """
        return ImageFacts(
            values["image.file_name"].decode(),
            values.get("image.width", 0),
            values.get("image.height", 0),
            values.get("image.format", b"").decode(),
            len(values.get("image.encoded", b"")),
            tuple(values[f"objects.{edge}"] for edge in EDGES) if self._has_objects else None,  # type: ignore[arg-type]
            values["objects.class_index"] if self._has_objects else (),
            len(values["captions.text"]) if self._has_captions else None,
            values.get("segments.class_index", ()),
            is_continuation,
            measures,
            mask_bounds,
            _sha256(values),
            int(np.ravel(values[self._class])[0]) if self._class in values else None,
        )


def class_source(table: FeatureTable) -> str:
    """The source of the class index of an image that has one class; empty where records have none."""
    of_images = (each for each in table.sources if each == "image.class_index" or each.startswith(CLASS_OF_ROW))
    return next(of_images, "")


def _sha256(values: Mapping[str, Any]) -> str:
    """Of the picture, as a hex digest; empty without one."""
    if digest := values.get("image.sha256"):
        return digest.decode()
    data = values.get("image.encoded")
    return hashlib.sha256(data).hexdigest() if data else ""
