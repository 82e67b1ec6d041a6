"""Compute features of images with a model, batch by batch. Threads read and decode images ahead of the model. Broken
images are rejected before a batch is formed."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from math import prod

import msgspec
import numpy as np

from recordmill.schemas.features import FeatureKind, FeatureTable
from recordmill.schemas.inputs.images import ImageTask
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.models import FeatureModel, ModelChoice
from recordmill.schemas.rejects import Metric, Reason, Rejected
from recordmill.transforms.blocks.image_tasks import stream_tasks
from recordmill.transforms.dataset.record_view import RecordView
from recordmill.transforms.encoders.estimate_records import RecordEstimate
from recordmill.transforms.encoders.load_model import load_expected_model
from recordmill.transforms.encoders.record_maker import EncodeBlock, Encoded, Made, RecordContext, encode_runs
from recordmill.transforms.images.load_images import load_pixels
from recordmill.transforms.records.example import ExampleWriter
from recordmill.transforms.runtime.threads import look_ahead

_Read = tuple[ImageTask, np.ndarray | Rejected]


class EmbedImages(msgspec.Struct, frozen=True, tag=True):
    """A RecordMaker.

    Attributes:
        model: Model as found when the job was started.
        batch: Number of images per call of the model.
        dtype: Dtype of stored features, `float32` or `float16`.
        resize: See `recordmill.transforms.images.load_images`.
    """

    choice: ModelChoice
    model: FeatureModel
    batch: int
    dtype: str
    resize: str

    def estimate(self, table: FeatureTable) -> RecordEstimate:
        return RecordEstimate(table, same_bytes=prod(self.model.feature_shape) * np.dtype(self.dtype).itemsize)

    def start(self, context: RecordContext) -> EncodeBlock:
        encoder = FeatureEncoder(context.labels, context.table, self.dtype)
        return lambda block, split: encode_runs(embed_tasks(stream_tasks(block, (split,)), self, context, encoder))


def embed_tasks(
    tasks: Iterable[ImageTask], maker: EmbedImages, context: RecordContext, encoder: "FeatureEncoder"
) -> Iterator[Made]:
    """Yield the records of images, in the order of tasks."""
    features = load_expected_model(maker.choice, maker.model).features
    for read in group_batches(_read_ahead(tasks, maker, context), maker.batch):
        images = [pixels for _, pixels in read if isinstance(pixels, np.ndarray)]
        made = iter(features(np.stack(images)).numpy()) if images else iter(())
        for task, pixels in read:
            yield task, pixels if isinstance(pixels, Rejected) else encoder.encode(task, next(made))


def _read_ahead(tasks: Iterable[ImageTask], maker: EmbedImages, context: RecordContext) -> Iterator[_Read]:
    """Yield pixels in the order of tasks. Threads read two batches ahead, so that the model never waits."""
    size = max(1, -(-maker.batch // context.threads))
    remaining = iter(tasks)
    parts = iter(lambda: list(islice(remaining, size)), [])
    read = partial(_load_tasks, size=maker.model.input_size, resize=maker.resize)
    return chain.from_iterable(look_ahead(read, parts, context.pool, context.threads))


def _load_tasks(tasks: Sequence[ImageTask], size: tuple[int, int], resize: str) -> list[_Read]:
    return [(task, load_pixels(task, size, resize)) for task in tasks]


def group_batches(items: Iterator[_Read], batch: int) -> Iterator[list[_Read]]:
    """Yield consecutive items as lists with `batch` images each, fewer in the last; rejects do not count."""
    items_read: list[_Read] = []
    num_images = 0
    for item in items:
        items_read.append(item)
        num_images += isinstance(item[1], np.ndarray)
        if num_images == batch:
            yield items_read
            items_read, num_images = [], 0
    if items_read:
        yield items_read


class FeatureEncoder:
    """Encoder of a data set's records.

    Args:
        labels: The classes; every image has one of them.
        dtype: Dtype of stored features, `float32` or `float16`.
    """

    def __init__(self, labels: LabelMap, table: FeatureTable, dtype: str):
        self._class_index = {category.name: index for index, category in enumerate(labels.categories)}
        self._writer = ExampleWriter(table)
        self._has_names = any(
            feature.source == table.label and feature.kind is FeatureKind.BYTES for feature in table.features
        )
        self._dtype = np.dtype(dtype).newbyteorder("<")

    def encode(self, task: ImageTask, feature: np.ndarray) -> Encoded | Rejected:
        """Return an image's record with float32 feature, or its reject."""
        with np.errstate(over="ignore"):  # _fault reports infinity
            numbers = feature.astype(self._dtype)
        if fault := _find_feature_fault(feature, numbers):
            detail = f"of its {numbers.size:,} numbers from the model, {fault}"
            return task.rejected(Reason.UNUSABLE_FEATURE, detail)
        name = task.labels.class_name or ""
        values = {
            "feature.bytes": numbers.tobytes(),
            "feature.shape": numbers.shape,
            "feature.values": numbers.ravel(),
            "image.class_index": name.encode() if self._has_names else self._class_index[name],
            "image.class_name": name.encode(),
            "image.file_name": task.file_name.encode(),
            "image.id": b"%d" % task.image_id,
        }
        record = self._writer.record(values)
        facts = RecordView(values | {"image.class_index": self._class_index[name]}).facts()
        return Encoded((record,), {Metric.IMAGES: 1}, [], {self._class_index[name]: 1}, facts)


def _find_feature_fault(feature: np.ndarray, values: np.ndarray) -> str:
    """Return the reason why the stored values of a feature are unusable for training; empty if they are usable."""
    finite = np.isfinite(values)
    if not finite.all():
        given = np.count_nonzero(~np.isfinite(feature))
        return f"{np.count_nonzero(~finite):,} are NaN or infinite as {values.dtype.name}, {given:,} of them as float32"
    if feature.any() and not values.any():
        return f"all are 0 as {values.dtype.name}; the largest is {np.abs(feature).max():.3g}"
    return ""
