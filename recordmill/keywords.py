"""Types of the keywords of `recordmill.convert` and `recordmill.beam`, made by `make templates`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, Protocol

from typing_extensions import TypedDict, Unpack

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

    from recordmill.data_set import DataSet

    Runner = Sequence[str] | PipelineOptions | None

Path = str | os.PathLike[str]
Paths = Path | Sequence[Path]
Texts = str | Sequence[str]
Pairs = Texts | Mapping[str, str | float]
Shares = Texts | Mapping[str, float | str | Fraction]


class ConvertKeywords(TypedDict, total=False):
    """Keywords of `recordmill.convert`."""

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
            "imagefolder",
            "folder",
            "table",
        ]
        | None
    )
    images: Paths | None
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
    upload_prefix: Literal["keep", "drop"] | None
    class_descriptions: Path | None
    class_names: Texts
    labels: Paths
    image_column: str | None
    label: str | None
    split_column: str | None
    label_from: Literal["folder", "name"] | None
    label_separator: str | None
    key: str | None
    schema: Path | None
    encoding: str | None
    delimiter: str | None
    columns: Texts
    default: Pairs
    model: str | None
    weights: str | None
    layer: str | None
    pool: Literal["none", "avg"] | None
    input_size: str | None
    preprocess: Literal["none", "unit", "tf", "torch", "caffe"] | None
    resize: Literal["bilinear", "nearest", "bicubic", "lanczos"] | None
    batch: int | None
    feature_dtype: Literal["float32", "float16"] | None
    name: str | None
    layout: Literal["detection", "keras", "tfds", "classification", "table", "features"] | None
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
    split_by: Literal["hash", "rank"]
    group_from: str | None
    groups: Path | None
    dtype: Pairs
    masks: Literal["none", "png", "rle", "both"] | None
    stratify: bool
    classes: Texts | None
    group_column: str | None
    max_rejects: float
    exclude: Paths
    exclude_kinds: Texts
    check: Literal["none", "header", "decode"] | None
    duplicates: Literal["report", "leakage", "fail", "drop"] | None
    boxes: Literal["clip", "drop", "keep"] | None
    no_crowd: bool
    min_area: float | None
    categories: Texts
    ignore_labels: Texts
    image_format: Literal["keep", "jpeg", "png"] | None
    max_side: int | None
    jpeg_quality: int | None
    raw_size: str | None
    text_features: int | None
    min_df: str | None
    ngrams: str | None
    no_lower: bool
    stop_words: Paths
    fit_split: str | None
    encoders: Paths
    text_names: str | None
    caption_text: Literal["raw", "counts", "tfidf", "tokens"] | None
    text_column: Texts
    text: Literal["raw", "counts", "tfidf", "tokens"] | None
    workers: int | None
    progress: Literal["auto", "plain", "none"]
    config: str


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
            "imagefolder",
            "folder",
        ]
        | None
    )
    images: Paths | None
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
    upload_prefix: Literal["keep", "drop"] | None
    class_descriptions: Path | None
    class_names: Texts
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
    stratify: bool
    classes: Texts
    exclude: Paths
    exclude_kinds: Texts
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


class Convert(Protocol):
    """Type of `recordmill.convert`."""

    def __call__(
        self,
        data: Paths | None = None,
        output: Path | None = None,
        *,
        runner_options: Runner = None,
        **options: Unpack[ConvertKeywords],
    ) -> DataSet: ...
