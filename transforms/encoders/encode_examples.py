"""Encode images and annotations as serialised tf.Examples, one run of images at a time."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import msgspec
import numpy as np

from recordmill.schemas.block import Block, Ragged, ragged_bytes, ragged_texts, starts_of
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import FeatureTable, Part, RecordOf
from recordmill.schemas.inputs.annotations import ImageLabels
from recordmill.schemas.inputs.images import MAX_RECORD_BYTES, ImageTask, StoredImage
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import column_writer
from recordmill.schemas.rejects import Metric, Rejected, UnusableError
from recordmill.transforms.blocks.image_facts import MAP_FACTS, NO_CLASS, FactColumns, FieldItems
from recordmill.transforms.blocks.image_tasks import id_texts, object_columns, source_ids
from recordmill.transforms.encoders.encode_fields import FieldEncoder
from recordmill.transforms.encoders.encode_masks import DrawnMasks, MaskDrawer, WholeMaps
from recordmill.transforms.encoders.encode_objects import (
    FittedBoxes,
    KeypointEncoder,
    describe_unfit_box,
    fit_boxes,
    reject_object,
    scale_to_pixels,
)
from recordmill.transforms.encoders.record_maker import EncodedRun, check_size, transcoding_counts
from recordmill.transforms.images.image_sources import inspect_image_file
from recordmill.transforms.images.load_images import load_image
from recordmill.transforms.images.open_image import encoded_channels
from recordmill.transforms.records.example import Column, ExampleWriter, Record, bytes_items


class LoadedImage(NamedTuple):
    """An image of a run.

    Attributes:
        task: Metadata of the image, without its objects, which are in a Block.
        stored: Checked image, or its reject. None if the image was not read, because it cannot have a record.
        masks: Drawn masks; None if no masks are requested, or without an image.
    """

    task: ImageTask
    stored: StoredImage | Rejected | None
    masks: DrawnMasks | None = None


class Run(NamedTuple):
    """Images to write: N images with their M usable objects. `recordmill.schemas.values` makes columns of it.

    Attributes:
        images: N images, with images.
        block: Columns of the images and objects.
        size_px: int64 [N, 2], width and height of each image.
        frame_px: int64 [N, 2], width and height of the frame of each image's annotations.
        boxes: M boxes.
        class_index: int64 [M].
        label_of_class: int64 [classes].
        class_names: UTF-8 [classes].
        name_of_class: Class names as serialised bytes [classes].
        image_class: int64 [N], class index of images with one class; empty for others.
        keypoints: Columns of keypoints, by name.
        fields: Columns of open fields, by source.
    """

    images: list[LoadedImage]
    block: Block
    size_px: np.ndarray
    frame_px: np.ndarray
    boxes: FittedBoxes
    class_index: np.ndarray
    label_of_class: np.ndarray
    class_names: list[bytes]
    name_of_class: Ragged
    image_class: np.ndarray
    keypoints: dict[str, Column]
    fields: dict[str, Column] = {}

    @property
    def stored_images(self) -> list[Any]:
        return [image.stored for image in self.images]

    @property
    def labels(self) -> list[ImageLabels]:
        return [image.task.labels for image in self.images]

    @property
    def channels(self) -> np.ndarray:
        """Number of channels of each encoded image: int64 [N]."""
        return np.array([encoded_channels(stored.data, stored.format) for stored in self.stored_images], np.int64)


class ExampleEncoder:
    """Encoder of images with annotations, or with one class each.

    Args:
        labels: The classes; every annotation has one of them.
        table: The layout, with the requested parts.
        box_policy: `clip`, `drop` or `keep`, see `recordmill.transforms.encoders.encode_objects.fit_boxes`.
        min_area_px2: See `recordmill.transforms.encoders.encode_objects.scale_to_pixels`.

    Attributes:
        load: Function of an ImageTask and ImageRules that returns the StoredImage, or its Rejected.
    """

    def __init__(self, labels: LabelMap, table: FeatureTable, box_policy: str, min_area_px2: float = 0.0):
        self._drawer = MaskDrawer(labels, table, box_policy, min_area_px2)
        self._min_area_px2 = min_area_px2
        self._class_of_name = {category.name: index for index, category in enumerate(labels.categories)}
        category_ids = np.array([category.id for category in labels.categories], np.int64)
        self._class_order = np.argsort(category_ids)
        self._category_ids = category_ids[self._class_order]
        label_by_id = labels.label_by_id()
        self._label = np.array([label_by_id[category.id] for category in labels.categories], np.int64)
        self._names = [category.name.encode() for category in labels.categories]
        self._name = ragged_bytes(bytes_items(self._names))
        self._keypoints = KeypointEncoder(labels)
        self._fields = FieldEncoder(table)
        self._writer = ExampleWriter(table)
        self._sources = table.sources
        self._writes = {
            feature.source: write for feature in table.features if (write := column_writer(feature)) is not None
        }
        self._parts = table.parts
        self._has_class = "image.class_index" in table.sources
        self.per_annotation = table.record_of is RecordOf.ANNOTATION
        self._box_policy = box_policy
        self.load = inspect_image_file if "image.file" in table.sources else load_image

    def read_maps(self, task: ImageTask) -> WholeMaps:
        """Return the maps of a tile's whole image, see `MaskDrawer.read_maps`."""
        return self._drawer.read_maps(task)

    def draw(
        self, task: ImageTask, block: Block, row: int, image: StoredImage, whole: WholeMaps | None = None
    ) -> LoadedImage:
        """Return the image with the masks of its record. Thread-safe.

        Args:
            block: Images; the task's image is in `row`.
            whole: Result of `read_maps`, if the image is a tile that was cut from its whole image.

        Raises:
            OSError: Storage fails.
        """
        try:
            maps = self._drawer.encode_maps(task, image, whole)
        except UnusableError as fault:
            return LoadedImage(task, task.rejected(fault.reason, fault.detail))
        try:
            check_size(len(image.data))
            return LoadedImage(task, image, self._drawer.draw(task, block, row, image, whole, maps))
        except UnusableError as fault:
            return _reject_image(task, fault)

    def encode(self, block: Block, images: Sequence[LoadedImage]) -> EncodedRun:
        """Encode a run of images.

        Args:
            block: N images and their objects.
            images: N.
        """
        block = add_object_columns(block)
        images = self._reject_unfit(block, images)
        rows = [row for row, image in enumerate(images) if isinstance(image.stored, StoredImage)]
        with_images = block if len(rows) == len(block) else block.take(np.array(rows, np.int64))
        run, faults = self._fit(with_images, [images[row] for row in rows])
        per_image = run.block.objects_per_image if self.per_annotation else np.ones(len(rows), np.int64)
        records: Iterable[Record] = self._writer.records(self._columns(run), int(per_image.sum()))
        if not self.per_annotation:
            records = list(records)
            large = {row: sum(map(len, record)) for row, record in zip(rows, records, strict=True)}
            if max(large.values(), default=0) > MAX_RECORD_BYTES:
                return self.encode(
                    block, [_reject_if_large(image, large.get(row, 0)) for row, image in enumerate(images)]
                )
        facts = self._facts(run)
        small = with_images.num_objects - run.block.num_objects - sum(map(len, faults.values()))
        filtered = {Metric.FILTERED_AREA: small} if small else {}
        rejects = _gather_rejects(block, images, {rows[row]: rejected for row, rejected in faults.items()})
        return EncodedRun(
            records,
            facts if per_image.all() else facts.take(np.flatnonzero(per_image)),
            per_image[per_image > 0],
            _count_run_contents(run, per_image, Part.CAPTIONS in self._parts) + rejects.counted + Counter(filtered),
            list(map(id_texts(block).with_ids, rejects.rejected)),
            _count_classes(facts.image_class if self._has_class else run.class_index),
            len(rejects.read_bytes),
            sum(rejects.read_bytes),
            rejects.bytes,
            self._field_items(run, per_image),
        )

    def _field_items(self, run: Run, per_image: np.ndarray) -> dict[str, FieldItems]:
        """Return the values of open fields in records; those of an image once.

        Args:
            per_image: Number of records of each image.
        """
        is_counted = (per_image > 0) & ~np.array([image.task.is_continuation for image in run.images], bool)
        image_fields = run.fields
        if not is_counted.all():
            part = run.block.take(np.flatnonzero(is_counted))
            image_fields, _ = self._fields.encode("image", part.image_fields, len(part))
        return self._fields.items("image", image_fields) | self._fields.items("object", run.fields)

    def _fit(self, block: Block, images: list[LoadedImage]) -> tuple[Run, dict[int, list[Rejected]]]:
        """Fit the boxes of images with images. Return them, and rejects of objects by row of the image."""
        stored_images: list[Any] = [image.stored for image in images]
        size_px = np.array([(stored.width, stored.height) for stored in stored_images], np.int64).reshape(-1, 2)
        frame_px = np.array([stored.frame for stored in stored_images], np.int64).reshape(-1, 2)
        block = scale_to_pixels(block, frame_px, self._min_area_px2)
        boxes = fit_boxes(block.boxes_xywh_px, frame_px[block.image_of_object], self._box_policy)
        is_written = boxes.is_usable
        field_columns, unfit = self._fields.encode("object", block.object_fields, block.num_objects)
        is_written[[fault.place for fault in unfit]] = False
        for image, first in zip(images, block.first_object_of_image.tolist(), strict=False):
            if image.masks and image.masks.faults:
                is_written[[first + row for row in image.masks.faults]] = False
        rejected = {}
        if not is_written.all():
            faults = {fault.place: UnusableError(fault.reason, fault.detail) for fault in unfit}
            rejected = _reject_objects(block, images, boxes, np.flatnonzero(~is_written), faults)
            block, boxes = block.take_objects(is_written), boxes.take(is_written)
            field_columns, _ = self._fields.encode("object", block.object_fields, block.num_objects)
        image_fields, _ = self._fields.encode("image", block.image_fields, len(block))
        class_index = self._class_indices(block.category_id)
        names = [image.task.labels.class_name or "" for image in images] if self._has_class else []
        keypoints = {}
        if Part.KEYPOINTS in self._parts:
            keypoints = self._keypoints.encode(block.keypoints_xyv, class_index, frame_px[block.image_of_object])
        run = Run(
            images,
            block,
            size_px,
            frame_px,
            boxes,
            class_index,
            self._label,
            self._names,
            self._name,
            np.array([self._class_of_name[name] for name in names], np.int64),
            keypoints,
            image_fields | field_columns,
        )
        return run, rejected

    def _reject_unfit(self, block: Block, images: Sequence[LoadedImage]) -> Sequence[LoadedImage]:
        """Return the images; those with a field whose value does not fit its kind are rejected."""
        _, unfit = self._fields.encode("image", block.image_fields, len(block))
        if not unfit:
            return images
        images = list(images)
        for row, reason, detail in unfit:
            if isinstance(images[row].stored, StoredImage):
                images[row] = LoadedImage(images[row].task, images[row].task.rejected(reason, detail))
        return images

    def _class_indices(self, category_id: np.ndarray) -> np.ndarray:
        """Return the class index of each object: int64 [M].

        Raises:
            KeyError: A category is not one of the classes.
        """
        indices = np.searchsorted(self._category_ids, category_id, side="right") - 1
        is_known = (
            (indices >= 0) & (self._category_ids[indices] == category_id) if len(self._category_ids) else indices >= 0
        )
        if not is_known.all():
            raise KeyError(int(category_id[~is_known][0]))
        return self._class_order[indices]

    def _columns(self, run: Run) -> dict[str, Column]:
        """Return the columns of the table's features by record."""
        columns = {}
        for source, write in self._writes.items():
            column = write(run)
            if self.per_annotation:
                columns[source] = (
                    column if source.startswith("objects.") else _repeat(column, run.block.image_of_object)
                )
            else:
                starts = run.block.first_object_of_image
                columns[source] = _group_by_image(column, starts) if source.startswith("objects.") else column
        return columns

    def _facts(self, run: Run) -> FactColumns:
        """Return the columns that statistics count."""
        stored_images, tasks = run.stored_images, [image.task for image in run.images]
        columns: dict[str, Any] = {
            "name": run.block.file_name,
            "size_px": run.size_px,
            "format": [stored.format for stored in stored_images],
            "num_bytes": np.array([len(stored.data) for stored in stored_images], np.int64),
            "sha256": [stored.sha256 for stored in stored_images],
            "is_continuation": np.array([task.is_continuation for task in tasks], bool),
            "measures": [stored.measures for stored in stored_images],
            "image_class": run.image_class if self._has_class else np.full(len(tasks), NO_CLASS),
        }
        if "objects.class_index" in self._sources:
            columns["first_object_of_image"] = run.block.first_object_of_image
            columns["class_index"] = run.class_index
            columns["object_id"] = source_ids(run.block)[1]
            columns["yxyx_frac"] = run.boxes.yxyx_frac.astype(np.float32)
        if self._drawer.has_masks:
            bounds = [edges for image in run.images if image.masks for edges in image.masks.bounds_px]
            columns["mask_bounds_px"] = np.array(bounds, np.float64).reshape(-1, 4)
        if "captions.text" in self._sources:
            columns["num_captions"] = np.array([len(task.labels.captions) for task in tasks], np.int64)
        if self._drawer.has_regions:
            segments = [image.masks.values["segments.class_index"] for image in run.images if image.masks]
            columns["segments"] = ragged_ints(segments)
        for column, source, fact in MAP_FACTS:
            if source in self._sources:
                columns[column] = [image.masks.values[fact] for image in run.images if image.masks]
        if run.block.tile_xy_px is not None:
            columns |= _source_facts(run)
        return FactColumns(**columns)


def _source_facts(run: Run) -> dict[str, Any]:
    """Return the facts of the images that tiles are of."""
    tasks, labels = [image.task for image in run.images], run.block.whole_labels
    sizes = [
        (task.tile.whole_width, task.tile.whole_height) if task.tile else (stored.width, stored.height)
        for task, stored in zip(tasks, run.stored_images, strict=True)
    ]
    return {
        "source_name": ragged_texts([task.source_name for task in tasks]),
        "source_size_px": np.array(sizes, np.int64).reshape(-1, 2),
        "source_sha256": [stored.whole_sha256 or stored.sha256 for stored in run.stored_images],
        "is_counted": np.array([task.counts_image for task in tasks], bool),
        "source_labels": (np.zeros(len(run.images), np.int64) if labels is None else labels).view(np.uint64),
    }


def add_object_columns(block: Block) -> Block:
    """Return the Block with columns of objects. A Block without objects may lack them."""
    if block.num_objects:
        return block
    return block.replace(first_object_of_image=np.zeros(len(block) + 1, np.int64), **object_columns(()))


def _reject_if_large(image: LoadedImage, size: int) -> LoadedImage:
    try:
        check_size(size)
    except UnusableError as fault:
        return _reject_image(image.task, fault)
    return image


def _reject_image(task: ImageTask, fault: UnusableError) -> LoadedImage:
    """Return the reject of an image whose record is too large. See `tile_error` for tiles."""
    if task.tile:
        raise tile_error(task, fault)
    return LoadedImage(task, task.rejected(fault.reason, fault.detail))


def tile_error(task: ImageTask, fault: UnusableError) -> ConfigError:
    """Return the error of a tile that cannot be stored. It is no reject, because the other tiles of its image are
    written."""
    return ConfigError(f"{task.source_name!r}: tile {task.file_name!r}: {fault.detail}. Use a smaller --tile")


def ragged_ints(rows: Sequence[Sequence[int]]) -> Ragged:
    """Return a column of lists of int64."""
    lengths = np.array(list(map(len, rows)), np.int64)
    return Ragged(np.array([number for row in rows for number in row], np.int64), starts_of(lengths))


def _group_by_image(column: Column, starts: np.ndarray) -> Column:
    """Group objects' values by image; `starts` is a Block's first_object_of_image."""
    if isinstance(column, Ragged):
        return Ragged(column.values, column.starts[starts])
    if isinstance(column, np.ndarray):
        return Ragged(column.ravel(), starts * prod(column.shape[1:]))
    return [column[start:end] for start, end in pairwise(starts.tolist())]


def _repeat(column: Column, image_of_object: np.ndarray) -> Column:
    """Repeat the values of images for each of their objects."""
    if isinstance(column, np.ndarray):
        return column[image_of_object]
    if isinstance(column, Ragged):
        return column.take(image_of_object)
    return [column[image] for image in image_of_object.tolist()]


def _count_classes(indices: np.ndarray) -> dict[int, int]:
    """Return the count of each class index that occurs."""
    return {index: number for index, number in enumerate(np.bincount(indices).tolist()) if number}


def _count_run_contents(run: Run, per_image: np.ndarray, has_captions: bool) -> Counter[Metric]:
    """Return the counters of images, by their numbers of records."""
    clipped = int(run.boxes.is_clipped.sum())
    counted = Counter({Metric.OBJECTS: len(run.class_index), Metric.BOXES_CLIPPED: clipped})
    if run.keypoints:
        x, y, visibility = (np.asarray(run.keypoints[name]) for name in ("x", "y", "visibility"))
        is_outside = (x < 0) | (x > 1) | (y < 0) | (y > 1)
        counted[Metric.KEYPOINTS_OUTSIDE] += int((is_outside & (visibility == 2)).sum())
    for image, stored, number in zip(run.images, run.stored_images, per_image.tolist(), strict=True):
        task = image.task
        if image.masks:
            counted.update(image.masks.counted)
        if has_captions:
            counted[Metric.CAPTIONS] += len(task.labels.captions)
        if task.tile and number and not task.is_continuation:
            counted[Metric.TILES] += 1
            counted[Metric.JPEG_TILES] += bool(stored.whole_sha256) and stored.format == "jpeg"
        if task.counts_image:
            counted[Metric.IMAGES if number else Metric.IMAGES_WITHOUT_RECORD] += 1
            if stored.transcoding:
                counted += transcoding_counts(stored.transcoding, len(stored.data))
    return counted


def _reject_objects(
    block: Block,
    images: Sequence[LoadedImage],
    boxes: FittedBoxes,
    objects: np.ndarray,
    field_faults: Mapping[int, UnusableError],
) -> dict[int, list[Rejected]]:
    """Return rejects of objects, by the row of their image.

    Args:
        objects: int64, rows of the rejected objects.
        field_faults: Errors of open fields, by the row of the object.
    """
    rejected: dict[int, list[Rejected]] = defaultdict(list)
    ids = source_ids(block)[1]
    columns = (objects, block.image_of_object[objects], ids[objects], boxes.is_empty[objects])
    for row, image, object_id, is_empty in zip(*(column.tolist() for column in columns), strict=True):
        task, stored, masks = images[image]
        fault = masks.faults.get(row - int(block.first_object_of_image[image])) if masks else field_faults.get(row)
        if fault is None:
            frame = stored.frame if isinstance(stored, StoredImage) else ()
            fault = describe_unfit_box(block.boxes_xywh_px[row].tolist(), frame, is_empty)
        rejected[image].append(reject_object(object_id, task.source_id, task.source_name, fault))
    return rejected


class _RunRejects(NamedTuple):
    """Rejects of a run in order, and their counts.

    Attributes:
        bytes: File size in bytes of each rejected image.
        read_bytes: Bytes read from the file of each other image, without continuations; 0 for further tiles.
    """

    rejected: list[Rejected]
    counted: Counter[Metric]
    bytes: list[int]
    read_bytes: list[int]


def _gather_rejects(block: Block, images: Sequence[LoadedImage], faults: Mapping[int, list[Rejected]]) -> _RunRejects:
    """Collect the rejects of a run, and their counts.

    Args:
        faults: Rejects of objects, by the row of their image.
    """
    rejects = _RunRejects([], Counter(), [], [])
    for row, (task, stored, masks) in enumerate(images):
        sizes = rejects.read_bytes
        if stored is None:
            rejects.counted[Metric.IMAGES_WITHOUT_RECORD] += task.counts_image
        elif isinstance(stored, StoredImage):
            rejects.rejected.extend(faults.get(row, ()))
            rejects.rejected.extend(masks.rejected if masks else ())
        else:
            sizes = rejects.bytes
            rows = stored.annotations + int(block.objects_per_image[row])
            if not task.counts_image:
                rejects.counted[Metric.OF_REJECTED_IMAGES] += rows
            else:
                rejects.rejected.append(msgspec.structs.replace(stored, annotations=rows))
        if not task.is_continuation:
            sizes.append(task.ref.size_bytes if stored and task.counts_image else 0)
    return rejects
