"""Annotations of an image, independent of their format: row, objects, captions, segments and class.

Boxes are x, y, width, height in pixels from the top left corner of the stored pixels.
"""

from typing import Annotated

import msgspec

from recordmill.schemas.rejects import Reason, Rejected

Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""Range of tf.Example's integers."""


class ImageRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row of `images`. Width and height, in pixels, are None where the file does not say."""

    id: int
    file_name: str
    width: int | None = None
    height: int | None = None


class Category(msgspec.Struct, frozen=True, omit_defaults=True):
    """A row of `categories`.

    Attributes:
        keypoints: names, in the order that annotations give them.
        skeleton: pairs of keypoints to be joined by a line, counted from 1 as COCO does.
        isthing: of a panoptic file: 1 where it has instances, 0 for stuff; None where no file says.
    """

    id: Int64
    name: str
    supercategory: str | None = None
    keypoints: tuple[str, ...] = ()
    skeleton: tuple[tuple[int, int], ...] = ()
    isthing: int | bool | None = None


def unnamed_keypoints(number: int) -> tuple[str, ...]:
    """Names for keypoints of a category that gives them none; counted from 1, as by skeletons.

    >>> unnamed_keypoints(2)
    ('keypoint_1', 'keypoint_2')
    """
    return tuple(f"keypoint_{index}" for index in range(1, number + 1))


def name_keypoints(category: Category, number: int) -> Category:
    """The category, with names for `number` keypoints if it has none."""
    return category if category.keypoints else msgspec.structs.replace(category, keypoints=unnamed_keypoints(number))


class Annotation(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row of `annotations`: one object instance.

    Attributes:
        bbox_xywh_px: x, y, width, height; finite, width and height not negative; it may cross the image's edge.
        area_px2: from the JSON; width * height of the box where the JSON gives none.
        segmentation: JSON text, not parsed or checked yet; empty where masks are not asked for, or there is none.
        keypoints_xyv: x and y in pixels and visibility (0, 1, 2) of each keypoint of its category; empty if the row has
            no keypoints.
    """

    id: int
    category_id: int
    bbox_xywh_px: tuple[float, float, float, float]
    area_px2: float
    is_crowd: bool
    segmentation: bytes = b""
    keypoints_xyv: tuple[float, ...] = ()


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
    """An entry of a panoptic row's `segments_info`. Box and area are None where the file does not say."""

    id: int  # the value R + 256 G + 65536 B of its pixels in the panoptic PNG
    category_id: int
    is_crowd: bool
    bbox_xywh_px: tuple[float, float, float, float] | None = None
    area_px2: float | None = None


class PanopticAnnotation(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row of `annotations` of a panoptic file."""

    path: str  # of the PNG; as the JSON has it, below the folder of PNGs, until it is known which file that is
    file_name: str  # of the PNG, as in the JSON
    segments: tuple[Segment, ...]
    size_bytes: int | None = None  # of the PNG as it was listed; None where it was not
    version: str = ""  # as of `recordmill.schemas.inputs.images.ImageRef`


class TableRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row of a table that names a picture."""

    record: bytes  # its other columns, a serialised tf.Example
    line: int  # see `recordmill.transforms.rows.row_batch.RowBatch`
    place: str  # its file, line and column of pictures, for messages


class ImageLabels(msgspec.Struct, frozen=True, array_like=True):
    """Annotations of an image other than its objects."""

    captions: tuple[Caption, ...] = ()  # ordered by annotation id
    regions: tuple[StuffAnnotation, ...] = ()  # stuff, ordered by annotation id
    panoptic: tuple[PanopticAnnotation, ...] = ()  # one at most, once all files are joined
    neg_category_ids: tuple[int, ...] = ()  # LVIS's list
    not_exhaustive_category_ids: tuple[int, ...] = ()  # LVIS's list
    class_name: str | None = None  # the class of the whole image (`recordmill folder`); None in COCO data
    # Terms of all captions and their weights, or ids of their tokens; see `recordmill.transforms.encoders.fit_encoder`.
    caption_index: tuple[int, ...] = ()
    caption_value: tuple[float, ...] = ()
    row: TableRow | None = None  # that names the image, of a table whose rows become records each; None elsewhere
    tags: tuple[str, ...] = ()  # classes of the whole image, beside its objects

    @property
    def rows(self) -> int:
        """How many annotation rows these are."""
        return len(self.captions) + len(self.regions) + len(self.panoptic)

    def rejected(self, image_id: int, reason: Reason, detail: str, annotations: int) -> Rejected:
        """Why there is no record of the image, or of the row that names it."""
        if self.row is None:
            return Rejected("image", image_id, reason, detail, annotations=annotations)
        return Rejected("row", self.row.line, reason, f"{self.row.place}: {detail}")


NO_LABELS = ImageLabels()


class AnnotatedImage(msgspec.Struct, frozen=True, array_like=True):
    """An image row with all its annotations of all files, ordered by annotation id; and the split that it goes to,
    empty until that is known."""

    image: ImageRow
    split: str
    annotations: tuple[Annotation, ...] = ()
    labels: ImageLabels = NO_LABELS

    @property
    def annotation_rows(self) -> int:
        """How many annotation rows go with the image."""
        return len(self.annotations) + self.labels.rows
