"""The layouts a data set can be written in, each a feature table. Adding a layout is adding a table.

A feature's source says what its value is; `recordmill.transforms.examples.encode_examples` computes these:

    image.encoded  .file_name  .format  .height  .width  .channels  .sha256  .id  .number  one value an image
         .class_index  .class_name                                                        of images of one class
    image.neg_category_ids  .not_exhaustive_category_ids                                  LVIS's lists
    objects.area  .area_whole  .bbox_xywh_px  .bbox_yxyx  .category_id  .category_name
           .class_index  .id  .is_crowd  .label  .mask_png  .mask_rle
           .xmin .xmax .ymin .ymax  .keypoint_{num,text,visibility,x,y}                   one an annotation, or more
    captions.id  .text                                                                    one a caption
    captions.index  .value  .tokens                            of all captions of an image, see schemas/encoders.py
    semantic.png                                                                          of stuff, or of panoptic
    panoptic.category_png  .instance_png  .png  .file_name                                one an image
    segments.area  .bbox_yxyx  .class_index  .id  .is_crowd                               one a panoptic segment
    feature.bytes  .shape  .values                                                        what a model makes of an image

`detection` is read unchanged by Model Garden (`official/vision/dataloaders/tf_example_decoder.py`) and by the Object
Detection API (`object_detection/data_decoders/tf_example_decoder.py`); ours on top are `image/object/id`,
`image/object/category_id`, `image/object/class/index` and `image/object/mask/rle`, which those readers ignore.

`keras` is what the recipe "Creating TFRecords" (keras.io) writes and reads; `class_index` is ours. `tfds` is what
`tfds.load("coco/2017")`, `"coco/2017_panoptic"` and `"coco_captions"` give; `objects/category_id` is ours.

`classification` is what the scripts of ImageNet's TFRecords write and Model Garden's `classification_input.py` reads.
"""

from collections.abc import Callable
from typing import Any

from recordmill.schemas.features import Feature, FeatureTable, Kind, Part, RecordOf, ShardNaming
from recordmill.schemas.shards import ShardNames

_N, _N_K, _S, _BOX = ("N",), ("N*K",), ("S",), "4"


def _of_kind(kind: Kind) -> Callable[..., Feature]:
    def feature(name: str, source: str, shape: tuple[str, ...], unit: str, meaning: str, part: Part | None = None):
        return Feature(name, source, kind, shape, unit, meaning, part)

    return feature


def _table(layout: str, *features: Feature, **more: Any) -> FeatureTable:
    return FeatureTable(layout, features, **more)


_bytes, _float, _int64 = map(_of_kind, (Kind.BYTES, Kind.FLOAT, Kind.INT64))

_OF_WIDTH, _OF_HEIGHT, _FRACTIONS = "fraction of width", "fraction of height", "fraction of height and width"
_KEYPOINTS, _PANOPTIC = Part.KEYPOINTS, Part.PANOPTIC

# In `detection` and in `classification`.
_ENCODED = _bytes("image/encoded", "image.encoded", (), "JPEG or PNG", "the image file")
_FORMAT = _bytes("image/format", "image.format", (), "jpeg or png", "what the bytes are, whatever the file is called")
_HEIGHT = _int64("image/height", "image.height", (), "px", "height of the encoded pixels")
_SHA256 = _bytes("image/key/sha256", "image.sha256", (), "hex", "SHA-256 of image/encoded")
_WIDTH = _int64("image/width", "image.width", (), "px", "width of the encoded pixels")


def _terms(column: str, index: str, value: str, tokens: str) -> tuple[Feature, Feature, Feature]:
    """The features of texts as numbers: terms and their weights, or tokens."""
    what = f"of the {column}"
    return (
        _int64(index, f"{column}.index", ("T",), "0..terms-1", f"terms {what}, ascending", Part.CAPTION_TERMS),
        _int64(
            tokens, f"{column}.tokens", ("L",), "2..terms+1", f"tokens {what}, in order; 1 unknown", Part.CAPTION_TOKENS
        ),
        _float(value, f"{column}.value", ("T",), "count or tf-idf", f"weights of the terms {what}", Part.CAPTION_TERMS),
    )


DETECTION = _table(
    "detection",
    *_terms("captions", "captions/index", "captions/value", "captions/tokens"),
    _bytes("image/caption", "captions.text", ("C",), "utf-8", "captions", Part.CAPTIONS),
    _ENCODED,
    _bytes("image/filename", "image.file_name", (), "utf-8", "COCO file_name"),
    _FORMAT,
    _HEIGHT,
    _SHA256,
    _int64(
        "image/neg_category_ids",
        "image.neg_category_ids",
        ("G",),
        "COCO id",
        "LVIS: categories that are known to be absent",
        Part.LVIS,
    ),
    _int64(
        "image/not_exhaustive_category_ids",
        "image.not_exhaustive_category_ids",
        ("E",),
        "COCO id",
        "LVIS: categories of which not every object is annotated",
        Part.LVIS,
    ),
    _float("image/object/area", "objects.area", _N, "px²", "area, from the JSON"),
    _float("image/object/bbox/xmax", "objects.xmax", _N, _OF_WIDTH, "right edge, 0..1"),
    _float("image/object/bbox/xmin", "objects.xmin", _N, _OF_WIDTH, "left edge, 0..1"),
    _float("image/object/bbox/ymax", "objects.ymax", _N, _OF_HEIGHT, "bottom edge, 0..1"),
    _float("image/object/bbox/ymin", "objects.ymin", _N, _OF_HEIGHT, "top edge, 0..1"),
    _int64(
        "image/object/category_id",
        "objects.category_id",
        _N,
        "COCO id",
        "category id as in the JSON, where class/label is not",
        Part.CATEGORY_ID,
    ),
    _int64("image/object/class/index", "objects.class_index", _N, "0..classes-1", "contiguous class index"),
    _int64(
        "image/object/class/label",
        "objects.label",
        _N,
        "1 or more",
        "category id as in the JSON; class index + 1 where one is 0 or less",
    ),
    _bytes("image/object/class/text", "objects.category_name", _N, "utf-8", "category name"),
    _int64("image/object/id", "objects.id", _N, "COCO id", "annotation id"),
    _int64("image/object/is_crowd", "objects.is_crowd", _N, "0 or 1", "1 where the box holds a crowd"),
    _int64("image/object/keypoint/num", "objects.keypoint_num", _N, "0..K", "labelled keypoints", _KEYPOINTS),
    _bytes(
        "image/object/keypoint/text",
        "objects.keypoint_text",
        _N_K,
        "utf-8",
        "keypoint names; empty beyond those of the object's category",
        _KEYPOINTS,
    ),
    _int64(
        "image/object/keypoint/visibility",
        "objects.keypoint_visibility",
        _N_K,
        "0, 1 or 2",
        "0 not labelled, 1 labelled and hidden, 2 visible",
        _KEYPOINTS,
    ),
    _float("image/object/keypoint/x", "objects.keypoint_x", _N_K, _OF_WIDTH, "0 where not labelled", _KEYPOINTS),
    _float("image/object/keypoint/y", "objects.keypoint_y", _N_K, _OF_HEIGHT, "0 where not labelled", _KEYPOINTS),
    _bytes(
        "image/object/mask",
        "objects.mask_png",
        _N,
        "grey PNG, 0 and 1",
        "mask of the full image; all 0 where the object has none",
        Part.MASK_PNG,
    ),
    _bytes(
        "image/object/mask/rle",
        "objects.mask_rle",
        _N,
        "COCO RLE",
        "mask as compressed counts; its size is height, width",
        Part.MASK_RLE,
    ),
    _bytes(
        "image/panoptic/category_mask",
        "panoptic.category_png",
        (),
        "grey PNG",
        "label of each pixel's category, as in class/label; void 0",
        _PANOPTIC,
    ),
    _bytes(
        "image/panoptic/instance_mask",
        "panoptic.instance_png",
        (),
        "grey PNG",
        "index of the segment in segments_info, from 1, for things; 0 for stuff and void",
        _PANOPTIC,
    ),
    _bytes(
        "image/segmentation/class/encoded",
        "semantic.png",
        (),
        "grey PNG",
        "things 1, stuff above (semantic_by_id in label_map.json), 255 where nothing is known",
        Part.SEMANTIC,
    ),
    _bytes("image/source_id", "image.id", (), "decimal", "COCO image id"),
    _WIDTH,
)

KERAS = _table(
    "keras",
    _float("area", "objects.area", (), "px²", "area, from the JSON"),
    _float("bbox", "objects.bbox_xywh_px", (_BOX,), "px", "x, y, width, height"),
    _int64("category_id", "objects.category_id", (), "COCO id", "category id as in the JSON"),
    _int64("class_index", "objects.class_index", (), "0..classes-1", "contiguous class index"),
    _int64("id", "objects.id", (), "COCO id", "annotation id"),
    _bytes("image", "image.encoded", (), "JPEG or PNG", "the image file"),
    _int64("image_id", "image.number", (), "COCO id", "image id"),
    _bytes("path", "image.file_name", (), "utf-8", "COCO file_name"),
    record_of=RecordOf.ANNOTATION,
    naming=ShardNaming.KERAS,
    examples_per_shard=4096,
)

TFDS = _table(
    "tfds",
    _int64("captions/id", "captions.id", ("C",), "COCO id", "annotation id", Part.CAPTIONS),
    _bytes("captions/text", "captions.text", ("C",), "utf-8", "captions", Part.CAPTIONS),
    # Not captions/…, which are lists of one value a caption.
    *_terms("captions", "captions_index", "captions_value", "captions_tokens"),
    _bytes("image", "image.encoded", (), "JPEG or PNG", "the image file"),
    _bytes("image/filename", "image.file_name", (), "utf-8", "COCO file_name"),
    _int64("image/id", "image.number", (), "COCO id", "image id"),
    _int64("objects/area", "objects.area_whole", _N, "px²", "area, without its fraction"),
    _float("objects/bbox", "objects.bbox_yxyx", (*_N, _BOX), _FRACTIONS, "ymin, xmin, ymax, xmax"),
    _int64("objects/category_id", "objects.category_id", _N, "COCO id", "category id as in the JSON"),
    _int64("objects/id", "objects.id", _N, "COCO id", "annotation id"),
    _int64("objects/is_crowd", "objects.is_crowd", _N, "0 or 1", "1 where the box holds a crowd"),
    _int64("objects/label", "objects.class_index", _N, "0..classes-1", "contiguous class index"),
    _bytes(
        "panoptic_image",
        "panoptic.png",
        (),
        "PNG",
        "the panoptic PNG as it is: segment ids R + 256 G + 65536 B",
        _PANOPTIC,
    ),
    _bytes(
        "panoptic_image/filename",
        "panoptic.file_name",
        (),
        "utf-8",
        "file_name of the panoptic PNG; empty where the image has none",
        _PANOPTIC,
    ),
    _int64("panoptic_objects/area", "segments.area", _S, "px²", "area of a segment", _PANOPTIC),
    _float("panoptic_objects/bbox", "segments.bbox_yxyx", (*_S, _BOX), _FRACTIONS, "ymin, xmin, ymax, xmax", _PANOPTIC),
    _int64("panoptic_objects/id", "segments.id", _S, "segment id", "value of its pixels in panoptic_image", _PANOPTIC),
    _int64("panoptic_objects/is_crowd", "segments.is_crowd", _S, "0 or 1", "1 where the segment is a crowd", _PANOPTIC),
    _int64(
        "panoptic_objects/label",
        "segments.class_index",
        _S,
        "0..segment classes-1",
        "contiguous index among the panoptic categories",
        _PANOPTIC,
    ),
    groups=("captions", "objects", "panoptic_objects"),
)

CLASSIFICATION = _table(
    "classification",
    _int64("image/channels", "image.channels", (), "1 to 4", "channels of the encoded pixels"),
    _int64("image/class/label", "image.class_index", (), "0..classes-1", "class index"),
    _bytes("image/class/text", "image.class_name", (), "utf-8", "class name"),
    _ENCODED,
    _bytes("image/filename", "image.file_name", (), "utf-8", "path below --images"),
    _FORMAT,
    _HEIGHT,
    _SHA256,
    _bytes("image/source_id", "image.id", (), "decimal", "image id, a hash of image/filename"),
    _WIDTH,
)

FEATURES = FeatureTable("features", ())
"""Its features follow from the model, see `features_table`."""

TABLE = FeatureTable("table", (), record_of=RecordOf.ROW)
"""Its features are the table's columns, and those of `picture_of_row` where rows name pictures."""

LAYOUTS = {table.layout: table for table in (DETECTION, KERAS, TFDS, CLASSIFICATION, FEATURES, TABLE)}

COCO_LAYOUTS = ("detection", "keras", "tfds")
"""Those for annotated images."""


def features_table(shape: tuple[int, ...], dtype: str) -> FeatureTable:
    """What is in a record of what a model makes of a picture.

    Args:
        shape: of one picture's feature.
        dtype: `float32`, or `float16` for bytes.
    """
    if dtype == "float32":
        sizes = tuple(map(str, shape))
        feature = _float("feature", "feature.values", sizes, "as the model gives", "the feature")
    else:
        unit = f"little-endian {dtype}"
        feature = _bytes("feature", "feature.bytes", (), unit, "the feature, of feature/shape")
    rank = (str(len(shape)),)
    of_picture = (each for each in CLASSIFICATION.features if each.source in _OF_FEATURES)
    return FeatureTable(
        FEATURES.layout,
        (
            feature,
            _int64("feature/shape", "feature.shape", rank, "numbers", "its height, width, channels"),
            *of_picture,
        ),
    )


_OF_FEATURES = ("image.class_index", "image.class_name", "image.file_name", "image.id")


def shard_names(name: str, split: str, layout: str) -> ShardNames:
    """The file names of a split's shards in a layout."""
    return ShardNames(name, split, LAYOUTS[layout].naming)


DECODED_PICTURE = "image"
"""What `recordmill.open` calls the pixels of a row's picture; no column's feature is called so beside it."""


def picture_of_row(raw_size: tuple[int, int] | None) -> tuple[Feature, ...]:
    """The features of the picture that a row of a table names, by name.

    Args:
        raw_size: height and width of the pixels that stand there instead of the file; None for the file.
    """
    if raw_size is None:
        return tuple(each for each in CLASSIFICATION.features if not each.source.startswith("image.class_"))
    meaning = "red, green and blue of each pixel, by rows from the top, 0 to 255"
    pixels = _bytes("image/pixels", _PIXELS, (*map(str, raw_size), "3"), "uint8", meaning)
    of_file = (each for each in CLASSIFICATION.features if each.source in _OF_PIXELS)
    return tuple(sorted((pixels, *of_file), key=lambda feature: feature.name))


_PIXELS = "image.pixels"
_OF_PIXELS = ("image.file_name", "image.height", "image.id", "image.width")
_OF_PICTURE = {_PIXELS, *(each.source for each in picture_of_row(None))}


def is_of_picture(feature: Feature) -> bool:
    """Whether a table's feature is of the picture that its row names, and of no column."""
    return feature.source in _OF_PICTURE


def has_picture(table: FeatureTable) -> bool:
    """Whether records hold pictures, as files or as pixels."""
    return not table.sources.isdisjoint({"image.encoded", _PIXELS})
