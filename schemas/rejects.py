"""Bad data: what was left out, and why; and what else is counted on the way."""

from enum import Enum

import msgspec


class Reason(str, Enum):
    """The closed list of reasons for which an image or an annotation is left out.

    The comment after each says which of the two it is about.
    """

    IMAGE_MISSING = "image_missing"  # image: no file of that name under --images
    IMAGE_UNREADABLE = "image_unreadable"  # image: empty, cut short, or its pixels do not decode
    UNSUPPORTED_FORMAT = "unsupported_format"  # image: not a JPEG or PNG
    TOO_LARGE = "too_large"  # image: more bytes or pixels than are ever read or decoded
    SIZE_MISMATCH = "size_mismatch"  # image: its pixels are not the size the JSON says
    DUPLICATE_IMAGE_ID = "duplicate_image_id"  # image: a second row with the same id
    MALFORMED_IMAGE = "malformed_image"  # image: its row lacks an id or a file name, or one is of a wrong type
    UNSAFE_FILE_NAME = "unsafe_file_name"  # image: `../x`, an absolute path, a URL, control characters
    UNKNOWN_IMAGE = "unknown_image"  # annotation: no image row has that id
    UNKNOWN_CATEGORY = "unknown_category"  # annotation: no category has that id
    MALFORMED_ANNOTATION = "malformed_annotation"  # annotation: a field is missing or of a wrong type
    MALFORMED_BOX = "malformed_box"  # annotation: not four finite numbers, or a negative width or height
    EMPTY_BOX = "empty_box"  # annotation: no area left inside the image
    BOX_OUTSIDE = "box_outside"  # annotation: crosses the edge, and --boxes drop was asked for


class Rejected(msgspec.Struct, frozen=True, array_like=True):
    """One image or annotation that is not in the output.

    Attributes:
        what: `image` or `annotation`.
        id: COCO id of the image or annotation; None where the row has none.
        reason: one of `Reason`.
        detail: what was found, for a person.
        image_id: of the image an annotation belongs to.
        annotations: for an image, how many usable annotations go with it.
    """

    what: str
    id: int | None
    reason: Reason
    detail: str
    image_id: int | None = None
    annotations: int = 0


class Tally(str, Enum):
    """What is counted besides rejects."""

    ROWS_MERGED = "rows_merged"  # image rows joined with the row of the same image in another annotation file
    OBJECTS = "objects"  # annotations in records
    BOXES_CLIPPED = "boxes_clipped"  # of those, how many were cut at their image's edge
    RECORD_BYTES = "record_bytes"  # of records, uncompressed and without framing
    FILTERED_CATEGORY = "category"  # annotations left out because of --categories
    FILTERED_CROWD = "crowd"  # … because of --no-crowd
    FILTERED_AREA = "area"  # … because of --min-area


FILTERS = (Tally.FILTERED_CATEGORY, Tally.FILTERED_CROWD, Tally.FILTERED_AREA)


class Counted(msgspec.Struct, frozen=True, array_like=True):
    """So many of something."""

    what: Tally
    number: int
