"""What readers give of a record, as data: `recordmill.open` decodes by this table, and docs/reading.md shows it."""

from collections.abc import Iterator
from enum import Enum

import msgspec

from recordmill.schemas.features import Feature, FeatureTable, Kind, RecordOf
from recordmill.schemas.picture_features import DECODED_PICTURE, is_of_picture


class Form(str, Enum):
    """How a value is made of what the record holds."""

    AS_IT_IS = "as it is"
    DECIMAL = "decimal"
    PICTURE = "JPEG or PNG"
    PIXELS = "raw pixels"
    GREY = "grey PNG"
    SEGMENT_IDS = "PNG of ids"
    FLOAT16 = "bytes of float16"
    EDGES = "edges"
    PNG_MASKS = "grey PNGs"
    RLE_MASKS = "COCO RLE"
    KEYPOINTS = "keypoints"


class Reading(msgspec.Struct, frozen=True):
    """A value that readers give.

    Attributes:
        name: its key.
        source: which feature of a record it is made of, or the first of several.
        dtype: of numpy and TensorFlow; `bytes` are `bytes`, a list of them an array of objects, tf.string.
        shape: names of the dimensions, or their sizes.
        meaning: with unit and frame.
        padding: what stands beyond a list's end in a padded batch; of bytes always the empty string.
    """

    name: str
    source: str
    form: Form
    dtype: str
    shape: tuple[str, ...]
    meaning: str
    padding: int = 0

    @property
    def static_shape(self) -> tuple[int | None, ...]:
        """The sizes that are the same in all records; None for the others."""
        return tuple(int(size) if size.isdecimal() else None for size in self.shape)


_N = ("N",)
_PIXELS = ("height", "width")
_NO_ID = -1

_YXYX = "ymin, xmin, ymax, xmax as fractions of height and width, from the top left"
_CLASS = "class index, 0 .. classes - 1"
_AS_IN_JSON = "as in the JSON"
_IMAGE_ID = f"{_AS_IN_JSON}; of class folders a hash of the name"
_MASK = "1 inside the object, 0 outside"

READINGS = (
    Reading("image", "image.encoded", Form.PICTURE, "uint8", (*_PIXELS, "3"), "red, green, blue"),
    Reading("image_id", "image.number", Form.AS_IT_IS, "int64", (), _IMAGE_ID),
    Reading("image_id", "image.id", Form.DECIMAL, "int64", (), _IMAGE_ID),
    Reading("file_name", "image.file_name", Form.AS_IT_IS, "bytes", (), "UTF-8"),
    Reading("label", "image.class_index", Form.AS_IT_IS, "int64", (), f"of an image of one class: {_CLASS}"),
    Reading("boxes", "objects.xmin", Form.EDGES, "float32", ("N", "4"), _YXYX),
    Reading("boxes", "objects.bbox_yxyx", Form.AS_IT_IS, "float32", ("N", "4"), _YXYX),
    Reading(
        "box_xywh_px",
        "objects.bbox_xywh_px",
        Form.AS_IT_IS,
        "float32",
        ("N", "4"),
        "in place of boxes, in the layout keras: x, y, width, height in pixels",
    ),
    Reading("labels", "objects.class_index", Form.AS_IT_IS, "int64", _N, _CLASS, _NO_ID),
    Reading("category_ids", "objects.category_id", Form.AS_IT_IS, "int64", _N, _AS_IN_JSON, _NO_ID),
    Reading("category_ids", "objects.label", Form.AS_IT_IS, "int64", _N, _AS_IN_JSON, _NO_ID),
    Reading("annotation_ids", "objects.id", Form.AS_IT_IS, "int64", _N, _AS_IN_JSON, _NO_ID),
    Reading("is_crowd", "objects.is_crowd", Form.AS_IT_IS, "int64", _N, "1 where the box holds a crowd"),
    Reading("area", "objects.area", Form.AS_IT_IS, "float32", _N, "pixels² of the JSON's picture"),
    Reading("area", "objects.area_whole", Form.AS_IT_IS, "int64", _N, "the same without its fraction: layout tfds"),
    Reading("masks", "objects.mask_png", Form.PNG_MASKS, "uint8", ("N", *_PIXELS), _MASK),
    Reading("masks", "objects.mask_rle", Form.RLE_MASKS, "uint8", ("N", *_PIXELS), _MASK),
    Reading(
        "keypoints",
        "objects.keypoint_x",
        Form.KEYPOINTS,
        "float32",
        ("N", "K", "3"),
        "x, y as fractions of width and height (x first, unlike boxes), then visibility: 0 not labelled, 1 hidden, 2 "
        "visible",
    ),
    Reading("captions", "captions.text", Form.AS_IT_IS, "bytes", ("C",), "UTF-8"),
    Reading("caption_ids", "captions.id", Form.AS_IT_IS, "int64", ("C",), _AS_IN_JSON, _NO_ID),
    Reading("caption_index", "captions.index", Form.AS_IT_IS, "int64", ("T",), "terms, see `recordmill.encoders`"),
    Reading("caption_value", "captions.value", Form.AS_IT_IS, "float32", ("T",), "weights of the terms"),
    Reading("caption_tokens", "captions.tokens", Form.AS_IT_IS, "int64", ("L",), "in order; 1 unknown"),
    Reading(
        "semantic", "semantic.png", Form.GREY, "uint8", _PIXELS, "see semantic_by_id in label_map.json; 255 unknown"
    ),
    Reading(
        "categories",
        "panoptic.category_png",
        Form.GREY,
        "uint8",
        _PIXELS,
        "category id of the panoptic segment, void 0; where an id is 0 or less, see label_by_id in label_map.json",
    ),
    Reading(
        "instances",
        "panoptic.instance_png",
        Form.GREY,
        "uint8",
        _PIXELS,
        "number of the panoptic segment from 1, 0 for stuff and void",
    ),
    Reading(
        "segment_map", "panoptic.png", Form.SEGMENT_IDS, "int32", _PIXELS, "id of the panoptic segment: layout tfds"
    ),
    Reading("segment_ids", "segments.id", Form.AS_IT_IS, "int64", ("S",), "values of segment_map", _NO_ID),
    Reading(
        "segment_labels", "segments.class_index", Form.AS_IT_IS, "int64", ("S",), "index among the segments", _NO_ID
    ),
    Reading("segment_boxes", "segments.bbox_yxyx", Form.AS_IT_IS, "float32", ("S", "4"), _YXYX),
    Reading("segment_areas", "segments.area", Form.AS_IT_IS, "int64", ("S",), "pixels²"),
    Reading("segment_is_crowd", "segments.is_crowd", Form.AS_IT_IS, "int64", ("S",), "1 where it is a crowd"),
    Reading(
        "neg_category_ids",
        "image.neg_category_ids",
        Form.AS_IT_IS,
        "int64",
        ("G",),
        "LVIS: known to be absent",
        _NO_ID,
    ),
    Reading(
        "not_exhaustive_category_ids",
        "image.not_exhaustive_category_ids",
        Form.AS_IT_IS,
        "int64",
        ("E",),
        "LVIS: not every object is annotated",
        _NO_ID,
    ),
    Reading("feature", "feature.values", Form.AS_IT_IS, "float32", ("height", "width", "channels"), "of the model"),
    Reading("feature", "feature.bytes", Form.FLOAT16, "float16", ("height", "width", "channels"), "of the model"),
)
"""Of several of one name, the first is given whose source is in the records."""

_DTYPES = {Kind.BYTES: "bytes", Kind.FLOAT: "float32", Kind.INT64: "int64"}


def readings_of(table: FeatureTable, feature_shape: tuple[str, ...] = ()) -> dict[str, Reading]:
    """What readers give of records of `table`, by name.

    Args:
        feature_shape: of one picture's feature, where records hold what a model makes of pictures.
    """
    found: dict[str, Reading] = {}
    for reading in _of_row(table) if table.record_of is RecordOf.ROW else _of_known(table):
        found.setdefault(reading.name, reading)
    if "feature" in found:
        found["feature"] = msgspec.structs.replace(found["feature"], shape=feature_shape)
    return found


def _of_known(table: FeatureTable) -> Iterator[Reading]:
    for reading in READINGS:
        if reading.source in table.sources:
            alone = table.record_of is RecordOf.ANNOTATION and reading.shape[:1] == _N
            yield msgspec.structs.replace(reading, shape=reading.shape[1:]) if alone else reading


def _of_row(table: FeatureTable) -> Iterator[Reading]:
    """A row's features under their own names, but for the picture that it names."""
    for feature in table.features:
        if is_of_picture(feature) and feature.source == "image.encoded":
            yield msgspec.structs.replace(READINGS[0], name=DECODED_PICTURE)
        elif is_of_picture(feature) and feature.is_packed:
            yield Reading(DECODED_PICTURE, feature.source, Form.PIXELS, "uint8", feature.shape, READINGS[0].meaning)
        else:
            yield _column(feature)


def _column(feature: Feature) -> Reading:
    return Reading(feature.name, feature.source, Form.AS_IT_IS, _DTYPES[feature.kind], feature.shape, feature.meaning)


def markdown() -> str:
    """The table as docs/reading.md shows it."""
    rows = dict.fromkeys(f"| {each.name} | {_type(each)} | {each.meaning} |" for each in READINGS)
    return "\n".join(["| key | type | meaning |", "|---|---|---|", *rows])


def listed(indent: int) -> str:
    """The table as a docstring shows it."""
    width = max(len(each.name) for each in READINGS)
    lines = (f"{'':{indent}}{each.name:{width}}  {_type(each)}: {each.meaning}" for each in READINGS)
    return "\n".join(dict.fromkeys(lines))


def _type(reading: Reading) -> str:
    return f"{reading.dtype} [{', '.join(reading.shape)}]" if reading.shape else reading.dtype
