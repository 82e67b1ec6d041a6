"""Each version writes the same shards, indexes and label files for the same data."""

import hashlib
import zlib
from pathlib import Path

import pytest

from tests.conftest import read_examples
from tests.literal_data import hash_files
from tests.matrix.conversions import CONVERSIONS, VARYING, convert, files_of, write_data

OTHER_ZLIB = "zlib-ng" in zlib.ZLIB_RUNTIME_VERSION
WITH_DRAWN_PNGS = "coco masks", "coco panoptic"


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
    found = hash_values(tmp_path, VARYING[name]) if name in VARYING else hash_files(files_of(tmp_path))
    assert found == CONVERSIONS[name][1]


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
