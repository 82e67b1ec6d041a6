"""Each version writes the same shards, indexes and label files for the same data."""

import hashlib
import zlib
from pathlib import Path

import apache_beam as beam
import pytest

from recordmill.beam import ReadDataset, WriteDataset
from recordmill.launch.command_line.parser import parse, read_words
from recordmill.pipelines.transform_options import transform_fields
from recordmill.pipelines.verbs import verb_fields
from tests.conftest import read_examples
from tests.literal_data import hash_files
from tests.matrix.conversions import CONVERSIONS, VARYING, convert, files_of, write_data

OTHER_ZLIB = "zlib-ng" in zlib.ZLIB_RUNTIME_VERSION
WITH_DRAWN_PNGS = "coco masks", "coco panoptic"
NOT_SAMPLES = {"coco captions", "table CSV", "table JSON Lines", "table Parquet", "embed", "Beam", "tfrecord classes"}
"""Conversions that `ReadDataset` does not have: encoded captions, rows, features, tags as classes of images, and
Samples that a pipeline makes."""


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    return folder


@pytest.mark.parametrize("name", CONVERSIONS)
def test_same_bytes(name, data, recordmill, tmp_path, monkeypatch):
    if OTHER_ZLIB and name in WITH_DRAWN_PNGS:
        pytest.skip("this zlib compresses the PNGs of masks to other bytes")
    monkeypatch.chdir(data)
    convert(name, tmp_path, lambda command: recordmill(*command).code)
    assert hash_output(name, tmp_path) == CONVERSIONS[name][1]


@pytest.mark.parametrize("name", [name for name in CONVERSIONS if name not in NOT_SAMPLES])
def test_pipeline_writes_bytes_of_command(name, data, tmp_path, monkeypatch):
    if OTHER_ZLIB and name in WITH_DRAWN_PNGS:
        pytest.skip("this zlib compresses the PNGs of masks to other bytes")
    monkeypatch.chdir(data)
    words = CONVERSIONS[name][0].split()
    values, _ = read_words(verb_fields("convert"), words[1:])
    read = {field.name: values.pop(field.name) for field in transform_fields("ReadDataset") if field.name in values}
    with beam.Pipeline() as p:
        named = parse([*words, "--output", "out"]).options.name
        p | ReadDataset(**read) | WriteDataset(tmp_path, **values, name=named, max_rejects=0.9)
    assert hash_output(name, tmp_path) == CONVERSIONS[name][1]


def hash_output(name: str, folder: Path) -> str:
    return hash_values(folder, VARYING[name]) if name in VARYING else hash_files(files_of(folder))


def hash_values(folder: Path, varying: set[str]) -> str:
    """Return the hash of all records, in their order, without the keys whose values vary."""
    splits = sorted({path.name.split("-")[1].split(".")[0] for path in folder.glob("*.tfrecord-*")})
    records = [
        (split, sorted((key, values) for key, values in example.items() if key not in varying))
        for split in splits
        for example in read_examples(folder, split)
    ]
    assert len(records) > 20
    return hashlib.sha256(repr(records).encode()).hexdigest()[:32]
