"""COCO's annotation files, as records need them (https://cocodataset.org/#format-data)."""

from enum import Enum
from typing import Annotated, NamedTuple

import msgspec

from recordmill.schemas.inputs.annotations import NO_LABELS, Annotation, Category, ImageLabels, ImageRow
from recordmill.schemas.rejects import Rejected

SegmentId = Annotated[int, msgspec.Meta(ge=1, le=(1 << 24) - 1)]
"""Range of a panoptic PNG's pixel; 0 is void."""


FieldRows = dict[str, dict[str, int]]
"""Numbers of rows that have data in a field, by list (`images`, `annotations`, `categories`, or `file` for the file's
own fields) and field. Null, empty values and zeros are not data."""


STORED_OF_IMAGES = frozenset({"id", "file_name", "width", "height", "neg_category_ids", "not_exhaustive_category_ids"})
STORED_OF_OBJECTS = frozenset(
    {
        "id",
        "image_id",
        "category_id",
        "bbox",
        "area",
        "iscrowd",
        "segmentation",
        "keypoints",
        "num_keypoints",
        "caption",
    }
)
"""Fields of COCO's rows that are no open fields, because records have them, or an option stores them."""


class AnnotationKind(str, Enum):
    """Kind of an annotation file. Each kind has a flag of the same name."""

    INSTANCES = "instances"  # objects: a box and an optional segmentation
    KEYPOINTS = "keypoints"  # objects with keypoints
    CAPTIONS = "captions"  # sentences about an image
    STUFF = "stuff"  # regions without instances: a segmentation
    PANOPTIC = "panoptic"  # one PNG per image, whose pixels are segment ids
    IMAGE_INFO = "image_info"  # images without annotations


class BoxFormat(str, Enum):
    """Meaning of the four numbers of a `bbox`: pixels, or fractions of the image's width and height."""

    XYWH = "xywh"  # left, top, width, height, in pixels, as in COCO
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
    # format of a file's boxes; None for COCO's format, unless the boxes look like another one
    bbox_format: BoxFormat | None = None


class AnnotationBlock(msgspec.Struct, frozen=True, array_like=True):
    """A part of an annotation file's text: rows of one of its lists."""

    source: AnnotationSource
    number: int  # number of the block in its file
    list: str  # `images` or `annotations`; empty for the rest of the file: an object without the rows
    first_row: int  # index of the first row
    start: int  # offset of the text in the file
    size: int  # bytes of the text
    crc32c: int  # checksum of the text, to verify it when it is read from the file
    sampled: int  # every `sampled`-th row of the file is inspected to guess the format of boxes
    text: bytes = b""  # empty if it can be read from the file


class FileAnnotations(msgspec.Struct, frozen=True, array_like=True):
    """Rows of one annotation file for one image id."""

    image_id: int  # id of the image
    source: str  # the annotation file
    kind: AnnotationKind  # kind of that file
    # image rows with the id, in file order: one row, or none (the file has only annotations of the image), or several
    # rows (a duplicate id).
    rows: tuple[ImageRow, ...]
    annotations: tuple[Annotation, ...] = ()  # usable objects of the image, in file order
    labels: ImageLabels = NO_LABELS  # other usable annotations of the image, in file order
    rejected: tuple[Rejected, ...] = ()  # unusable annotations of the image
    # format of boxes and areas until they are converted; None for x, y, width, height in pixels, and pixels²
    bbox_format: BoxFormat | None = None

    @property
    def annotation_rows(self) -> int:
        """Number of the image's annotation rows, with rejects."""
        return len(self.annotations) + self.labels.rows + len(self.rejected)


class AnnotationFile(msgspec.Struct, frozen=True):
    """Summary of an annotation file: categories, rows, rejects."""

    path: str
    kind: AnnotationKind
    images: int
    annotations: int
    categories: tuple[Category, ...]
    lvis: bool = False  # True if image rows have LVIS's lists of categories
    unread: FieldRows = {}  # fields with data that are never read
    optional: FieldRows = {}  # fields with data that only some layouts store
    keypoints: dict[int, int] = {}  # number of keypoints of most rows, by category id, if the category names none
    warnings: tuple[str, ...] = ()  # sentences about probable mistakes
    uses_zero: bool = False  # True if an annotation has the category id 0
    negative_areas: int = 0  # annotation rows whose area is below 0
    observed: tuple[tuple[str, str, int, int], ...] = ()  # ObservedLabels of the requested open fields


class ExportPart(NamedTuple):
    """Annotation files that share one set of image ids.

    Attributes:
        split: Split of all images; empty if --split decides.
        images: Folders of the images.
        shares_images: True if another part has the same image folders.
    """

    split: str
    sources: tuple[AnnotationSource, ...]
    images: tuple[str, ...]
    shares_images: bool = False


class Given(NamedTuple):
    """Input files of a job.

    Attributes:
        splits: Names of the splits to write.
        data: Folder in which the files were found; empty if options name the files.
        warnings: Warnings about files that are not read.
    """

    parts: tuple[ExportPart, ...]
    splits: tuple[str, ...]
    data: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines for the user: the files and folders found."""
        return tuple(self._note(part) for part in self.parts if self.data)

    @property
    def split_by_file(self) -> dict[str, str]:
        """Split by path, for files whose images all belong to one split."""
        return {source.path: part.split for part in self.parts for source in part.sources if part.split}

    def _note(self, part: ExportPart) -> str:
        within = f"{self.data.rstrip('/')}/"
        files = ", ".join(f"{source.kind.value} {source.path.removeprefix(within)}" for source in part.sources)
        folders = ", ".join(folder.removeprefix(within) for folder in part.images)
        return f"{part.split or self.data}: {files}; images in {folders}"
