"""Keypoints of objects become the flat lists that records hold."""

import numpy as np

from recordmill.schemas.block import Ragged, ragged_bytes, spans
from recordmill.schemas.example import Column, bytes_items
from recordmill.schemas.labels import LabelMap


class KeypointEncoder:
    """Keypoints of one data set's objects, each with as many as the category that has the most: K.

    Where an object has none, or fewer, the rest is zeros without names.
    """

    def __init__(self, labels: LabelMap):
        self._per_object = labels.keypoints
        names = [[name.encode() for name in category.keypoints] for category in labels.categories]
        padded = (each + [b""] * (self._per_object - len(each)) for each in names)
        self._names = ragged_bytes([b"".join(bytes_items(each)) for each in padded])

    def encode(self, keypoints_xyv: Ragged | None, class_index: np.ndarray, frame_px: np.ndarray) -> dict[str, Column]:
        """The columns of `recordmill.schemas.values`, a row an object.

        A keypoint that is not labelled is at 0, 0 whatever the source has there.

        Args:
            keypoints_xyv: of M objects; None if none of them has keypoints.
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
        of_object = visibility.reshape(objects, per_object)
        return {
            "num": (of_object > 0).sum(axis=1),
            "text": self._names.take(class_index),
            "visibility": of_object,
            "x": xy[:, 0].reshape(objects, per_object),
            "y": xy[:, 1].reshape(objects, per_object),
        }
