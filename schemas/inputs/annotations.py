"""Annotations of an image, independent of their format: row, objects, captions, segments and class.

Boxes are x, y, width, height in pixels from the top left corner of the stored pixels.
"""

from typing import Annotated

import msgspec

from recordmill.schemas.features import Part
from recordmill.schemas.inputs.files import File
from recordmill.schemas.rejects import Reason, Rejected

Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""Range of tf.Example's integers."""


class ImageRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row of `images`. Width and height, in pixels, are None if the file lacks them. For `fields` see the column
    `image_fields` of a Block."""

    id: int
    file_name: str
    width: int | None = None
    height: int | None = None
    fields: bytes = b""


class Category(msgspec.Struct, frozen=True, omit_defaults=True):
    """A row of `categories`.

    Attributes:
        keypoints: Names, in the order of an annotation's keypoints.
        skeleton: Pairs of keypoints that are joined by a line, counted from 1 as in COCO.
        isthing: For categories of a panoptic file: 1 for things, which have instances, 0 for stuff; None if unknown.
    """

    id: Int64
    name: str
    supercategory: str | None = None
    keypoints: tuple[str, ...] = ()
    skeleton: tuple[tuple[int, int], ...] = ()
    isthing: int | bool | None = None


def unnamed_keypoints(number: int) -> tuple[str, ...]:
    """Return names for unnamed keypoints, counted from 1.

    >>> unnamed_keypoints(2)
    ('keypoint_1', 'keypoint_2')
    """
    return tuple(f"keypoint_{index}" for index in range(1, number + 1))


def name_keypoints(category: Category, number: int) -> Category:
    """Return the category, with names for `number` keypoints if its keypoints have no names."""
    return category if category.keypoints else msgspec.structs.replace(category, keypoints=unnamed_keypoints(number))


class Annotation(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row of `annotations`: one object instance.

    Attributes:
        bbox_xywh_px: x, y, width, height. All are finite, width and height are >= 0. The box may cross the image's
            edge.
        area_px2: Area from the JSON; width * height of the box if the JSON has no area.
        segmentation: JSON text, not parsed or checked yet; empty if masks are not requested or the row has none.
        keypoints_xyv: x and y in pixels and visibility (0, 1, 2) of each keypoint of the category; empty if the row has
            no keypoints.
        corners_px, in_fractions, fields: See the columns of a Block.
    """

    id: int
    category_id: int
    bbox_xywh_px: tuple[float, float, float, float]
    area_px2: float
    is_crowd: bool
    segmentation: bytes = b""
    keypoints_xyv: tuple[float, ...] = ()
    corners_px: tuple[float, ...] = ()
    in_fractions: bool = False
    fields: bytes = b""


class Caption(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row of `annotations` of a captions file."""

    id: int
    caption: str


class StuffAnnotation(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row of `annotations` of a stuff file; `segmentation` is JSON text, not parsed or checked yet."""

    id: int
    category_id: int
    segmentation: bytes


class Segment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An entry of a panoptic row's `segments_info`. Box and area are None if the file lacks them."""

    id: int  # the value R + 256 G + 65536 B of its pixels in the panoptic PNG
    category_id: int
    is_crowd: bool
    bbox_xywh_px: tuple[float, float, float, float] | None = None
    area_px2: float | None = None


class PanopticAnnotation(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row of `annotations` of a panoptic file."""

    file: File  # the PNG; only its path, below the folder of PNGs as in the JSON, until it has been found
    file_name: str  # name of the PNG, as in the JSON
    segments: tuple[Segment, ...]
    void_ids: tuple[int, ...] = ()  # ids of segments that were dropped: their pixels become void


class TableRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row of a table that names an image."""

    record: bytes  # other columns of the row, a serialised tf.Example
    line: int  # number of the row, see `recordmill.transforms.rows.row_batch.RowBatch`
    place: str  # file, line and image column of the row, for messages
    group: str = ""  # value of `--group-column`; empty without


class MapFile(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A PNG with a value per pixel of an image."""

    part: Part  # SEMANTIC or DEPTH
    file: File
    file_name: str  # path of the PNG below its folder, for messages
    changes: tuple[tuple[int, int], ...] = ()  # values of pixels, and others that are written instead
    colours: bytes = b""  # see `recordmill.schemas.inputs.maps.MapFolder`


class ImageLabels(msgspec.Struct, frozen=True, array_like=True):
    """Annotations of an image other than its objects."""

    captions: tuple[Caption, ...] = ()  # ordered by annotation id
    regions: tuple[StuffAnnotation, ...] = ()  # stuff, ordered by annotation id
    panoptic: tuple[PanopticAnnotation, ...] = ()  # at most one, once all files are joined
    neg_category_ids: tuple[int, ...] = ()  # LVIS's list
    not_exhaustive_category_ids: tuple[int, ...] = ()  # LVIS's list
    class_name: str | None = None  # the class of the whole image (class folders); None in COCO data
    # Terms of all captions and their weights, or token ids of the captions, see `encoders.fit_encoder`.
    caption_index: tuple[int, ...] = ()
    caption_value: tuple[float, ...] = ()
    row: TableRow | None = None  # table row that names the image, if each row becomes a record; otherwise None
    tags: tuple[str, ...] = ()  # classes of the whole image, in addition to its objects
    maps: tuple[MapFile, ...] = ()  # its semantic mask, its depth map; at most one each

    @property
    def rows(self) -> int:
        """Number of annotation rows."""
        return len(self.captions) + len(self.regions) + len(self.panoptic) + len(self.maps)

    def rejected(self, image_id: int, reason: Reason, detail: str, annotations: int, file_name: str) -> Rejected:
        """Return the reject of the image, or of the row that names it."""
        if self.row is None:
            return Rejected("image", image_id, reason, detail, annotations=annotations, file_name=file_name)
        return Rejected("row", self.row.line, reason, f"{self.row.place}: {detail}", file_name=file_name)


NO_LABELS = ImageLabels()


class AnnotatedImage(msgspec.Struct, frozen=True, array_like=True):
    """An image row with its annotations of all files, ordered by annotation id, and its split. The split is empty until
    it is assigned. `joined_rows` is that of `recordmill.schemas.block.Block`."""

    image: ImageRow
    split: str
    annotations: tuple[Annotation, ...] = ()
    labels: ImageLabels = NO_LABELS
    joined_rows: int = 0

    @property
    def annotation_rows(self) -> int:
        """Number of annotation rows of the image."""
        return len(self.annotations) + self.labels.rows
