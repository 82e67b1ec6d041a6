import json

import msgspec
import pytest

from recordmill.schemas.dataset.manifest import FORMAT, Manifest
from recordmill.schemas.dataset.tfds import class_names, is_readable, tfds_files
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.shards import ShardInfo
from tests.conftest import annotation, coco_flags, convert, draw_jpeg, image_row, write_coco
from tests.transforms.shards.test_describe_split import SPLIT

tfds = pytest.importorskip("tensorflow_datasets", reason="the extra dev is not installed")


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
def test_pairs_are_of_records_with_one_image_and_one_class(layout, keys):
    manifest = Manifest(FORMAT, "coco", layout, (), (Category(1, "cat"), Category(2, "dog")), (), {})
    info = json.loads(tfds_files(manifest)["dataset_info.json"])
    expected = {"tuple": {"items": [{"featureKey": key} for key in keys]}} if keys else None
    assert info.get("supervisedKeys") == expected


@pytest.mark.parametrize("name", ["", " \n"])
def test_class_without_name_has_its_id(name):
    """TFDS takes an empty line for no class at all."""
    assert class_names((Category(7, name), Category(8, "a  cat"))) == ["(id 7)", "a cat"]


def test_gzip_shards_do_not_pretend_to_be_readable(sample, tmp_path, recordmill, copy_converted):
    copy_converted(tmp_path, "--num-shards", 3)
    assert (tmp_path / "dataset_info.json").exists()
    assert recordmill(*coco_flags(sample, tmp_path, "--num-shards", 3, "--gzip", "--overwrite")).code == 0
    assert not (tmp_path / "dataset_info.json").exists()
    assert not (tmp_path / "features.json").exists()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["d-train.tfrecord-00000-of-00002", "d-train.tfrecord-00001-of-00002"], True),
        (["d-train.tfrecord-00000-of-00001", "d-train.tfrecord-00001-of-00002"], False),
        (["d-train.tfrecord-00000-of-00002", "d-train.tfrecord-00002-of-00002"], False),
        (["d-train.tfrecord-00000-of-00001"], True),
    ],
)
def test_shards_of_several_runs_are_not_readable(files, expected):
    split = msgspec.structs.replace(SPLIT, shards=tuple(ShardInfo(file, 1, 1, "crc", "sha") for file in files))
    assert is_readable(Manifest(FORMAT, "d", "detection", (), (), (), {"train": split})) is expected
