"""Bad data: what was left out, and why. Also the metrics that are counted besides."""

from collections import Counter
from enum import Enum
from typing import NamedTuple

import msgspec

MOST_LISTED = 100_000
"""Lines of a reason in rejects-SPLIT.jsonl, at most. Counts have no bound."""


class Reason(str, Enum):
    """The closed list of reasons for which an image, an annotation or a row of a table is left out.

    The comment after each says which of them it is about.
    """

    IMAGE_MISSING = "image_missing"  # image: no file of that name under --images
    IMAGE_UNREADABLE = "image_unreadable"  # image: empty, cut short, or its pixels do not decode
    IMAGE_INACCESSIBLE = "image_inaccessible"  # image: its file is there, and cannot be read
    UNSUPPORTED_FORMAT = "unsupported_format"  # image: an unknown format, or pixels that no JPEG or PNG can hold
    TOO_LARGE = "too_large"  # image: more bytes or pixels than are ever read or decoded
    RECORD_TOO_LARGE = "record_too_large"  # image or row: its record, or a text of it, would be larger than is taken
    SIZE_MISMATCH = "size_mismatch"  # image: its pixels are not the size the JSON says
    DUPLICATE_IMAGE_ID = "duplicate_image_id"  # image: two rows have its id, and say different things, or the same
    MALFORMED_IMAGE = "malformed_image"  # image: its row lacks an id, a file name or a label, or one is of a wrong type
    MALFORMED_LABELS = "malformed_labels"  # image: nothing in its label file can be read
    NO_CLASS = "no_class"  # image: its path or name gives no class
    EXCLUDED = "excluded"  # image or annotation: --exclude names it
    DUPLICATE = "duplicate"  # image: another one of the same bytes is kept, and --duplicates drop was asked for
    NO_GROUP = "no_group"  # image: its name gives no group, and --group-from asks for one
    NOT_FINITE = "not_finite"  # row: a number is NaN, infinite, or beyond float32
    UNUSABLE_FEATURE = "unusable_feature"  # image: the model makes NaN of it, infinity, or what float16 cannot hold
    UNSAFE_FILE_NAME = "unsafe_file_name"  # image: `../x`, an absolute path, a URL, control characters
    UNKNOWN_IMAGE = "unknown_image"  # annotation: no image row has that id
    UNKNOWN_CATEGORY = "unknown_category"  # annotation: no category has that id
    MALFORMED_ANNOTATION = "malformed_annotation"  # annotation: a field is missing or of a wrong type
    MALFORMED_BOX = "malformed_box"  # annotation: not four finite numbers, or a negative width or height
    EMPTY_BOX = "empty_box"  # annotation: no area left inside the image
    BOX_OUTSIDE = "box_outside"  # annotation: crosses the edge, and --boxes drop was asked for
    DUPLICATE_ANNOTATION_ID = "duplicate_annotation_id"  # annotation: another of its image has the same id
    DUPLICATE_ANNOTATION = "duplicate_annotation"  # annotation: another of its label file says the same
    MALFORMED_SEGMENTATION = "malformed_segmentation"  # annotation: neither polygons nor run lengths
    MALFORMED_KEYPOINTS = "malformed_keypoints"  # annotation: not x, y, visibility for each of its category's keypoints
    MALFORMED_CAPTION = "malformed_caption"  # annotation: a caption's row lacks its id, its image or its text
    MALFORMED_PANOPTIC = "malformed_panoptic"  # annotation: a panoptic row's file name or segments are not COCO's
    MASK_MISSING = "mask_missing"  # annotation: no panoptic PNG of that name under --panoptic-masks
    MASK_UNREADABLE = "mask_unreadable"  # annotation: its panoptic PNG does not decode
    MASK_SIZE_MISMATCH = "mask_size_mismatch"  # annotation: its run lengths or panoptic PNG have not its image's size
    SEGMENT_MISMATCH = "segment_mismatch"  # annotation: the panoptic PNG's segments are not those of its row
    TWO_CHANNEL_PANOPTIC = "two_channel_panoptic"  # annotation: a PNG of (category, instance), not of segment ids
    TOO_MANY_SEGMENTS = "too_many_segments"  # annotation: more than 255 segments, which one byte cannot tell apart
    CATEGORY_OUT_OF_RANGE = "category_out_of_range"  # annotation: a segment's label does not fit one byte
    MALFORMED_ROW = "malformed_row"  # row: too few cells or too many, no JSON object, or too long
    NOT_TEXT = "not_text"  # row: a cell is not in the file's encoding
    OTHER_TYPE = "other_type"  # row: a value is not of its column's type
    MISSING_VALUE = "missing_value"  # row: it has no key, label, group or split, or a list has a hole
    UNKNOWN_CLASS = "unknown_class"  # row: its label, split, or value of an enum is none of those there are


ASKED_FOR = frozenset({Reason.EXCLUDED.value, Reason.DUPLICATE.value})
"""Reasons of rejects that an option asks for: --max-rejects does not limit them."""


class Rejected(msgspec.Struct, frozen=True, array_like=True):
    """One image, annotation or row of a table that is not in the output."""

    what: str  # `image`, `annotation` or `row`
    id: int | None  # COCO id of the image or annotation, line of the row; None where there is none
    reason: Reason
    detail: str  # what was found, for a person
    image_id: int | None = None  # of the image an annotation belongs to
    annotations: int = 0  # for an image, how many usable annotations go with it


class IdTexts(NamedTuple):
    """Texts that the source has as ids, by the numbers that stand for them: of images, and of annotations."""

    images: dict[int, str]
    annotations: dict[int, str]

    def named(self, reject: Rejected) -> Rejected:
        """The reject with the texts of its ids in the detail."""
        image_id = reject.id if reject.what == "image" else reject.image_id
        texts = {
            "image id": None if image_id is None else self.images.get(image_id),
            "annotation id": self.annotations.get(reject.id) if reject.what == "annotation" and reject.id else None,
        }
        if not (found := [f"{what} {text!r}" for what, text in texts.items() if text]):
            return reject
        return msgspec.structs.replace(reject, detail=f"{reject.detail} ({', '.join(found)})")


NO_ID_TEXTS = IdTexts({}, {})


class RejectLine(msgspec.Struct, frozen=True):
    """Fields of a line of rejects: `reason` as in Reason."""

    what: str
    reason: str
    detail: str
    id: int | None = None


class RejectTally(msgspec.Struct, frozen=True):
    """Rejects, counted."""

    counts: dict[tuple[str, str], int]  # how many, by `what` and reason
    annotations: int  # the sum of theirs
    first: dict[str, bytes]  # the first line of each `what` in the order of their list, but for those ASKED_FOR

    def reasons(self, *what: str) -> dict[str, int]:
        """How many of `what`, by reason, in the order of reasons."""
        found: Counter[str] = Counter()
        for (of, reason), number in self.counts.items():
            if of in what:
                found[reason] += number
        return dict(sorted(found.items()))


class UnusableError(ValueError):
    """Error of an image or annotation that is rejected.

    Attributes:
        reason: one of `Reason`.
        detail: what was found, for a person.
    """

    def __init__(self, reason: Reason, detail: str):
        super().__init__(detail)
        self.reason = reason
        self.detail = detail

    def __reduce__(self):
        return UnusableError, (self.reason, self.detail)


class Metric(str, Enum):
    """Counters besides rejects."""

    ROWS_MERGED = "rows_merged"  # image rows joined with the row of the same image in another annotation file
    ANNOTATIONS_MERGED = "annotations_merged"  # keypoint rows joined with the instance row of the same annotation
    GROUPS = "groups"  # groups of images that are never in two splits
    UNGROUPED = "ungrouped"  # images that are in no group of a list of groups
    IMAGES = "images"  # images in records
    OF_OTHER_CLASSES = "of_other_classes"  # images of none of the classes that were asked for
    EMPTIED = "emptied"  # images all of whose objects were skipped by --categories, --no-crowd or --min-area
    IMAGES_WITHOUT_RECORD = "images_without_record"  # images without objects, in a layout of one record an object
    OF_REJECTED_IMAGES = "of_rejected_images"  # annotations of an image whose reject is in another shard
    OBJECTS = "objects"  # annotations in records
    MASKS = "masks"  # of those, how many have a mask that is not empty, where masks were asked for
    CAPTIONS = "captions"  # captions in records
    IMAGES_REMOVED = "images_removed"  # images that a user's pipeline removed
    ANNOTATIONS_REMOVED = "annotations_removed"  # annotations that a user's pipeline removed
    REGIONS = "regions"  # stuff annotations in records
    PANOPTIC = "panoptic"  # panoptic annotations in records
    BOXES_CLIPPED = "boxes_clipped"  # of those, how many were cut at their image's edge
    KEYPOINTS_OUTSIDE = "keypoints_outside"  # visible keypoints (v = 2) outside their image
    FROM_JPEG = "from_jpeg"  # pictures that were transcoded, by the format of their file
    FROM_PNG = "from_png"
    FROM_WEBP = "from_webp"
    FROM_GIF = "from_gif"
    FROM_BMP = "from_bmp"
    FROM_TIFF = "from_tiff"
    FROM_OTHER = "from_other"
    TURNED = "turned"  # of those, how many were turned upright
    SHRUNK = "shrunk"  # of those, how many were made smaller
    REWRITTEN_BYTES_READ = "rewritten_bytes_read"  # size of their files
    REWRITTEN_BYTES = "rewritten_bytes"  # size of what is in the records in their place
    RECORD_BYTES = "record_bytes"  # of records, uncompressed and without framing
    FILTERED_CATEGORY = "category"  # annotations left out because of --categories
    FILTERED_CROWD = "crowd"  # … because of --no-crowd
    FILTERED_AREA = "area"  # … because of --min-area


REWRITTEN_FROM = {
    metric.removeprefix("from_"): metric
    for metric in sorted(Metric)
    if metric.startswith("from_") and metric is not Metric.FROM_OTHER
}
"""Counter of a transcoded image by the format of its file; FROM_OTHER for other formats."""

FILTERS = (Metric.FILTERED_CATEGORY, Metric.FILTERED_CROWD, Metric.FILTERED_AREA)


class Count(msgspec.Struct, frozen=True, array_like=True):
    """A number to add to a metric."""

    what: Metric
    number: int
