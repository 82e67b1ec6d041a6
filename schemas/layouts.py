"""Layouts of a data set: tables of features.

A layout assigns names to values (`recordmill.schemas.values`).

`detection` is the layout of Model Garden (`official/vision/dataloaders/tf_example_decoder.py`) and of the Object
Detection API (`object_detection/data_decoders/tf_example_decoder.py`). Recordmill adds `image/object/id`,
`image/object/category_id`, `image/object/class/index` and `image/object/mask/rle`, which those readers ignore.

`keras` is the layout of the recipe "Creating TFRecords" (keras.io), with `class_index` added. `tfds` is the layout of
`tfds.load("coco/2017")`, `"coco/2017_panoptic"` and `"coco_captions"`, with `objects/category_id` added.

`classification` is the layout of ImageNet's TFRecord scripts and of Model Garden's `classification_input.py`.
"""

import difflib
from collections.abc import Callable, Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from recordmill.schemas.boxes import exact_edges_px, shortest_decimal
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Feature, FeatureKind, FeatureTable, Part, RecordOf, ShardNaming
from recordmill.schemas.field_features import FieldColumn, check_new_key, field_columns
from recordmill.schemas.shards import DEFAULT_SHARD_BYTES, ShardNames, ShardSizing
from recordmill.schemas.values import VALUE_OF, Write

if TYPE_CHECKING:
    import numpy as np


class BoxCoding(NamedTuple):
    """Coding of a box by four numbers."""

    sources: tuple[str, ...]  # sources of the features: one with four numbers per object, or four with one number
    reading: str  # name of the box for readers
    axes: str  # `x` or `y` for each number, to scale it with the image; empty for fractions
    # converts float64 [N, 4], width and height of the image in pixels to ymin, xmin, ymax, xmax as fractions.
    fractions: Callable[["np.ndarray", int, int], "np.ndarray"]
    # converts float32 [4], width and height to x, y, width and height in pixels, with the fewest decimals.
    exact_px: Callable[["np.ndarray", int, int], tuple[float, ...]]


def _convert_xywh_to_yxyx_frac(boxes: "np.ndarray", width: int, height: int) -> "np.ndarray":
    import numpy as np

    x, y, box_width, box_height = boxes.T
    return np.column_stack((y / height, x / width, (y + box_height) / height, (x + box_width) / width))


_EDGES_CODING = ("boxes", "", lambda boxes, *_: boxes, exact_edges_px)
BOX_CODINGS = (
    BoxCoding(("objects.bbox_yxyx",), *_EDGES_CODING),
    BoxCoding(("objects.ymin", "objects.xmin", "objects.ymax", "objects.xmax"), *_EDGES_CODING),
    BoxCoding(
        ("objects.bbox_xywh_px",),
        "box_xywh_px",
        "xyxy",
        _convert_xywh_to_yxyx_frac,
        lambda box, *_: tuple(map(shortest_decimal, box)),
    ),
)


def box_coding(sources: Container[str]) -> BoxCoding | None:
    """Return the coding of the boxes in records with `sources`; None without boxes."""
    return next((coding for coding in BOX_CODINGS if all(source in sources for source in coding.sources)), None)


def _feature(name: str, source: str, **changes: Any) -> Feature:
    """Return the feature of a value, under the layout's name; `changes` replace attributes of the value."""
    value = VALUE_OF[source]
    feature = Feature(name, source, value.kind, value.shape, value.unit, value.meaning, value.part)
    return msgspec.structs.replace(feature, **changes)


def _build_layout(layout: str, names: dict[str, str], changes: dict[str, dict[str, Any]] | None = None, **more: Any):
    """Return a layout; `names` maps the name of each feature to its source, `changes` changed attributes by source."""
    features = [_feature(name, source, **(changes or {}).get(source, {})) for name, source in names.items()]
    if more.get("record_of") is RecordOf.ANNOTATION:  # a record has one object
        features = [
            msgspec.structs.replace(feature, shape=tuple(s for s in feature.shape if s != "N")) for feature in features
        ]
    return FeatureTable(layout, tuple(features), **more)


DETECTION = _build_layout(
    "detection",
    {
        "captions/index": "captions.index",
        "captions/tokens": "captions.tokens",
        "captions/value": "captions.value",
        "image/caption": "captions.text",
        "image/class/label": "image.tag_labels",
        "image/class/text": "image.tag_names",
        "image/depth/encoded": "depth.png",
        "image/encoded": "image.encoded",
        "image/filename": "image.file_name",
        "image/format": "image.format",
        "image/height": "image.height",
        "image/key/sha256": "image.sha256",
        "image/neg_category_ids": "image.neg_category_ids",
        "image/not_exhaustive_category_ids": "image.not_exhaustive_category_ids",
        "image/object/area": "objects.area",
        "image/object/bbox/xmax": "objects.xmax",
        "image/object/bbox/xmin": "objects.xmin",
        "image/object/bbox/ymax": "objects.ymax",
        "image/object/bbox/ymin": "objects.ymin",
        "image/object/category_id": "objects.category_id",
        "image/object/class/index": "objects.class_index",
        "image/object/class/label": "objects.label",
        "image/object/class/text": "objects.category_name",
        "image/object/difficult": "objects.difficult",
        "image/object/id": "objects.id",
        "image/object/is_crowd": "objects.is_crowd",
        "image/object/keypoint/num": "objects.keypoint_num",
        "image/object/keypoint/text": "objects.keypoint_text",
        "image/object/keypoint/visibility": "objects.keypoint_visibility",
        "image/object/keypoint/x": "objects.keypoint_x",
        "image/object/keypoint/y": "objects.keypoint_y",
        "image/object/mask": "objects.mask_png",
        "image/object/mask/rle": "objects.mask_rle",
        "image/object/obb": "objects.corners",
        "image/object/track_id": "objects.track_id",
        "image/object/truncated": "objects.truncated",
        "image/object/view": "objects.view",
        "image/panoptic/category_mask": "panoptic.category_png",
        "image/panoptic/instance_mask": "panoptic.instance_png",
        "image/segmentation/class/encoded": "semantic.png",
        "image/source_id": "image.id",
        "image/tile/file_name": "tile.file_name",
        "image/tile/source_id": "tile.image_id",
        "image/tile/x": "tile.x",
        "image/tile/y": "tile.y",
        "image/width": "image.width",
    },
    {
        "objects.category_id": {
            "meaning": "category id as in the JSON, if class/label is not",
            "part": Part.CATEGORY_ID,
        }
    },
    label="objects.label",
)

KERAS = _build_layout(
    "keras",
    {
        "area": "objects.area",
        "bbox": "objects.bbox_xywh_px",
        "category_id": "objects.category_id",
        "class_index": "objects.class_index",
        "id": "objects.id",
        "image": "image.encoded",
        "image/tile/file_name": "tile.file_name",
        "image/tile/source_id": "tile.image_number",
        "image/tile/x": "tile.x",
        "image/tile/y": "tile.y",
        "image_id": "image.number",
        "path": "image.file_name",
    },
    record_of=RecordOf.ANNOTATION,
    naming=ShardNaming.KERAS,
    examples_per_shard=4096,
    label="objects.category_id",
)

TFDS = _build_layout(
    "tfds",
    {
        "captions/id": "captions.id",
        "captions/text": "captions.text",
        "captions_index": "captions.index",
        "captions_tokens": "captions.tokens",
        "captions_value": "captions.value",
        "image": "image.encoded",
        "image/filename": "image.file_name",
        "image/id": "image.number",
        "image/tile/file_name": "tile.file_name",
        "image/tile/source_id": "tile.image_number",
        "image/tile/x": "tile.x",
        "image/tile/y": "tile.y",
        "objects/area": "objects.area_whole",
        "objects/bbox": "objects.bbox_yxyx",
        "objects/category_id": "objects.category_id",
        "objects/id": "objects.id",
        "objects/is_crowd": "objects.is_crowd",
        "objects/label": "objects.class_index",
        "panoptic_image": "panoptic.png",
        "panoptic_image/filename": "panoptic.file_name",
        "panoptic_objects/area": "segments.area",
        "panoptic_objects/bbox": "segments.bbox_yxyx",
        "panoptic_objects/id": "segments.id",
        "panoptic_objects/is_crowd": "segments.is_crowd",
        "panoptic_objects/label": "segments.class_index",
    },
    groups=("captions", "objects", "panoptic_objects"),
    label="objects.class_index",
)

CLASSIFICATION = _build_layout(
    "classification",
    {
        "image/channels": "image.channels",
        "image/class/label": "image.class_index",
        "image/class/text": "image.class_name",
        "image/encoded": "image.encoded",
        "image/filename": "image.file_name",
        "image/format": "image.format",
        "image/height": "image.height",
        "image/key/sha256": "image.sha256",
        "image/source_id": "image.id",
        "image/tile/file_name": "tile.file_name",
        "image/tile/source_id": "tile.image_id",
        "image/tile/x": "tile.x",
        "image/tile/y": "tile.y",
        "image/width": "image.width",
    },
    {
        "image.file_name": {"meaning": "path below --images"},
        "image.id": {"meaning": "image id, a hash of image/filename"},
    },
    label="image.class_index",
)

FEATURES = FeatureTable("features", (), label="image.class_index")
"""Layout of `embed`. The model determines its features, see `features_table`."""

TABLE = FeatureTable("table", (), record_of=RecordOf.ROW)
"""Layout of tables. Its features are the columns, and those of `row_image_features` if rows name images."""

LAYOUTS = {table.layout: table for table in (DETECTION, KERAS, TFDS, CLASSIFICATION, FEATURES, TABLE)}

CocoLayout = Literal["detection", "keras", "tfds"]  # for annotated images


_NOT_OF_LABELS = (
    *("image.encoded", "image.format", "image.sha256", "image.channels"),
    *("panoptic.category_png", "panoptic.instance_png"),
)
_OF_LABELS = {
    "captions/id": "captions.id",
    "image/object/polygons": "objects.polygons",
    **{
        feature.name: feature.source
        for feature in TFDS.features
        if feature.part is Part.PANOPTIC and feature.source not in DETECTION.sources
    },
}


def labels_table(layout: FeatureTable) -> FeatureTable:
    """Return the features of the labels of an image: those of a layout, with the file of the image in place of its
    bytes, and polygons and panoptic segments as in the source. Only `recordmill.transforms.extract` reads them."""
    names = {"image/file": "image.file"} | ({} if layout.label == CLASSIFICATION.label else _OF_LABELS)
    features = [feature for feature in layout.features if feature.source not in _NOT_OF_LABELS]
    features += [_feature(name, source) for name, source in names.items()]
    return msgspec.structs.replace(layout, features=tuple(sorted(features, key=lambda feature: feature.name)))


def features_table(shape: tuple[int, ...], dtype: str) -> FeatureTable:
    """Return the features of a record of `embed`.

    Args:
        shape: Shape of the feature of one image.
        dtype: `float32`, or `float16` for bytes.
    """
    sizes, rank = tuple(map(str, shape)), (str(len(shape)),)
    is_exact = dtype == "float32"
    feature = _feature("feature", "feature.values", shape=sizes) if is_exact else _feature("feature", "feature.bytes")
    image_features = (
        image_feature for image_feature in CLASSIFICATION.features if image_feature.source in _FEATURES_SOURCES
    )
    features = (feature, _feature("feature/shape", "feature.shape", shape=rank), *image_features)
    return msgspec.structs.replace(FEATURES, features=features)


_FEATURES_SOURCES = ("image.class_index", "image.class_name", "image.file_name", "image.id")


NUMERIC = {"int64": FeatureKind.INT64, "float32": FeatureKind.FLOAT}
_COORDINATES = {source for coding in BOX_CODINGS for source in coding.sources} | {"segments.bbox_yxyx"}
_COORDINATES |= {"objects.keypoint_x", "objects.keypoint_y"}


def change_keys_and_types(
    table: FeatureTable, names: Mapping[str, str], kinds: Mapping[str, FeatureKind], label_as_text: bool = False
) -> FeatureTable:
    """Return the table with other keys and types: those of `--rename`, `--dtype` and `--label-as`.

    Args:
        names: New keys by the layout's keys.
        kinds: Numeric types by key of a record.

    Raises:
        ConfigError: A key is unknown, used twice or unusable, or a feature cannot have the type.
    """
    _check_keys("--rename", names, table)
    keys = {
        feature.source: check_new_key(feature.name, names[feature.name], table)
        for feature in table.features
        if feature.name in names
    }
    try:
        renamed = table.renamed(keys)
    except ValueError as fault:
        raise ConfigError(f"--rename: {fault}") from fault
    as_text = {"kind": FeatureKind.BYTES, "unit": "utf-8", "meaning": "class name"}
    features = [
        msgspec.structs.replace(feature, **as_text) if label_as_text and feature.source == table.label else feature
        for feature in renamed.features
    ]
    _check_keys("--dtype", kinds, renamed)
    typed = tuple(_change_kind(feature, kinds.get(feature.name, feature.kind)) for feature in features)
    return msgspec.structs.replace(renamed, features=typed)


def _check_keys(option: str, keys: Iterable[str], table: FeatureTable) -> None:
    known = [feature.name for feature in table.features]
    for key in keys:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1, 0.5)
            hint = f"Did you mean {near[0]}?" if near else f"It has {', '.join(known)}"
            raise ConfigError(f"{option}: layout {table.layout} has no feature {key!r}. {hint}")


def _change_kind(feature: Feature, kind: FeatureKind) -> Feature:
    if kind is feature.kind:
        return feature
    if feature.kind is FeatureKind.BYTES or feature.source in _COORDINATES:
        what = "texts or files" if feature.kind is FeatureKind.BYTES else "coordinates, which are fractions"
        raise ConfigError(f"--dtype: {feature.name} has {what}; its type cannot be changed")
    return msgspec.structs.replace(feature, kind=kind)


def requested_fields(table: FeatureTable) -> tuple[FieldColumn, ...]:
    """Return the open fields of records that were requested: all but the well-known ones of the layout."""
    layout = LAYOUTS.get(table.layout, table).sources
    return tuple(column for column in field_columns(table) if column.source not in layout)


def column_writer(feature: Feature) -> Write | None:
    """Return the function that makes a feature's column from a `recordmill.transforms.encoders.encode_examples.Run`;
    None if there is none. The function raises ConfigError if the feature's type cannot store a number exactly.
    """
    if feature.source not in VALUE_OF:
        return lambda run: run.fields[feature.source]
    value = VALUE_OF[feature.source]
    write = value.write
    if feature.kind is value.kind or write is None:
        return write
    if feature.kind is FeatureKind.BYTES and feature.source == "image.class_index":
        return VALUE_OF["image.class_name"].write
    if feature.kind is FeatureKind.BYTES and feature.is_list:
        return VALUE_OF["objects.category_name"].write
    if feature.kind is FeatureKind.BYTES:
        return lambda run: [run.class_names[index] for index in run.class_index.tolist()]
    return lambda run: _convert_exactly(feature, write(run))


def _convert_exactly(feature: Feature, column: Any) -> Any:
    """Return a column of numbers as int64 or float32.

    Raises:
        ConfigError: The type cannot store a number exactly.
    """
    import numpy as np

    from recordmill.schemas.block import Ragged, starts_of

    if isinstance(column, list):  # of lists
        column = Ragged(
            np.array([number for row in column for number in row]), starts_of(np.array([*map(len, column)]))
        )
    numbers = column.values if isinstance(column, Ragged) else column
    is_whole = feature.kind is FeatureKind.INT64
    with np.errstate(invalid="ignore", over="ignore"):
        exact = numbers.astype(np.int64 if is_whole else np.float32)
        # Compared as integers, because different integers above 2 ** 53 may be equal as floats.
        integers, floats = (exact, numbers.astype(np.float64)) if is_whole else (numbers, exact.astype(np.float64))
        is_int64 = (floats == np.trunc(floats)) & (floats >= -(2.0**63)) & (floats < 2.0**63)
        is_other = ~is_int64 | (floats.astype(np.int64) != integers)
    if is_other.any():
        what = "not a whole number" if is_whole else "not exact as float32"
        raise ConfigError(
            f"--dtype {feature.name}: {np.ravel(numbers)[np.ravel(is_other)][0]} is {what}. Omit {feature.name}"
        )
    return Ragged(exact, column.starts) if isinstance(column, Ragged) else exact


def requested_sizing(
    layout: str, num_shards: int | None = None, shard_size: int | None = None, examples_per_shard: int | None = None
) -> ShardSizing:
    """Return the sizing of shards by three options, at most one of which is given."""
    if num_shards is not None or examples_per_shard is not None:
        return ShardSizing(num_shards=num_shards, examples_per_shard=examples_per_shard)
    usual = LAYOUTS[layout].examples_per_shard
    if usual is not None and shard_size is None:
        return ShardSizing(examples_per_shard=usual)
    return ShardSizing(shard_bytes=shard_size or DEFAULT_SHARD_BYTES)


def shard_names(name: str, split: str, layout: str, container: str) -> ShardNames:
    """Return a split's shard names in a layout and a container."""
    return ShardNames(name, split, LAYOUTS[layout].naming, container)


DECODED_IMAGE = "image"
"""Name of a row's image in `recordmill.open`. No column's feature has the same name."""


def row_image_features(raw_size: tuple[int, int] | None) -> tuple[Feature, ...]:
    """Return the features of the image that a row of a table names, sorted by name.

    Args:
        raw_size: Height and width of stored raw pixels in pixels; None to store the image file.
    """
    if raw_size is None:
        features = CLASSIFICATION.with_parts(()).features
        return tuple(feature for feature in features if not feature.source.startswith("image.class_"))
    meaning = "red, green and blue of each pixel, row by row from the top, 0 to 255"
    pixels = Feature("image/pixels", _PIXELS, FeatureKind.BYTES, (*map(str, raw_size), "3"), "uint8", meaning)
    file_features = (feature for feature in CLASSIFICATION.features if feature.source in _PIXELS_SOURCES)
    return tuple(sorted((pixels, *file_features), key=lambda feature: feature.name))


_PIXELS = "image.pixels"
_PIXELS_SOURCES = ("image.file_name", "image.height", "image.id", "image.width")
_IMAGE_SOURCES = {_PIXELS, *(feature.source for feature in row_image_features(None))}


def is_image_feature(feature: Feature) -> bool:
    """Return True if a feature of a table belongs to the image that a row names, and not to a column."""
    return feature.source in _IMAGE_SOURCES


def has_image(table: FeatureTable) -> bool:
    """Return True if records have image files or pixels."""
    return not table.sources.isdisjoint({"image.encoded", _PIXELS})
