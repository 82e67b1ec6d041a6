"""Types of the keywords of `recordmill.convert` and `recordmill.beam`, made by `make templates`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Literal

from typing_extensions import TypedDict

Path = str | os.PathLike[str]
Paths = Path | Sequence[Path]
Texts = str | Sequence[str]
Pairs = Texts | Mapping[str, str | float]
Shares = Texts | Mapping[str, float | str | Fraction]


class ReadCocoKeywords(TypedDict, total=False):
    """Keywords of `recordmill.beam.ReadCoco`."""

    data: Path | None
    images: Paths
    instances: Paths
    keypoints: Paths
    captions: Paths
    panoptic: Paths
    stuff: Paths
    image_info: Paths
    panoptic_masks: Paths
    bbox_format: Literal["xywh", "xyxy", "cxcywh", "rel-xywh", "rel-xyxy", "rel-cxcywh"] | None
    no_list: bool
    match: Literal["path", "suffix", "name"]
    split: Shares
    split_seed: int
    split_by: Literal["hash", "rank"]
    group_from: str | None
    groups: Path | None
    masks: Literal["none", "png", "rle", "both"]
    stratify: bool
    no_crowd: bool
    min_area: float
    categories: Texts


class ReadFolderKeywords(TypedDict, total=False):
    """Keywords of `recordmill.beam.ReadFolder`."""

    data: Paths
    labels: Paths
    image_column: str | None
    label: str | None
    split_column: str | None
    label_from: Literal["folder", "name"]
    label_separator: str
    split: Shares
    split_seed: int
    split_by: Literal["hash", "rank"]
    group_from: str | None
    groups: Path | None
    stratify: bool
    classes: Texts


class EncodeKeywords(TypedDict, total=False):
    """Keywords of `recordmill.beam.Encode`."""

    layout: Literal["detection", "keras", "tfds", "classification"]
    rename: Pairs
    label_as: Literal["index", "text"]
    dtype: Pairs
    masks: Literal["none", "png", "rle", "both"]
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
    workers: int | None
