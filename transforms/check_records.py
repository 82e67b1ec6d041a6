"""A record is parsed by TensorFlow and looked at closely, whatever its layout."""

import hashlib
import io
from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image

from schemas.features import Feature, FeatureTable, RecordOf, parse_spec
from schemas.labels import LabelMap

RecordFault = tuple[str, str]
"""Reason and detail."""


class RecordChecker:
    """Checks records of one data set. Imports TensorFlow.

    Args:
        table: what is in a record.
        labels: the classes that it may be of.
        boxes_inside: whether boxes must lie within 0..1 (not where they were kept as they came).
    """

    def __init__(self, table: FeatureTable, labels: LabelMap, boxes_inside: bool):
        self._table = table
        self._spec = parse_spec(table)
        self._labels = labels
        self._boxes_inside = boxes_inside

    def __call__(self, record: bytes) -> tuple[int, list[RecordFault]]:
        """The number of objects in a record, and its faults."""
        import tensorflow as tf

        try:
            parsed = tf.io.parse_single_example(record, self._spec)
        except (tf.errors.InvalidArgumentError, UnicodeDecodeError) as error:  # TensorFlow quotes what it cannot read
            return 0, [("schema", _first_line(error))]
        values = {feature.source: _flat(parsed[feature.name]) for feature in self._table.features}
        faults = [*self._image_faults(values), *self._length_faults(values)]
        if not faults:
            faults += [*self._box_faults(values), *self._class_faults(values), *_mask_faults(values)]
        if self._table.record_of is RecordOf.ANNOTATION:
            return 1, faults
        return values["objects.id"].size, faults

    def _image_faults(self, values: dict[str, Any]) -> Iterator[RecordFault]:
        import tensorflow as tf

        encoded = values["image.encoded"].item()
        if "image.sha256" in values and hashlib.sha256(encoded).hexdigest().encode() != values["image.sha256"].item():
            yield "image_sha256", "the image's SHA-256 is not the record's"
        try:
            image = tf.io.decode_image(encoded, channels=3, expand_animations=False)
        except tf.errors.InvalidArgumentError as error:
            yield "image_undecodable", _first_line(error)
            return
        size = image.shape[1], image.shape[0]
        said = tuple(
            int(values[f"image.{side}"].item()) if f"image.{side}" in values else None for side in ("width", "height")
        )
        values["image.size"] = size
        if said != (None, None) and said != size:
            yield "image_size", f"decodes to {size[0]}x{size[1]}, the record says {said[0]}x{said[1]}"

    def _length_faults(self, values: dict[str, Any]) -> Iterator[RecordFault]:
        """Lists of which one has another length than the others of its dimension."""
        by_dimension: dict[str, dict[str, float]] = {}
        for feature in self._table.features:
            if feature.shape and not feature.shape[0].isdecimal():
                length = values[feature.source].size / _values_each(feature)  # whole, unless the list is damaged
                by_dimension.setdefault(feature.shape[0], {})[feature.source] = length
        for lengths in by_dimension.values():
            if len(set(lengths.values())) > 1:
                yield "object_lists", f"lists of one object each differ in length: {lengths}"
        if "objects.keypoint_x" in values:
            keypoints, objects = values["objects.keypoint_x"].size, values["objects.id"].size
            if keypoints != objects * self._labels.keypoints:
                yield "keypoints", f"{keypoints} keypoints of {objects} objects with {self._labels.keypoints} each"

    def _box_faults(self, values: dict[str, Any]) -> Iterator[RecordFault]:
        columns = _boxes(values)
        if self._boxes_inside:
            for edge, column in columns.items():
                if not ((column >= 0) & (column <= _ONE)).all():
                    yield "box_range", f"{edge} outside 0..1: {column.min():g} .. {column.max():g}"
        for low, high in (("xmin", "xmax"), ("ymin", "ymax")):
            if not (columns[low] <= columns[high]).all():
                yield "box_order", f"a box has {low} beyond {high}"

    def _class_faults(self, values: dict[str, Any]) -> Iterator[RecordFault]:
        ids = [category.id for category in self._labels.categories]
        indices = np.atleast_1d(values["objects.class_index"]).tolist()
        for index, id_ in zip(indices, np.atleast_1d(values["objects.category_id"]).tolist(), strict=True):
            if not 0 <= index < len(ids) or ids[index] != id_:
                yield "class", f"category id {id_} with class index {index} is not in the manifest"
        for index in values.get("segments.class_index", ()):
            if not 0 <= index < len(self._labels.segments):
                yield "class", f"a segment's class index {index} is not in the manifest"


_ONE = 1 + 1e-6
"""Pixels over pixels, as 32-bit floats."""


def _flat(value: Any) -> np.ndarray:
    array = value.numpy()
    # Objects, because numpy's own type for bytes drops zeros at their end.
    return np.asarray(array, dtype=object if isinstance(array, bytes) else None)


def _values_each(feature: Feature) -> int:
    return int(np.prod([int(size) for size in feature.shape[1:]]))


def _boxes(values: dict[str, Any]) -> dict[str, np.ndarray]:
    """Edges as fractions, from whichever form the layout has."""
    width, height = values["image.size"]
    if "objects.bbox_yxyx" in values:
        edges = values["objects.bbox_yxyx"].reshape(-1, 4).T
    elif "objects.bbox_xywh_px" in values:
        x, y, box_width, box_height = values["objects.bbox_xywh_px"].reshape(-1, 4).T.astype(np.float64)
        edges = np.stack([y / height, x / width, (y + box_height) / height, (x + box_width) / width])
    else:
        edges = [values[f"objects.{edge}"] for edge in ("ymin", "xmin", "ymax", "xmax")]
    return dict(zip(("ymin", "xmin", "ymax", "xmax"), edges, strict=True))


_MASKS = ("objects.mask_png", "semantic.png", "panoptic.category_png", "panoptic.instance_png", "panoptic.png")


def _mask_faults(values: dict[str, Any]) -> Iterator[RecordFault]:
    """Masks are PNGs of the image's size that decode; those of objects hold 0 and 1."""
    for source in _MASKS:
        for data in np.atleast_1d(values.get(source, ())).tolist():
            try:
                with Image.open(io.BytesIO(data), formats=["PNG"]) as image:
                    pixels = np.asarray(image)
            except Exception as error:  # Pillow raises nearly anything on damaged bytes
                yield "mask", f"a mask of {source} does not decode ({type(error).__name__}: {error})"
                continue
            width, height = values["image.size"]
            if pixels.shape[:2] != (height, width):
                yield "mask", f"a mask of {source} is {pixels.shape[1]}x{pixels.shape[0]}, its image {width}x{height}"
            elif source == "objects.mask_png" and pixels.max(initial=0) > 1:
                yield "mask", f"a mask of {source} has a pixel of {pixels.max()}, not 0 or 1"


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
