"""Values of features, one per row: how each is written and read, its unit and meaning.

Boxes are in `recordmill.schemas.layouts`, where layouts give names to values.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from recordmill.schemas.features import DTYPES, FeatureKind, Form, Part, Reading, Value, Write

if TYPE_CHECKING:
    import numpy as np

_N, _N_K, _S = ("N",), ("N*K",), ("S",)
_PIXELS = ("height", "width")
_NO_ID = -1

OF_WIDTH, OF_HEIGHT, FRACTIONS = "fraction of width", "fraction of height", "fraction of height and width"
YXYX = "ymin, xmin, ymax, xmax as fractions of height and width, from the top left"
_CLASS = "class index, 0 .. classes - 1"
_AS_IN_JSON = "as in the JSON"
_MASK = "1 inside the object, 0 outside"

# Name, meaning and padding of a reading.
_IMAGE_ID = "image_id", f"{_AS_IN_JSON}; of class folders a hash of the name"
_CATEGORY_ID = "category_ids", _AS_IN_JSON, _NO_ID
_FEATURE, _FEATURE_SHAPE = ("feature", "of the model"), ("height", "width", "channels")


def _of_kind(kind: FeatureKind) -> Callable[..., Value]:
    def value(
        source: str,
        shape: tuple[str, ...],
        unit: str,
        meaning: str,
        write: Write | None = None,
        part: Part | None = None,
        read: tuple[Any, ...] = (),
        read_as: tuple[Form, str, tuple[str, ...]] | None = None,
    ) -> Value:
        form, dtype, read_shape = read_as or (Form.AS_IT_IS, DTYPES[kind], shape)
        name, read_meaning, padding = (*read, 0)[:3] if read else ("", "", 0)
        reading = Reading(name, source, dtype, read_shape, read_meaning, padding, form) if read else None
        return Value(source, kind, shape, unit, meaning, part, write, reading)

    return value


_bytes, float_value, _int64 = map(_of_kind, (FeatureKind.BYTES, FeatureKind.FLOAT, FeatureKind.INT64))
_run = attrgetter


def _drawn(source: str) -> Write:
    return lambda run: [image.masks.values[source] for image in run.images]


def _map(source: str, meaning: str, part: Part, read: tuple[Any, ...]) -> Value:
    return _bytes(source, (), "grey PNG", meaning, _drawn(source), part, read, (Form.GREY, "uint8", _PIXELS))


def _segment(source: str, unit: str, meaning: str, read: tuple[Any, ...]) -> Value:
    return _int64(source, _S, unit, meaning, _drawn(source), Part.PANOPTIC, read)


def _labelled(name: str) -> Write:
    return lambda run: [getattr(labels, name) for labels in run.labels]


def _tags(run: Any) -> list[list[int]]:
    """Class indices of the tags of each image."""
    index = {name: number for number, name in enumerate(run.class_names)}
    return [[index[tag.encode()] for tag in labels.tags if tag.encode() in index] for labels in run.labels]


def _keypoint(name: str) -> Write:
    return lambda run: run.keypoints[name]


def _of_block(name: str, missing: int = 0) -> Write:
    """Return the writer of a column of objects; `missing` stands for one that a Block lacks."""

    def write(run: Any) -> Any:
        import numpy as np

        column = getattr(run.block, name)
        return np.full(len(run.class_index), missing, np.int64) if column is None else column

    return write


def _corners(run: Any) -> "np.ndarray":
    """Corners as fractions: float64 [M, 8]."""
    import numpy as np

    corners_px = run.block.corners_px
    if corners_px is None:
        return np.zeros((len(run.class_index), 8))
    return corners_px / np.tile(run.frame_px[run.block.image_of_object], 4)


def _whole(numbers: "np.ndarray") -> "np.ndarray":
    """Numbers without their fractions: int64."""
    import numpy as np

    with np.errstate(invalid="raise"):
        return numbers.astype(np.int64)


IMAGE_VALUES = (
    _bytes(
        "image.encoded",
        (),
        "JPEG or PNG",
        "the image file",
        lambda run: [each.data for each in run.pictures],
        read=("image", "red, green, blue"),
        read_as=(Form.PICTURE, "uint8", (*_PIXELS, "3")),
    ),
    _int64("image.number", (), "COCO id", "image id", _run("block.image_id"), read=_IMAGE_ID),
    _bytes(
        "image.id",
        (),
        "decimal",
        "COCO image id",
        lambda run: [b"%d" % each for each in run.block.image_id.tolist()],
        read=_IMAGE_ID,
        read_as=(Form.DECIMAL, "int64", ()),
    ),
    _bytes(
        "image.file_name",
        (),
        "utf-8",
        "COCO file_name",
        lambda run: run.block.file_name.rows(),
        read=("file_name", "UTF-8"),
    ),
    _bytes(
        "image.format",
        (),
        "jpeg or png",
        "format of the bytes, independent of the name of the file",
        lambda run: [each.format.encode() for each in run.pictures],
    ),
    _int64("image.height", (), "px", "height of the encoded pixels", lambda run: run.size_px[:, 1]),
    _int64("image.width", (), "px", "width of the encoded pixels", lambda run: run.size_px[:, 0]),
    _int64("image.channels", (), "1 to 4", "channels of the encoded pixels", _run("channels")),
    _bytes(
        "image.sha256",
        (),
        "hex",
        "SHA-256 of image/encoded",
        lambda run: [each.sha256.encode() for each in run.pictures],
    ),
    _int64(
        "image.class_index",
        (),
        "0..classes-1",
        "class index",
        _run("image_class"),
        read=("label", f"of an image of one class: {_CLASS}"),
    ),
    _bytes(
        "image.class_name",
        (),
        "utf-8",
        "class name",
        lambda run: [(each.class_name or "").encode() for each in run.labels],
    ),
)

OTHER_VALUES = (
    _int64(
        "objects.class_index",
        _N,
        "0..classes-1",
        "contiguous class index",
        _run("class_index"),
        read=("labels", _CLASS, _NO_ID),
    ),
    _int64(
        "objects.category_id", _N, "COCO id", "category id as in the JSON", _run("block.category_id"), read=_CATEGORY_ID
    ),
    _int64(
        "objects.label",
        _N,
        "1 or more",
        "category id as in the JSON; class index + 1 where one is 0 or less",
        lambda run: run.label_of_class[run.class_index],
        read=_CATEGORY_ID,
    ),
    _bytes("objects.category_name", _N, "utf-8", "category name", lambda run: run.name_of_class.take(run.class_index)),
    _int64(
        "objects.id",
        _N,
        "COCO id",
        "annotation id",
        _run("block.object_id"),
        read=("annotation_ids", _AS_IN_JSON, _NO_ID),
    ),
    _int64(
        "objects.is_crowd",
        _N,
        "0 or 1",
        "1 where the box holds a crowd",
        _run("block.is_crowd"),
        read=("is_crowd", "1 where the box holds a crowd"),
    ),
    float_value(
        "objects.area",
        _N,
        "px²",
        "area, from the JSON",
        _run("block.area_px2"),
        read=("area", "pixels² of the JSON's picture"),
    ),
    _int64(
        "objects.area_whole",
        _N,
        "px²",
        "area, without its fraction",
        lambda run: _whole(run.block.area_px2),
        read=("area", "the same without its fraction: layout tfds"),
    ),
    _bytes(
        "objects.mask_png",
        _N,
        "grey PNG, 0 and 1",
        "mask of the full image; all 0 where the object has none",
        lambda run: [png for each in run.images for png in each.masks.png],
        Part.MASK_PNG,
        read=("masks", _MASK),
        read_as=(Form.PNG_MASKS, "uint8", ("N", *_PIXELS)),
    ),
    _bytes(
        "objects.mask_rle",
        _N,
        "COCO RLE",
        "mask as compressed counts; its size is height, width",
        lambda run: [rle for each in run.images for rle in each.masks.rle],
        Part.MASK_RLE,
        read=("masks", _MASK),
        read_as=(Form.RLE_MASKS, "uint8", ("N", *_PIXELS)),
    ),
    float_value(
        "objects.keypoint_x",
        _N_K,
        OF_WIDTH,
        "0 where not labelled",
        _keypoint("x"),
        Part.KEYPOINTS,
        read=(
            "keypoints",
            "x, y as fractions of width and height (x first, unlike boxes), then visibility: 0 not labelled, 1 hidden, "
            "2 visible",
        ),
        read_as=(Form.KEYPOINTS, "float32", ("N", "K", "3")),
    ),
    float_value("objects.keypoint_y", _N_K, OF_HEIGHT, "0 where not labelled", _keypoint("y"), Part.KEYPOINTS),
    _int64(
        "objects.keypoint_visibility",
        _N_K,
        "0, 1 or 2",
        "0 not labelled, 1 labelled and hidden, 2 visible",
        _keypoint("visibility"),
        Part.KEYPOINTS,
    ),
    _int64("objects.keypoint_num", _N, "0..K", "labelled keypoints", _keypoint("num"), Part.KEYPOINTS),
    _bytes(
        "objects.keypoint_text",
        _N_K,
        "utf-8",
        "keypoint names; empty beyond those of the object's category",
        _keypoint("text"),
        Part.KEYPOINTS,
    ),
    _int64(
        "objects.difficult",
        _N,
        "0 or 1",
        "1 where the source says that the object is hard to recognise",
        _of_block("difficult"),
        Part.FLAGS,
        read=("difficult", "1 where the object is hard to recognise"),
    ),
    _int64(
        "objects.truncated",
        _N,
        "0 or 1",
        "1 where the source says that the object is not all in the box",
        _of_block("truncated"),
        Part.FLAGS,
        read=("truncated", "1 where the object is not all in the box"),
    ),
    _bytes(
        "objects.view",
        _N,
        "utf-8",
        "side of the object that is seen, in the source's words",
        lambda run: run.block.view.rows() if run.block.view is not None else [b""] * len(run.class_index),
        Part.FLAGS,
        read=("views", "UTF-8: side that is seen"),
    ),
    float_value(
        "objects.corners",
        ("N", "8"),
        FRACTIONS,
        "x, y of the four corners of an oriented box, in order; the box is their bounds",
        _corners,
        Part.ORIENTED,
        read=("corners", "x, y of the four corners of an oriented box as fractions of width and height"),
    ),
    _int64(
        "objects.track_id",
        _N,
        "id",
        "track that the object is of; -1 without",
        _of_block("track_id", _NO_ID),
        Part.TRACKS,
        read=("track_ids", "-1 without", _NO_ID),
    ),
    _bytes(
        "captions.text",
        ("C",),
        "utf-8",
        "captions",
        lambda run: [[each.caption.encode() for each in labels.captions] for labels in run.labels],
        Part.CAPTIONS,
        read=("captions", "UTF-8"),
    ),
    _int64(
        "captions.id",
        ("C",),
        "COCO id",
        "annotation id",
        lambda run: [[each.id for each in labels.captions] for labels in run.labels],
        Part.CAPTIONS,
        read=("caption_ids", _AS_IN_JSON, _NO_ID),
    ),
    _int64(
        "captions.index",
        ("T",),
        "0..terms-1",
        "terms of the captions, ascending",
        _labelled("caption_index"),
        Part.CAPTION_TERMS,
        read=("caption_index", "terms, see `recordmill.encoders`"),
    ),
    float_value(
        "captions.value",
        ("T",),
        "count or tf-idf",
        "weights of the terms of the captions",
        _labelled("caption_value"),
        Part.CAPTION_TERMS,
        read=("caption_value", "weights of the terms"),
    ),
    _int64(
        "captions.tokens",
        ("L",),
        "2..terms+1",
        "tokens of the captions, in order; 1 unknown",
        _labelled("caption_index"),
        Part.CAPTION_TOKENS,
        read=("caption_tokens", "in order; 1 unknown"),
    ),
    _map(
        "semantic.png",
        "things 1, stuff above (semantic_by_id in label_map.json), 255 where nothing is known",
        Part.SEMANTIC,
        ("semantic", "see semantic_by_id in label_map.json; 255 unknown"),
    ),
    _map(
        "panoptic.category_png",
        "label of each pixel's category, as in class/label; void 0",
        Part.PANOPTIC,
        (
            "categories",
            "category id of the panoptic segment, void 0; where an id is 0 or less, see label_by_id in label_map.json",
        ),
    ),
    _map(
        "panoptic.instance_png",
        "index of the segment in segments_info, from 1, for things; 0 for stuff and void",
        Part.PANOPTIC,
        ("instances", "number of the panoptic segment from 1, 0 for stuff and void"),
    ),
    _bytes(
        "panoptic.png",
        (),
        "PNG",
        "the panoptic PNG, unchanged: segment ids R + 256 G + 65536 B",
        _drawn("panoptic.png"),
        Part.PANOPTIC,
        read=("segment_map", "id of the panoptic segment: layout tfds"),
        read_as=(Form.SEGMENT_IDS, "int32", _PIXELS),
    ),
    _bytes(
        "panoptic.file_name",
        (),
        "utf-8",
        "file_name of the panoptic PNG; empty where the image has none",
        _drawn("panoptic.file_name"),
        Part.PANOPTIC,
    ),
    _segment(
        "segments.id",
        "segment id",
        "value of its pixels in panoptic_image",
        ("segment_ids", "values of segment_map", _NO_ID),
    ),
    _segment(
        "segments.class_index",
        "0..segment classes-1",
        "contiguous index among the panoptic categories",
        ("segment_labels", "index among the segments", _NO_ID),
    ),
    float_value(
        "segments.bbox_yxyx",
        ("S", "4"),
        FRACTIONS,
        "ymin, xmin, ymax, xmax",
        _drawn("segments.bbox_yxyx"),
        Part.PANOPTIC,
        ("segment_boxes", YXYX),
    ),
    _segment("segments.area", "px²", "area of a segment", ("segment_areas", "pixels²")),
    _segment(
        "segments.is_crowd", "0 or 1", "1 where the segment is a crowd", ("segment_is_crowd", "1 where it is a crowd")
    ),
    _int64(
        "image.neg_category_ids",
        ("G",),
        "COCO id",
        "LVIS: categories that are known to be absent",
        _labelled("neg_category_ids"),
        Part.LVIS,
        read=("neg_category_ids", "LVIS: known to be absent", _NO_ID),
    ),
    _int64(
        "image.not_exhaustive_category_ids",
        ("E",),
        "COCO id",
        "LVIS: categories of which not every object is annotated",
        _labelled("not_exhaustive_category_ids"),
        Part.LVIS,
        read=("not_exhaustive_category_ids", "LVIS: not every object is annotated", _NO_ID),
    ),
    _int64(
        "image.tag_labels",
        ("U",),
        "1 or more",
        "classes of the whole image, as image/object/class/label",
        lambda run: [[int(run.label_of_class[index]) for index in indices] for indices in _tags(run)],
        Part.TAGS,
        read=("tag_ids", "classes of the whole image, as category_ids", _NO_ID),
    ),
    _bytes(
        "image.tag_names",
        ("U",),
        "utf-8",
        "their names",
        lambda run: [[run.class_names[index] for index in indices] for indices in _tags(run)],
        Part.TAGS,
        read=("tags", "UTF-8"),
    ),
    float_value(
        "feature.values",
        (),
        "as the model gives",
        "the feature",
        read=_FEATURE,
        read_as=(Form.AS_IT_IS, "float32", _FEATURE_SHAPE),
    ),
    _bytes(
        "feature.bytes",
        (),
        "little-endian float16",
        "the feature, of feature/shape",
        read=_FEATURE,
        read_as=(Form.FLOAT16, "float16", _FEATURE_SHAPE),
    ),
    _int64("feature.shape", (), "numbers", "its height, width, channels"),
)
