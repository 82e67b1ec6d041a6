"""What readers give of a record, as data: `recordmill.open` decodes by this table, and docs/reading.md shows it."""

from collections.abc import Iterator
from enum import Enum

import msgspec

from recordmill.schemas.features import FeatureTable, Kind, RecordOf
from recordmill.schemas.layouts import DECODED_PICTURE, is_of_picture


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
    dtype: str
    shape: tuple[str, ...]
    meaning: str
    padding: int = 0
    form: Form = Form.AS_IT_IS

    @property
    def static_shape(self) -> tuple[int | None, ...]:
        """The sizes that are the same in all records; None for the others."""
        return tuple(int(size) if size.isdecimal() else None for size in self.shape)


_N, _N_4, _S = ("N",), ("N", "4"), ("S",)
_PIXELS, _FEATURE = ("height", "width"), ("height", "width", "channels")
_NO_ID = -1

_YXYX = "ymin, xmin, ymax, xmax as fractions of height and width, from the top left"
_CLASS = "class index, 0 .. classes - 1"
_AS_IN_JSON = "as in the JSON"
_IMAGE_ID = f"{_AS_IN_JSON}; of class folders a hash of the name"
_MASK = "1 inside the object, 0 outside"

READINGS = (
    Reading("image", "image.encoded", "uint8", (*_PIXELS, "3"), "red, green, blue", form=Form.PICTURE),
    Reading("image_id", "image.number", "int64", (), _IMAGE_ID),
    Reading("image_id", "image.id", "int64", (), _IMAGE_ID, form=Form.DECIMAL),
    Reading("file_name", "image.file_name", "bytes", (), "UTF-8"),
    Reading("label", "image.class_index", "int64", (), f"of an image of one class: {_CLASS}"),
    Reading("boxes", "objects.xmin", "float32", _N_4, _YXYX, form=Form.EDGES),
    Reading("boxes", "objects.bbox_yxyx", "float32", _N_4, _YXYX),
    Reading(
        "box_xywh_px",
        "objects.bbox_xywh_px",
        "float32",
        _N_4,
        "in place of boxes, in the layout keras: x, y, width, height in pixels",
    ),
    Reading("labels", "objects.class_index", "int64", _N, _CLASS, _NO_ID),
    Reading("category_ids", "objects.category_id", "int64", _N, _AS_IN_JSON, _NO_ID),
    Reading("category_ids", "objects.label", "int64", _N, _AS_IN_JSON, _NO_ID),
    Reading("annotation_ids", "objects.id", "int64", _N, _AS_IN_JSON, _NO_ID),
    Reading("is_crowd", "objects.is_crowd", "int64", _N, "1 where the box holds a crowd"),
    Reading("area", "objects.area", "float32", _N, "pixels² of the JSON's picture"),
    Reading("area", "objects.area_whole", "int64", _N, "the same without its fraction: layout tfds"),
    Reading("masks", "objects.mask_png", "uint8", ("N", *_PIXELS), _MASK, form=Form.PNG_MASKS),
    Reading("masks", "objects.mask_rle", "uint8", ("N", *_PIXELS), _MASK, form=Form.RLE_MASKS),
    Reading(
        "keypoints",
        "objects.keypoint_x",
        "float32",
        ("N", "K", "3"),
        "x, y as fractions of width and height (x first, unlike boxes), then visibility: 0 not labelled, 1 hidden, 2 "
        "visible",
        form=Form.KEYPOINTS,
    ),
    Reading("captions", "captions.text", "bytes", ("C",), "UTF-8"),
    Reading("caption_ids", "captions.id", "int64", ("C",), _AS_IN_JSON, _NO_ID),
    Reading("caption_index", "captions.index", "int64", ("T",), "terms, see `recordmill.encoders`"),
    Reading("caption_value", "captions.value", "float32", ("T",), "weights of the terms"),
    Reading("caption_tokens", "captions.tokens", "int64", ("L",), "in order; 1 unknown"),
    Reading(
        "semantic",
        "semantic.png",
        "uint8",
        _PIXELS,
        "see semantic_by_id in label_map.json; 255 unknown",
        form=Form.GREY,
    ),
    Reading(
        "categories",
        "panoptic.category_png",
        "uint8",
        _PIXELS,
        "category id of the panoptic segment, void 0; where an id is 0 or less, see label_by_id in label_map.json",
        form=Form.GREY,
    ),
    Reading(
        "instances",
        "panoptic.instance_png",
        "uint8",
        _PIXELS,
        "number of the panoptic segment from 1, 0 for stuff and void",
        form=Form.GREY,
    ),
    Reading(
        "segment_map",
        "panoptic.png",
        "int32",
        _PIXELS,
        "id of the panoptic segment: layout tfds",
        form=Form.SEGMENT_IDS,
    ),
    Reading("segment_ids", "segments.id", "int64", _S, "values of segment_map", _NO_ID),
    Reading("segment_labels", "segments.class_index", "int64", _S, "index among the segments", _NO_ID),
    Reading("segment_boxes", "segments.bbox_yxyx", "float32", ("S", "4"), _YXYX),
    Reading("segment_areas", "segments.area", "int64", _S, "pixels²"),
    Reading("segment_is_crowd", "segments.is_crowd", "int64", _S, "1 where it is a crowd"),
    Reading("neg_category_ids", "image.neg_category_ids", "int64", ("G",), "LVIS: known to be absent", _NO_ID),
    Reading(
        "not_exhaustive_category_ids",
        "image.not_exhaustive_category_ids",
        "int64",
        ("E",),
        "LVIS: not every object is annotated",
        _NO_ID,
    ),
    Reading("feature", "feature.values", "float32", _FEATURE, "of the model"),
    Reading("feature", "feature.bytes", "float16", _FEATURE, "of the model", form=Form.FLOAT16),
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
            yield Reading(
                DECODED_PICTURE, feature.source, "uint8", feature.shape, READINGS[0].meaning, form=Form.PIXELS
            )
        else:
            yield Reading(feature.name, feature.source, _DTYPES[feature.kind], feature.shape, feature.meaning)


def listed(indent: int) -> str:
    """The table as a docstring shows it."""
    width = max(len(each.name) for each in READINGS)
    lines = (f"{'':{indent}}{each.name:{width}}  {type_text(each)}: {each.meaning}" for each in READINGS)
    return "\n".join(dict.fromkeys(lines))


def type_text(reading: Reading) -> str:
    return f"{reading.dtype} [{', '.join(reading.shape)}]" if reading.shape else reading.dtype
