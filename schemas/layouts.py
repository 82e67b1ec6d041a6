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

from functools import partial

from recordmill.schemas.features import Feature, FeatureTable, Kind, Part, RecordOf, ShardNaming
from recordmill.schemas.shards import ShardNames

_N = ("N",)
_N_K = ("N*K",)
_SEGMENTS = ("S",)
_BOX = "4"

_bytes = partial(Feature, kind=Kind.BYTES)
_float = partial(Feature, kind=Kind.FLOAT)
_int64 = partial(Feature, kind=Kind.INT64)

_FRACTIONS = "fraction of height and width"

# In `detection` and in `classification`.
_ENCODED = _bytes("image/encoded", "image.encoded", shape=(), unit="JPEG or PNG", meaning="the image file")
_FORMAT = _bytes(
    "image/format",
    "image.format",
    shape=(),
    unit="jpeg or png",
    meaning="what the bytes are, whatever the file is called",
)
_HEIGHT = _int64("image/height", "image.height", shape=(), unit="px", meaning="height of the encoded pixels")
_SHA256 = _bytes("image/key/sha256", "image.sha256", shape=(), unit="hex", meaning="SHA-256 of image/encoded")
_WIDTH = _int64("image/width", "image.width", shape=(), unit="px", meaning="width of the encoded pixels")


def _terms(column: str, index: str, value: str, tokens: str) -> tuple[Feature, Feature, Feature]:
    """The features of texts as numbers: terms and their weights, or tokens."""
    what = f"of the {column}"
    return (
        _int64(
            index,
            f"{column}.index",
            shape=("T",),
            unit="0..terms-1",
            meaning=f"terms {what}, ascending",
            part=Part.CAPTION_TERMS,
        ),
        _int64(
            tokens,
            f"{column}.tokens",
            shape=("L",),
            unit="2..terms+1",
            meaning=f"tokens {what}, in order; 1 unknown",
            part=Part.CAPTION_TOKENS,
        ),
        _float(
            value,
            f"{column}.value",
            shape=("T",),
            unit="count or tf-idf",
            meaning=f"weights of the terms {what}",
            part=Part.CAPTION_TERMS,
        ),
    )


DETECTION = FeatureTable(
    "detection",
    (
        *_terms("captions", "captions/index", "captions/value", "captions/tokens"),
        _bytes("image/caption", "captions.text", shape=("C",), unit="utf-8", meaning="captions", part=Part.CAPTIONS),
        _ENCODED,
        _bytes("image/filename", "image.file_name", shape=(), unit="utf-8", meaning="COCO file_name"),
        _FORMAT,
        _HEIGHT,
        _SHA256,
        _int64(
            "image/neg_category_ids",
            "image.neg_category_ids",
            shape=("G",),
            unit="COCO id",
            meaning="LVIS: categories that are known to be absent",
            part=Part.LVIS,
        ),
        _int64(
            "image/not_exhaustive_category_ids",
            "image.not_exhaustive_category_ids",
            shape=("E",),
            unit="COCO id",
            meaning="LVIS: categories of which not every object is annotated",
            part=Part.LVIS,
        ),
        _float("image/object/area", "objects.area", shape=_N, unit="px²", meaning="area, from the JSON"),
        _float(
            "image/object/bbox/xmax", "objects.xmax", shape=_N, unit="fraction of width", meaning="right edge, 0..1"
        ),
        _float("image/object/bbox/xmin", "objects.xmin", shape=_N, unit="fraction of width", meaning="left edge, 0..1"),
        _float(
            "image/object/bbox/ymax", "objects.ymax", shape=_N, unit="fraction of height", meaning="bottom edge, 0..1"
        ),
        _float("image/object/bbox/ymin", "objects.ymin", shape=_N, unit="fraction of height", meaning="top edge, 0..1"),
        _int64(
            "image/object/category_id",
            "objects.category_id",
            shape=_N,
            unit="COCO id",
            meaning="category id as in the JSON, where class/label is not",
            part=Part.CATEGORY_ID,
        ),
        _int64(
            "image/object/class/index",
            "objects.class_index",
            shape=_N,
            unit="0..classes-1",
            meaning="contiguous class index",
        ),
        _int64(
            "image/object/class/label",
            "objects.label",
            shape=_N,
            unit="1 or more",
            meaning="category id as in the JSON; class index + 1 where one is 0 or less",
        ),
        _bytes("image/object/class/text", "objects.category_name", shape=_N, unit="utf-8", meaning="category name"),
        _int64("image/object/id", "objects.id", shape=_N, unit="COCO id", meaning="annotation id"),
        _int64(
            "image/object/is_crowd",
            "objects.is_crowd",
            shape=_N,
            unit="0 or 1",
            meaning="1 where the box holds a crowd",
        ),
        _int64(
            "image/object/keypoint/num",
            "objects.keypoint_num",
            shape=_N,
            unit="0..K",
            meaning="labelled keypoints",
            part=Part.KEYPOINTS,
        ),
        _bytes(
            "image/object/keypoint/text",
            "objects.keypoint_text",
            shape=_N_K,
            unit="utf-8",
            meaning="keypoint names; empty beyond those of the object's category",
            part=Part.KEYPOINTS,
        ),
        _int64(
            "image/object/keypoint/visibility",
            "objects.keypoint_visibility",
            shape=_N_K,
            unit="0, 1 or 2",
            meaning="0 not labelled, 1 labelled and hidden, 2 visible",
            part=Part.KEYPOINTS,
        ),
        _float(
            "image/object/keypoint/x",
            "objects.keypoint_x",
            shape=_N_K,
            unit="fraction of width",
            meaning="0 where not labelled",
            part=Part.KEYPOINTS,
        ),
        _float(
            "image/object/keypoint/y",
            "objects.keypoint_y",
            shape=_N_K,
            unit="fraction of height",
            meaning="0 where not labelled",
            part=Part.KEYPOINTS,
        ),
        _bytes(
            "image/object/mask",
            "objects.mask_png",
            shape=_N,
            unit="grey PNG, 0 and 1",
            meaning="mask of the full image; all 0 where the object has none",
            part=Part.MASK_PNG,
        ),
        _bytes(
            "image/object/mask/rle",
            "objects.mask_rle",
            shape=_N,
            unit="COCO RLE",
            meaning="mask as compressed counts; its size is height, width",
            part=Part.MASK_RLE,
        ),
        _bytes(
            "image/panoptic/category_mask",
            "panoptic.category_png",
            shape=(),
            unit="grey PNG",
            meaning="label of each pixel's category, as in class/label; void 0",
            part=Part.PANOPTIC,
        ),
        _bytes(
            "image/panoptic/instance_mask",
            "panoptic.instance_png",
            shape=(),
            unit="grey PNG",
            meaning="index of the segment in segments_info, from 1, for things; 0 for stuff and void",
            part=Part.PANOPTIC,
        ),
        _bytes(
            "image/segmentation/class/encoded",
            "semantic.png",
            shape=(),
            unit="grey PNG",
            meaning="things 1, stuff above (semantic_by_id in label_map.json), 255 where nothing is known",
            part=Part.SEMANTIC,
        ),
        _bytes("image/source_id", "image.id", shape=(), unit="decimal", meaning="COCO image id"),
        _WIDTH,
    ),
)

KERAS = FeatureTable(
    "keras",
    (
        _float("area", "objects.area", shape=(), unit="px²", meaning="area, from the JSON"),
        _float("bbox", "objects.bbox_xywh_px", shape=(_BOX,), unit="px", meaning="x, y, width, height"),
        _int64("category_id", "objects.category_id", shape=(), unit="COCO id", meaning="category id as in the JSON"),
        _int64("class_index", "objects.class_index", shape=(), unit="0..classes-1", meaning="contiguous class index"),
        _int64("id", "objects.id", shape=(), unit="COCO id", meaning="annotation id"),
        _bytes("image", "image.encoded", shape=(), unit="JPEG or PNG", meaning="the image file"),
        _int64("image_id", "image.number", shape=(), unit="COCO id", meaning="image id"),
        _bytes("path", "image.file_name", shape=(), unit="utf-8", meaning="COCO file_name"),
    ),
    record_of=RecordOf.ANNOTATION,
    naming=ShardNaming.KERAS,
    examples_per_shard=4096,
)

TFDS = FeatureTable(
    "tfds",
    (
        _int64("captions/id", "captions.id", shape=("C",), unit="COCO id", meaning="annotation id", part=Part.CAPTIONS),
        _bytes("captions/text", "captions.text", shape=("C",), unit="utf-8", meaning="captions", part=Part.CAPTIONS),
        # Not captions/…, which are lists of one value a caption.
        *_terms("captions", "captions_index", "captions_value", "captions_tokens"),
        _bytes("image", "image.encoded", shape=(), unit="JPEG or PNG", meaning="the image file"),
        _bytes("image/filename", "image.file_name", shape=(), unit="utf-8", meaning="COCO file_name"),
        _int64("image/id", "image.number", shape=(), unit="COCO id", meaning="image id"),
        _int64("objects/area", "objects.area_whole", shape=_N, unit="px²", meaning="area, without its fraction"),
        _float(
            "objects/bbox", "objects.bbox_yxyx", shape=(*_N, _BOX), unit=_FRACTIONS, meaning="ymin, xmin, ymax, xmax"
        ),
        _int64(
            "objects/category_id", "objects.category_id", shape=_N, unit="COCO id", meaning="category id as in the JSON"
        ),
        _int64("objects/id", "objects.id", shape=_N, unit="COCO id", meaning="annotation id"),
        _int64(
            "objects/is_crowd", "objects.is_crowd", shape=_N, unit="0 or 1", meaning="1 where the box holds a crowd"
        ),
        _int64("objects/label", "objects.class_index", shape=_N, unit="0..classes-1", meaning="contiguous class index"),
        _bytes(
            "panoptic_image",
            "panoptic.png",
            shape=(),
            unit="PNG",
            meaning="the panoptic PNG as it is: segment ids R + 256 G + 65536 B",
            part=Part.PANOPTIC,
        ),
        _bytes(
            "panoptic_image/filename",
            "panoptic.file_name",
            shape=(),
            unit="utf-8",
            meaning="file_name of the panoptic PNG; empty where the image has none",
            part=Part.PANOPTIC,
        ),
        _int64(
            "panoptic_objects/area",
            "segments.area",
            shape=_SEGMENTS,
            unit="px²",
            meaning="area of a segment",
            part=Part.PANOPTIC,
        ),
        _float(
            "panoptic_objects/bbox",
            "segments.bbox_yxyx",
            shape=(*_SEGMENTS, _BOX),
            unit=_FRACTIONS,
            meaning="ymin, xmin, ymax, xmax",
            part=Part.PANOPTIC,
        ),
        _int64(
            "panoptic_objects/id",
            "segments.id",
            shape=_SEGMENTS,
            unit="segment id",
            meaning="value of its pixels in panoptic_image",
            part=Part.PANOPTIC,
        ),
        _int64(
            "panoptic_objects/is_crowd",
            "segments.is_crowd",
            shape=_SEGMENTS,
            unit="0 or 1",
            meaning="1 where the segment is a crowd",
            part=Part.PANOPTIC,
        ),
        _int64(
            "panoptic_objects/label",
            "segments.class_index",
            shape=_SEGMENTS,
            unit="0..segment classes-1",
            meaning="contiguous index among the panoptic categories",
            part=Part.PANOPTIC,
        ),
    ),
    groups=("captions", "objects", "panoptic_objects"),
)

CLASSIFICATION = FeatureTable(
    "classification",
    (
        _int64("image/channels", "image.channels", shape=(), unit="1 to 4", meaning="channels of the encoded pixels"),
        _int64("image/class/label", "image.class_index", shape=(), unit="0..classes-1", meaning="class index"),
        _bytes("image/class/text", "image.class_name", shape=(), unit="utf-8", meaning="class name"),
        _ENCODED,
        _bytes("image/filename", "image.file_name", shape=(), unit="utf-8", meaning="path below --images"),
        _FORMAT,
        _HEIGHT,
        _SHA256,
        _bytes("image/source_id", "image.id", shape=(), unit="decimal", meaning="image id, a hash of image/filename"),
        _WIDTH,
    ),
)

FEATURES = FeatureTable("features", ())
"""Its features follow from the model, see `features_table`."""

TABLE = FeatureTable("table", (), record_of=RecordOf.ROW)
"""Its features are the table's columns, and those of `picture_features.picture_of_row` where rows name pictures."""

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
        feature = _float("feature", "feature.values", shape=sizes, unit="as the model gives", meaning="the feature")
    else:
        unit = f"little-endian {dtype}"
        feature = _bytes("feature", "feature.bytes", shape=(), unit=unit, meaning="the feature, of feature/shape")
    rank = (str(len(shape)),)
    of_picture = (each for each in CLASSIFICATION.features if each.source in _OF_FEATURES)
    return FeatureTable(
        FEATURES.layout,
        (
            feature,
            _int64("feature/shape", "feature.shape", shape=rank, unit="numbers", meaning="its height, width, channels"),
            *of_picture,
        ),
    )


_OF_FEATURES = ("image.class_index", "image.class_name", "image.file_name", "image.id")


def shard_names(name: str, split: str, layout: str) -> ShardNames:
    """The file names of a split's shards in a layout."""
    return ShardNames(name, split, LAYOUTS[layout].naming)
