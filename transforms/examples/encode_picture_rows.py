"""Rows of a table, and the pictures that they name, become serialised tf.Examples."""

from collections import Counter
from typing import Any

import msgspec

from recordmill.schemas.annotations import TableRow
from recordmill.schemas.example import ExampleWriter, merge_examples
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.images import ImageTask, Picture
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.layouts import is_of_picture
from recordmill.schemas.rejects import Metric, Rejected, UnusableError
from recordmill.transforms.dataset.record_view import RecordView
from recordmill.transforms.examples.encoded import Encoded, check_size, transcoding_counts
from recordmill.transforms.images.open_picture import encoded_channels


class PictureRowEncoder:
    """Encodes images that rows name, one at a time.

    Args:
        labels: the classes that rows may be of.
        table: features of columns, which are encoded already, and of pictures.
    """

    def __init__(self, labels: LabelMap, table: FeatureTable):
        self._class_index = {category.name: index for index, category in enumerate(labels.categories)}
        features = tuple(filter(is_of_picture, table.features))
        self._writer = ExampleWriter(msgspec.structs.replace(table, features=features))
        self._class_source = table.class_source
        self._has_channels = any(feature.source == "image.channels" for feature in features)

    def encode(self, task: ImageTask, picture: Picture) -> Encoded | Rejected:
        """The record of a row with its picture; or why there is none.

        Raises:
            ValueError: no row of a table names the image.
        """
        row, name = task.labels.row, task.labels.class_name
        if row is None:
            raise ValueError("an image that no row names")
        try:
            record, values = self._record(row, task, picture)
        except UnusableError as fault:
            return task.rejected(fault.reason, fault.detail)
        counted: Counter[Metric] = Counter({Metric.IMAGES: 1})
        if picture.transcoding:
            counted += transcoding_counts(picture.transcoding, len(picture.data))
        class_counts = {}
        if name is not None:
            values[self._class_source] = self._class_index[name]
            class_counts[self._class_index[name]] = 1
        return Encoded(((record,),), dict(counted), [], class_counts, RecordView(values).facts(picture.measures))

    def _record(self, row: TableRow, task: ImageTask, picture: Picture) -> tuple[bytes, dict[str, Any]]:
        """The record, and the values of its picture."""
        check_size(len(picture.data) + len(row.record))
        values = {
            "image.encoded": picture.data,
            "image.file_name": task.file_name.encode(),
            "image.format": picture.format.encode(),
            "image.height": picture.height,
            "image.id": b"%d" % task.image_id,
            "image.pixels": picture.data,
            "image.sha256": picture.sha256.encode(),
            "image.width": picture.width,
        }
        if self._has_channels:
            values["image.channels"] = encoded_channels(picture.data, picture.format)
        record = merge_examples(row.record, self._writer.write(values))
        check_size(len(record))
        return record, values
