"""`recordmill.convert` with its keywords, made by `make templates`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from typing_extensions import overload

from recordmill._conversion import run_convert, with_signature

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from apache_beam.options.pipeline_options import PipelineOptions
    from typing_extensions import Never

    from recordmill._data_set import DataSet
    from recordmill._keywords import Fields, Pairs, Path, Paths, Sets, Shares, Texts


@overload
def convert(
    data: Paths,
    output: Path,
    *,
    images: Paths | None = None,
    instances: Paths = (),
    keypoints: Paths = (),
    captions: Paths = (),
    format: Literal[
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
        "table",
    ]
    | str
    | None = None,
    sets: Sets = (),
    class_map: Path | None = None,
    depth_images: Paths = (),
    depth_scale: float | None = None,
    allow_empty: bool = False,
    panoptic: Paths = (),
    stuff: Paths = (),
    image_info: Paths = (),
    panoptic_masks: Paths = (),
    bbox_format: Literal["xywh", "xyxy", "cxcywh", "rel-xywh", "rel-xyxy", "rel-cxcywh"] | None = None,
    no_list: bool = False,
    match: Literal["path", "suffix", "name"] | None = None,
    task: Literal["detect", "segment", "pose", "obb"] | None = None,
    voc_origin: Literal["0", "1"] | None = None,
    frame_name: str | None = None,
    class_attribute: str | None = None,
    class_name: str | None = None,
    image_key: str | None = None,
    of_several: Literal["first", "last", "all"] | None = None,
    unfinished: Literal["drop", "background"] | None = None,
    upload_prefix: Literal["keep", "drop"] | None = None,
    class_descriptions: Path | None = None,
    class_names: Texts | None = None,
    mask_images: Paths = (),
    void: Texts = (),
    files: Texts = (),
    keys: Pairs = (),
    label_map: Path | None = None,
    labels: Paths = (),
    image_column: str | None = None,
    label: str | None = None,
    split_column: str | None = None,
    label_from: Literal["folder", "name"] | None = None,
    label_separator: str | None = None,
    key: str | None = None,
    schema: Path | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    columns: Texts = (),
    default: Pairs = (),
    model: str | None = None,
    weights: str | None = None,
    layer: str | None = None,
    pool: Literal["none", "avg"] | None = None,
    input_size: str | None = None,
    preprocess: Literal["none", "unit", "tf", "torch", "caffe"] | None = None,
    resize: Literal["bilinear", "nearest", "bicubic", "lanczos"] | None = None,
    batch: int | None = None,
    feature_dtype: Literal["float32", "float16"] | None = None,
    name: str | None = None,
    layout: Literal["detection", "keras", "tfds", "classification", "table", "features"] | None = None,
    rename: Pairs = (),
    label_as: Literal["index", "text"] = "index",
    container: Literal["tfrecord", "parquet", "webdataset", "arrayrecord"] = "tfrecord",
    shard_size: int | str | None = None,
    num_shards: int | None = None,
    examples_per_shard: int | None = None,
    gzip: bool = False,
    seed: int = 0,
    writer: Literal["planned", "beam"] = "planned",
    split: Shares | None = None,
    split_seed: int = 0,
    overwrite: bool = False,
    split_by: Literal["hash", "rank"] = "hash",
    group_from: str | None = None,
    groups: Path | None = None,
    add: bool = False,
    add_as: str | None = None,
    sync: bool = False,
    prune: bool = False,
    dtype: Pairs = (),
    labels_only: Literal[False] = False,
    as_: Literal["coco", "yolo", "voc", "labelme", "hf", "ndjson", "cvat", "createml"] | None = None,
    masks: Literal["none", "png", "rle", "both"] | None = None,
    fields: Fields = (),
    stratify: bool = False,
    classes: Texts | None = None,
    group_column: str | None = None,
    max_rejects: float = 0.01,
    exclude: Paths = (),
    exclude_kinds: Texts = (),
    limit: int | None = None,
    max_per_class: int | None = None,
    check: Literal["none", "header", "decode"] | None = None,
    duplicates: Literal["report", "leakage", "fail", "drop"] | None = None,
    boxes: Literal["clip", "drop", "keep"] | None = None,
    no_crowd: bool = False,
    min_area: float | None = None,
    categories: Texts = (),
    ignore_labels: Texts = ("__ignore__", "_background_"),
    image_format: Literal["keep", "jpeg", "png"] | None = None,
    max_side: int | None = None,
    jpeg_quality: int | None = None,
    tile: int | None = None,
    tile_overlap: float | None = None,
    tile_min_visible: float | None = None,
    keep_empty: float | None = None,
    raw_size: str | None = None,
    text_features: int | None = None,
    min_df: str | None = None,
    ngrams: str | None = None,
    no_lower: bool = False,
    stop_words: Paths = (),
    fit_split: str | None = None,
    encoders: Paths = (),
    text_names: str | None = None,
    caption_text: Literal["raw", "counts", "tfidf", "tokens"] | None = None,
    text_column: Texts = (),
    text: Literal["raw", "counts", "tfidf", "tokens"] | None = None,
    workers: int | None = None,
    progress: Literal["auto", "plain", "none"] = "auto",
    config: str = "",
    runner_options: Sequence[str] | PipelineOptions | None = None,
    format_options: Mapping[str, Any] | None = None,
    **unknown: Never,  # so that checkers name a misspelt keyword
) -> DataSet:
    """Convert a data set to sharded TFRecord files, as the command `recordmill convert` does, and open the result.

    Options are the flags of the command with underscores, see docs/cli.md: `num_shards=4`, `split={"train": 0.8,
    "val": 0.2}`. `progress="none"` shows no progress; `config` names a YAML file of options.

    A child process runs the job, and ends with this process. Ctrl-C ends it; the same call resumes after the finished
    shards. Logger `recordmill` gets the summary at level INFO, and warnings and the number of rejects at level WARNING.

    Args:
        data: Folder, .zip, file or pattern of files, or a list of them. Its format is recognised, and printed. COCO's
            files may be given without it, by `images`, `instances` and others. Several data sets become one; `sets`
            names those that have options of their own: `sets=[{"data": "A"}, {"data": "B", "split": "val"}]`.
        output: Folder of the data set that is written.
        runner_options: Flags of Beam as a list, or PipelineOptions, for another runner. This process then builds the
            pipeline, and prints the output of the command.
        format_options: Options of a format of another package, by name.

    Options:

    What to read:
        format: Format of data, if none, or more than one, is recognised.
        sets: Data sets to combine, each with its own options.
        images: Folder or .zip of images, including its subfolders; or a list (default that of the format).
        class_map: Rename, merge or drop classes by name.
        depth_images: Folder or .zip of depth maps, including its subfolders; or a list.
        depth_scale: Metres per unit of the depth maps.
        allow_empty: Accept a data set without any label: all images are background.
        instances: Objects: boxes, areas, crowd flags, segmentations; or a list, like all annotation files.
        keypoints: Objects with keypoints, joined with instances on annotation id.
        captions: Captions.
        panoptic: Panoptic segments; needs panoptic_masks.
        stuff: Regions of stuff, for a semantic mask.
        image_info: Images without annotations, for example of test sets.
        panoptic_masks: Folder or .zip of the PNGs of each panoptic file.
        bbox_format: Meaning of the four numbers of a bbox, in instances and keypoints (default that of the format).
        no_list: Do not list images: assume that every file exists and has 133 kB.
        match: How to find the file of a file_name (default that of the format).
        task: Meaning of a line: a box, a polygon, a box with keypoints, or the four corners of an oriented box (default
            that of the format).
        voc_origin: Number of the first pixel (default 0).
        frame_name: File name of a video frame, with the frame number in braces: frame_{:06d}.png (default frame_{:06d}
            with the suffix of the images).
        class_attribute: Attribute of regions that has the class (default the only one).
        class_name: Class of regions without a class attribute, as in data sets with one class.
        image_key: Key of a task's data that has the image (default image, or the only one that names an image).
        of_several: Annotations to read if a task has several, for example from several people.
        unfinished: What to do with images of skipped and unannotated tasks: skip them, or write them without objects
            (default drop).
        upload_prefix: Keep or drop the prefix that Label Studio adds to the name of an uploaded image: 48c220e9-cat.jpg
            (default drop, if no image file has a prefix).
        class_descriptions: CSV file of class names: /m/01g317,Person (default that of the format).
        class_names: Class names, if objects has class numbers, from 0 (default that of the format).
        mask_images: Folder or .zip of masks, if they are not in data (default in data).
        void: Pixel values of unknown pixels, which are written as 255.
        files: Only these TFRecord files, as paths below the folder data (default all).
        keys: Names of keys in the records to read, if they differ from the Object Detection API.
        label_map: Label map of the Object Detection API, a .pbtxt: class names, if records have only class numbers
            (default the only one in the folder of data).
        labels: Tables of image paths, labels and, optionally, splits; or a list.
        image_column: Column of paths in labels.
        label: Column of labels in labels.
        split_column: Column of splits in labels.
        label_from: Source of the class of an image: its first folder, or the start of its file name (default folder).
        label_separator: Separator after the class in a file name, as in cat_0.jpg (default _).
        key: Column that determines a row's split and position.
        schema: Types of columns: schema.json of a data set, or TensorFlow Metadata's schema.pbtxt.
        encoding: Encoding of CSV and TSV files (default utf-8).
        delimiter: Separator of the cells of CSV and TSV files.
        columns: Only these columns; or a list (default all).
        default: Values that replace missing ones.

    Which model, and which of its outputs:
        model: A model of keras.applications, efficientnet-b0, or a .keras file.
        weights: File of weights, or none, imagenet or imagenet-download (default imagenet, or the weights in the
            model's file).
        layer: Layer whose output is the feature (default the last before pooling).
        pool: Average the feature over height and width, or store all of it (default none).
        input_size: Height and width of the model's input images (default the model's own).
        preprocess: Preprocessing of pixels, 0 to 255 (default the model's own).
        resize: Interpolation of the resize to the model's size, as in keras.utils.load_img (default bilinear).
        batch: Images per call of the model (default 16).
        feature_dtype: Type of features (default float32).

    What to write:
        name: Prefix of the shards' file names (default that of the format).
        layout: Features of a record (default that of the format).
        rename: Keys of records that differ from the layout's.
        label_as: Store the label as a class index, or as the class name (default index).
        container: File format of the shards (default tfrecord).
        shard_size: Target size of a shard, before compression (default 150MB).
        num_shards: Number of shards per split.
        examples_per_shard: Number of records in each shard except the last (default that of the format).
        gzip: Compress the shards with gzip.
        seed: Seed of the order of records (default 0).
        writer: Write planned shards, or shards of Beam's own WriteToTFRecord (default planned).
        split: One split, or several with their shares (default train).
        split_seed: Seed of the split assignment (default 0).
        overwrite: Replace these splits.
        split_by: How images, or rows, are assigned to splits (default hash).
        group_from: Keep images whose paths have the same match in one split.
        groups: File of groups of images that must stay in one split.
        add: Add new images to a finished data set.
        add_as: Add the images as a set of this name.
        sync: Also rewrite changed images.
        prune: Delete the files that sync=True replaces at the end of the run.
        dtype: Numeric types of keys of records.
        labels_only: Write labels in another format instead of records.
        as_: Format of the labels (default coco).
        masks: Masks of objects (default none).
        fields: Fields to store: values of objects or images for which the layout has no feature.
        stratify: Give each split its share of the images of every category.
        classes: Only these classes, in the order of their indices (default that of the format).
        group_column: Keep rows with the same value in this column in one split.

    What to leave out:
        max_rejects: Fraction of images, or of annotations, that may be rejected (default 0.01).
        exclude: Skip the images and annotations that a file lists; or a list.
        exclude_kinds: Kinds of problems that exclude skips, see records.md (default all).
        limit: Maximum number of images, or rows, per split.
        max_per_class: Skip images whose classes all have N objects already.
        check: How thoroughly images are checked (default decode).
        duplicates: What to do about duplicate images (default report).
        boxes: What to do about a box that crosses its image's edge (default clip).
        no_crowd: Skip annotations with iscrowd 1.
        min_area: Skip annotations with a smaller area (default 0).
        categories: Keep only annotations of these categories; or a list (default all).
        ignore_labels: Labels of shapes that are not objects (default __ignore__,_background_).

    Images:
        image_format: Format of stored images (default keep).
        max_side: Shrink images whose longer side has more pixels.
        jpeg_quality: Quality of images that are encoded as JPEG (default 95).
        tile: Divide images into tiles of this width and height, one record per tile.
        tile_overlap: Overlap of neighbouring tiles as a share of a tile, 0 to below 1 (default 0).
        tile_min_visible: Minimum visible share of an object in a tile (default 0.3).
        keep_empty: Share of the tiles without objects to write (default 0).
        raw_size: Store pixels of this height and width, image/pixels, instead of files.

    Texts:
        text_features: Maximum number of terms in a vocabulary (default all).
        min_df: Minimum number, or fraction, of texts that contain a term (default 1).
        ngrams: Minimum and maximum number of tokens of a term (default 1,1).
        no_lower: Do not convert texts to lower case.
        stop_words: File of tokens to ignore, one per line, UTF-8; or a list (default none).
        fit_split: Split on whose texts the vocabulary is fitted (default train, or the only split).
        encoders: Folder of fitted encoders to apply instead of fitting; or a list.
        text_names: Names of the features (default {column}/index, {column}/value, {column}/tokens).
        caption_text: How to encode captions as numbers (default raw).
        text_column: Columns of texts to encode as numbers; or a list.
        text: How to encode these texts.

    How to run:
        workers: Threads that fetch and check images, per Beam worker (default one per core, 64 for buckets).
        progress: Show progress as a live line, as plain lines, or not at all (default auto).
        config: YAML file of options, by their names without leading dashes.

    Raises:
        ConfigError: The options are wrong. The message has all errors.
        JobError: The job failed. Its cause is the traceback of the child process.

    Example:
        data = recordmill.convert("images", "out", instances="instances.json", split={"train": 0.8, "val": 0.2})
        data["train"][0]["boxes"]
    """


@overload
def convert(
    *,
    output: Path,
    images: Paths | None = None,
    instances: Paths = (),
    keypoints: Paths = (),
    captions: Paths = (),
    format: Literal[
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
        "table",
    ]
    | str
    | None = None,
    sets: Sets = (),
    class_map: Path | None = None,
    depth_images: Paths = (),
    depth_scale: float | None = None,
    allow_empty: bool = False,
    panoptic: Paths = (),
    stuff: Paths = (),
    image_info: Paths = (),
    panoptic_masks: Paths = (),
    bbox_format: Literal["xywh", "xyxy", "cxcywh", "rel-xywh", "rel-xyxy", "rel-cxcywh"] | None = None,
    no_list: bool = False,
    match: Literal["path", "suffix", "name"] | None = None,
    task: Literal["detect", "segment", "pose", "obb"] | None = None,
    voc_origin: Literal["0", "1"] | None = None,
    frame_name: str | None = None,
    class_attribute: str | None = None,
    class_name: str | None = None,
    image_key: str | None = None,
    of_several: Literal["first", "last", "all"] | None = None,
    unfinished: Literal["drop", "background"] | None = None,
    upload_prefix: Literal["keep", "drop"] | None = None,
    class_descriptions: Path | None = None,
    class_names: Texts | None = None,
    mask_images: Paths = (),
    void: Texts = (),
    files: Texts = (),
    keys: Pairs = (),
    label_map: Path | None = None,
    labels: Paths = (),
    image_column: str | None = None,
    label: str | None = None,
    split_column: str | None = None,
    label_from: Literal["folder", "name"] | None = None,
    label_separator: str | None = None,
    key: str | None = None,
    schema: Path | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    columns: Texts = (),
    default: Pairs = (),
    model: str | None = None,
    weights: str | None = None,
    layer: str | None = None,
    pool: Literal["none", "avg"] | None = None,
    input_size: str | None = None,
    preprocess: Literal["none", "unit", "tf", "torch", "caffe"] | None = None,
    resize: Literal["bilinear", "nearest", "bicubic", "lanczos"] | None = None,
    batch: int | None = None,
    feature_dtype: Literal["float32", "float16"] | None = None,
    name: str | None = None,
    layout: Literal["detection", "keras", "tfds", "classification", "table", "features"] | None = None,
    rename: Pairs = (),
    label_as: Literal["index", "text"] = "index",
    container: Literal["tfrecord", "parquet", "webdataset", "arrayrecord"] = "tfrecord",
    shard_size: int | str | None = None,
    num_shards: int | None = None,
    examples_per_shard: int | None = None,
    gzip: bool = False,
    seed: int = 0,
    writer: Literal["planned", "beam"] = "planned",
    split: Shares | None = None,
    split_seed: int = 0,
    overwrite: bool = False,
    split_by: Literal["hash", "rank"] = "hash",
    group_from: str | None = None,
    groups: Path | None = None,
    add: bool = False,
    add_as: str | None = None,
    sync: bool = False,
    prune: bool = False,
    dtype: Pairs = (),
    labels_only: Literal[False] = False,
    as_: Literal["coco", "yolo", "voc", "labelme", "hf", "ndjson", "cvat", "createml"] | None = None,
    masks: Literal["none", "png", "rle", "both"] | None = None,
    fields: Fields = (),
    stratify: bool = False,
    classes: Texts | None = None,
    group_column: str | None = None,
    max_rejects: float = 0.01,
    exclude: Paths = (),
    exclude_kinds: Texts = (),
    limit: int | None = None,
    max_per_class: int | None = None,
    check: Literal["none", "header", "decode"] | None = None,
    duplicates: Literal["report", "leakage", "fail", "drop"] | None = None,
    boxes: Literal["clip", "drop", "keep"] | None = None,
    no_crowd: bool = False,
    min_area: float | None = None,
    categories: Texts = (),
    ignore_labels: Texts = ("__ignore__", "_background_"),
    image_format: Literal["keep", "jpeg", "png"] | None = None,
    max_side: int | None = None,
    jpeg_quality: int | None = None,
    tile: int | None = None,
    tile_overlap: float | None = None,
    tile_min_visible: float | None = None,
    keep_empty: float | None = None,
    raw_size: str | None = None,
    text_features: int | None = None,
    min_df: str | None = None,
    ngrams: str | None = None,
    no_lower: bool = False,
    stop_words: Paths = (),
    fit_split: str | None = None,
    encoders: Paths = (),
    text_names: str | None = None,
    caption_text: Literal["raw", "counts", "tfidf", "tokens"] | None = None,
    text_column: Texts = (),
    text: Literal["raw", "counts", "tfidf", "tokens"] | None = None,
    workers: int | None = None,
    progress: Literal["auto", "plain", "none"] = "auto",
    config: str = "",
    runner_options: Sequence[str] | PipelineOptions | None = None,
    format_options: Mapping[str, Any] | None = None,
    **unknown: Never,
) -> DataSet:
    """Convert files of COCO that options name, `images`, `instances`, `captions` and others; or several `sets`."""


@overload
def convert(
    data: Paths,
    output: Path,
    *,
    labels_only: Literal[True],
    **options: Any,
) -> str:
    """Write labels of another format beside linked images, and return the folder."""


@with_signature
def convert(*arguments: Any, **options: Any) -> DataSet | str:
    return run_convert(convert, arguments, options)
