"""Rejects: skipped data, and reasons. Also other metrics."""

from collections import Counter
from enum import Enum
from typing import NamedTuple

import msgspec

MOST_LISTED = 100_000
"""Maximum number of lines per reason in rejects-SPLIT.jsonl. Counts are not limited."""


class Reason(str, Enum):
    """Reason for which an image, an annotation or a row of a table is rejected. The list is complete. Each comment
    starts with the kind of data.
    """

    IMAGE_MISSING = "image_missing"  # image: no file of that name in the folders of images
    IMAGE_UNREADABLE = "image_unreadable"  # image: empty, truncated, or its pixels do not decode
    IMAGE_INACCESSIBLE = "image_inaccessible"  # image: its file exists but cannot be read
    UNSUPPORTED_FORMAT = "unsupported_format"  # image: an unknown format, or pixels that no JPEG or PNG can hold
    TOO_LARGE = "too_large"  # image: more than MAX_FILE_BYTES or MAX_PIXELS
    RECORD_TOO_LARGE = "record_too_large"  # image or row: its record, or a text in it, would be too large
    SIZE_MISMATCH = "size_mismatch"  # image: its size differs from the annotation's
    DUPLICATE_IMAGE_ID = "duplicate_image_id"  # image: two rows have its id, with different or equal contents
    MALFORMED_IMAGE = "malformed_image"  # image: its row lacks an id, a file name or a label, or one has a wrong type
    MALFORMED_LABELS = "malformed_labels"  # image: its label file is unreadable
    LABEL_WITHOUT_IMAGE = "label_without_image"  # image: its label file exists, but no image that belongs to it
    NO_CLASS = "no_class"  # image: its path or name gives no class
    EXCLUDED = "excluded"  # image or annotation: --exclude names it
    DUPLICATE = "duplicate"  # image: another image with the same bytes is kept, because of --duplicates drop
    NO_GROUP = "no_group"  # image: --group-from finds no group in its name
    NOT_FINITE = "not_finite"  # row: a number is NaN, infinite, or beyond float32
    UNUSABLE_FEATURE = "unusable_feature"  # image: its feature has NaN, infinity, or a number beyond float16
    UNSAFE_FILE_NAME = "unsafe_file_name"  # image: `../x`, an absolute path, a URL, control characters
    UNKNOWN_IMAGE = "unknown_image"  # annotation: no image row has that id
    UNKNOWN_CATEGORY = "unknown_category"  # annotation: no category has that id
    MALFORMED_ANNOTATION = "malformed_annotation"  # annotation: a field is missing or has a wrong type
    MALFORMED_BOX = "malformed_box"  # annotation: not four finite numbers, or a negative width or height
    EMPTY_BOX = "empty_box"  # annotation: no area left inside the image
    BOX_OUTSIDE = "box_outside"  # annotation: its box crosses the edge, and --boxes is drop
    DUPLICATE_ANNOTATION_ID = "duplicate_annotation_id"  # annotation: another annotation of the image has the same id
    DUPLICATE_ANNOTATION = "duplicate_annotation"  # annotation: its label file has an equal annotation
    MALFORMED_SEGMENTATION = "malformed_segmentation"  # annotation: neither polygons nor run lengths
    MALFORMED_KEYPOINTS = "malformed_keypoints"  # annotation: not x, y, visibility for each of its category's keypoints
    MALFORMED_CAPTION = "malformed_caption"  # annotation: a caption's row lacks the id, the image or the text
    MALFORMED_PANOPTIC = "malformed_panoptic"  # annotation: a panoptic row's file name or segments are not COCO's
    MASK_MISSING = "mask_missing"  # image or annotation: no mask, depth map or panoptic PNG of its name
    MASK_UNREADABLE = "mask_unreadable"  # image or annotation: its mask, depth map or panoptic PNG does not decode
    MASK_SIZE_MISMATCH = (
        "mask_size_mismatch"  # image or annotation: its mask, depth map or run lengths have another size
    )
    MASK_KIND = "mask_kind"  # image: its mask has colours or is a JPEG, or its depth map is no grey PNG of 16 bits
    UNNAMED_VALUE = "unnamed_value"  # image: its mask has a value, or a colour, without a name
    SEGMENT_MISMATCH = "segment_mismatch"  # annotation: the panoptic PNG's segments are not those of its row
    TWO_CHANNEL_PANOPTIC = "two_channel_panoptic"  # annotation: a PNG of (category, instance), not of segment ids
    TOO_MANY_SEGMENTS = "too_many_segments"  # annotation: more than 255 segments, more than one byte can number
    CATEGORY_OUT_OF_RANGE = "category_out_of_range"  # annotation: a segment's label does not fit one byte
    MALFORMED_ROW = "malformed_row"  # row: too few or too many cells, not a JSON object, or too long
    NOT_TEXT = "not_text"  # row: a cell is not in the file's encoding
    OTHER_TYPE = "other_type"  # row: a value does not have its column's type
    MISSING_VALUE = "missing_value"  # row: it has no key, label, group or split, or a list lacks a value
    UNKNOWN_CLASS = "unknown_class"  # row: its label, split, or enum value is unknown


REQUESTED_REASONS = frozenset({Reason.EXCLUDED.value, Reason.DUPLICATE.value})
"""Reasons of rejects that an option requests. --max-rejects ignores them."""


class Rejected(msgspec.Struct, frozen=True, array_like=True):
    """One image, annotation or row of a table that is not in the output."""

    what: str  # `image`, `annotation` or `row`
    id: int | None  # COCO id of the image or annotation, line of the row; None if there is none
    reason: Reason
    detail: str  # what was found, for a person
    image_id: int | None = None  # id of the annotation's image
    annotations: int = 0  # number of usable annotations of a rejected image
    file_name: str = ""  # name of the image; of the label file or table if no image is known; empty in a pipeline

    def named(self, file_name: str) -> "Rejected":
        """Return the reject with this file name, unless it has one."""
        return self if self.file_name else msgspec.structs.replace(self, file_name=file_name)


class IdTexts(NamedTuple):
    """Text ids of the source, by the numbers that replace them: for images, and for annotations."""

    images: dict[int, str]
    annotations: dict[int, str]

    def with_ids(self, reject: Rejected) -> Rejected:
        """Return the reject with text ids in its detail."""
        image_id = reject.id if reject.what == "image" else reject.image_id
        texts = {
            "image id": None if image_id is None else self.images.get(image_id),
            "annotation id": self.annotations.get(reject.id) if reject.what == "annotation" and reject.id else None,
        }
        if not (notes := [f"{what} {text!r}" for what, text in texts.items() if text]):
            return reject
        return msgspec.structs.replace(reject, detail=f"{reject.detail} ({', '.join(notes)})")


NO_ID_TEXTS = IdTexts({}, {})


class RejectLine(msgspec.Struct, frozen=True):
    """Fields of a line of rejects: `reason` as in Reason."""

    what: str
    reason: str
    detail: str
    id: int | None = None


class RejectTally(msgspec.Struct, frozen=True):
    """Counts of rejects."""

    counts: dict[tuple[str, str], int]  # number of rejects, by `what` and reason
    annotations: int  # sum of `annotations` of the rejects
    first: dict[str, bytes]  # first line of each `what` in the rejects file, except reasons in ASKED_FOR

    def reasons(self, *what: str) -> dict[str, int]:
        """Return the number of rejects of the given `what`, by reason, sorted by reason."""
        counts: Counter[str] = Counter()
        for (kind, reason), number in self.counts.items():
            if kind in what:
                counts[reason] += number
        return dict(sorted(counts.items()))


NO_REJECTS = RejectTally({}, 0, {})


class UnusableError(ValueError):
    """Error of an image or annotation that is rejected.

    Attributes:
        reason: Reason of the reject.
        detail: Description of the data, for a person.
    """

    def __init__(self, reason: Reason, detail: str):
        super().__init__(detail)
        self.reason = reason
        self.detail = detail

    def __reduce__(self):
        return UnusableError, (self.reason, self.detail)


class Metric(str, Enum):
    """Counters other than rejects."""

    ROWS_MERGED = "rows_merged"  # image rows joined with the row of the same image in another annotation file
    LABEL_FILES = "label_files"  # label files beside images, with those that have no image
    SHARED_FILES = "shared_files"  # image ids that name the file of another image id
    ANNOTATIONS_MERGED = "annotations_merged"  # keypoint rows joined with the instance row of the same annotation
    OTHER_FIELDS = "other_fields"  # values of open fields that differ from those of the same id in an earlier file
    GROUPS = "groups"  # groups of images, each within one split
    UNGROUPED = "ungrouped"  # images without a group in the file of groups
    IMAGES = "images"  # images in records; divided images once
    DIVIDED = "divided"  # images that have tiles, as planned
    TILES = "tiles"  # tiles of images in records
    JPEG_TILES = "jpeg_tiles"  # tiles that were encoded as JPEG
    EMPTY_TILES = "empty_tiles"  # tiles without objects that --keep-empty skips
    NARROW_TILES = "narrow_tiles"  # tiles at an edge of less than a tenth of --tile
    WITHOUT_TILE = "without_tile"  # images of which --keep-empty skips all tiles
    IN_NO_TILE = "in_no_tile"  # annotations of which no tile shows enough
    TILE_DATA_BYTES = "tile_data_bytes"  # bytes of `data` of Samples that are further tiles of an image
    TILE_COPIES = "tile_copies"  # further tiles with an annotation that is in another tile
    OF_OTHER_CLASSES = "of_other_classes"  # images without any of the requested classes, or of a dropped one
    EMPTIED = "emptied"  # images that lost all objects by --categories, --class-map, --no-crowd or --min-area
    OVER_LIMIT = "over_limit"  # images that --limit leaves out
    OVER_CLASS_LIMIT = "over_class_limit"  # images that --max-per-class leaves out
    OF_LIMITED_IMAGES = "of_limited_images"  # annotations of images that --limit or --max-per-class leaves out
    PRESENT = "present"  # images that --add skips, because the data set has them
    CHANGED = "changed"  # those of them with other labels, masks or fields
    GONE = "gone"  # images of the data set that DATA does not have, with --sync
    OF_PRESENT_IMAGES = "of_present_images"  # annotations of images that --add skips
    IMAGES_WITHOUT_RECORD = "images_without_record"  # images without objects, in a layout with one record per object
    OF_REJECTED_IMAGES = "of_rejected_images"  # annotations of images whose reject is in another shard
    OBJECTS = "objects"  # annotations in records
    NEGATIVE_AREAS = "negative_areas"  # annotations of a COCO file whose area is below 0
    MASKS = "masks"  # objects with a mask that is not empty, if masks were requested
    CAPTIONS = "captions"  # captions in records
    IMAGES_REMOVED = "images_removed"  # images that a user's pipeline removed
    ANNOTATIONS_REMOVED = "annotations_removed"  # annotations that a user's pipeline removed
    REGIONS = "regions"  # stuff annotations in records
    PANOPTIC = "panoptic"  # panoptic annotations in records
    SEMANTIC_MASKS = "semantic_masks"  # masks of image and mask pairs in records
    DEPTH_MAPS = "depth_maps"  # depth maps in records
    BOXES_CLIPPED = "boxes_clipped"  # objects whose box was clipped at the edge of the image
    KEYPOINTS_OUTSIDE = "keypoints_outside"  # visible keypoints (v = 2) outside their image
    FROM_JPEG = "from_jpeg"  # transcoded images, by file format
    FROM_PNG = "from_png"
    FROM_WEBP = "from_webp"
    FROM_GIF = "from_gif"
    FROM_BMP = "from_bmp"
    FROM_TIFF = "from_tiff"
    FROM_OTHER = "from_other"
    TURNED = "turned"  # transcoded images that were turned upright
    SHRUNK = "shrunk"  # transcoded images that were shrunk
    REWRITTEN_BYTES_READ = "rewritten_bytes_read"  # bytes of the files of transcoded images
    REWRITTEN_BYTES = "rewritten_bytes"  # bytes of transcoded images in records
    RECORD_BYTES = "record_bytes"  # bytes of records, uncompressed and without framing
    FILTERED_CATEGORY = "category"  # annotations skipped because of --categories
    FILTERED_CROWD = "crowd"  # … because of --no-crowd
    FILTERED_AREA = "area"  # … because of --min-area
    FILTERED_CLASS_MAP = "class_map"  # … because --class-map drops their class


REWRITTEN_FROM = {
    metric.removeprefix("from_"): metric
    for metric in sorted(Metric)
    if metric.startswith("from_") and metric is not Metric.FROM_OTHER
}
"""Counter of a transcoded image by the format of its file; FROM_OTHER for other formats."""

FILTERS = (Metric.FILTERED_CATEGORY, Metric.FILTERED_CROWD, Metric.FILTERED_AREA, Metric.FILTERED_CLASS_MAP)


class Count(msgspec.Struct, frozen=True, array_like=True):
    """A number to add to a metric."""

    what: Metric
    number: int
