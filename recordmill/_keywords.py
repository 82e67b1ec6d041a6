"""Types of the keywords of `recordmill.convert` and `recordmill.beam`, made by `make templates`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal

from typing_extensions import TypedDict

Path = str | os.PathLike[str]
Paths = Path | Sequence[Path]
Texts = str | Sequence[str]
Pairs = Texts | Mapping[str, str | float]
Fields = Texts | Mapping[str, str | None]
Shares = Texts | Mapping[str, float | str | Fraction]
Sets = Sequence[Mapping[str, Any]]


class ReadDatasetKeywords(TypedDict, total=False):
    """Keywords of `recordmill.beam.ReadDataset`."""

    format: (
        Literal[
            "coco",
            "yolo",
            "voc",
            "cvat",
            "labelme",
            "via",
            "createml",
            "labelstudio",
            "tfcsv",
            "openimages",
            "vertex",
            "ndjson",
            "imagefolder",
            "masks",
            "tfrecord",
            "folder",
        ]
        | str
        | None
    )
    images: Paths | None
    class_map: Path | None
    depth_images: Paths
    depth_scale: float | None
    allow_empty: bool
    instances: Paths
    keypoints: Paths
    captions: Paths
    panoptic: Paths
    stuff: Paths
    image_info: Paths
    panoptic_masks: Paths
    bbox_format: Literal["xywh", "xyxy", "cxcywh", "rel-xywh", "rel-xyxy", "rel-cxcywh"] | None
    no_list: bool
    match: Literal["path", "suffix", "name"] | None
    task: Literal["detect", "segment", "pose", "obb"] | None
    voc_origin: Literal["0", "1"] | None
    frame_name: str | None
    class_attribute: str | None
    class_name: str | None
    image_key: str | None
    of_several: Literal["first", "last", "all"] | None
    unfinished: Literal["drop", "background"] | None
    upload_prefix: Literal["keep", "drop"] | None
    class_descriptions: Path | None
    class_names: Texts | None
    mask_images: Paths
    void: Texts
    files: Texts
    keys: Pairs
    label_map: Path | None
    labels: Paths
    image_column: str | None
    label: str | None
    split_column: str | None
    label_from: Literal["folder", "name"] | None
    label_separator: str | None
    split: Shares
    split_seed: int
    split_by: Literal["hash", "rank"]
    group_from: str | None
    groups: Path | None
    masks: Literal["none", "png", "rle", "both"] | None
    fields: Fields
    stratify: bool
    classes: Texts
    exclude: Paths
    exclude_kinds: Texts
    limit: int | None
    max_per_class: int | None
    no_crowd: bool
    min_area: float | None
    categories: Texts
    ignore_labels: Texts


class EncodeKeywords(TypedDict, total=False):
    """Keywords of `recordmill.beam.Encode`."""

    layout: Literal["detection", "keras", "tfds", "classification"]
    rename: Pairs
    label_as: Literal["index", "text"]
    dtype: Pairs
    masks: Literal["none", "png", "rle", "both"]
    fields: Fields
    keypoints: bool
    captions: bool
    stuff: bool
    panoptic: bool
    check: Literal["none", "header", "decode"]
    boxes: Literal["clip", "drop", "keep"]
    image_format: Literal["keep", "jpeg", "png"]
    max_side: int | None
    jpeg_quality: int
    workers: int | None


class WriteDatasetKeywords(TypedDict, total=False):
    """Keywords of `recordmill.beam.WriteDataset`."""

    name: str
    layout: Literal["detection", "keras", "tfds", "classification"]
    rename: Pairs
    label_as: Literal["index", "text"]
    container: Literal["tfrecord", "parquet", "webdataset", "arrayrecord"]
    shard_size: int | str | None
    num_shards: int | None
    examples_per_shard: int | None
    gzip: bool
    seed: int
    writer: Literal["planned", "beam"]
    split: Shares
    split_seed: int
    overwrite: bool
    dtype: Pairs
    masks: Literal["none", "png", "rle", "both"]
    fields: Fields
    keypoints: bool
    captions: bool
    stuff: bool
    panoptic: bool
    max_rejects: float
    check: Literal["none", "header", "decode"]
    duplicates: Literal["report", "leakage", "fail", "drop"]
    boxes: Literal["clip", "drop", "keep"]
    image_format: Literal["keep", "jpeg", "png"]
    max_side: int | None
    jpeg_quality: int
    tile: int | None
    tile_overlap: float
    tile_min_visible: float
    keep_empty: float
    workers: int | None
