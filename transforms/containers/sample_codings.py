"""Conversions between the values of tf.Examples and those of samples, columns of many records at a time."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from math import nan
from typing import Any, Literal, NamedTuple

import numpy as np

from recordmill.schemas.block import Ragged, ragged_bytes, starts_of
from recordmill.schemas.boxes import exact_edges_px_array, shortest_px_array
from recordmill.schemas.features import ColumnType, Feature, FeatureKind, FeatureTable
from recordmill.schemas.field_features import FLAT_VALUES, RAGGED, FieldColumn, field_columns, lengths_source
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.values import VALUE_OF
from recordmill.transforms.records.example import bytes_items

SampleType = Literal["int64", "float32", "float64", "bool", "text", "rle"]
"""Type of a value. Run lengths (`rle`) are COCO's compressed counts, with the height and width of the image."""

FILES = {
    "image.encoded": "image",
    "semantic.png": "semantic",
    "panoptic.category_png": "category",
    "panoptic.instance_png": "instance",
    "depth.png": "depth",
}
"""Files of a sample by source of their feature: the image, and maps of the image as PNGs."""


class SampleColumn(NamedTuple):
    """Value of each sample, or of each annotation.

    Attributes:
        size: Number of values in each list; 0 for a single value, RAGGED for lists of different lengths.
        missing: Stored value that is null in a sample; None if the value is never null. Of a list, the whole list is
            null if all its values are missing.
    """

    key: str
    type: SampleType
    size: int = 0
    missing: Any = None


class Samples(NamedTuple):
    """Columns of N samples and their M annotations. Missing values have the numbers that tf.Examples store.

    A column of numbers is an array [rows], [rows, size], or a Ragged; a column of texts is a list of str, or of lists.

    Attributes:
        images: Columns by key, N rows.
        objects: Columns by key, M rows.
        starts: int64 [N + 1]; the annotations of sample i are the rows starts[i] to starts[i + 1], exclusive.
        files: N files by name, see FILES.
    """

    images: dict[str, Any]
    objects: dict[str, Any]
    starts: np.ndarray
    files: dict[str, list[Any]]

    @property
    def examples(self) -> int:
        return len(self.starts) - 1

    @property
    def size_of_object(self) -> np.ndarray:
        """Width and height of the image of each annotation: int64 [M, 2]."""
        sizes = np.column_stack([self.images["width"], self.images["height"]])
        return np.repeat(sizes, np.diff(self.starts), axis=0)


class Coding(NamedTuple):
    """Conversion of values between tf.Examples and samples.

    Attributes:
        columns: Columns of samples.
        sources: Values of tf.Examples that are read; `to_record` returns them, and those that follow from them.
        to_sample: Function of the values' columns and the samples without this coding's columns.
        to_record: Function of the samples' columns and the samples; it returns columns by source.
    """

    columns: tuple[SampleColumn, ...]
    sources: tuple[str, ...]
    to_sample: Callable[[list[Any], Samples], Sequence[Any]]
    to_record: Callable[[list[Any], Samples], dict[str, Any]]
    is_object: bool = False


_IMAGE_KEYS = {
    "image.file_name": "file_name",
    "image.width": "width",
    "image.height": "height",
    "image.sha256": "sha256",
    "image.channels": "channels",
    "captions.text": "captions",
    "image.neg_category_ids": "neg_category_ids",
    "image.not_exhaustive_category_ids": "not_exhaustive_category_ids",
}
_OBJECT_KEYS = {"objects.id": "id", "objects.area": "area", "objects.is_crowd": "iscrowd"}
_RESERVED_IMAGE_KEYS = {
    *(*_IMAGE_KEYS.values(), *FILES.values(), "image_id", "label", "tags", "annotations", "objects"),
} - {"depth"}
"""Keys that fields cannot have. `depth` is one in data sets with depth maps only: others may have such a field."""
_RESERVED_OBJECT_KEYS = {
    *_OBJECT_KEYS.values(),
    *("image_id", "category_id", "category", "bbox", "segmentation", "keypoints", "num_keypoints", "corners"),
}
_EDGES = ("objects.ymin", "objects.xmin", "objects.ymax", "objects.xmax")
_KEYPOINTS = ("objects.keypoint_x", "objects.keypoint_y", "objects.keypoint_visibility")
_CLASSES = ("objects.class_index", "objects.category_id", "objects.label", "objects.category_name")
_TAGS = ("image.tag_labels", "image.tag_names")
_IMAGE_CLASS = ("image.class_index", "image.class_name")
_FIRST_KEYS = ("image_id", "file_name", "width", "height", "id", "category_id", "bbox", "area", "iscrowd")


def codings(table: FeatureTable, labels: LabelMap) -> list[Coding]:
    """Return the codings of all values of a table, those of images first: sizes are needed by objects."""
    own = [*_special_codings(table, labels)]
    flat = [feature for feature in table.features if feature.source.endswith(FLAT_VALUES)]
    done = {"image.format", *FILES, *_CLASSES, *_TAGS, *_IMAGE_CLASS}
    done |= {"objects.keypoint_num", "objects.keypoint_text"} | (set() if labels.keypoints else set(_KEYPOINTS))
    done |= {source for coding in own for source in coding.sources}
    done |= {source for feature in flat for source in (feature.source, lengths_source(feature.source))}
    fields = {column.source: column for column in field_columns(table)}
    own += [_lists_coding(feature, fields[feature.source.removesuffix(FLAT_VALUES)]) for feature in flat]
    files = {FILES[source] for source in table.sources & FILES.keys()}
    own += [
        _plain_coding(feature, fields.get(feature.source), files)
        for feature in table.features
        if feature.source not in done
    ]
    order = {key: number for number, key in enumerate(_FIRST_KEYS)}

    def place(coding: Coding) -> tuple[bool, list[int]]:
        return coding.is_object, [order.get(column.key, len(order)) for column in coding.columns]

    return sorted(own, key=place)


def _special_codings(table: FeatureTable, labels: LabelMap) -> Iterator[Coding]:
    has_size = {"image.width", "image.height"} <= table.sources
    features = {feature.source: feature for feature in table.features}
    if "image.id" in features:
        yield Coding((SampleColumn("image_id", "int64"),), ("image.id",), _read_ids, _write_ids)
    numbers = _ClassNumbers(labels)
    if source := _read_first(_CLASSES, features):
        yield _category_coding(source, features, numbers)
    if source := _read_first(_IMAGE_CLASS, features):
        yield _image_class_coding(source, features, numbers)
    if source := _read_first(_TAGS, features):
        yield _tags_coding(source, features, numbers)
    if has_size and features.keys() >= set(_EDGES):
        yield Coding((SampleColumn("bbox", "float64", 4),), _EDGES, _read_boxes, _write_boxes, True)
    if has_size and "objects.corners" in features:
        corners = SampleColumn("corners", "float64", 8)
        yield Coding((corners,), ("objects.corners",), _read_corners, _write_corners, True)
    if "objects.mask_rle" in features:
        yield Coding(
            (SampleColumn("segmentation", "rle"),),
            ("objects.mask_rle",),
            lambda columns, _: columns,
            lambda columns, _: {"objects.mask_rle": _encode_texts(columns[0])},
            True,
        )
    if has_size and features.keys() >= set(_KEYPOINTS):
        yield _keypoints_coding(labels)


def _read_first(sources: Sequence[str], features: Mapping[str, Feature]) -> str:
    """Return the first source with numbers, or else with names; empty if records have none of them."""
    present = [source for source in sources if source in features]
    return next((source for source in present if features[source].kind is not FeatureKind.BYTES), "") or next(
        iter(present), ""
    )


class _ClassNumbers:
    """Ids, labels and names of classes by index."""

    def __init__(self, labels: LabelMap):
        label_by_id = labels.label_by_id()
        self.ids = np.array([category.id for category in labels.categories], np.int64)
        self.labels = np.array([label_by_id[category.id] for category in labels.categories], np.int64)
        self.names = [category.name.encode() for category in labels.categories]
        self._items = ragged_bytes(bytes_items(self.names))
        self._by_name = {name.decode(): index for index, name in reversed([*enumerate(self.names)])}

    def find(self, numbers: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return the class index of each id or label: int64 [M].

        Raises:
            ValueError: No class has the number.
        """
        order = np.argsort(numbers, kind="stable")
        places = np.searchsorted(numbers, values, sorter=order)
        indices = order[np.minimum(places, len(order) - 1)] if len(order) else np.full(len(values), -1)
        is_known = numbers[indices] == values if len(order) else indices >= 0
        if not is_known.all():
            raise ValueError(f"the label map has no class with the number {int(values[~is_known][0])}")
        return indices

    def indices(self, feature: Feature, column: Any) -> np.ndarray:
        """Return the class index of each value of a feature: int64 [M]."""
        if feature.kind is FeatureKind.BYTES:
            names = [name if isinstance(name, str) else bytes(name).decode() for name in column]
            return np.array([self._by_name[name] for name in names], np.int64)
        if feature.source == "objects.category_id":
            return self.find(self.ids, column)
        if feature.source in ("objects.label", "image.tag_labels"):
            return self.find(self.labels, column)
        if len(column) and not 0 <= column.min() <= column.max() < len(self.ids):
            raise ValueError(f"the label map has no class {int(column.max())}")
        return column

    def columns(self, sources: Iterable[str], features: Mapping[str, Feature], indices: np.ndarray) -> dict[str, Any]:
        """Return the columns of classes that records have, by source."""
        columns: dict[str, Any] = {}
        for source in features.keys() & set(sources):
            if features[source].kind is not FeatureKind.BYTES:
                numbers = {
                    "objects.category_id": self.ids,
                    "objects.label": self.labels,
                    "image.tag_labels": self.labels,
                }
                columns[source] = numbers[source][indices] if source in numbers else indices
            elif features[source].is_list:
                columns[source] = self._items.take(indices)
            else:
                columns[source] = [self.names[index] for index in indices.tolist()]
        return columns


def _read_ids(columns: list[Any], _: Samples) -> list[Any]:
    return [np.array([int(bytes(text)) for text in columns[0]], np.int64)]


def _write_ids(columns: list[Any], _: Samples) -> dict[str, Any]:
    return {"image.id": [b"%d" % image_id for image_id in columns[0].tolist()]}


def _category_coding(source: str, features: Mapping[str, Feature], numbers: _ClassNumbers) -> Coding:
    return Coding(
        (SampleColumn("category_id", "int64"),),
        (source,),
        lambda columns, _: [numbers.ids[numbers.indices(features[source], columns[0])]],
        lambda columns, _: numbers.columns(_CLASSES, features, numbers.find(numbers.ids, columns[0])),
        True,
    )


def _image_class_coding(source: str, features: Mapping[str, Feature], numbers: _ClassNumbers) -> Coding:
    """Return the coding of the class of an image: its index."""
    return Coding(
        (SampleColumn("label", "int64"),),
        (source,),
        lambda columns, _: [numbers.indices(features[source], columns[0])],
        lambda columns, _: numbers.columns(_IMAGE_CLASS, features, columns[0]),
    )


def _tags_coding(source: str, features: Mapping[str, Feature], numbers: _ClassNumbers) -> Coding:
    """Return the coding of the classes of a whole image: category ids."""

    def read(columns: list[Any], _: Samples) -> list[Any]:
        column = columns[0]
        if not isinstance(column, Ragged):
            column = Ragged(np.array([*chain.from_iterable(column)], object), starts_of(np.array([*map(len, column)])))
        return [Ragged(numbers.ids[numbers.indices(features[source], column.values)], column.starts)]

    def write(columns: list[Any], _: Samples) -> dict[str, Any]:
        values, starts = columns[0]
        flat = numbers.columns(_TAGS, features, numbers.find(numbers.ids, values))
        return {
            source: Ragged(column.values, column.starts[starts])
            if isinstance(column, Ragged)
            else Ragged(column, starts)
            for source, column in flat.items()
        }

    return Coding((SampleColumn("tags", "int64", RAGGED),), (source,), read, write)


def _read_boxes(columns: list[Any], samples: Samples) -> list[Any]:
    edges = np.column_stack(columns)
    boxes_px = exact_edges_px_array(edges, samples.size_of_object)
    boxes_px[:, :2] = _with_negative_zeros(boxes_px[:, :2], edges[:, [1, 0]])
    return [boxes_px]


def _write_boxes(columns: list[Any], samples: Samples) -> dict[str, Any]:
    low, size = columns[0][:, :2], samples.size_of_object
    edges = [(low / size).T, ((low + columns[0][:, 2:]) / size).T]
    xmin, ymin, xmax, ymax = np.concatenate(edges).astype(np.float32)
    return dict(zip(_EDGES, (ymin, xmin, ymax, xmax), strict=True))


def _with_negative_zeros(numbers_px: np.ndarray, fractions: np.ndarray) -> np.ndarray:
    """Return numbers with the sign of zero that their fractions have."""
    return np.where((fractions == 0) & np.signbit(fractions), -0.0, numbers_px)


def _points_px(fractions_xy: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return points in pixels: float64 [M, P, 2].

    Args:
        fractions_xy: float32 [M, P, 2].
        sizes: int64 [M, 2], width and height.
    """
    size_of_number = np.broadcast_to(sizes[:, None], fractions_xy.shape).ravel()
    numbers = shortest_px_array(fractions_xy.ravel(), size_of_number, np.zeros(fractions_xy.size))
    return _with_negative_zeros(numbers.reshape(fractions_xy.shape), fractions_xy)


def _read_corners(columns: list[Any], samples: Samples) -> list[Any]:
    return [_points_px(columns[0].reshape(-1, 4, 2), samples.size_of_object).reshape(-1, 8)]


def _write_corners(columns: list[Any], samples: Samples) -> dict[str, Any]:
    return {"objects.corners": columns[0] / np.tile(samples.size_of_object, 4)}


def _keypoints_coding(labels: LabelMap) -> Coding:
    """Return the coding of keypoints: x and y in pixels and visibility of each, and as many in each object."""
    number = labels.keypoints
    ids = np.array([category.id for category in labels.categories], np.int64)
    names = [[name.encode() for name in category.keypoints] for category in labels.categories]
    texts = ragged_bytes([b"".join(bytes_items(own + [b""] * (number - len(own)))) for own in names])
    numbers = _ClassNumbers(labels)

    def read(columns: list[Any], samples: Samples) -> list[Any]:
        if not columns:
            return []
        x, y, visibility = columns
        points_px = _points_px(np.stack([x, y], axis=2), samples.size_of_object)
        return [np.concatenate([points_px, visibility[:, :, None]], axis=2).reshape(-1, 3 * number)]

    def write(columns: list[Any], samples: Samples) -> dict[str, Any]:
        points = (columns[0] if number else np.zeros(0)).reshape(int(samples.starts[-1]), number, 3)
        xy = points[:, :, :2] / samples.size_of_object[:, None]
        visibility = points[:, :, 2].astype(np.int64)
        written = {"objects.keypoint_num": (visibility > 0).sum(axis=1)}
        if "category_id" in samples.objects:
            written["objects.keypoint_text"] = texts.take(numbers.find(ids, samples.objects["category_id"]))
        return written | dict(zip(_KEYPOINTS, (xy[:, :, 0], xy[:, :, 1], visibility), strict=True))

    columns = (SampleColumn("keypoints", "float64", 3 * number),) if number else ()
    return Coding(columns, _KEYPOINTS if number else (), read, write, True)


def _plain_coding(feature: Feature, field: FieldColumn | None, files: Collection[str]) -> Coding:
    """Return the coding of a value that is the same in samples and records."""
    is_object, source = is_of_objects(feature), feature.source
    sizes = [int(size) for size in feature.shape if size.isdecimal()]
    is_list = bool(feature.shape) and not feature.has_sizes and not is_object
    column = _column(feature, field, RAGGED if is_list else sum(sizes), files)
    if column.type != "text":
        return Coding((column,), (source,), _read_plain(column), lambda columns, _: {source: columns[0]}, is_object)
    encode = _encode_lists if column.size else _encode_texts
    decode = list if is_object or column.size else _decode_texts
    return Coding(
        (column,),
        (source,),
        lambda columns, _: [decode(columns[0])],
        lambda columns, _: {source: encode(columns[0])},
        is_object,
    )


def _decode_texts(texts: list[Any]) -> list[str]:
    return [str(text, "utf-8") for text in texts]


def _encode_texts(texts: list[str]) -> list[bytes]:
    return [text.encode() for text in texts]


def _read_plain(column: SampleColumn) -> Callable[[list[Any], Samples], list[Any]]:
    return lambda columns, _: [_normalised(column, values) for values in columns]


def _normalised(column: SampleColumn, values: Any) -> Any:
    """Return numbers as samples can hold them: one NaN, and -1, 0 and 1 of booleans. Others would not come back."""
    if isinstance(values, Ragged):
        return Ragged(_normalised(column, values.values), values.starts)
    if column.type == "float32":
        return np.where(np.isnan(values), np.float32(nan), values)
    return np.sign(values) if column.type == "bool" else values


def _lists_coding(feature: Feature, field: FieldColumn) -> Coding:
    """Return the coding of a field of objects with lists of different lengths: all values, and their numbers."""
    column, flat, lengths = _column(feature, field, RAGGED), feature.source, lengths_source(feature.source)

    def read(columns: list[Any], samples: Samples) -> list[Any]:
        values, numbers = columns
        starts = starts_of(numbers)
        if isinstance(values, list):
            texts, image_starts = [*chain.from_iterable(values)], starts_of(np.array([*map(len, values)], np.int64))
            lists: Any = [texts[start:end] for start, end in pairwise(starts.tolist())]
        else:
            image_starts, lists = values.starts, Ragged(_normalised(column, values.values), starts)
        if numbers.min(initial=0) < 0 or not np.array_equal(starts[samples.starts], image_starts):
            raise ValueError(f"the lengths of {feature.name} are not those of its values")
        return [lists]

    def write(columns: list[Any], samples: Samples) -> dict[str, Any]:
        (lists,) = columns
        if isinstance(lists, Ragged):
            return {flat: Ragged(lists.values, lists.starts[samples.starts]), lengths: lists.lengths}
        parts = pairwise(samples.starts.tolist())
        texts = [[text.encode() for text in chain.from_iterable(lists[start:end])] for start, end in parts]
        return {flat: texts, lengths: np.array([*map(len, lists)], np.int64)}

    return Coding((column,), (flat, lengths), read, write, True)


def _encode_lists(lists: list[list[str]]) -> list[list[bytes]]:
    return [[text.encode() for text in texts] for texts in lists]


def _column(feature: Feature, field: FieldColumn | None, size: int, files: Collection[str] = ()) -> SampleColumn:
    """Return the column of a value that has the same numbers in samples. `files` are those of the samples."""
    is_object = is_of_objects(feature) or feature.source.endswith(FLAT_VALUES)
    reserved = _RESERVED_OBJECT_KEYS if is_object else {*_RESERVED_IMAGE_KEYS, *files}
    if field:
        key = field.path if field.path not in reserved else feature.name
    else:
        key = (_OBJECT_KEYS if is_object else _IMAGE_KEYS).get(feature.source, feature.name)
    kind = VALUE_OF[feature.source].kind if feature.source in VALUE_OF else feature.kind
    missing: Any = nan if kind is FeatureKind.FLOAT else None
    if field and kind is FeatureKind.INT64 and field.missing != "0":
        missing = -1
    elif field and kind is FeatureKind.BYTES:
        missing = ""
    types: dict[FeatureKind, SampleType] = {
        FeatureKind.INT64: "bool" if feature.column_type is ColumnType.BOOL else "int64",
        FeatureKind.FLOAT: "float32",
        FeatureKind.BYTES: "text",
    }
    return SampleColumn(key, types[kind], size, None if size == RAGGED and kind is not FeatureKind.FLOAT else missing)


def is_of_objects(feature: Feature) -> bool:
    return bool(feature.shape) and feature.shape[0] in ("N", "N*K")
