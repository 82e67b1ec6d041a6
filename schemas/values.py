"""Values of features, one per row: how they are written and read, their units and meanings.

Layouts assign names to values (`recordmill.schemas.layouts`).
"""

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from recordmill.schemas.features import DTYPES, FeatureKind, Form, Part, Reading

if TYPE_CHECKING:
    import numpy as np

Write = Callable[[Any], Any]
"""Function that makes a column of a `recordmill.transforms.encoders.encode_examples.Run`. A row is an object for values
`objects.…`, and an image for other values."""


class Value(NamedTuple):
    """Value of a feature. A layout may change everything but kind and source for its feature."""

    kind: FeatureKind
    source: str  # name of the value, independent of layouts
    shape: tuple[str, ...]
    unit: str
    meaning: str
    part: Part | None = None
    write: Write | None = None  # None for values that annotated images do not have
    reading: Reading | None = None  # value that readers return

    def written(self, write: Write, part: Part | None = None) -> "Value":
        """Return the value with the writer of its column. If `part` is given, only records with it have the value."""
        return self._replace(write=write, part=part)

    def read(
        self,
        name: str,
        meaning: str,
        padding: int = 0,
        form: Form = Form.AS_IT_IS,
        dtype: str = "",
        shape: tuple[str, ...] | None = None,
    ) -> "Value":
        """Return the value with a reading; dtype and shape default to those of the record."""
        dtype, shape = dtype or DTYPES[self.kind], self.shape if shape is None else shape
        return self._replace(reading=Reading(name, self.source, dtype, shape, meaning, padding, form))


_bytes, _float, _int64 = (partial(Value, kind) for kind in (FeatureKind.BYTES, FeatureKind.FLOAT, FeatureKind.INT64))
_run = attrgetter

_N, _N_4, _N_K, _S = ("N",), ("N", "4"), ("N*K",), ("S",)
_PIXELS = ("height", "width")
_NO_ID = -1
_WIDTH_FRACTION, _HEIGHT_FRACTION, _FRACTIONS = (
    "fraction of width",
    "fraction of height",
    "fraction of height and width",
)
_YXYX = "ymin, xmin, ymax, xmax as fractions of height and width, from the top left"
_CLASS = "class index, 0 .. classes - 1"
_AS_IN_JSON = "as in the JSON"
_MASK_VALUES = "1 inside the object, 0 outside"
_FEATURE_SHAPE = ("height", "width", "channels")

# Arguments of readings that several values have.
_IMAGE_ID = "image_id", f"{_AS_IN_JSON}; of class folders a hash of the name"
_CATEGORY_ID = "category_ids", _AS_IN_JSON, _NO_ID
_WHOLE_ID = "whole_image_id", "image_id of a tile's source image"
_GREY = 0, Form.GREY, "uint8", _PIXELS


def _image_column(make: Callable[[Any], Any]) -> Write:
    return lambda run: [make(image) for image in run.stored_images]


def _labels_column(make: Callable[[Any], Any]) -> Write:
    return lambda run: [make(labels) for labels in run.labels]


def _mask_column(source: str) -> Write:
    return lambda run: [image.masks.values[source] for image in run.images]


def _keypoint_column(name: str) -> Write:
    return lambda run: run.keypoints[name]


def _edge_column(index: int) -> Write:
    return lambda run: run.boxes.yxyx_frac[:, index]


def _tile_column(make: Callable[[Any], int]) -> Write:
    """Return the writer of a number of an image's task."""

    def write(run: Any) -> "np.ndarray":
        import numpy as np

        return np.array([make(image.task) for image in run.images], np.int64)

    return write


def _tags(run: Any) -> list[list[int]]:
    """Return the class indices of the tags of each image."""
    index = {name: number for number, name in enumerate(run.class_names)}
    return [[index[tag.encode()] for tag in labels.tags if tag.encode() in index] for labels in run.labels]


def _field_column(source: str) -> Write:
    """Return the writer of a well-known field, see `recordmill.schemas.field_features`."""
    return lambda run: run.fields[source]


def _corners(run: Any) -> "np.ndarray":
    """Return the corners as fractions: float64 [M, 8]."""
    import numpy as np

    corners_px = run.block.corners_px
    if corners_px is None:
        return np.zeros((len(run.class_index), 8))
    return corners_px / np.tile(run.frame_px[run.block.image_of_object], 4)


def _polygons(run: Any) -> list[bytes]:
    """Return the polygons of each object as JSON; empty for an object with run lengths, or no mask."""
    texts = run.block.segmentation.rows() if run.block.segmentation else [b""] * run.block.num_objects
    return [text if text.startswith(b"[") else b"" for text in texts]


def _whole_areas(run: Any) -> "np.ndarray":
    """Return the areas, truncated to integers: int64 [M]."""
    import numpy as np

    with np.errstate(invalid="raise"):
        return run.block.area_px2.astype(np.int64)


def _fitted_boxes_px(run: Any) -> "np.ndarray":
    """Return x, y, width, height in pixels of the record's image: float64 [M, 4]. Boxes that were not changed keep the
    numbers of the source."""
    import numpy as np

    image = run.block.image_of_object
    sides = run.size_px[image].astype(np.float64)
    ymin, xmin, ymax, xmax = run.boxes.yxyx_frac.T
    low, high = np.column_stack((xmin, ymin)) * sides, np.column_stack((xmax, ymax)) * sides
    is_as_it_was = ~run.boxes.is_clipped & (run.frame_px == run.size_px).all(axis=1)[image]
    return np.where(is_as_it_was[:, None], run.block.boxes_xywh_px, np.concatenate((low, high - low), axis=1))


VALUES = (
    # Images
    _bytes("image.encoded", (), "JPEG or PNG", "the image file")
    .written(_image_column(attrgetter("data")))
    .read("image", "red, green, blue", form=Form.IMAGE, dtype="uint8", shape=(*_PIXELS, "3")),
    _bytes("image.file", (), "MessagePack", "image file, and how it is used").written(
        _image_column(attrgetter("data"))
    ),
    _int64("image.number", (), "COCO id", "image id").written(_run("block.image_id")).read(*_IMAGE_ID),
    _bytes("image.id", (), "decimal", "COCO image id")
    .written(lambda run: [b"%d" % image_id for image_id in run.block.image_id.tolist()])
    .read(*_IMAGE_ID, form=Form.DECIMAL, dtype="int64"),
    _bytes("image.file_name", (), "utf-8", "COCO file_name")
    .written(lambda run: run.block.file_name.rows())
    .read("file_name", "UTF-8"),
    _bytes("image.format", (), "jpeg or png", "format of the bytes, independent of the file name").written(
        _image_column(lambda image: image.format.encode())
    ),
    _int64("image.height", (), "px", "height of the encoded pixels").written(lambda run: run.size_px[:, 1]),
    _int64("image.width", (), "px", "width of the encoded pixels").written(lambda run: run.size_px[:, 0]),
    _int64("image.channels", (), "1 to 4", "channels of the encoded pixels").written(_run("channels")),
    _bytes("image.sha256", (), "hex", "SHA-256 of image/encoded").written(
        _image_column(lambda image: image.sha256.encode())
    ),
    _int64("image.class_index", (), "0..classes-1", "class index")
    .written(_run("image_class"))
    .read("label", f"of an image with one class: {_CLASS}"),
    _bytes("image.class_name", (), "utf-8", "class name").written(
        _labels_column(lambda labels: (labels.class_name or "").encode())
    ),
    # Boxes. If several values have the same reading, readers return the first in the record.
    _float("objects.xmin", _N, _WIDTH_FRACTION, "left edge, 0..1")
    .written(_edge_column(1))
    .read("boxes", _YXYX, form=Form.STACKED, shape=_N_4),
    _float("objects.xmax", _N, _WIDTH_FRACTION, "right edge, 0..1").written(_edge_column(3)),
    _float("objects.ymin", _N, _HEIGHT_FRACTION, "top edge, 0..1").written(_edge_column(0)),
    _float("objects.ymax", _N, _HEIGHT_FRACTION, "bottom edge, 0..1").written(_edge_column(2)),
    _float("objects.bbox_yxyx", _N_4, _FRACTIONS, "ymin, xmin, ymax, xmax")
    .written(_run("boxes.yxyx_frac"))
    .read("boxes", _YXYX),
    _float("objects.bbox_xywh_px", _N_4, "px", "x, y, width, height")
    .written(_fitted_boxes_px)
    .read("box_xywh_px", "instead of boxes, in the layout keras: x, y, width, height in pixels"),
    # Objects
    _int64("objects.class_index", _N, "0..classes-1", "contiguous class index")
    .written(_run("class_index"))
    .read("labels", _CLASS, _NO_ID),
    _int64("objects.category_id", _N, "COCO id", "category id as in the JSON")
    .written(_run("block.category_id"))
    .read(*_CATEGORY_ID),
    _int64(
        "objects.label",
        _N,
        "1 or more",
        "category id as in the JSON; class index + 1 if an id of the data set is 0 or less",
    )
    .written(lambda run: run.label_of_class[run.class_index])
    .read(*_CATEGORY_ID),
    _bytes("objects.category_name", _N, "utf-8", "category name").written(
        lambda run: run.name_of_class.take(run.class_index)
    ),
    _int64("objects.id", _N, "COCO id", "annotation id")
    .written(_run("block.object_id"))
    .read("annotation_ids", _AS_IN_JSON, _NO_ID),
    _int64("objects.is_crowd", _N, "0 or 1", "1 if the box contains a crowd")
    .written(_run("block.is_crowd"))
    .read("is_crowd", "1 if the box contains a crowd"),
    _float("objects.area", _N, "px²", "area, as in the JSON")
    .written(_run("block.area_px2"))
    .read("area", "pixels² of the JSON's image"),
    _int64("objects.area_whole", _N, "px²", "area, truncated to an integer")
    .written(_whole_areas)
    .read("area", "the same, truncated to an integer: layout tfds"),
    _bytes("objects.mask_png", _N, "greyscale PNG, 0 and 1", "mask of the complete image; all 0 if the object has none")
    .written(lambda run: [png for image in run.images for png in image.masks.png], Part.MASK_PNG)
    .read("masks", _MASK_VALUES, form=Form.PNG_MASKS, dtype="uint8", shape=("N", *_PIXELS)),
    _bytes("objects.mask_rle", _N, "COCO RLE", "mask as compressed run lengths; its size is height, width")
    .written(lambda run: [rle for image in run.images for rle in image.masks.rle], Part.MASK_RLE)
    .read("masks", _MASK_VALUES, form=Form.RLE_MASKS, dtype="uint8", shape=("N", *_PIXELS)),
    _bytes("objects.polygons", _N, "JSON", "mask as polygons in px, as in the source; empty for other masks").written(
        _polygons, Part.MASK_RLE
    ),
    _float("objects.keypoint_x", _N_K, _WIDTH_FRACTION, "0 if not labelled")
    .written(_keypoint_column("x"), Part.KEYPOINTS)
    .read(
        "keypoints",
        "x, y as fractions of width and height (x first, unlike boxes), then visibility: 0 not labelled, 1 hidden, "
        "2 visible",
        form=Form.KEYPOINTS,
        shape=("N", "K", "3"),
    ),
    _float("objects.keypoint_y", _N_K, _HEIGHT_FRACTION, "0 if not labelled").written(
        _keypoint_column("y"), Part.KEYPOINTS
    ),
    _int64(
        "objects.keypoint_visibility", _N_K, "0, 1 or 2", "0 not labelled, 1 labelled and hidden, 2 visible"
    ).written(_keypoint_column("visibility"), Part.KEYPOINTS),
    _int64("objects.keypoint_num", _N, "0..K", "labelled keypoints").written(_keypoint_column("num"), Part.KEYPOINTS),
    _bytes(
        "objects.keypoint_text", _N_K, "utf-8", "keypoint names; empty after the last keypoint of the object's category"
    ).written(_keypoint_column("text"), Part.KEYPOINTS),
    _int64("objects.difficult", _N, "0 or 1", "1 if the source marks the object as hard to recognise")
    .written(_field_column("objects.difficult"), Part.FLAGS)
    .read("difficult", "1 if the object is hard to recognise"),
    _int64("objects.truncated", _N, "0 or 1", "1 if the source marks the object as only partly inside the box")
    .written(_field_column("objects.truncated"), Part.FLAGS)
    .read("truncated", "1 if the object is only partly inside the box"),
    _bytes("objects.view", _N, "utf-8", "visible side of the object, as named in the source")
    .written(_field_column("objects.view"), Part.FLAGS)
    .read("view", "UTF-8: visible side"),
    _float(
        "objects.corners",
        ("N", "8"),
        _FRACTIONS,
        "x, y of the four corners of an oriented box, in order; the box is their bounds",
    )
    .written(_corners, Part.ORIENTED)
    .read("corners", "x, y of the four corners of an oriented box as fractions of width and height"),
    _int64("objects.track_id", _N, "id", "id of the object's track; -1 without a track")
    .written(_field_column("objects.track_id"), Part.TRACKS)
    .read("track_id", "-1 without", _NO_ID),
    # Captions
    _bytes("captions.text", ("C",), "utf-8", "captions")
    .written(_labels_column(lambda labels: [caption.caption.encode() for caption in labels.captions]), Part.CAPTIONS)
    .read("captions", "UTF-8"),
    _int64("captions.id", ("C",), "COCO id", "annotation id")
    .written(_labels_column(lambda labels: [caption.id for caption in labels.captions]), Part.CAPTIONS)
    .read("caption_ids", _AS_IN_JSON, _NO_ID),
    _int64("captions.index", ("T",), "0..terms-1", "terms of the captions, ascending")
    .written(_labels_column(attrgetter("caption_index")), Part.CAPTION_TERMS)
    .read("caption_index", "terms, see `recordmill.encoders`"),
    _float("captions.value", ("T",), "count or tf-idf", "weights of the terms of the captions")
    .written(_labels_column(attrgetter("caption_value")), Part.CAPTION_TERMS)
    .read("caption_value", "weights of the terms"),
    _int64("captions.tokens", ("L",), "2..terms+1", "tokens of the captions, in order; 1 unknown")
    .written(_labels_column(attrgetter("caption_index")), Part.CAPTION_TOKENS)
    .read("caption_tokens", "in order; 1 unknown"),
    # Masks of images
    _bytes(
        "semantic.png",
        (),
        "greyscale PNG",
        "1 for things, larger values for stuff (semantic_by_id in label_map.json), 255 for unknown pixels",
    )
    .written(_mask_column("semantic.png"), Part.SEMANTIC)
    .read("semantic", "see semantic_by_id in label_map.json; 255 unknown", *_GREY),
    _bytes("depth.png", (), "16-bit greyscale PNG", "distance of each pixel in units of --depth-scale; 0 unknown")
    .written(_mask_column("depth.png"), Part.DEPTH)
    .read("depth", "metres; 0 if unknown", 0, Form.DEPTH, "float32", _PIXELS),
    _bytes("panoptic.category_png", (), "greyscale PNG", "label of each pixel's category, as in class/label; void 0")
    .written(_mask_column("panoptic.category_png"), Part.PANOPTIC)
    .read(
        "categories",
        "category id of the panoptic segment, void 0; if an id is 0 or less, see label_by_id in label_map.json",
        *_GREY,
    ),
    _bytes(
        "panoptic.instance_png",
        (),
        "greyscale PNG",
        "index of the segment in segments_info, from 1, for things; 0 for stuff and void",
    )
    .written(_mask_column("panoptic.instance_png"), Part.PANOPTIC)
    .read("instances", "number of the panoptic segment from 1, 0 for stuff and void", *_GREY),
    _bytes("panoptic.png", (), "PNG", "the panoptic PNG, unchanged: segment ids R + 256 G + 65536 B")
    .written(_mask_column("panoptic.png"), Part.PANOPTIC)
    .read("segment_map", "id of the panoptic segment: layout tfds", 0, Form.SEGMENT_IDS, "int32", _PIXELS),
    _bytes("panoptic.file_name", (), "utf-8", "file_name of the panoptic PNG; empty if the image has none").written(
        _mask_column("panoptic.file_name"), Part.PANOPTIC
    ),
    _int64("segments.id", _S, "segment id", "value of its pixels in panoptic_image")
    .written(_mask_column("segments.id"), Part.PANOPTIC)
    .read("segment_ids", "values of segment_map", _NO_ID),
    _int64("segments.class_index", _S, "0..segment classes-1", "contiguous index among the panoptic categories")
    .written(_mask_column("segments.class_index"), Part.PANOPTIC)
    .read("segment_labels", "index among the segments", _NO_ID),
    _float("segments.bbox_yxyx", ("S", "4"), _FRACTIONS, "ymin, xmin, ymax, xmax")
    .written(_mask_column("segments.bbox_yxyx"), Part.PANOPTIC)
    .read("segment_boxes", _YXYX),
    _int64("segments.area", _S, "px²", "area of a segment")
    .written(_mask_column("segments.area"), Part.PANOPTIC)
    .read("segment_areas", "pixels²"),
    _int64("segments.is_crowd", _S, "0 or 1", "1 if the segment is a crowd")
    .written(_mask_column("segments.is_crowd"), Part.PANOPTIC)
    .read("segment_is_crowd", "1 if it is a crowd"),
    # LVIS and tags
    _int64("image.neg_category_ids", ("G",), "COCO id", "LVIS: categories that are known to be absent")
    .written(_labels_column(attrgetter("neg_category_ids")), Part.LVIS)
    .read("neg_category_ids", "LVIS: known to be absent", _NO_ID),
    _int64(
        "image.not_exhaustive_category_ids",
        ("E",),
        "COCO id",
        "LVIS: categories whose objects are not all annotated",
    )
    .written(_labels_column(attrgetter("not_exhaustive_category_ids")), Part.LVIS)
    .read("not_exhaustive_category_ids", "LVIS: objects not all annotated", _NO_ID),
    _int64("image.tag_labels", ("U",), "1 or more", "classes of the image itself, numbered as image/object/class/label")
    .written(lambda run: [[int(run.label_of_class[index]) for index in indices] for indices in _tags(run)], Part.TAGS)
    .read("tag_ids", "classes of the image itself, as category_ids", _NO_ID),
    _bytes("image.tag_names", ("U",), "utf-8", "names of these classes")
    .written(lambda run: [[run.class_names[index] for index in indices] for indices in _tags(run)], Part.TAGS)
    .read("tags", "UTF-8"),
    # Tiles
    _int64("tile.x", (), "px", "left edge of the tile in the source image")
    .written(_tile_column(lambda task: task.tile.x if task.tile else 0), Part.TILES)
    .read("tile_x", "pixels: left edge of the tile in the source image"),
    _int64("tile.y", (), "px", "top edge of the tile in the source image")
    .written(_tile_column(lambda task: task.tile.y if task.tile else 0), Part.TILES)
    .read("tile_y", "pixels: top edge of the tile in the source image"),
    _bytes("tile.file_name", (), "utf-8", "file_name of the source image")
    .written(lambda run: [image.task.source_name.encode() for image in run.images], Part.TILES)
    .read("whole_file_name", "UTF-8: file_name of a tile's source image"),
    _int64("tile.image_number", (), "COCO id", "image id of the source image")
    .written(_tile_column(lambda task: task.source_id), Part.TILES)
    .read(*_WHOLE_ID),
    _bytes("tile.image_id", (), "decimal", "COCO image id of the source image")
    .written(lambda run: [b"%d" % image.task.source_id for image in run.images], Part.TILES)
    .read(*_WHOLE_ID, form=Form.DECIMAL, dtype="int64"),
    # Features of models
    _float("feature.values", (), "output of the model", "the feature").read(
        "feature", "of the model", shape=_FEATURE_SHAPE
    ),
    _bytes("feature.bytes", (), "little-endian float16", "the feature, with the shape feature/shape").read(
        "feature", "of the model", form=Form.FLOAT16, dtype="float16", shape=_FEATURE_SHAPE
    ),
    _int64("feature.shape", (), "numbers", "height, width, channels of the feature"),
)
VALUE_OF = {value.source: value for value in VALUES}
