import json

import numpy as np
import pytest

from recordmill.schemas.annotations import Category
from recordmill.schemas.manifest import FORMAT, Manifest
from recordmill.schemas.tfds import class_names, tfds_files
from tests.conftest import annotation, coco_flags, convert, draw_jpeg, image_row, read_examples, write_coco

tfds = pytest.importorskip("tensorflow_datasets", reason="the extra dev is not installed")


def records(folder, split: str) -> list[bytes]:
    import tensorflow as tf

    paths = sorted(map(str, folder.glob(f"*-{split}.tfrecord-*")))
    return list(tf.data.TFRecordDataset(paths).as_numpy_iterator())


def test_every_example_of_every_split(sample, tmp_path, recordmill, copy_converted):
    copy_converted(tmp_path, "--num-shards", 3)
    assert recordmill(*coco_flags(sample, tmp_path, "--split", "val", "--num-shards", 40)).code == 0
    builder = tfds.builder_from_directory(str(tmp_path))
    assert builder.info.name == "coco"
    assert {name: split.num_examples for name, split in builder.info.splits.items()} == {"train": 22, "val": 22}
    classes = builder.info.features["image/object/class/index"].feature
    assert classes.num_classes == 5
    assert classes.names == ["circle", "square", "triangle", "star", "figure"]
    for split in ("train", "val"):
        assert builder.info.splits[split].num_bytes == sum(map(len, records(tmp_path, split)))
        ours = {example["image/source_id"][0]: example for example in read_examples(tmp_path, split)}
        seen = set()
        for example in tfds.as_numpy(builder.as_dataset(split=split)):
            expected = ours[example["image/source_id"]]
            seen.add(example["image/source_id"])
            shape = (expected["image/height"][0], expected["image/width"][0], 3)
            assert example.pop("image/encoded").shape == shape
            for name, value in example.items():
                assert np.array(value).reshape(-1).tolist() == pytest.approx(expected[name]), name
        assert seen == set(ours)


def test_class_names_that_two_ids_share(tmp_path, recordmill):
    draw_jpeg(tmp_path / "images" / "a.jpg")
    categories = [{"id": 0, "name": "face"}, {"id": 1, "name": "face"}]
    instances = write_coco(tmp_path, [image_row(1, "a.jpg")], [annotation(1, 1)], categories)
    assert convert(recordmill, tmp_path, instances).code == 0
    features = tfds.builder_from_directory(str(tmp_path / "out")).info.features
    assert features["image/object/class/index"].feature.names == ["face (id 0)", "face (id 1)"]


@pytest.mark.parametrize(
    ("layout", "keys"),
    [
        ("classification", ["image/encoded", "image/class/label"]),
        ("keras", ["image", "class_index"]),
        ("detection", None),
        ("tfds", None),
    ],
)
def test_pairs_are_of_records_with_one_picture_and_one_class(layout, keys):
    manifest = Manifest(FORMAT, "coco", layout, (), (Category(1, "cat"), Category(2, "dog")), (), {})
    info = json.loads(tfds_files(manifest)["dataset_info.json"])
    expected = {"tuple": {"items": [{"featureKey": key} for key in keys]}} if keys else None
    assert info.get("supervisedKeys") == expected


@pytest.mark.parametrize("name", ["", " \n"])
def test_a_class_without_a_name_has_its_id(name):
    """TFDS takes an empty line for no class at all."""
    assert class_names((Category(7, name), Category(8, "a  cat"))) == ["(id 7)", "a cat"]


def test_gzip_shards_do_not_pretend_to_be_readable(sample, tmp_path, recordmill, copy_converted):
    copy_converted(tmp_path, "--num-shards", 3)
    assert (tmp_path / "dataset_info.json").exists()
    assert recordmill(*coco_flags(sample, tmp_path, "--num-shards", 3, "--gzip", "--overwrite")).code == 0
    assert not (tmp_path / "dataset_info.json").exists()
    assert not (tmp_path / "features.json").exists()
