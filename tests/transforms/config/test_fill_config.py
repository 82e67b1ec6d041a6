"""Templates of docs/consumers/, filled for data sets of every kind."""

from pathlib import Path

import msgspec
import pytest
import yaml

from recordmill.schemas.annotations import Category
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Part
from recordmill.schemas.manifest import Manifest, decode_manifest
from recordmill.schemas.statistics_file import SplitStatistics
from recordmill.transforms.config.fill_config import CONSUMERS, Training, chosen_splits, fill_config

RETINANET = "model-garden-retinanet"
TEMPLATES = Path(__file__).parents[3] / "docs" / "consumers"
STATISTICS = {
    "histograms": {
        "objects_an_image": {
            "count": 9,
            "least": 0.0,
            "largest": 123.0,
            "mean": 1.0,
            "p05": 0.0,
            "median": 1.0,
            "p95": 2.0,
            "bins": (),
        }
    },
    "formats": {"jpeg": 9},
}
"""Of a split in which an image has 123 objects."""


@pytest.fixture(scope="module")
def manifest(copy_converted, tmp_path_factory) -> Manifest:
    """Of a real job, with what the tests say in place of some of it: two splits, of 22 records and of 12."""
    folder = tmp_path_factory.mktemp("converted")
    copy_converted(folder, "--num-shards", 2)
    one = decode_manifest((folder / "manifest.json").read_bytes(), "manifest.json")
    train = one.splits["train"]
    shards = [msgspec.structs.replace(shard, file=shard.file.replace("train", "val")) for shard in train.shards]
    val = msgspec.structs.replace(
        train, shards=tuple(shards[:1]), recipe=msgspec.structs.replace(train.recipe, split="val")
    )
    assert (train.examples, val.examples) == (22, 12)
    return msgspec.structs.replace(
        one,
        splits={"train": train, "val": val},
        parts=(Part.MASK_PNG, Part.SEMANTIC),
        segments=(Category(1, "person", isthing=1), Category(92, "banner", isthing=0), Category(200, "rug", isthing=0)),
    )


def of_layout(manifest: Manifest, consumer: str) -> Manifest:
    return msgspec.structs.replace(manifest, layout=CONSUMERS[consumer].layout)


def split_statistics(**more: object) -> SplitStatistics:
    empty = {"images": 9, "centres": (), "classes": (), "segments": (), "examples": {}, "findings": {}, "measured": 0}
    return msgspec.convert({**empty, **STATISTICS, **more}, SplitStatistics)


def filled(consumer: str, manifest: Manifest, folder: str = "gs://b/out", statistics=None, **training: object) -> dict:
    text = fill_config(consumer, folder, of_layout(manifest, consumer), statistics or {}, Training(**training))
    return yaml.safe_load(text)


def test_each_consumer_has_a_template():
    assert CONSUMERS.keys() == {path.stem for path in TEMPLATES.glob("*.yaml")}


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_paths_classes_and_steps(consumer, manifest):
    found = filled(consumer, manifest, batch_size=4, epochs=10)
    task, trainer = found["task"], found["trainer"]
    assert task["train_data"]["input_path"] == "gs://b/out/coco-train.tfrecord-*-of-00002"
    assert task["validation_data"]["input_path"] == "gs://b/out/coco-val.tfrecord-*-of-00002"
    assert {data["global_batch_size"] for data in (task["train_data"], task["validation_data"])} == {4}
    assert task["validation_data"]["drop_remainder"] is False
    assert task["validation_data"].get("num_examples") == (12 if consumer == "model-garden-maskrcnn" else None)
    assert task["model"]["num_classes"] == (111 if consumer == "model-garden-segmentation" else manifest.num_classes)
    assert manifest.num_classes == 12  # the largest id is 11, of 5 classes
    assert (trainer["train_steps"], trainer["validation_steps"]) == (50, 3)
    intervals = ("steps_per_loop", "summary_interval", "checkpoint_interval", "validation_interval")
    assert {trainer[name] for name in intervals} == {5}
    rate = trainer["optimizer_config"]["learning_rate"]
    for value in rate[rate["type"]].get("values", [rate[rate["type"]].get("initial_learning_rate")]):
        assert isinstance(value, float)
        assert 0 < value < 0.1
    boundaries = rate[rate["type"]].get("boundaries", [])
    assert boundaries == sorted(boundaries)
    assert all(0 < boundary < 50 for boundary in boundaries)


@pytest.mark.parametrize("batch_size", [1, 2, 8])
def test_rates_are_numbers_and_follow_the_batch(batch_size, manifest):
    for consumer in CONSUMERS:
        rate = filled(consumer, manifest, batch_size=batch_size)["trainer"]["optimizer_config"]["learning_rate"]
        of_one = filled(consumer, manifest, batch_size=1)["trainer"]["optimizer_config"]["learning_rate"]
        name = "values" if rate["type"] == "stepwise" else "initial_learning_rate"
        first, of_one = (each[each["type"]][name] for each in (rate, of_one))
        assert first == pytest.approx(
            [batch_size * value for value in of_one] if name == "values" else batch_size * of_one, rel=0.01, abs=1e-7
        )


def test_an_image_with_many_objects_keeps_them(manifest):
    few = filled(RETINANET, manifest)["task"]
    many = filled(RETINANET, manifest, statistics={"val": split_statistics()})["task"]
    for data in ("train_data", "validation_data"):
        assert few[data]["parser"]["max_num_instances"] == 100
        assert many[data]["parser"]["max_num_instances"] == 123


def test_pictures_are_decoded_as_jpegs_only_where_all_are_known_to_be(manifest):
    def is_quick(**statistics: SplitStatistics) -> set[bool]:
        task = filled("model-garden-classification", manifest, statistics=statistics)["task"]
        return {task[data]["decode_jpeg_only"] for data in ("train_data", "validation_data")}

    jpeg, mixed = split_statistics(), split_statistics(formats={"jpeg": 8, "png": 1})
    assert is_quick(train=jpeg, val=jpeg) == {True}
    assert is_quick(train=jpeg, val=mixed) == is_quick(train=jpeg) == is_quick() == {False}


def test_a_path_is_quoted(manifest):
    folder = '/data/a "b" # été: 😀'
    path = filled(RETINANET, manifest, folder)["task"]["train_data"]["input_path"]
    assert path == f"{folder}/coco-train.tfrecord-*-of-00002"


def with_splits(manifest: Manifest, *names: str) -> Manifest:
    return msgspec.structs.replace(manifest, splits=dict.fromkeys(names, manifest.splits["train"]))


@pytest.mark.parametrize(
    ("names", "training", "chosen"),
    [
        (("train", "test"), {}, ("train", "test")),
        (("train", "test", "val"), {}, ("train", "val")),
        (("test", "train", "validation"), {}, ("train", "validation")),
        (("a", "b"), {"train": "b"}, ("b", "a")),
        (("train", "val", "test"), {"validation": "test"}, ("train", "test")),
    ],
)
def test_which_split_validates(names, training, chosen, manifest):
    assert chosen_splits(with_splits(manifest, *names), Training(**training)) == chosen


@pytest.mark.parametrize(
    ("names", "training", "told"),
    [
        (("train",), {}, "--split val"),
        (("train", "a", "b"), {}, "--validation"),
        (("a", "b"), {}, "--train"),
        (("train", "val"), {"validation": "c"}, "'c'.*--validation"),
        (("train", "val"), {"validation": "train"}, "train and validate"),
    ],
)
def test_splits_that_are_not_clear(names, training, told, manifest):
    with pytest.raises(ConfigError, match=told):
        chosen_splits(with_splits(manifest, *names), Training(**training))


def changed_splits(manifest: Manifest, **changes: object) -> Manifest:
    splits = {name: msgspec.structs.replace(split, **changes) for name, split in manifest.splits.items()}
    return msgspec.structs.replace(manifest, splits=splits)


@pytest.mark.parametrize(
    ("consumer", "change", "told"),
    [
        (RETINANET, lambda it: msgspec.structs.replace(it, layout="keras"), "keras.*recordmill coco"),
        (RETINANET, lambda it: msgspec.structs.replace(it, layout="classification"), "classification"),
        ("model-garden-classification", lambda it: it, "detection.*recordmill folder"),
        ("model-garden-maskrcnn", lambda it: msgspec.structs.replace(it, parts=(Part.MASK_RLE,)), "--masks png"),
        ("model-garden-segmentation", lambda it: msgspec.structs.replace(it, parts=()), "--panoptic or --stuff"),
        (RETINANET, lambda it: msgspec.structs.replace(it, categories=()), "no class"),
        (RETINANET, lambda it: changed_splits(it, compression="GZIP"), "GZIP.*--gzip"),
        (RETINANET, lambda it: changed_splits(it, shards=()), "no records"),
    ],
)
def test_what_cannot_be_read_is_refused(consumer, change, told, manifest):
    with pytest.raises(ConfigError, match=told):
        fill_config(consumer, "out", change(manifest), {}, Training())


@pytest.mark.parametrize("folder", ["/data/a,b", "/data/[x]", "gs://b/x*", "/q?"])
def test_a_folder_that_would_be_taken_for_a_pattern_is_refused(folder, manifest):
    with pytest.raises(ConfigError, match="move it"):
        filled(RETINANET, manifest, folder)


def test_a_batch_of_more_than_there_is_would_make_no_step(manifest):
    with pytest.raises(ConfigError, match=r"22 records.*23.*--batch-size"):
        filled(RETINANET, manifest, batch_size=23)
    assert filled(RETINANET, manifest, batch_size=22)["trainer"]["steps_per_loop"] == 1


def test_all_images_validate(manifest):
    assert filled(RETINANET, manifest, batch_size=5)["trainer"]["validation_steps"] == 3  # of 12


def test_a_class_with_id_0_is_no_background(manifest):
    """Labels are class index + 1 then."""
    categories = (Category(0, "mask"), Category(4, "no mask"))
    shifted = msgspec.structs.replace(manifest, categories=categories, segments=(), num_classes=3)
    assert filled(RETINANET, shifted)["task"]["model"]["num_classes"] == 3
