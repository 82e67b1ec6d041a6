"""Facts of the images of finished records, as they were when the records were written."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from recordmill.schemas.block import Ragged, starts_of
from recordmill.schemas.features import FeatureKind, FeatureTable, Part
from recordmill.schemas.field_features import FLAT_VALUES, LENGTHS, RAGGED, FieldColumn, field_columns, split_lists
from recordmill.schemas.inputs.labels import SEMANTIC_IGNORE, LabelMap
from recordmill.schemas.rejects import Metric
from recordmill.transforms.blocks.image_facts import FactColumns, FieldItems
from recordmill.transforms.dataset.record_view import RecordView, grey_pixels
from recordmill.transforms.encoders.encode_fields import FieldEncoder
from recordmill.transforms.images.masks import mask_bounds, mask_rle, run_lengths
from recordmill.transforms.images.open_image import image_kind, open_image, stored_size
from recordmill.transforms.insight.count_maps import count_values, measure_depth
from recordmill.transforms.records.example import Column
from recordmill.transforms.records.parse_record import RecordParser, convert_to_layout_types, join_values


class ImageFacts(NamedTuple):
    """Facts of one image, or tile.

    Attributes:
        columns: Statistics' columns, without measures of pixels.
        fields: Values of open fields, by the source of their feature.
        counted: Counts of its records' contents. Images are counted if they are not tiles.
    """

    columns: FactColumns
    fields: dict[str, list[FieldItems]]
    counted: Counter[Metric]


class RecordFacts:
    """Reader of the facts of finished records.

    Args:
        table: Features of the records.
        labels: Classes of the data set.
    """

    def __init__(self, table: FeatureTable, labels: LabelMap):
        self._table, self._labels = table, labels
        self._parse = RecordParser(table)
        self._columns = field_columns(table)
        self._fields = FieldEncoder(table)
        self._segments = _SegmentReader(table, labels)

    def __call__(self, records: Sequence[bytes], is_continuation: bool) -> ImageFacts:
        """Return the facts of an image.

        Args:
            records: Its records in a shard, one or more.
            is_continuation: True if an earlier shard has other records of the image.

        Raises:
            RecordParseError: A record is not an Example of the table.
            UnusableError: The image, or a mask, does not decode.
        """
        parsed = [convert_to_layout_types(self._parse(record), self._table, self._labels) for record in records]
        values = join_values(parsed)
        view = _sized_view(values)
        columns = view.facts()._asdict() | {"is_continuation": np.array([is_continuation])}
        counted = Counter({Metric.RECORD_BYTES: sum(map(len, records))})
        if "objects.class_index" in values:
            columns |= _object_columns(view)
            counted[Metric.OBJECTS] = len(columns["class_index"])
        if self._table.has_masks:
            columns["mask_bounds_px"] = bounds = _mask_bounds(view)
            counted[Metric.MASKS] = int((bounds[:, 0] >= 0).sum())
        if "captions.text" in values:
            counted[Metric.CAPTIONS] = len(values["captions.text"])
            columns["num_captions"] = np.array([counted[Metric.CAPTIONS]], np.int64)
        if self._segments.metric:
            segments = self._segments(values)
            columns["segments"] = Ragged(segments, np.array([0, len(segments)]))
            is_row = self._segments.metric is not Metric.REGIONS  # one annotation, or mask, has all segments
            counted[self._segments.metric] = min(len(segments), 1) if is_row else len(segments)
        columns |= (maps := self._map_facts(values))
        if "depth" in maps:  # a map without a known depth stands for none
            counted[Metric.DEPTH_MAPS] = int(maps["depth"][0].count > 0)
        is_tile = Part.TILES in self._table.parts
        counted[Metric.TILES if is_tile else Metric.IMAGES] = int(not is_continuation)
        if Part.KEYPOINTS in self._table.parts and not is_tile:  # those of tiles were counted in whole images
            counted[Metric.KEYPOINTS_OUTSIDE] = _count_outside(values)
        return ImageFacts(FactColumns(**columns), self._field_items(parsed, is_continuation), counted)

    def _map_facts(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the columns of `recordmill.transforms.blocks.image_facts.MAP_FACTS`."""
        columns: dict[str, Any] = {}
        if "semantic.png" in values:
            columns["pixels"] = [count_values(grey_pixels(values["semantic.png"]))]
        if "depth.png" in values:
            columns["depth"] = [measure_depth(grey_pixels(values["depth.png"]), self._table.depth_scale or 1.0)]
        return columns

    def _field_items(self, parsed: Sequence[dict[str, Any]], is_continuation: bool) -> dict[str, list[FieldItems]]:
        """Return the values of open fields; those of an image once."""
        items: dict[str, list[FieldItems]] = {}
        for number, values in enumerate(parsed):
            is_counted = {"object": True, "image": not number and not is_continuation}
            for axis in (axis for axis, is_axis_counted in is_counted.items() if is_axis_counted):
                columns: dict[str, Column] = {}
                for column in self._columns:
                    if column.axis == axis:
                        columns |= _stored_columns(column, values)
                for source, values_of_field in self._fields.items(axis, columns).items():
                    items.setdefault(source, []).append(values_of_field)
        return items


def _sized_view(values: dict[str, Any]) -> RecordView:
    """Return the view of a record with size and format of its image, which not every layout stores."""
    data = values["image.encoded"]
    if "image.width" in values:
        size, kind = (int(values["image.width"][0]), int(values["image.height"][0])), values["image.format"]
    else:
        text = image_kind(data)
        with open_image(data, text) as image:
            size, kind = stored_size(image), text.encode()
    return RecordView(values | {"image.width": size[0], "image.height": size[1], "image.format": kind}, size)


def _object_columns(view: RecordView) -> dict[str, Any]:
    values, sides = view.values, np.array(view.size, np.float64)
    class_index = np.ravel(values["objects.class_index"]).astype(np.int64)
    if "objects.bbox_xywh_px" in values:  # the fractions that these pixels were made of
        low, lengths = np.array(list(view.boxes_xywh_px()), np.float64).reshape(-1, 2, 2).swapaxes(0, 1)
        fractions = np.concatenate([(low / sides)[:, ::-1], ((low + lengths) / sides)[:, ::-1]], axis=1)
    else:
        fractions = view.boxes_yxyx_frac
    return {
        "first_object_of_image": np.array([0, len(class_index)], np.int64),
        "class_index": class_index,
        "yxyx_frac": fractions.astype(np.float32),
        "object_id": np.ravel(values["objects.id"]).astype(np.int64),
    }


def _mask_bounds(view: RecordView) -> np.ndarray:
    """Return `FactColumns.mask_bounds_px`."""
    masks = list(view.values[view.mask_source])
    if view.mask_source == "objects.mask_png":
        masks = [mask_rle(run_lengths(grey_pixels(png) > 0)) for png in masks]
    return mask_bounds(masks, *view.size) if masks else np.zeros((0, 4))


def _count_outside(values: Mapping[str, Any]) -> int:
    """Return the number of visible keypoints outside their image."""
    x, y, visibility = (values[f"objects.keypoint_{name}"] for name in ("x", "y", "visibility"))
    return int((((x < 0) | (x > 1) | (y < 0) | (y > 1)) & (visibility == 2)).sum())


def _stored_columns(column: FieldColumn, values: Mapping[str, Any]) -> dict[str, Column]:
    """Return the columns of a field in one record, as `FieldEncoder.encode` makes them.

    Raises:
        ValueError: The lengths of lists do not fit their values.
    """
    source, is_bytes = column.source, column.kind is FeatureKind.BYTES
    if (lengths := values.get(f"{source}{LENGTHS}")) is not None:
        flat: Any = values[f"{source}{FLAT_VALUES}"]
        lists = split_lists(list(flat), lengths.tolist()) if is_bytes else Ragged(flat, starts_of(lengths))
        return {f"{source}{FLAT_VALUES}": lists}
    stored = values[source]
    flat = [stored] if isinstance(stored, bytes) else stored
    if column.size == RAGGED:
        return {source: [list(flat)] if is_bytes else Ragged(flat, np.array([0, len(flat)]))}
    if is_bytes:
        return {source: split_lists(list(flat), [column.size] * (len(flat) // column.size)) if column.size else flat}
    return {source: flat.reshape(-1, column.size) if column.size else flat}


class _SegmentReader:
    """Reader of the categories of panoptic segments, of regions of stuff, or of values of masks.

    Attributes:
        metric: Metric of their annotations; None if records have none.
    """

    def __init__(self, table: FeatureTable, labels: LabelMap):
        semantic = Metric.SEMANTIC_MASKS if labels.has_pixel_ids else Metric.REGIONS
        self.metric = semantic if Part.SEMANTIC in table.parts else None
        self.metric = Metric.PANOPTIC if Part.PANOPTIC in table.parts else self.metric
        index = {category.id: number for number, category in enumerate(labels.segments)}
        numbers, void = labels.semantic_by_id(), SEMANTIC_IGNORE
        self._source = "semantic.png"
        if self.metric is Metric.PANOPTIC:
            self._source, numbers, void = "panoptic.category_png", labels.label_by_id(), 0
        if "segments.class_index" in table.sources:
            self._source = "segments.class_index"
        self._index = {number: index[id_] for id_, number in numbers.items() if id_ in index and number != void}

    def __call__(self, values: Mapping[str, Any]) -> np.ndarray:
        """Return indices of categories: int64 [n]; each once if they are read from a PNG."""
        if self._source == "segments.class_index":
            return values[self._source].astype(np.int64)
        numbers = np.unique(grey_pixels(values[self._source])).tolist()
        return np.array([self._index[number] for number in numbers if number in self._index], np.int64)
