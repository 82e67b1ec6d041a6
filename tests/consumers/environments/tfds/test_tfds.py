"""Features of TensorFlow Datasets besides reading, which tests/consumers/test_tfds_layouts.py tests."""

import contextlib
import io
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import tensorflow_datasets as tfds
from tensorflow_datasets.scripts.cli.convert_format_utils import convert_dataset

from recordmill.launch.cli import main
from tests.consumers.test_tfds_layouts import pixels_of

mpl.use("Agg")


class Pets:
    """Class folders, and the data set of two splits that they become."""

    def __init__(self, images: Path, out: Path):
        self.images, self.out = images, out
        names = sorted(path.name for path in images.iterdir())
        self.classes = {path: names.index(path.parent.name) for path in images.glob("*/*")}

    def path_of(self, example: dict) -> Path:
        """Path of an example's image, after a comparison of the two."""
        path = self.images / example["image/filename"].decode()
        assert np.array_equal(example["image/encoded"], pixels_of(path))
        assert example["image/class/label"] == self.classes[path]
        return path


@pytest.fixture(scope="module")
def pets(sample, tmp_path_factory) -> Pets:
    out = tmp_path_factory.mktemp("tfds") / "out"
    flags = ["--split", "train=0.8,val=0.2", "--num-shards", 3, "--name", "7-pets.v2", "--max-rejects", 0.2]
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["convert", sample.classes, "--format", "folder", "--output", str(out), *map(str, flags)]) == 0
    return Pets(Path(sample.classes), out)


def examples(pets: Pets, **options: object) -> list[dict]:
    builder = tfds.builder_from_directory(str(pets.out))
    return list(tfds.as_numpy(builder.as_dataset(**options)))


def test_as_supervised(pets):
    """Images and classes, in the order of the records, which `path_of` holds to the files."""
    records = examples(pets, split="train+val", shuffle_files=False)
    pairs = examples(pets, split="train+val", shuffle_files=False, as_supervised=True)
    assert len({pets.path_of(record) for record in records}) == len(pairs) == 22
    for record, (image, label) in zip(records, pairs, strict=True):
        assert np.array_equal(image, record["image/encoded"])
        assert label == record["image/class/label"]


def test_slices_and_even_splits(pets):
    whole = [pets.path_of(example) for example in examples(pets, split="train")]
    for part, expected in (("train[3:9]", whole[3:9]), ("train[:50%]", whole[: round(len(whole) / 2)])):
        assert [pets.path_of(example) for example in examples(pets, split=part)] == expected
    hosts = [examples(pets, split=part) for part in tfds.even_splits("train", n=3)]
    assert [pets.path_of(example) for host in hosts for example in host] == whole
    assert max(map(len, hosts)) - min(map(len, hosts)) <= 1


def test_as_data_source_of_array_record_copies_in_place(pets, recordmill):
    """Copies in the same folder, which recordmill verify then still finds whole."""
    convert_dataset(out_dir=None, out_file_format="array_record", dataset_version_dir=str(pets.out), num_workers=1)
    builder = tfds.builder_from_directory(str(pets.out))
    for split in ("train", "val"):
        source = builder.as_data_source(split=split)
        records = examples(pets, split=split)
        assert len(source) == len(records)
        for index in range(len(source) - 1, -1, -7):
            assert pets.path_of(source[index]) == pets.path_of(records[index])
    assert recordmill("verify", pets.out).code == 0


def test_show_examples_of_classes(pets):
    builder = tfds.builder_from_directory(str(pets.out))
    figure = tfds.show_examples(builder.as_dataset(split="train", shuffle_files=False), builder.info)
    assert_shows(figure, [example["image/encoded"] for example in examples(pets, split="train[:9]")])
    names = [example["image/class/text"].decode() for example in examples(pets, split="train[:9]")]
    assert [axes.get_xlabel().split()[0] for axes in figure.axes] == names


def assert_shows(figure, pictures: list[np.ndarray]) -> None:
    shown = [np.asarray(axes.images[0].get_array()) for axes in figure.axes]
    assert [np.array_equal(*pair) for pair in zip(shown, pictures, strict=True)] == [True] * 9
