"""Facts of images whose records have no objects, from the values of these records."""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from recordmill.schemas.block import ragged_bytes
from recordmill.schemas.features import CLASS_OF_ROW, FeatureTable
from recordmill.schemas.image_facts import NO_CLASS, FactColumns
from recordmill.schemas.statistics import PixelMeasures


class FactsOfValues:
    """Facts of an image without objects, from the values of its record."""

    def __init__(self, table: FeatureTable):
        self._class = class_source(table)

    def __call__(self, values: Mapping[str, Any], measures: PixelMeasures | None = None) -> FactColumns:
        """Return the facts of one image.

        Args:
            values: by source, see `recordmill.schemas.layouts`.
        """
        image_class = int(np.ravel(values[self._class])[0]) if self._class in values else NO_CLASS
        return FactColumns(
            name=ragged_bytes([values["image.file_name"]]),
            size_px=np.array([[values.get("image.width", 0), values.get("image.height", 0)]], np.int64),
            format=[values.get("image.format", b"").decode()],
            num_bytes=np.array([len(values.get("image.encoded", b""))], np.int64),
            sha256=[_sha256(values)],
            is_continuation=np.zeros(1, bool),
            measures=[measures],
            image_class=np.array([image_class], np.int64),
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
