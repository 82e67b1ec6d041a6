"""Pictures and annotations become serialised tf.Examples, a run of images at a time."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import msgspec
import numpy as np

from recordmill.schemas.block import Block, Ragged, ragged_bytes, starts_of
from recordmill.schemas.example import Column, ExampleWriter, Record, bytes_items
from recordmill.schemas.features import FeatureTable, Part, RecordOf
from recordmill.schemas.image_facts import NO_CLASS, FactColumns
from recordmill.schemas.images import ImageTask, Picture
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.limits import MAX_RECORD_BYTES
from recordmill.schemas.rejects import Metric, Reason, Rejected, UnusableError
from recordmill.transforms.blocks.image_tasks import object_columns
from recordmill.transforms.examples.boxes import FittedBoxes, fit_boxes
from recordmill.transforms.examples.draw_masks import DrawnMasks, MaskDrawer
from recordmill.transforms.examples.encode_keypoints import KeypointEncoder
from recordmill.transforms.examples.encoded import EncodedRun, check_size, transcoding_counts
from recordmill.transforms.images.open_picture import encoded_channels


class LoadedImage(NamedTuple):
    """An image of a run.

    Attributes:
        task: all that is known of it but for its objects, which are in a Block.
        picture: checked; or why there is none. None if it was not read, as no record can come of it.
        masks: drawn; None where none are wanted, or without a picture.
    """

    task: ImageTask
    picture: Picture | Rejected | None
    masks: DrawnMasks | None = None


class _Run(NamedTuple):
    """Images that are written: N, with their M objects that are.

    Attributes:
        images: N images, with pictures.
        block: their columns, and those of the objects.
        size_px: int64 [N, 2], width and height of each picture.
        frame_px: int64 [N, 2], width and height of what annotations refer to.
        boxes: M boxes.
        class_index: int64 [M].
    """

    images: list[LoadedImage]
    block: Block
    size_px: np.ndarray
    frame_px: np.ndarray
    boxes: FittedBoxes
    class_index: np.ndarray

    @property
    def pictures(self) -> list[Any]:
        return [image.picture for image in self.images]


class ExampleEncoder:
    """Encodes images with annotations, or of one class each.

    Args:
        labels: the classes; every annotation is of one of them.
        table: the layout, with the parts that are wanted.
        box_policy: `clip`, `drop` or `keep`, see `recordmill.transforms.examples.boxes.fit_boxes`.
    """

    def __init__(self, labels: LabelMap, table: FeatureTable, box_policy: str):
        self._drawer = MaskDrawer(labels, table, box_policy)
        self._class_of_name = {category.name: index for index, category in enumerate(labels.categories)}
        self._category_ids = np.array([category.id for category in labels.categories], np.int64)  # ascending
        label_by_id = labels.label_by_id()
        self._label = np.array([label_by_id[category.id] for category in labels.categories], np.int64)
        self._name = ragged_bytes(bytes_items([category.name.encode() for category in labels.categories]))
        self._keypoints = KeypointEncoder(labels)
        self._writer = ExampleWriter(table)
        self._sources = table.sources
        self._parts = table.parts
        self._has_class = "image.class_index" in table.sources
        self.per_annotation = table.record_of is RecordOf.ANNOTATION
        self._box_policy = box_policy

    def draw(self, task: ImageTask, block: Block, row: int, picture: Picture) -> LoadedImage:
        """An image with the masks that its record has; used by several threads.

        Args:
            block: of images; that of the task is in `row`.

        Raises:
            OSError: storage fails.
        """
        try:
            check_size(len(picture.data))
            return LoadedImage(task, picture, self._drawer.draw(task, block, row, picture))
        except UnusableError as fault:
            return LoadedImage(task, task.rejected(fault.reason, fault.detail))

    def encode(self, block: Block, images: Sequence[LoadedImage]) -> EncodedRun:
        """Encode a run of images.

        Args:
            block: N images and their objects.
            images: N.
        """
        block = with_objects(block)
        rows = [row for row, image in enumerate(images) if isinstance(image.picture, Picture)]
        with_pictures = block if len(rows) == len(block) else block.take(np.array(rows, np.int64))
        run, faults = self._fit(with_pictures, [images[row] for row in rows])
        per_image = run.block.objects_per_image if self.per_annotation else np.ones(len(rows), np.int64)
        records: Iterable[Record] = self._writer.records(self._columns(run), int(per_image.sum()))
        if not self.per_annotation:
            records = list(records)
            large = {row: sum(map(len, record)) for row, record in zip(rows, records, strict=True)}
            if max(large.values(), default=0) > MAX_RECORD_BYTES:
                return self.encode(block, [_checked(each, large.get(row, 0)) for row, each in enumerate(images)])
        facts = self._facts(run)
        left_out = _gather_left_out(block, images, {rows[row]: rejected for row, rejected in faults.items()})
        return EncodedRun(
            records,
            facts if per_image.all() else facts.take(np.flatnonzero(per_image)),
            per_image[per_image > 0],
            _count(run, per_image, Part.CAPTIONS in self._parts) + left_out.counted,
            left_out.rejected,
            _numbers(facts.image_class if self._has_class else run.class_index),
            *_count_files(images),
            left_out.bytes,
        )

    def _fit(self, block: Block, images: list[LoadedImage]) -> tuple[_Run, dict[int, list[Rejected]]]:
        """Fit the boxes of images that have pictures; also why objects are left out, by the image's row."""
        pictures: list[Any] = [image.picture for image in images]
        size_px = np.array([(picture.width, picture.height) for picture in pictures], np.int64).reshape(-1, 2)
        frame_px = np.array([picture.frame for picture in pictures], np.int64).reshape(-1, 2)
        boxes = fit_boxes(block.boxes_xywh_px, frame_px[block.image_of_object], self._box_policy)
        is_written = boxes.is_usable
        for image, first in zip(images, block.first_object_of_image.tolist(), strict=False):
            if image.masks and image.masks.faults:
                is_written[[first + row for row in image.masks.faults]] = False
        rejected = {}
        if not is_written.all():
            rejected = _reject_objects(block, images, boxes, np.flatnonzero(~is_written))
            block, boxes = block.take_objects(is_written), boxes.take(is_written)
        return _Run(images, block, size_px, frame_px, boxes, self._class_indices(block.category_id)), rejected

    def _class_indices(self, category_id: np.ndarray) -> np.ndarray:
        """The class index of each object: int64 [M].

        Raises:
            KeyError: a category is none of the classes.
        """
        found = np.searchsorted(self._category_ids, category_id, side="right") - 1
        is_known = (found >= 0) & (self._category_ids[found] == category_id) if len(self._category_ids) else found >= 0
        if not is_known.all():
            raise KeyError(int(category_id[~is_known][0]))
        return found

    def _columns(self, run: _Run) -> dict[str, Column]:
        """The values of `recordmill.schemas.layouts` that the table has, a row a record."""
        of_images, of_objects = self._image_columns(run), self._object_columns(run)
        if self.per_annotation:
            image = run.block.image_of_object
            return {source: _repeat(column, image) for source, column in of_images.items()} | of_objects
        starts = run.block.first_object_of_image
        return of_images | {source: _group(column, starts) for source, column in of_objects.items()}

    def _image_columns(self, run: _Run) -> dict[str, Column]:
        """Values that are one an image, or a list an image."""
        pictures, labels = run.pictures, [image.task.labels for image in run.images]
        make: dict[str, Callable[[], Column]] = {
            "captions.id": lambda: [[caption.id for caption in each.captions] for each in labels],
            "captions.index": lambda: [each.caption_index for each in labels],
            "captions.text": lambda: [[caption.caption.encode() for caption in each.captions] for each in labels],
            "captions.tokens": lambda: [each.caption_index for each in labels],
            "captions.value": lambda: [each.caption_value for each in labels],
            "image.channels": lambda: [encoded_channels(each.data, each.format) for each in pictures],
            "image.class_index": lambda: self._image_classes(run),
            "image.class_name": lambda: [(each.class_name or "").encode() for each in labels],
            "image.encoded": lambda: [each.data for each in pictures],
            "image.file_name": run.block.file_name.rows,
            "image.format": lambda: [each.format.encode() for each in pictures],
            "image.height": lambda: run.size_px[:, 1],
            "image.id": lambda: [b"%d" % image_id for image_id in run.block.image_id.tolist()],
            "image.neg_category_ids": lambda: [each.neg_category_ids for each in labels],
            "image.not_exhaustive_category_ids": lambda: [each.not_exhaustive_category_ids for each in labels],
            "image.number": lambda: run.block.image_id,
            "image.sha256": lambda: [each.sha256.encode() for each in pictures],
            "image.width": lambda: run.size_px[:, 0],
        }
        drawn = [source for source in self._sources if source.startswith(_DRAWN)]
        values: list[Any] = [image.masks.values if image.masks else {} for image in run.images]
        found = {source: column() for source, column in make.items() if source in self._sources}
        return found | {source: [each[source] for each in values] for source in drawn}

    def _image_classes(self, run: _Run) -> np.ndarray:
        """The class index of each image: int64 [N]."""
        return np.array([self._class_of_name[image.task.labels.class_name or ""] for image in run.images], np.int64)

    def _object_columns(self, run: _Run) -> dict[str, Column]:
        """Values that are one an object, or a list an object."""
        block, boxes, class_index = run.block, run.boxes, run.class_index
        masks: list[Any] = [image.masks for image in run.images]
        make: dict[str, Callable[[], Column]] = {
            "objects.area": lambda: block.area_px2,
            "objects.area_whole": lambda: _whole(block.area_px2),
            "objects.bbox_xywh_px": lambda: _boxes_px(run),
            "objects.bbox_yxyx": lambda: boxes.yxyx_frac,
            "objects.category_id": lambda: block.category_id,
            "objects.category_name": lambda: self._name.take(class_index),
            "objects.class_index": lambda: class_index,
            "objects.id": lambda: block.object_id,
            "objects.is_crowd": lambda: block.is_crowd,
            "objects.label": lambda: self._label[class_index],
            "objects.mask_png": lambda: [png for each in masks for png in each.png],
            "objects.mask_rle": lambda: [rle for each in masks for rle in each.rle],
            "objects.xmax": lambda: boxes.yxyx_frac[:, 3],
            "objects.xmin": lambda: boxes.yxyx_frac[:, 1],
            "objects.ymax": lambda: boxes.yxyx_frac[:, 2],
            "objects.ymin": lambda: boxes.yxyx_frac[:, 0],
        }
        found = {source: column() for source, column in make.items() if source in self._sources}
        if Part.KEYPOINTS in self._parts:
            frame_px = run.frame_px[block.image_of_object]
            found |= self._keypoints.encode(block.keypoints_xyv, class_index, frame_px)
        return found

    def _facts(self, run: _Run) -> FactColumns:
        """What statistics count of the images."""
        pictures, tasks = run.pictures, [image.task for image in run.images]
        columns: dict[str, Any] = {
            "name": run.block.file_name,
            "size_px": run.size_px,
            "format": [picture.format for picture in pictures],
            "num_bytes": np.array([len(picture.data) for picture in pictures], np.int64),
            "sha256": [picture.sha256 for picture in pictures],
            "is_continuation": np.array([task.is_continuation for task in tasks], bool),
            "measures": [picture.measures for picture in pictures],
            "image_class": self._image_classes(run) if self._has_class else np.full(len(tasks), NO_CLASS),
        }
        if "objects.class_index" in self._sources:
            columns["first_object_of_image"] = run.block.first_object_of_image
            columns["class_index"] = run.class_index
            columns["yxyx_frac"] = run.boxes.yxyx_frac.astype(np.float32)
        if self._drawer.has_masks:
            bounds = [edges for image in run.images if image.masks for edges in image.masks.bounds_px]
            columns["mask_bounds_px"] = np.array(bounds, np.float64).reshape(-1, 4)
        if "captions.text" in self._sources:
            columns["num_captions"] = np.array([len(task.labels.captions) for task in tasks], np.int64)
        if self._drawer.has_regions:
            segments = [image.masks.values["segments.class_index"] for image in run.images if image.masks]
            columns["segments"] = ragged_ints(segments)
        return FactColumns(**columns)


_DRAWN = ("panoptic.", "segments.", "semantic.")
"""Begin sources whose values are drawn, an image at a time."""


def with_objects(block: Block) -> Block:
    """The Block with the columns of objects, which may be absent where there are none."""
    if block.num_objects:
        return block
    return block.having(first_object_of_image=np.zeros(len(block) + 1, np.int64), **object_columns(()))


def _checked(image: LoadedImage, size: int) -> LoadedImage:
    try:
        check_size(size)
    except UnusableError as fault:
        return LoadedImage(image.task, image.task.rejected(fault.reason, fault.detail))
    return image


def ragged_ints(rows: Sequence[Sequence[int]]) -> Ragged:
    """A column of lists of int64."""
    lengths = np.array(list(map(len, rows)), np.int64)
    return Ragged(np.array([number for row in rows for number in row], np.int64), starts_of(lengths))


def _group(column: Column, starts: np.ndarray) -> Column:
    """Values of objects as lists of their images; `starts` as a Block's first_object_of_image."""
    if isinstance(column, Ragged):
        return Ragged(column.values, column.starts[starts])
    if isinstance(column, np.ndarray):
        return Ragged(column.ravel(), starts * prod(column.shape[1:]))
    return [column[start:end] for start, end in pairwise(starts.tolist())]


def _repeat(column: Column, image_of_object: np.ndarray) -> Column:
    """Values of images as those of their objects."""
    if isinstance(column, np.ndarray):
        return column[image_of_object]
    return [column[image] for image in image_of_object.tolist()]


def _whole(numbers: np.ndarray) -> np.ndarray:
    """Numbers without their fractions: int64."""
    with np.errstate(invalid="raise"):
        return numbers.astype(np.int64)


def _boxes_px(run: _Run) -> np.ndarray:
    """x, y, width, height in pixels of the record's image: float64 [M, 4]; the source's own numbers, where box and
    image are as they were."""
    image = run.block.image_of_object
    sides = run.size_px[image].astype(np.float64)
    ymin, xmin, ymax, xmax = run.boxes.yxyx_frac.T
    low, high = np.column_stack((xmin, ymin)) * sides, np.column_stack((xmax, ymax)) * sides
    is_as_it_was = ~run.boxes.is_clipped & (run.frame_px == run.size_px).all(axis=1)[image]
    return np.where(is_as_it_was[:, None], run.block.boxes_xywh_px, np.concatenate((low, high - low), axis=1))


def _numbers(indices: np.ndarray) -> dict[int, int]:
    """How often each class index is there, of those that are."""
    return {index: number for index, number in enumerate(np.bincount(indices).tolist()) if number}


def _count(run: _Run, per_image: np.ndarray, has_captions: bool) -> Counter[Metric]:
    """What is counted of images, by the number of records that each has."""
    clipped = int(run.boxes.is_clipped.sum())
    counted = Counter({Metric.OBJECTS: len(run.class_index), Metric.BOXES_CLIPPED: clipped})
    for image, number in zip(run.images, per_image.tolist(), strict=True):
        task, picture = image.task, image.picture
        if image.masks:
            counted.update(image.masks.counted)
        if has_captions:
            counted[Metric.CAPTIONS] += len(task.labels.captions)
        if not task.is_continuation:
            counted[Metric.IMAGES if number else Metric.IMAGES_WITHOUT_RECORD] += 1
            if isinstance(picture, Picture) and picture.transcoding:
                counted += transcoding_counts(picture.transcoding, len(picture.data))
    return counted


def _count_files(images: Sequence[LoadedImage]) -> tuple[int, int]:
    """Number of images that are not rejected, without continuations, and bytes of the files that were read for them."""
    sizes = [
        image.task.ref.size_bytes if image.picture else 0
        for image in images
        if not image.task.is_continuation and not isinstance(image.picture, Rejected)
    ]
    return len(sizes), sum(sizes)


def _reject_objects(
    block: Block, images: Sequence[LoadedImage], boxes: FittedBoxes, objects: np.ndarray
) -> dict[int, list[Rejected]]:
    """Why objects are left out, by the row of their image.

    Args:
        objects: int64, rows of those objects.
    """
    rejected: dict[int, list[Rejected]] = defaultdict(list)
    columns = (objects, block.image_of_object[objects], block.object_id[objects], boxes.is_empty[objects])
    for row, image, object_id, is_empty in zip(*(column.tolist() for column in columns), strict=True):
        task, picture, masks = images[image]
        fault = masks.faults.get(row - int(block.first_object_of_image[image])) if masks else None
        if fault is None:
            x, y, width, height = block.boxes_xywh_px[row].tolist()
            frame = "x".join(map(str, picture.frame)) if isinstance(picture, Picture) else ""
            detail = f"box x {x:g}, y {y:g}, {width:g}x{height:g} in an image of {frame}"
            fault = UnusableError(Reason.EMPTY_BOX if is_empty else Reason.BOX_OUTSIDE, detail)
        rejected[image].append(Rejected("annotation", object_id, fault.reason, fault.detail, task.image_id))
    return rejected


class _LeftOut(NamedTuple):
    """Rejects of a run in order, what is counted of them, and the file sizes of rejected images."""

    rejected: list[Rejected]
    counted: Counter[Metric]
    bytes: list[int]


def _gather_left_out(block: Block, images: Sequence[LoadedImage], faults: Mapping[int, list[Rejected]]) -> _LeftOut:
    """
    Args:
        faults: objects that are left out, by the row of their image.
    """
    left_out = _LeftOut([], Counter(), [])
    for row, (task, picture, masks) in enumerate(images):
        if picture is None:
            left_out.counted[Metric.IMAGES_WITHOUT_RECORD] += 1
        elif isinstance(picture, Picture):
            left_out.rejected.extend(faults.get(row, ()))
            left_out.rejected.extend(masks.rejected if masks else ())
        else:
            rows = picture.annotations + int(block.objects_per_image[row])
            if task.is_continuation:
                left_out.counted[Metric.OF_REJECTED_IMAGES] += rows
                continue
            left_out.rejected.append(msgspec.structs.replace(picture, annotations=rows))
            left_out.bytes.append(task.ref.size_bytes)
    return left_out
