"""Pictures and annotations become serialised tf.Examples."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection

from schemas.coco import Annotation
from schemas.example import ExampleWriter
from schemas.features import FeatureTable
from schemas.images import ImageTask, Picture
from schemas.labels import LabelMap
from schemas.rejects import Reason, Rejected, Tally
from transforms.boxes import FittedBox, fit_box


class Encoded(NamedTuple):
    """One record.

    Attributes:
        record: serialised tf.Example.
        counted: what is in it.
        rejected: the annotations that are not.
    """

    record: bytes
    counted: dict[Tally, int]
    rejected: list[Rejected]


class EncodeExamples(beam.PTransform):
    """(ImageTask, Picture) become Encoded. `labels` is a PCollection of one LabelMap."""

    def __init__(self, labels: PCollection, table: FeatureTable, box_policy: str):
        super().__init__()
        self._labels = labels
        self._table = table
        self._box_policy = box_policy

    def expand(self, pictures):
        return pictures | "Encode" >> beam.Map(_encode, AsSingleton(self._labels), self._table, self._box_policy)


def _encode(loaded: tuple[ImageTask, Picture], labels: LabelMap, table: FeatureTable, box_policy: str) -> Encoded:
    return _encoder(labels, table, box_policy).encode(*loaded)


class ExampleEncoder:
    """Encodes the records of one data set.

    Args:
        labels: the classes; every annotation is of one of them.
        table: the layout.
        box_policy: `clip`, `drop` or `keep`, see `transforms.boxes.fit_box`.
    """

    def __init__(self, labels: LabelMap, table: FeatureTable, box_policy: str):
        self._index = labels.index_by_id()
        self._name = {id_: name.encode() for id_, name in labels.name_by_id().items()}
        self._writer = ExampleWriter(table)
        self._box_policy = box_policy

    def encode(self, task: ImageTask, picture: Picture) -> Encoded:
        objects: list[tuple[Annotation, FittedBox]] = []
        rejected = []
        for annotation in task.annotations:
            box = fit_box(annotation.bbox_xywh_px, picture.width, picture.height, self._box_policy)
            if isinstance(box, Reason):
                x, y, width, height = annotation.bbox_xywh_px
                detail = f"box x {x:g}, y {y:g}, {width:g}x{height:g} in an image of {picture.width}x{picture.height}"
                rejected.append(Rejected("annotation", annotation.id, box, detail, task.image_id))
            else:
                objects.append((annotation, box))
        record = self._writer.write(_image_values(task, picture) | self._object_values(objects))
        counted = {
            Tally.OBJECTS: len(objects),
            Tally.BOXES_CLIPPED: sum(box.clipped for _, box in objects),
            Tally.RECORD_BYTES: len(record),
        }
        return Encoded(record, counted, rejected)

    def _object_values(self, objects: Sequence[tuple[Annotation, FittedBox]]) -> dict[str, list[Any]]:
        """The values of `schemas.layouts` that are one an annotation."""
        return {
            "objects.area": [annotation.area_px2 for annotation, _ in objects],
            "objects.category_id": [annotation.category_id for annotation, _ in objects],
            "objects.category_name": [self._name[annotation.category_id] for annotation, _ in objects],
            "objects.class_index": [self._index[annotation.category_id] for annotation, _ in objects],
            "objects.id": [annotation.id for annotation, _ in objects],
            "objects.is_crowd": [int(annotation.is_crowd) for annotation, _ in objects],
            "objects.xmax": [box.xmax_frac for _, box in objects],
            "objects.xmin": [box.xmin_frac for _, box in objects],
            "objects.ymax": [box.ymax_frac for _, box in objects],
            "objects.ymin": [box.ymin_frac for _, box in objects],
        }


_encoder = lru_cache(maxsize=1)(ExampleEncoder)


def _image_values(task: ImageTask, picture: Picture) -> dict[str, Any]:
    """The values of `schemas.layouts` that are one an image."""
    return {
        "image.encoded": picture.data,
        "image.file_name": task.file_name.encode(),
        "image.format": picture.format.encode(),
        "image.height": picture.height,
        "image.id": b"%d" % task.image_id,
        "image.sha256": picture.sha256.encode(),
        "image.width": picture.width,
    }
