"""Ultralytics' NDJSON: images/SPLIT and dataset.ndjson, a line of the data set and one per image."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from recordmill.schemas.features import FeatureTable, Part
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.transforms.extract.label_format import (
    ExtractedImage,
    LabelFormat,
    WrittenLabels,
    warn_unknown_splits,
)
from recordmill.transforms.extract.write_yolo import object_numbers, yolo_task

_FILE = "dataset.ndjson"
_KEYS = {"detect": "boxes", "segment": "segments", "pose": "pose", "obb": "obb"}
_RENAMED = "image files of folders, whose names have _ for /, because Ultralytics refuses names with a folder"


def write_ndjson(image: ExtractedImage, labels: LabelMap, table: FeatureTable) -> WrittenLabels:
    """Return an image's line. Numbers are those of YOLO's label files."""
    annotations: dict[str, Any] = {}
    rows = object_numbers(image, labels, table, "classes of images", "tags of images")
    if rows:
        text = ",".join(f"[{','.join(row)}]" for row in rows)
        annotations[_KEYS[yolo_task(labels, table)]] = msgspec.Raw(f"[{text}]".encode())
    index = {category.name: number for number, category in enumerate(labels.categories)}
    names = image.tags if image.class_name is None else (image.class_name,)
    if classes := [index[name] for name in names if name in index]:
        annotations["classification"] = classes
    line = {
        "type": "image",
        "file": image.name,
        "width": image.image.width,
        "height": image.image.height,
        "split": image.split,
        "annotations": annotations,
    }
    return WrittenLabels(len(rows) + len(classes), None, msgspec.json.encode(line).decode())


def flat_name(name: str) -> str:
    """Return a name without folders.

    >>> flat_name("a/b/1.jpg")
    'a_b_1.jpg'
    """
    return name.replace("/", "_")


def dataset_line(
    name: str, splits: Sequence[str], labels: LabelMap, table: FeatureTable, lines: Iterator[bytes]
) -> bytes:
    """Return the line of the data set. `path` is the folder of `images`, relative to that of the file.

    Args:
        name: Name of the data set.
        lines: Lines of all images.
    """
    task = yolo_task(labels, table)
    header: dict[str, Any] = {"type": "dataset", "task": task, "name": name, "path": "."}
    header["class_names"] = {str(index): category.name for index, category in enumerate(labels.categories)}
    if task == "pose":
        header["kpt_shape"] = [labels.keypoints, 3]
        names = {str(index): list(category.keypoints) for index, category in enumerate(labels.categories)}
        header["kpt_names"] = {index: points for index, points in names.items() if points}
    key = f'"{_KEYS[task]}":['.encode()
    if _is_of_classes(table) or (Part.TAGS in table.parts and not any(key in line for line in lines)):
        header["task"] = "classify"
    return msgspec.json.encode(header) + b"\n"


def _is_of_classes(table: FeatureTable) -> bool:
    """Return True if records have the class of the image, and no objects."""
    return "objects.id" not in table.sources


def ndjson_warnings(splits: Iterable[str], labels: LabelMap, table: FeatureTable) -> Iterator[str]:
    """Yield warnings about contents that Ultralytics does not find."""
    splits = set(splits)
    yield from warn_unknown_splits(splits, labels, table)
    if _is_of_classes(table):
        yield f"{_FILE} has the task classify, whose images Ultralytics fetches from their url. Add it to the lines"
        return
    yield f"{_FILE} has the task {yolo_task(labels, table)}: all objects have one kind of shape"
    if "train" not in splits:
        yield f"{_FILE} has no images for train, which Ultralytics needs. Extract them, too"
    if yolo_task(labels, table) == "pose":
        yield f"{_FILE} has no flip_idx, so Ultralytics does not mirror images. Add it to the first line"


NDJSON = LabelFormat(
    "images/{split}",
    _FILE,
    write_ndjson,
    _FILE,
    flat_name,
    _RENAMED,
    warn=ndjson_warnings,
    holds_classes=True,
    head=dataset_line,
)
