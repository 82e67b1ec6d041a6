"""Keypoints of objects become the flat lists that records hold."""

from collections.abc import Sequence
from typing import Any

from recordmill.schemas.inputs.annotations import Annotation
from recordmill.schemas.inputs.labels import LabelMap


class KeypointEncoder:
    """Keypoints of one data set's objects, each with as many as the category that has the most: K.

    Where an object has none, or fewer, the rest is zeros without names.
    """

    def __init__(self, labels: LabelMap):
        self._per_object = labels.keypoints
        self._names = {
            category.id: [*(name.encode() for name in category.keypoints), *([b""] * self._missing(category.keypoints))]
            for category in labels.categories
        }

    def _missing(self, keypoints: Sequence[object]) -> int:
        return self._per_object - len(keypoints)

    def encode(self, annotations: Sequence[Annotation], width: int, height: int) -> dict[str, list[Any]]:
        """The values of `recordmill.schemas.layouts` for an image of `width` x `height` pixels.

        A keypoint that is not labelled is at 0, 0 whatever the JSON has there.
        """
        xs: list[float] = []
        ys: list[float] = []
        visibilities: list[int] = []
        labelled: list[int] = []
        names: list[bytes] = []
        for annotation in annotations:
            xyv = annotation.keypoints_xyv
            visible = [int(visibility) for visibility in xyv[2::3]]
            missing = self._missing(visible)
            xs += [x / width if seen else 0.0 for x, seen in zip(xyv[0::3], visible, strict=True)] + [0.0] * missing
            ys += [y / height if seen else 0.0 for y, seen in zip(xyv[1::3], visible, strict=True)] + [0.0] * missing
            visibilities += visible + [0] * missing
            labelled.append(sum(seen > 0 for seen in visible))
            names += self._names[annotation.category_id]
        return {
            "objects.keypoint_num": labelled,
            "objects.keypoint_text": names,
            "objects.keypoint_visibility": visibilities,
            "objects.keypoint_x": xs,
            "objects.keypoint_y": ys,
        }
