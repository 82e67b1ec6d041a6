"""TensorFlow Datasets opens the folder itself."""

import numpy as np
import pytest

from tests.conftest import annotation, coco_flags, convert, draw_jpeg, image_row, read_examples, write_coco

tfds = pytest.importorskip("tensorflow_datasets", reason="the extra dev is not installed")


def test_every_example_of_every_split(sample, tmp_path, recordmill):
    assert recordmill(*coco_flags(sample, tmp_path, "--num-shards", 3)).code == 0
    assert recordmill(*coco_flags(sample, tmp_path, "--split", "val", "--num-shards", 40)).code == 0
    builder = tfds.builder_from_directory(str(tmp_path))
    assert builder.info.name == "coco"
    assert {name: split.num_examples for name, split in builder.info.splits.items()} == {"train": 22, "val": 22}
    names = builder.info.features["image/object/class/index"].feature.names
    assert names == ["circle", "square", "triangle", "star", "figure"]
    for split in ("train", "val"):
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


def test_gzip_shards_do_not_pretend_to_be_readable(sample, tmp_path, recordmill):
    assert recordmill(*coco_flags(sample, tmp_path)).code == 0
    assert (tmp_path / "dataset_info.json").exists()
    assert recordmill(*coco_flags(sample, tmp_path, "--gzip", "--overwrite")).code == 0
    assert not (tmp_path / "dataset_info.json").exists()
    assert not (tmp_path / "features.json").exists()
