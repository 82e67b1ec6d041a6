"""Types of the keywords of `recordmill.convert` and `recordmill.beam`, made by `make templates`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

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
    """Keywords of all conversions."""

    images: Paths
    output: Path
    name: str
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
    stratify: bool
    max_rejects: float
    exclude: Paths
    exclude_kinds: Texts
    workers: int | None
    progress: Literal["auto", "plain", "none"]
    config: str


class ObjectsKeywords(ConvertKeywords, total=False):
    """Keywords of all conversions of images with objects."""

    layout: Literal["detection", "keras", "tfds"]
    group_from: str | None
    groups: Path | None
    dtype: Pairs
    masks: Literal["none", "png", "rle", "both"]
    check: Literal["none", "header", "decode"]
    duplicates: Literal["report", "leakage", "fail", "drop"]
    boxes: Literal["clip", "drop", "keep"]
    no_crowd: bool
    min_area: float
    categories: Texts
    format: Literal["keep", "jpeg", "png"]
    max_side: int | None
    jpeg_quality: int


class FormatKeywords(ObjectsKeywords, total=False):
    """Keywords of all formats."""

    data: Path


class CocoKeywords(ObjectsKeywords, total=False):
    """Keywords of `coco`."""

    data: Path | None
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
    text_features: int | None
    min_df: str
    ngrams: str
    no_lower: bool
    stop_words: Paths
    fit_split: str | None
    encoders: Paths
    text_names: str | None
    caption_text: Literal["raw", "counts", "tfidf", "tokens"]


class FolderKeywords(ConvertKeywords, total=False):
    """Keywords of `folder`."""

    labels: Paths
    path_column: str | None
    label_column: str | None
    split_column: str | None
    label_from: Literal["folder", "name"]
    label_separator: str
    layout: Literal["classification"]
    dtype: Pairs
    group_from: str | None
    groups: Path | None
    classes: Texts
    check: Literal["none", "header", "decode"]
    duplicates: Literal["report", "leakage", "fail", "drop"]
    format: Literal["keep", "jpeg", "png"]
    max_side: int | None
    jpeg_quality: int


class TableKeywords(ConvertKeywords, total=False):
    """Keywords of `table`."""

    rows: Paths
    image_column: str | None
    key: str | None
    label: str | None
    classes: Texts
    schema: Path | None
    encoding: str
    delimiter: str
    columns: Texts
    default: Pairs
    layout: Literal["table"]
    dtype: Pairs
    split_column: str | None
    group_column: str | None
    check: Literal["none", "header", "decode"]
    duplicates: Literal["report", "leakage", "fail", "drop"]
    format: Literal["keep", "jpeg", "png"]
    max_side: int | None
    jpeg_quality: int
    raw_size: str
    text_features: int | None
    min_df: str
    ngrams: str
    no_lower: bool
    stop_words: Paths
    fit_split: str | None
    encoders: Paths
    text_names: str | None
    text_column: Texts
    text: Literal["raw", "counts", "tfidf", "tokens"] | None


class EmbedKeywords(ConvertKeywords, total=False):
    """Keywords of `embed`."""

    rows: Paths
    image_column: str | None
    key: str | None
    label: str | None
    schema: Path | None
    encoding: str
    delimiter: str
    split_column: str | None
    labels: Paths
    path_column: str | None
    label_column: str | None
    label_from: Literal["folder", "name"]
    label_separator: str
    model: str
    weights: str
    layer: str
    pool: Literal["none", "avg"]
    input_size: str
    preprocess: Literal["none", "unit", "tf", "torch", "caffe"] | None
    resize: Literal["bilinear", "nearest", "bicubic", "lanczos"]
    batch: int
    dtype: Literal["float32", "float16"]
    layout: Literal["features"]
    classes: Texts
    group_column: str | None
    group_from: str | None
    groups: Path | None


class YoloKeywords(FormatKeywords, total=False):
    """Keywords of `yolo`."""

    task: Literal["detect", "segment", "pose", "obb"] | None


class ImagefolderKeywords(FormatKeywords, total=False):
    """Keywords of `imagefolder`."""

    class_names: Texts
    bbox_format: Literal["xywh", "xyxy", "cxcywh", "rel-xywh", "rel-xyxy", "rel-cxcywh"] | None


class LabelmeKeywords(FormatKeywords, total=False):
    """Keywords of `labelme`."""

    match: Literal["path", "suffix", "name"]
    ignore_labels: Texts


class ViaKeywords(FormatKeywords, total=False):
    """Keywords of `via`."""

    match: Literal["path", "suffix", "name"]
    class_attribute: str | None
    class_name: str | None


class CreatemlKeywords(FormatKeywords, total=False):
    """Keywords of `createml`."""

    match: Literal["path", "suffix", "name"]


class TfcsvKeywords(FormatKeywords, total=False):
    """Keywords of `tfcsv`."""

    match: Literal["path", "suffix", "name"]


class LabelstudioKeywords(FormatKeywords, total=False):
    """Keywords of `labelstudio`."""

    match: Literal["path", "suffix", "name"]
    image_key: str | None
    of_several: Literal["first", "last", "all"] | None
    upload_prefix: Literal["keep", "drop"] | None


class OpenimagesKeywords(FormatKeywords, total=False):
    """Keywords of `openimages`."""

    match: Literal["path", "suffix", "name"]
    class_descriptions: Path | None


class VertexKeywords(FormatKeywords, total=False):
    """Keywords of `vertex`."""

    match: Literal["path", "suffix", "name"]


class VocKeywords(FormatKeywords, total=False):
    """Keywords of `voc`."""

    voc_origin: Literal["0", "1"]


class CvatKeywords(FormatKeywords, total=False):
    """Keywords of `cvat`."""

    match: Literal["path", "suffix", "name"]
    frame_name: str | None


class ReadCocoKeywords(TypedDict, total=False):
    """Keywords of `recordmill.beam.ReadCoco`."""

    images: Paths
    data: Path | None
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

    images: Paths
    labels: Paths
    path_column: str | None
    label_column: str | None
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
    format: Literal["keep", "jpeg", "png"]
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
    format: Literal["keep", "jpeg", "png"]
    max_side: int | None
    jpeg_quality: int
    workers: int | None


class Convert(Protocol):
    """Type of `recordmill.convert`."""

    @overload
    def __call__(
        self, verb: Literal["coco"], *, runner_options: Runner = None, **options: Unpack[CocoKeywords]
    ) -> DataSet: ...
    @overload
    def __call__(
        self, verb: Literal["folder"], *, runner_options: Runner = None, **options: Unpack[FolderKeywords]
    ) -> DataSet: ...
    @overload
    def __call__(
        self, verb: Literal["table"], *, runner_options: Runner = None, **options: Unpack[TableKeywords]
    ) -> DataSet: ...
    @overload
    def __call__(
        self, verb: Literal["embed"], *, runner_options: Runner = None, **options: Unpack[EmbedKeywords]
    ) -> DataSet: ...
    @overload
    def __call__(
        self, verb: Literal["yolo"], *, runner_options: Runner = None, **options: Unpack[YoloKeywords]
    ) -> DataSet: ...
    @overload
    def __call__(
        self, verb: Literal["imagefolder"], *, runner_options: Runner = None, **options: Unpack[ImagefolderKeywords]
    ) -> DataSet: ...
    @overload
    def __call__(
        self, verb: Literal["labelme"], *, runner_options: Runner = None, **options: Unpack[LabelmeKeywords]
    ) -> DataSet: ...
    @overload
    def __call__(
        self, verb: Literal["via"], *, runner_options: Runner = None, **options: Unpack[ViaKeywords]
    ) -> DataSet: ...
    @overload
    def __call__(
        self, verb: Literal["createml"], *, runner_options: Runner = None, **options: Unpack[CreatemlKeywords]
    ) -> DataSet: ...
    @overload
    def __call__(
        self, verb: Literal["tfcsv"], *, runner_options: Runner = None, **options: Unpack[TfcsvKeywords]
    ) -> DataSet: ...
    @overload
    def __call__(
        self, verb: Literal["labelstudio"], *, runner_options: Runner = None, **options: Unpack[LabelstudioKeywords]
    ) -> DataSet: ...
    @overload
    def __call__(
        self, verb: Literal["openimages"], *, runner_options: Runner = None, **options: Unpack[OpenimagesKeywords]
    ) -> DataSet: ...
    @overload
    def __call__(
        self, verb: Literal["vertex"], *, runner_options: Runner = None, **options: Unpack[VertexKeywords]
    ) -> DataSet: ...
    @overload
    def __call__(
        self, verb: Literal["voc"], *, runner_options: Runner = None, **options: Unpack[VocKeywords]
    ) -> DataSet: ...
    @overload
    def __call__(
        self, verb: Literal["cvat"], *, runner_options: Runner = None, **options: Unpack[CvatKeywords]
    ) -> DataSet: ...
    @overload
    def __call__(self, verb: Literal["auto"], *, runner_options: Runner = None, **options: Any) -> DataSet: ...
