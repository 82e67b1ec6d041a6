"""Pictures and annotations become serialised tf.Examples."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from recordmill.schemas.features import FeatureTable, Part, RecordOf
from recordmill.schemas.inputs.annotations import Annotation, StuffAnnotation
from recordmill.schemas.inputs.images import MAX_RECORD_BYTES, ImageTask, Picture, Transcoding
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.rejects import REWRITTEN_FROM, Metric, Reason, Rejected, UnusableError
from recordmill.transforms.encoders.encode_masks import RegionEncoder
from recordmill.transforms.images.decode_segmentation import compress_segmentation, decode_counts
from recordmill.transforms.images.masks import bitmap, mask_png, mask_rle, resized, run_lengths
from recordmill.transforms.images.open_picture import encoded_channels
from tests.oracles.boxes import FittedBox, fit_box
from tests.oracles.encode_keypoints import KeypointEncoder
from tests.oracles.example import ExampleWriter, Record
from tests.oracles.image_facts import NO_FACTS, FactsOfValues, ImageFacts


class Encoded(NamedTuple):
    """The records of one image.

    Attributes:
        records: serialised tf.Examples: one, or one an object, as the layout has it. Those are made as they are taken,
            for each has the image.
        counted: what is in them.
        rejected: the annotations that are not.
        class_counts: objects of each class, or images, by class index.
        facts: for statistics; empty without a record.
    """

    records: Collection[Record]
    counted: dict[Metric, int]
    rejected: list[Rejected]
    class_counts: dict[int, int] = {}
    facts: ImageFacts = NO_FACTS


class _Object(NamedTuple):
    """An annotation on its way into a record; `runs` is its mask as COCO's run lengths, empty if none is wanted."""

    annotation: Annotation
    box: FittedBox
    runs: np.ndarray


_NO_RUNS = np.zeros(0, np.int64)


class ExampleEncoder:
    """An encoder of images with annotations, or of one class each.

    Args:
        labels: the classes; every annotation is of one of them.
        table: the layout, with the parts that are wanted.
        box_policy: `clip`, `drop` or `keep`, see `recordmill.transforms.encoders.encode_objects.fit_boxes`.
    """

    def __init__(self, labels: LabelMap, table: FeatureTable, box_policy: str):
        self._class_index = {category.name: index for index, category in enumerate(labels.categories)}
        self._index = labels.index_by_id()
        self._label = labels.label_by_id()
        self._name = {category.id: category.name.encode() for category in labels.categories}
        self._keypoints = KeypointEncoder(labels)
        self._regions = RegionEncoder(labels, table.sources)
        self._writer = ExampleWriter(table)
        self._facts = FactsOfValues(table)
        self._parts = table.parts
        self._has_masks = Part.MASK_PNG in table.parts or Part.MASK_RLE in table.parts
        self._sources = table.sources
        self._per_annotation = table.record_of is RecordOf.ANNOTATION
        self._box_policy = box_policy

    def wants_image(self, task: ImageTask) -> bool:
        return bool(task.annotations) or not self._per_annotation

    def encode(self, task: ImageTask, picture: Picture) -> Encoded | Rejected:
        try:
            return self._encoded(task, picture)
        except UnusableError as fault:
            return task.rejected(fault.reason, fault.detail)

    def _encoded(self, task: ImageTask, picture: Picture) -> Encoded:
        check_size(len(picture.data))
        rejected: list[Rejected] = []
        objects = self._objects(task, picture, rejected)
        counted: Counter[Metric] = Counter(
            {Metric.OBJECTS: len(objects), Metric.BOXES_CLIPPED: sum(item.box.clipped for item in objects)}
        )
        if Part.KEYPOINTS in self._parts:
            width, height = picture.frame
            counted[Metric.KEYPOINTS_OUTSIDE] = sum(
                v == 2 and not (0 <= x <= width and 0 <= y <= height)
                for item in objects
                for x, y, v in zip(*(item.annotation.keypoints_xyv[axis::3] for axis in range(3)), strict=True)
            )
        values = image_values(task, picture) | self._object_values(objects, picture)
        if "image.class_index" in self._sources:
            values |= self._class_values(task, picture)
        if Part.CAPTIONS in self._parts:
            values |= _caption_values(task)
            counted[Metric.CAPTIONS] = len(task.labels.captions)
        if Part.PANOPTIC in self._parts:
            values |= self._panoptic_values(task, picture, counted, rejected)
        elif Part.SEMANTIC in self._parts:
            values |= self._stuff_values(task, picture, counted, rejected)
        counted[Metric.MASKS] = sum(len(item.runs) > 1 for item in objects)
        records = self._records(values, len(objects))
        if picture.transcoding and not task.is_continuation:
            counted += transcoding_counts(picture.transcoding, len(picture.data))
        if not task.is_continuation:
            counted[Metric.IMAGES if records else Metric.IMAGES_WITHOUT_RECORD] += 1
        classes = [values["image.class_index"]] if "image.class_index" in values else values["objects.class_index"]
        bounds = [_bounds(item.runs, picture) for item in objects] if self._has_masks else None
        facts = self._facts(values, task.is_continuation, picture.measures, bounds)
        return Encoded(records, dict(+counted), rejected, dict(Counter(classes)), facts)

    def _records(self, values: dict[str, Any], objects: int) -> Collection[Record]:
        if self._per_annotation:
            return RecordsOfObjects(self._writer, values, objects)
        record = self._writer.record(values)
        check_size(sum(map(len, record)))
        return (record,)

    def _objects(self, task: ImageTask, picture: Picture, rejected: list[Rejected]) -> list[_Object]:
        """The annotations that go into the record; the others join `rejected`."""
        objects = []
        for annotation in task.annotations:
            try:
                objects.append(self._object(annotation, picture))
            except UnusableError as fault:
                rejected.append(Rejected("annotation", annotation.id, fault.reason, fault.detail, task.image_id))
        return objects

    def _object(self, annotation: Annotation, picture: Picture) -> _Object:
        box = fit_box(annotation.bbox_xywh_px, *picture.frame, self._box_policy)
        if isinstance(box, Reason):
            x, y, width, height = annotation.bbox_xywh_px
            detail = f"box x {x:g}, y {y:g}, {width:g}x{height:g} in an image of {'x'.join(map(str, picture.frame))}"
            raise UnusableError(box, detail)
        if self._has_masks:
            return _Object(annotation, box, _runs(annotation.segmentation, picture))
        return _Object(annotation, box, _NO_RUNS)

    def _object_values(self, objects: Sequence[_Object], picture: Picture) -> dict[str, list[Any]]:
        """The values of `recordmill.schemas.layouts` that are one an annotation, or more."""
        annotations = [item.annotation for item in objects]
        boxes = [item.box for item in objects]
        width, height = picture.width, picture.height
        values: dict[str, list[Any]] = {
            "objects.area": [annotation.area_px2 for annotation in annotations],
            "objects.category_id": [annotation.category_id for annotation in annotations],
            "objects.category_name": [self._name[annotation.category_id] for annotation in annotations],
            "objects.class_index": [self._index[annotation.category_id] for annotation in annotations],
            "objects.id": [annotation.id for annotation in annotations],
            "objects.is_crowd": [int(annotation.is_crowd) for annotation in annotations],
            "objects.label": [self._label[annotation.category_id] for annotation in annotations],
            "objects.xmax": [box.xmax_frac for box in boxes],
            "objects.xmin": [box.xmin_frac for box in boxes],
            "objects.ymax": [box.ymax_frac for box in boxes],
            "objects.ymin": [box.ymin_frac for box in boxes],
        }
        if "objects.area_whole" in self._sources:
            values["objects.area_whole"] = [int(annotation.area_px2) for annotation in annotations]
        if "objects.bbox_xywh_px" in self._sources:
            values["objects.bbox_xywh_px"] = [_box_px(item, picture) for item in objects]
        if "objects.bbox_yxyx" in self._sources:
            values["objects.bbox_yxyx"] = [edge for box in boxes for edge in box[:4]]
        if Part.KEYPOINTS in self._parts:
            values |= self._keypoints.encode(annotations, *picture.frame)
        if Part.MASK_PNG in self._parts:
            masks = (mask_png(item.runs, width, height) for item in objects)
            values["objects.mask_png"] = _within_a_record(masks, len(picture.data))
        if Part.MASK_RLE in self._parts:
            counts = (mask_rle(item.runs) for item in objects)
            values["objects.mask_rle"] = _within_a_record(counts, len(picture.data))
        return values

    def _class_values(self, task: ImageTask, picture: Picture) -> dict[str, Any]:
        """The values of `recordmill.schemas.layouts` that images of one class each have."""
        name = task.labels.class_name or ""
        return {
            "image.channels": encoded_channels(picture.data, picture.format),
            "image.class_index": self._class_index[name],
            "image.class_name": name.encode(),
        }

    def _panoptic_values(
        self, task: ImageTask, picture: Picture, counted: Counter[Metric], rejected: list[Rejected]
    ) -> dict[str, Any]:
        """The values of `recordmill.schemas.layouts` that come of a panoptic annotation; without one, all is void."""
        for row in task.labels.panoptic:
            try:
                values = self._regions.of_panoptic(row, picture)
            except UnusableError as fault:
                rejected.append(Rejected("annotation", None, fault.reason, fault.detail, task.image_id))
            else:
                counted[Metric.PANOPTIC] += 1
                return values
        return self._regions.of_void(picture.width, picture.height)

    def _stuff_values(
        self, task: ImageTask, picture: Picture, counted: Counter[Metric], rejected: list[Rejected]
    ) -> dict[str, Any]:
        """The semantic mask of stuff annotations."""
        regions: list[tuple[StuffAnnotation, np.ndarray]] = []
        for region in task.labels.regions:
            try:
                regions.append((region, _runs(region.segmentation, picture)))
            except UnusableError as fault:
                rejected.append(Rejected("annotation", region.id, fault.reason, fault.detail, task.image_id))
        counted[Metric.REGIONS] = len(regions)
        return self._regions.of_stuff(regions, picture.width, picture.height)


class RecordsOfObjects(Collection[Record]):
    """The records of an image's objects, of which only one is held at a time."""

    def __init__(self, writer: ExampleWriter, values: dict[str, Any], objects: int):
        self._writer = writer
        self._values = values
        self._objects = objects

    def __len__(self) -> int:
        return self._objects

    def __contains__(self, record: object) -> bool:
        return any(each == record for each in self)

    def __iter__(self) -> Iterator[Record]:
        of_objects = {source: value for source, value in self._values.items() if source.startswith("objects.")}
        for index in range(self._objects):
            yield self._writer.record(self._values | {source: value[index] for source, value in of_objects.items()})


def _within_a_record(masks: Iterable[bytes], before: int) -> list[bytes]:
    """The masks of an image, unless they are more bytes than a record has besides `before`."""
    kept = []
    for mask in masks:
        kept.append(mask)
        before += len(mask)
        check_size(before)
    return kept


def check_size(size: int) -> None:
    """
    Raises:
        UnusableError: a record has so many bytes or more, which no reader takes.
    """
    if size > MAX_RECORD_BYTES:
        detail = f"its record would have {size:,} bytes or more; at most {MAX_RECORD_BYTES:,} are written"
        raise UnusableError(Reason.RECORD_TOO_LARGE, detail)


def _bounds(runs: np.ndarray, picture: Picture) -> tuple[int, int, int, int] | None:
    """ymin, xmin, ymax, xmax of a mask, the last two those after it; None of a mask without a pixel."""
    rows, columns = np.nonzero(bitmap(runs, picture.width, picture.height))
    return (rows.min(), columns.min(), rows.max() + 1, columns.max() + 1) if len(rows) else None


def _runs(segmentation: bytes, picture: Picture) -> np.ndarray:
    """Run lengths of a mask of the record's image.

    Raises:
        UnusableError: it is no mask of the image.
    """
    runs = decode_counts(compress_segmentation(segmentation, *picture.frame), *picture.frame)
    if picture.annotated_size:
        runs = run_lengths(resized(bitmap(runs, *picture.frame), picture.width, picture.height))
    return runs


def _box_px(item: _Object, picture: Picture) -> tuple[float, float, float, float]:
    """x, y, width, height in pixels of the record's image: the JSON's own numbers, where box and image are as they
    were."""
    if not item.box.clipped and not picture.annotated_size:
        return item.annotation.bbox_xywh_px
    x, y = item.box.xmin_frac * picture.width, item.box.ymin_frac * picture.height
    return x, y, item.box.xmax_frac * picture.width - x, item.box.ymax_frac * picture.height - y


def transcoding_counts(transcoding: Transcoding, bytes_written: int) -> Counter[Metric]:
    return Counter(
        {
            REWRITTEN_FROM.get(transcoding.original, Metric.FROM_OTHER): 1,
            Metric.TURNED: int(transcoding.turned),
            Metric.SHRUNK: int(transcoding.shrunk),
            Metric.REWRITTEN_BYTES_READ: transcoding.bytes,
            Metric.REWRITTEN_BYTES: bytes_written,
        }
    )


def image_values(task: ImageTask, picture: Picture) -> dict[str, Any]:
    """The values of `recordmill.schemas.layouts` that are one an image."""
    return {
        "image.encoded": picture.data,
        "image.file_name": task.file_name.encode(),
        "image.format": picture.format.encode(),
        "image.height": picture.height,
        "image.id": b"%d" % task.image_id,
        "image.neg_category_ids": task.labels.neg_category_ids,
        "image.not_exhaustive_category_ids": task.labels.not_exhaustive_category_ids,
        "image.number": task.image_id,
        "image.pixels": picture.data,
        "image.sha256": picture.sha256.encode(),
        "image.width": picture.width,
    }


def _caption_values(task: ImageTask) -> dict[str, Any]:
    captions = task.labels.captions
    return {
        "captions.id": [caption.id for caption in captions],
        "captions.index": task.labels.caption_index,
        "captions.text": [caption.caption.encode() for caption in captions],
        "captions.tokens": task.labels.caption_index,
        "captions.value": task.labels.caption_value,
    }
