"""YOLO's label files: images/SPLIT, labels/SPLIT and data.yaml."""

from collections.abc import Iterable, Iterator

import yaml

from recordmill.schemas.features import FeatureTable, Part
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.transforms.extract.extract_files import ExtractedFile
from recordmill.transforms.extract.label_format import (
    BOUNDS,
    SPLITS,
    ExtractedImage,
    ExtractedObject,
    LabelFormat,
    WrittenLabels,
    count_lost,
    differ_from_box,
    format_number,
    join_rings,
    polygon_bounds,
    trace_mask,
    without_crowds,
)

_HELD = {
    "detect": (),
    "segment": ("masks",),
    "pose": ("objects with keypoints",),
    "obb": ("oriented boxes", "areas"),
}
_JOINED = "masks with several parts or holes, written as one polygon"
_NO_MASK = "objects without a mask, written as the polygon of their box"
_NOT_ORIENTED = "objects that are no oriented box, written as their upright box"
_CUT = "boxes beyond the image, clipped at its edge"
_RENAMED = (
    "image files below a folder named images, now without it, because Ultralytics would look for labels beside it"
)
_OUTSIDE = "boxes outside of their image"
_SAME = "objects with the same class and box as another object of their image"


def yolo_task(labels: LabelMap, table: FeatureTable) -> str:
    """Return the task that all lines are for. Ultralytics trains on one task."""
    if Part.KEYPOINTS in table.parts and labels.keypoints:
        return "pose"
    if Part.ORIENTED in table.parts:
        return "obb"
    return "segment" if table.has_masks else "detect"


def write_yolo(image: ExtractedImage, labels: LabelMap, table: FeatureTable) -> WrittenLabels:
    """Return an image's label file, empty without objects."""
    lines = object_numbers(image, labels, table)
    text = "".join(f"{' '.join(line)}\n" for line in lines)
    return WrittenLabels(len(lines), ExtractedFile(f"labels/{image.split}/{image.stem}.txt", text.encode()))


def yolo_name(name: str) -> str:
    """Return a name without folders named `images`: Ultralytics finds labels by the last one in the path of an image.

    >>> yolo_name("train/images/a.jpg")
    'train/a.jpg'
    """
    *folders, file = name.split("/")
    return "/".join((*(folder for folder in folders if folder != "images"), file))


def object_numbers(image: ExtractedImage, labels: LabelMap, table: FeatureTable, *held: str) -> list[tuple[str, ...]]:
    """Return the class index and the numbers of each written object, as texts. Count what is lost.

    Args:
        held: Kinds of contents that the format stores besides objects, see `count_lost`.
    """
    task, objects = yolo_task(labels, table), without_crowds(image)
    inside = [object_ for object_ in objects if _edges_have_area(_cut_edges(object_, image))]
    lost = image.lost
    rows = [(object_.class_index, *_line_numbers(object_, image, task, labels.keypoints)) for object_ in inside]
    lines = list(dict.fromkeys(tuple(map(format_number, row)) for row in rows))
    count_lost(image, inside, *_HELD[task], *held)
    lost[_OUTSIDE] = len(objects) - len(inside)
    lost[_SAME] = len(inside) - len(lines)
    return lines


def _cut_edges(object_: ExtractedObject, image: ExtractedImage) -> tuple[float, ...]:
    """Return xmin, ymin, xmax, ymax within the image, because Ultralytics skips images with numbers above 1."""
    sides = image.image.width, image.image.height
    return tuple(min(max(edge, 0.0), sides[axis % 2]) for axis, edge in enumerate(object_.edges_px))


def _edges_have_area(edges: tuple[float, ...]) -> bool:
    return edges[0] < edges[2] and edges[1] < edges[3]


def _line_numbers(object_: ExtractedObject, image: ExtractedImage, task: str, points: int) -> list[float]:
    width, height = image.image.width, image.image.height
    xmin, ymin, xmax, ymax = edges = _cut_edges(object_, image)
    image.notes[_CUT] += edges != object_.edges_px
    rectangle = [xmin / width, ymin / height, xmax / width, ymin / height]
    rectangle += [xmax / width, ymax / height, xmin / width, ymax / height]
    if task == "obb":
        corners = _oriented_corners(object_, image)
        image.notes[_NOT_ORIENTED] += not corners
        return corners or rectangle
    if task == "segment":
        polygon = _mask_polygon(object_, image)
        image.notes[_NO_MASK] += not polygon
        return polygon or rectangle
    box = [(xmin + xmax) / 2 / width, (ymin + ymax) / 2 / height, (xmax - xmin) / width, (ymax - ymin) / height]
    if task == "detect":
        return box
    xyv = list(object_.row.keypoints or ())
    xyv += [0.0] * (3 * points - len(xyv))
    for at in range(0, len(xyv), 3):
        xyv[at] = min(max(xyv[at] / width, 0.0), 1.0)
        xyv[at + 1] = min(max(xyv[at + 1] / height, 0.0), 1.0)
    return [*box, *xyv]


def _oriented_corners(object_: ExtractedObject, image: ExtractedImage) -> list[float]:
    """Return the corners of an oriented box, or of a polygon of four points, as fractions; empty for other shapes."""
    if any(object_.corners):
        return list(object_.corners)
    rings = object_.polygons
    if [len(ring) for ring in rings] != [4]:
        return []
    width, height = image.image.width, image.image.height
    return [side for x, y in rings[0] for side in (min(max(x / width, 0.0), 1.0), min(max(y / height, 0.0), 1.0))]


def _mask_polygon(object_: ExtractedObject, image: ExtractedImage) -> list[float]:
    """Return a mask's outline as fractions; empty without one."""
    mask, rings = object_.mask, object_.polygons
    if mask is not None:
        parts, holes = trace_mask(mask)
        rings = [*parts, *holes]
    if not rings:
        return []
    width, height = image.image.width, image.image.height
    ring = [(min(max(x, 0), width), min(max(y, 0), height)) for x, y in join_rings(rings)]
    image.notes[_JOINED] += len(rings) > 1
    image.notes[BOUNDS] += differ_from_box(polygon_bounds([ring]), object_)
    return [side for x, y in ring for side in (x / width, y / height)]


def write_yaml(splits: Iterable[str], labels: LabelMap, table: FeatureTable) -> Iterator[ExtractedFile]:
    """Yield data.yaml. It has no `path`, so that the folder can be moved: paths are relative to data.yaml."""
    splits = list(splits)
    ordered = [split for split in SPLITS if split in splits] + sorted(set(splits) - set(SPLITS))
    described: dict[str, object] = {split: f"images/{split}" for split in ordered}
    described = {split: [] for split in ("train", "val") if split not in splits} | described
    described["names"] = {index: category.name for index, category in enumerate(labels.categories)}
    if yolo_task(labels, table) == "pose":
        described["kpt_shape"] = [labels.keypoints, 3]
        names = {index: list(category.keypoints) for index, category in enumerate(labels.categories)}
        described["kpt_names"] = {index: points for index, points in names.items() if points}
    text = yaml.safe_dump(described, allow_unicode=True, sort_keys=False)
    yield ExtractedFile("data.yaml", text.encode())


def yolo_warnings(splits: Iterable[str], labels: LabelMap, table: FeatureTable) -> Iterator[str]:
    """Yield warnings about contents that Ultralytics does not find."""
    splits = set(splits)
    task = yolo_task(labels, table)
    cure = ". For polygons, convert without keypoints" if task == "pose" and table.has_masks else ""
    yield f"data.yaml has the task {task}: all lines of label files have one kind of shape{cure}"
    if missing := [split for split in ("train", "val") if split not in splits]:
        yield f"data.yaml has no images for {' and '.join(missing)}, which Ultralytics needs. Add the folder"
    if unknown := sorted(splits - set(SPLITS)):
        yield f"data.yaml has {', '.join(unknown)}, but readers know only train, val and test. Rename it"
    if task == "pose":
        yield "data.yaml has no flip_idx, so Ultralytics does not mirror images. Add it"


YOLO = LabelFormat(
    "images/{split}",
    "labels/{split}",
    write_yolo,
    rename=yolo_name,
    renamed=_RENAMED,
    finish=write_yaml,
    warn=yolo_warnings,
)
