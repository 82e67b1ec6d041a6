"""COCO's annotation files, as far as the records need them (https://cocodataset.org/#format-data)."""

from enum import Enum
from typing import Annotated

import msgspec

from recordmill.schemas.inputs.annotations import NO_LABELS, Annotation, Category, ImageLabels, ImageRow
from recordmill.schemas.rejects import Rejected

SegmentId = Annotated[int, msgspec.Meta(ge=1, le=(1 << 24) - 1)]
"""Range of a panoptic PNG's pixel; 0 is void."""


FieldRows = dict[str, dict[str, int]]
"""For the `file` itself and each of its lists (`images`, `annotations`, `categories`): names of fields, and how many
rows have data in them, which is neither null nor empty nor all zero."""


class AnnotationKind(str, Enum):
    """Kind of an annotation file. Each is read by the flag with its name."""

    INSTANCES = "instances"  # objects: a box, perhaps a segmentation
    KEYPOINTS = "keypoints"  # objects with keypoints
    CAPTIONS = "captions"  # sentences about an image
    STUFF = "stuff"  # regions without instances: a segmentation
    PANOPTIC = "panoptic"  # a PNG an image, whose pixels are segment ids
    IMAGE_INFO = "image_info"  # images without annotations


class BoxFormat(str, Enum):
    """Meaning of the four numbers of a `bbox`: pixels, or fractions of the image's width and height."""

    XYWH = "xywh"  # left, top, width, height, in pixels, as COCO has them
    XYXY = "xyxy"  # left, top, right, bottom, in pixels
    CXCYWH = "cxcywh"  # centre, width, height, in pixels
    REL_XYWH = "rel-xywh"  # the same as fractions
    REL_XYXY = "rel-xyxy"
    REL_CXCYWH = "rel-cxcywh"

    @property
    def is_fraction(self) -> bool:
        return self.value.startswith("rel-")


class AnnotationSource(msgspec.Struct, frozen=True, array_like=True):
    """An annotation file to read."""

    kind: AnnotationKind
    path: str
    masks: str = ""  # the folder or .zip of a panoptic file's PNGs
    # of a file of objects; None for COCO's, unless the boxes look as if they had another.
    bbox_format: BoxFormat | None = None


class AnnotationBlock(msgspec.Struct, frozen=True, array_like=True):
    """Some of an annotation file's text: rows of one of its lists."""

    source: AnnotationSource
    number: int  # of the block in its file
    list: str  # `images` or `annotations`; empty for an object of all else: the file without the rows of its lists
    first_row: int  # index of the first
    start: int  # offset of the text in the file
    size: int  # bytes of the text
    crc32c: int  # of the text, by which it is known when it is read from the file
    sampled: int  # every so manieth row of the file is looked at to guess the format of boxes
    text: bytes = b""  # empty where it can be read from the file


class FileAnnotations(msgspec.Struct, frozen=True, array_like=True):
    """Rows of one annotation file for one image id."""

    image_id: int  # the id
    source: str  # the annotation file
    kind: AnnotationKind  # of that file
    # its image rows with that id, in file order: one, or none (the file has annotations of the image, but no row for
    # it), or several (a duplicate id).
    rows: tuple[ImageRow, ...]
    annotations: tuple[Annotation, ...] = ()  # its usable objects of that image, in file order
    labels: ImageLabels = NO_LABELS  # its other usable annotations of that image, in file order
    rejected: tuple[Rejected, ...] = ()  # its annotations of that image that cannot be used
    # that boxes and areas still have; None where they are x, y, width, height in pixels, and pixels².
    bbox_format: BoxFormat | None = None

    @property
    def annotation_rows(self) -> int:
        """How many annotation rows the file has of the image, good and bad."""
        return len(self.annotations) + self.labels.rows + len(self.rejected)


class AnnotationFile(msgspec.Struct, frozen=True):
    """Summary of an annotation file: categories and number of rows, with rejects."""

    path: str
    kind: AnnotationKind
    images: int
    annotations: int
    categories: tuple[Category, ...]
    lvis: bool = False  # whether its image rows have LVIS's lists of categories
    unread: FieldRows = {}  # its fields with data that nothing reads
    optional: FieldRows = {}  # those with data that only some layouts carry
    keypoints: dict[int, int] = {}  # by category id, how many keypoints most rows have, of categories that name none
    warnings: tuple[str, ...] = ()  # what is not likely to be meant, for a person
    uses_zero: bool = False  # whether an annotation has the category id 0
