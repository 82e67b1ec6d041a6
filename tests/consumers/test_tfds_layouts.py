"""TensorFlow Datasets opens the folder of every layout, and the layout `tfds` is what tfds.load("coco/2017") gives."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from PIL import Image

import recordmill as library
from tests.conftest import SHARED_DATA, convert, write_coco
from tests.consumers.coco_truth import Truth, assert_boxes_equal, assert_detection, needs_shared_data
from tests.jobs.test_fields_back import document_with_fields

OURS = {"category_id"}
"""Features of an object that coco/2017 lacks."""

FIELDS = "--fields", "all", "--num-shards", 3
DETECTION = "--masks", "both", *FIELDS


def opened(folder: Path, examples: int, split: str = "train") -> tuple[tfds.features.FeatureConnector, list[dict]]:
    """Features and all examples of the folder's one split."""
    builder = tfds.builder_from_directory(str(folder))
    assert {name: split.num_examples for name, split in builder.info.splits.items()} == {split: examples}
    decoded = list(tfds.as_numpy(builder.as_dataset(split=split)))
    assert len(decoded) == examples
    return builder.info.features, decoded


def pixels_of(path: Path) -> np.ndarray:
    return tf.io.decode_image(path.read_bytes(), channels=3).numpy()


def test_detection(truth, converted):
    features, examples = opened(converted(truth, *DETECTION), len(truth.image_ids))
    names = [category["name"] for category in truth.categories]
    assert features["image/object/class/index"].feature.names == names
    assert {int(example["image/source_id"]) for example in examples} == truth.image_ids
    for example in examples:
        image_id = int(example["image/source_id"])
        assert np.array_equal(example["image/encoded"], pixels_of(truth.path(image_id)))
        assert_detection(example | {"image/encoded": truth.path(image_id).read_bytes()}, truth)
        assert [name.decode() for name in example["image/object/class/text"]] == [
            names[index] for index in truth.class_indices(image_id)
        ]


def test_detection_with_masks(truths, converted):
    truth = truths["sample"]
    _, examples = opened(converted(truth, *DETECTION), len(truth.image_ids))
    for example in examples:
        expected = truth.masks(int(example["image/source_id"]))
        masks = [tf.io.decode_png(mask).numpy()[..., 0] for mask in example["image/object/mask"]]
        assert [np.array_equal(*pair) for pair in zip(masks, expected, strict=True)] == [True] * len(expected)
        assert len(example["image/object/mask/rle"]) == len(expected)


def test_keras(truth, converted):
    out = converted(truth, "--layout", "keras", "--examples-per-shard", 20)
    ids = truth.coco.getAnnIds(list(truth.image_ids))
    features, examples = opened(out, len(ids))
    names = [category["name"] for category in truth.categories]
    assert features["class_index"].names == names  # beside what the recipe reads
    assert sorted(example["id"] for example in examples) == sorted(ids)
    pixels = {image_id: pixels_of(truth.path(image_id)) for image_id in truth.image_ids}
    for example in examples:  # test_keras_recipe.py holds the other values
        assert np.array_equal(example["image"], pixels[int(example["image_id"])])
        assert names[example["class_index"]] == truth.coco.cats[int(example["category_id"])]["name"]
    shards = sorted(path.name for path in out.glob("file_*.tfrec"))
    links = [f"coco-train.tfrecord-{number:05}-of-{len(shards):05}" for number in range(len(shards))]
    assert [(out / link).resolve().name for link in links] == shards


@pytest.mark.parametrize(
    "flags", [("--masks", "both"), ("--layout", "keras"), ("--layout", "tfds")], ids=["detection", "keras", "tfds"]
)
def test_array_records_are_a_data_source(truths, converted, flags):
    """By number, with the features of the same job's TFRecord files."""
    truth, flags = truths["sample"], (*flags, "--num-shards", 3)
    builder = tfds.builder_from_directory(str(converted(truth, *flags, "--container", "arrayrecord")))
    source = builder.as_data_source(split="train")
    in_order = tfds.ReadConfig(interleave_cycle_length=1)
    records = tfds.builder_from_directory(str(converted(truth, *flags)))
    expected = records.as_dataset(split="train", shuffle_files=False, read_config=in_order)
    examples = list(tfds.as_numpy(expected))
    assert len(source) == len(examples) > 20
    for number in reversed(range(len(source))):
        assert_equal_trees(source[number], examples[number])


@pytest.mark.parametrize("flags", [(), ("--layout", "tfds"), ("--layout", "keras")], ids=["detection", "tfds", "keras"])
def test_data_set_that_has_grown(truths, grown, recordmill, tmp_path, flags):
    """Only names of layout keras have no number of shards, which TFDS wants to be that of the split."""
    truth, folder = truths["sample"], grown(*flags, "--num-shards", 2)
    ids = truth.coco.getAnnIds(list(truth.image_ids)) if "keras" in flags else truth.image_ids
    key = {"tfds": "image/id", "keras": "id"}.get(flags[-1] if flags else "", "image/source_id")
    if "keras" not in flags:
        with pytest.raises(tfds.core.dataset_info.DatasetInfoFileError, match=r"dataset_info\.json"):
            tfds.builder_from_directory(str(folder))
    assert recordmill("repack", folder, tmp_path / "out", "--replan").code == 0
    for out in (*[folder] * ("keras" in flags), tmp_path / "out"):
        _, examples = opened(out, len(ids))
        assert sorted(int(example[key]) for example in examples) == sorted(ids)


def assert_equal_trees(one: object, other: object) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key, value in one.items():
            assert_equal_trees(value, other[key])
        return
    one, other = np.asarray(one), np.asarray(other)
    assert one.size == other.size  # a data source gives (0,) for (0, 4)
    if one.ndim == 3:  # data sources decode JPEGs with another decoder than TensorFlow's
        assert np.abs(one.astype(float) - other).mean() < 3
    elif one.size:
        assert np.array_equal(one, other)


@pytest.fixture(scope="module")
def with_all(sample, truths, converted) -> Path:
    """The sample with its captions and panoptic segments."""
    flags = ["--captions", sample.captions, "--panoptic", sample.panoptic, "--panoptic-masks", sample.panoptic_masks]
    return converted(truths["sample"], *flags, "--layout", "tfds")


def test_structure_equals_published_tfds(with_all, tmp_path):
    """dtypes and shapes, by the own code of coco/2017 and coco/2017_panoptic; captions are named as in the JSON."""
    features = tfds.builder_from_directory(str(with_all)).info.features
    actual = features.get_tensor_info()
    actual["objects"] = {key: value for key, value in actual["objects"].items() if key not in OURS}
    expected = {"captions": tfds.features.Sequence({"id": np.int64, "text": tfds.features.Text()}).get_tensor_info()}
    for config in ("2017", "2017_panoptic"):
        published = tfds.object_detection.Coco(config=config, data_dir=str(tmp_path / "none"))
        expected |= published.info.features.get_tensor_info()
    assert actual == expected
    for group in ("objects", "panoptic_objects"):
        assert isinstance(features[group]["bbox"], tfds.features.BBoxFeature)


def test_tfds(truth, converted):
    features, examples = opened(converted(truth, "--layout", "tfds", *FIELDS), len(truth.image_ids))
    assert features["objects"]["label"].names == [category["name"] for category in truth.categories]
    assert {example["image/id"] for example in examples} == truth.image_ids
    for example in examples:
        image_id = int(example["image/id"])
        assert np.array_equal(example["image"], pixels_of(truth.path(image_id)))
        assert example["image/filename"].decode() == truth.row(image_id)["file_name"]
        assert_objects_equal(example["objects"], truth, image_id)


def assert_objects_equal(objects: dict[str, np.ndarray], truth: Truth, image_id: int) -> None:
    assert objects["id"].tolist() == truth.values(image_id, "id")
    assert objects["area"].tolist() == [int(area) for area in truth.values(image_id, "area")]
    assert_boxes_equal(objects["bbox"], truth.boxes_yxyx_frac(image_id))
    assert objects["label"].tolist() == truth.class_indices(image_id)
    assert objects["is_crowd"].tolist() == [bool(crowd) for crowd in truth.values(image_id, "iscrowd")]
    if "category_id" in objects:
        assert objects["category_id"].tolist() == truth.values(image_id, "category_id")


def assert_captions_equal(captions: dict[str, np.ndarray], rows: list[dict]) -> None:
    rows = sorted(rows, key=lambda row: row["id"])
    assert captions["id"].tolist() == [row["id"] for row in rows]
    assert [text.decode() for text in captions["text"]] == [row["caption"] for row in rows]


def captions_by_image(path: str | Path) -> dict[int, list[dict]]:
    rows: dict[int, list[dict]] = {}
    for row in json.loads(Path(path).read_text())["annotations"]:
        rows.setdefault(row["image_id"], []).append(row)
    return rows


def test_tfds_with_captions_and_panoptic_segments(sample, truths, with_all):
    truth = truths["sample"]
    features, examples = opened(with_all, len(truth.image_ids))
    captions = captions_by_image(sample.captions)
    panoptic = PanopticTruth(sample.panoptic, sample.panoptic_masks)
    assert features["panoptic_objects"]["label"].names == panoptic.names
    for example in examples:
        image_id = int(example["image/id"])
        assert_objects_equal(example["objects"], truth, image_id)
        assert_captions_equal(example["captions"], captions[image_id])
        panoptic.assert_equal(example, image_id)


@needs_shared_data
def test_tfds_of_real_panoptic_segments(tmp_path, recordmill):
    folder = SHARED_DATA / "panopticapi/sample_data"
    file, masks = folder / "panoptic_examples.json", folder / "panoptic_examples"
    inputs = ["--images", folder / "input_images", "--panoptic", file, "--panoptic-masks", masks]
    assert recordmill("convert", *inputs, "--output", tmp_path / "out", "--layout", "tfds").code == 0
    _, examples = opened(tmp_path / "out", 2)
    panoptic = PanopticTruth(file, masks)
    assert {example["image/id"] for example in examples} == set(panoptic.segments)
    for example in examples:
        panoptic.assert_equal(example, int(example["image/id"]))


class PanopticTruth:
    """Contents of a panoptic annotation file and its images."""

    def __init__(self, file: str | Path, masks: str | Path):
        document = json.loads(Path(file).read_text())
        self.masks = Path(masks)
        self.names = [category["name"] for category in document["categories"]]
        self.category_ids = [category["id"] for category in document["categories"]]
        self.sizes = {row["id"]: (row["height"], row["width"]) for row in document["images"]}
        self.segments = {row["image_id"]: row for row in document["annotations"]}

    def assert_equal(self, example: dict, image_id: int) -> None:
        row = self.segments[image_id]
        assert example["panoptic_image/filename"].decode() == row["file_name"]
        with Image.open(self.masks / row["file_name"]) as image:
            assert np.array_equal(example["panoptic_image"], np.asarray(image))
        objects, segments = example["panoptic_objects"], row["segments_info"]
        order = np.argsort(objects["id"])
        segments = sorted(segments, key=lambda segment: segment["id"])
        assert objects["id"][order].tolist() == [segment["id"] for segment in segments]
        assert objects["area"][order].tolist() == [int(segment["area"]) for segment in segments]
        assert objects["is_crowd"][order].tolist() == [bool(segment["iscrowd"]) for segment in segments]
        expected = [self.category_ids.index(segment["category_id"]) for segment in segments]
        assert objects["label"][order].tolist() == expected
        height, width = self.sizes[image_id]
        x, y, w, h = np.array([segment["bbox"] for segment in segments], float).reshape(-1, 4).T
        boxes = np.stack([y / height, x / width, (y + h) / height, (x + w) / width], axis=-1)
        assert_boxes_equal(objects["bbox"][order], boxes)


@pytest.mark.parametrize(("layout", "prefix"), [("detection", "image/object/"), ("tfds", ""), ("keras", "")])
def test_fields(layout, prefix, tmp_path, recordmill):
    """Of images and objects: single values, lists of one length, and of different lengths."""
    names = "score,attributes.occluded,attributes.color,embedding,pair,words,names,image.date_captured,image.days"
    flags = "--layout", layout, "--fields", names
    assert convert(recordmill, tmp_path, write_coco(tmp_path, **document_with_fields(tmp_path)), *flags).code == 0
    builder = tfds.builder_from_directory(str(tmp_path / "out"))
    examples = list(tfds.as_numpy(builder.as_dataset(split="train", shuffle_files=False)))
    expected = list(library.open(tmp_path / "out")["train"].numpy())
    assert len(examples) == len(expected) > 1
    image = {"detection": "image/", "tfds": "", "keras": "image_"}[layout]
    for example, own in zip(examples, expected, strict=True):
        objects = example["objects"] if layout == "tfds" else example
        for path in names.split(","):
            name = path.removeprefix("image.")
            key = name.replace(".", "/")
            stored = example[f"{image}{key}"] if path != name else objects[f"{prefix}{key}"]
            assert plain(stored) == plain(own[name]), path


def plain(value: object) -> object:
    """A value as lists; NaN, which differs from itself, as its name."""
    if isinstance(value, tf.RaggedTensor):
        return plain(value.to_list())
    items = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    if isinstance(items, list):
        return [plain(item) for item in items]
    return "nan" if items != items else items
