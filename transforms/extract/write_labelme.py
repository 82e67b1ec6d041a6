"""LabelMe: a JSON file beside each image."""

import base64
import posixpath
from collections import Counter
from typing import Any

import msgspec
import numpy as np

from recordmill.transforms.dataset.record_view import rle_mask
from recordmill.transforms.extract.extract_files import ExtractedFile
from recordmill.transforms.extract.extract_rows import RunLengths
from recordmill.transforms.extract.label_format import (
    ExtractedImage,
    ExtractedObject,
    LabelFormat,
    LabelRules,
    WrittenLabels,
    count_lost,
    other_splits,
    without_crowds,
)
from recordmill.transforms.extract.trace_mask import trace_mask
from recordmill.transforms.images.masks import grey_png

_VERSION = "5.5.0"
_HELD = ("masks", "oriented boxes")
_BOUNDS = "boxes that are not the bounds of their masks: a polygon has no box"


def write_labelme(image: ExtractedImage, rules: LabelRules) -> WrittenLabels:
    """Return the JSON file of an image."""
    objects = without_crowds(image)
    notes: Counter[str] = Counter()
    shapes = [shape for group, each in enumerate(objects, 1) for shape in _shapes(each, group, image, notes)]
    document: dict[str, Any] = {
        "version": _VERSION,
        "flags": {},
        "shapes": shapes,
        "imagePath": posixpath.basename(image.name),
        "imageData": None,
        "imageHeight": image.image.height,
        "imageWidth": image.image.width,
    }
    path = f"{image.split}/{image.stem}.json"
    file = ExtractedFile(path, msgspec.json.encode(document))
    return WrittenLabels(len(objects), file, "", count_lost(image, objects, *_HELD), notes)


def _shapes(each: ExtractedObject, group: int, image: ExtractedImage, notes: "Counter[str]") -> list[dict[str, Any]]:
    """Return the shapes of an object: a rectangle, polygons in a group, or a mask if it has holes."""
    label, size = each.category.name, (image.image.width, image.image.height)
    xmin, ymin, xmax, ymax = each.edges_px
    if any(each.corners) and not each.has_mask:
        corners = zip(each.corners[::2], each.corners[1::2], strict=True)
        return [_shape(label, "polygon", [(x * size[0], y * size[1]) for x, y in corners])]
    if not isinstance(each.row.segmentation, RunLengths):
        return [_shape(label, "rectangle", [(xmin, ymin), (xmax, ymax)])]
    mask = rle_mask(each.row.segmentation.counts.encode(), size)
    ys, xs = np.nonzero(mask)
    left, top, right, bottom = (int(edge) for edge in (xs.min(), ys.min(), xs.max(), ys.max()))
    notes[_BOUNDS] += (left, top, right + 1, bottom + 1) != each.edges_px
    outlines = trace_mask(mask)
    if outlines.holes:
        png = base64.b64encode(grey_png(np.ascontiguousarray(mask[top : bottom + 1, left : right + 1]) * np.uint8(255)))
        return [_shape(label, "mask", [(left, top), (right, bottom)], mask=png.decode())]
    is_group = len(outlines.parts) > 1
    return [_shape(label, "polygon", ring, group if is_group else None) for ring in outlines.parts]


def _shape(label: str, kind: str, points: list[Any], group: int | None = None, mask: str | None = None) -> dict:
    return {
        "label": label,
        "points": [(float(x), float(y)) for x, y in points],
        "group_id": group,
        "description": "",
        "shape_type": kind,
        "flags": {},
        "mask": mask,
    }


LABELME = LabelFormat("{split}", "{split}", write_labelme, warn=lambda splits, rules: other_splits(splits))
