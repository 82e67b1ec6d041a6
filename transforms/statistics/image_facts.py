"""What statistics count of an image, from the values of its record."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recordmill.schemas.features import CLASS_OF_ROW, FeatureTable
from recordmill.schemas.statistics import ImageFacts, PixelMeasures

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
            values: as `recordmill.transforms.examples.encode_examples` makes them, by source.
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
