"""Boxes and keypoints of objects, as fractions of images."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from recordmill.schemas.block import Block, Ragged, ragged_bytes, spans
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.rejects import Reason, Rejected, UnusableError
from recordmill.transforms.records.example import Column, bytes_items


class FittedBoxes(NamedTuple):
    """Boxes of M objects within their images.

    Attributes:
        yxyx_frac: float64 [M, 4], ymin, xmin, ymax, xmax as fractions of height and width; undefined if `is_empty`.
        is_clipped: bool [M], True if an edge was moved.
        is_empty: bool [M], True if no area is inside the image, or none is left as float32, the dtype of records.
        is_outside: bool [M], True if the box crosses the edge, and the policy is `drop`.
    """

    yxyx_frac: np.ndarray
    is_clipped: np.ndarray
    is_empty: np.ndarray
    is_outside: np.ndarray

    @property
    def is_usable(self) -> np.ndarray:
        """True for boxes that records may store: bool [M]."""
        return ~(self.is_empty | self.is_outside)

    def take(self, objects: np.ndarray) -> "FittedBoxes":
        """Return some objects' boxes: bool [M], or int64 indices."""
        return FittedBoxes(*(column[objects] for column in self))


_FLOAT32_STEP = 1e-7
"""Upper bound of the distance of two neighbouring float32 numbers in 0..1."""


def fit_boxes(boxes_xywh_px: np.ndarray, frame_wh_px: np.ndarray, policy: str) -> FittedBoxes:
    """Fit each box into its image.

    Args:
        boxes_xywh_px: float64 [M, 4], finite; width and height not negative.
        frame_wh_px: int64 [M, 2], width and height of each box's image.
        policy: Policy for boxes that cross the edge: `clip` cuts them there, `drop` rejects them, `keep` leaves them
            unchanged, beyond 0..1. Each policy rejects empty boxes.

    >>> boxes, frames = np.array([[60.0, 0, 50, 40], [0, 0, 5, 5]]), np.array([[100, 50], [10, 10]])
    >>> fit_boxes(boxes, frames, "clip").yxyx_frac.tolist()
    [[0.0, 0.6, 0.8, 1.0], [0.0, 0.0, 0.5, 0.5]]
    """
    sides = frame_wh_px.astype(np.float64)
    low = boxes_xywh_px[:, :2]
    high = low + boxes_xywh_px[:, 2:]
    # Not np.maximum(low, 0): it turns -0.0 into 0.0, and records would have other bytes.
    low_inside, high_inside = np.where(low < 0, 0.0, low), np.where(sides < high, sides, high)
    crosses = ((low_inside != low) | (high_inside != high)).any(axis=1)
    with np.errstate(over="ignore"):  # far outside the image
        is_less = (low_inside / sides).astype(np.float32) < (high_inside / sides).astype(np.float32)
    has_length = (high_inside - low_inside > sides * _FLOAT32_STEP) | ((low_inside < high_inside) & is_less)
    is_empty = np.logical_not(has_length.all(axis=1))
    if policy == "clip":
        low, high = low_inside, high_inside
    yxyx_frac = np.concatenate([(low / sides)[:, ::-1], (high / sides)[:, ::-1]], axis=1)
    changed, nothing = crosses & ~is_empty, np.zeros(len(crosses), bool)
    if policy == "drop":
        return FittedBoxes(yxyx_frac, nothing, is_empty, changed)
    return FittedBoxes(yxyx_frac, changed if policy == "clip" else nothing, is_empty, nothing)


def describe_unfit_box(box_xywh_px: Sequence[float], frame_wh_px: Sequence[int], is_empty: bool) -> UnusableError:
    """Return the error of a box that `fit_boxes` does not accept."""
    x, y, width, height = box_xywh_px
    detail = f"box x {x:g}, y {y:g}, {width:g}x{height:g} in an image of {'x'.join(map(str, frame_wh_px))}"
    return UnusableError(Reason.EMPTY_BOX if is_empty else Reason.BOX_OUTSIDE, detail)


def reject_object(object_id: int, image_id: int, file_name: str, fault: UnusableError) -> Rejected:
    """Return the reject of an object of an image."""
    is_of_file = abs(image_id) < 1 << 53  # others are mostly hashes, which no file has
    detail = fault.detail if is_of_file else f"{file_name!r}: {fault.detail}"
    return Rejected("annotation", object_id, fault.reason, detail, image_id).named(file_name)


_ROUNDED = 2e-6
"""Error of an edge that is computed from a centre and a size with six decimals."""
_POLYGONS = msgspec.json.Decoder(list[list[float]])


def scale_to_pixels(block: Block, frame_wh_px: np.ndarray, min_area_px2: float = 0.0) -> Block:
    """Convert boxes, areas, corners, segmentations and keypoints from fractions to pixels. An edge of a box less than
    2e-6 beyond the image is moved to the image's edge.

    Args:
        frame_wh_px: int64 [N, 2], width and height of each image.
        min_area_px2: Minimum area. Smaller objects that were in fractions are skipped.

    >>> rows = Block(image_id=np.array([7]), first_object_of_image=np.array([0, 1]), area_px2=np.array([0.125]),
    ...     boxes_xywh_px=np.array([[0.5, 0.0, 0.5000004, 0.25]]), in_fractions=np.array([True]))
    >>> scale_to_pixels(rows, np.array([[100, 40]])).boxes_xywh_px.tolist()
    [[50.0, 0.0, 50.0, 10.0]]
    """
    if block.in_fractions is None or not block.in_fractions.any():
        return block.replace(in_fractions=None)
    sides = np.where(block.in_fractions[:, None], frame_wh_px[block.image_of_object].astype(np.float64), 1.0)
    boxes, is_fraction = block.boxes_xywh_px, block.in_fractions[:, None]
    low, high = boxes[:, :2], boxes[:, :2] + boxes[:, 2:]
    low = np.where((low < 0) & (low > -_ROUNDED), 0.0, low) * sides
    high = np.where((high > 1) & (high < 1 + _ROUNDED), 1.0, high) * sides
    length = high - low
    length = np.where(low + length > high, np.nextafter(length, -np.inf), length)  # keep it inside the edge
    keypoints, segmentation = block.keypoints_xyv, block.segmentation
    if keypoints is not None:
        points = keypoints.values.reshape(-1, 3).copy()
        points[:, :2] *= np.repeat(sides, keypoints.lengths // 3, axis=0)
        keypoints = Ragged(points.ravel(), keypoints.starts)
    if segmentation is not None:
        texts = zip(segmentation.rows(), block.in_fractions.tolist(), sides.tolist(), strict=True)
        segmentation = ragged_bytes([_scale_polygons(text, *wh) if scales else text for text, scales, wh in texts])
    block_px = block.replace(
        boxes_xywh_px=np.where(is_fraction, np.concatenate((low, length), axis=1), boxes),
        area_px2=block.area_px2 * sides[:, 0] * sides[:, 1],
        keypoints_xyv=keypoints,
        segmentation=segmentation,
        corners_px=None if block.corners_px is None else block.corners_px * np.tile(sides, 4),
        in_fractions=None,
    )
    is_small = block.in_fractions & (block_px.area_px2 < min_area_px2)
    return block_px.take_objects(~is_small) if is_small.any() else block_px


def _scale_polygons(segmentation: bytes, width: float, height: float) -> bytes:
    """Convert polygons from fractions to pixels. Other segmentations have the image's size, or are rejected later."""
    try:
        polygons = _POLYGONS.decode(segmentation)
    except msgspec.DecodeError:
        return segmentation
    scaled = [[number * (width, height)[axis % 2] for axis, number in enumerate(polygon)] for polygon in polygons]
    return msgspec.json.encode(scaled)


class KeypointEncoder:
    """Encoder of keypoints. Each object gets K keypoints, the maximum number of any category.

    Missing keypoints are zeros without names.
    """

    def __init__(self, labels: LabelMap):
        self._per_object = labels.keypoints
        names = [[name.encode() for name in category.keypoints] for category in labels.categories]
        padded = (category_names + [b""] * (self._per_object - len(category_names)) for category_names in names)
        self._names = ragged_bytes([b"".join(bytes_items(category_names)) for category_names in padded])

    def encode(self, keypoints_xyv: Ragged | None, class_index: np.ndarray, frame_px: np.ndarray) -> dict[str, Column]:
        """Return the columns of `recordmill.schemas.values`, a row per object.

        An unlabelled keypoint is always at 0, 0.

        Args:
            keypoints_xyv: Keypoints of M objects; None if no object has keypoints.
            class_index: int64 [M].
            frame_px: int64 [M, 2], width and height of each object's image.
        """
        objects, per_object = len(class_index), self._per_object
        xy, visibility = np.zeros((objects * per_object, 2)), np.zeros(objects * per_object, np.int64)
        if keypoints_xyv is not None:
            points, numbers = keypoints_xyv.values.reshape(-1, 3), keypoints_xyv.lengths // 3
            row = spans(np.arange(objects) * per_object, numbers)
            visible = points[:, 2].astype(np.int64)
            fractions = points[:, :2] / np.repeat(frame_px, numbers, axis=0)
            xy[row], visibility[row] = np.where(visible[:, None] != 0, fractions, 0.0), visible
        object_visibility = visibility.reshape(objects, per_object)
        return {
            "num": (object_visibility > 0).sum(axis=1),
            "text": self._names.take(class_index),
            "visibility": object_visibility,
            "x": xy[:, 0].reshape(objects, per_object),
            "y": xy[:, 1].reshape(objects, per_object),
        }
