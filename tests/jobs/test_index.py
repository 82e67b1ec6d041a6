"""`recordmill index`, and `recordmill verify` of hashes; its other findings are in tests/transforms/verify."""

import gzip
import shutil
from pathlib import Path

import pytest

from tests.jobs.folders import whole_folder
from tests.transforms.show.records import framed

RECORDS = [b"one", b"", b"three" * 1000]
SHARD = "coco-train.tfrecord-00001-of-00003"
INDEX = b"0 19\n19 16\n35 5016\n"


@pytest.fixture
def out(tmp_path, copy_converted) -> Path:
    copy_converted(tmp_path / "out", "--num-shards", 2)
    return tmp_path / "out"


def test_data_set_has_indexes_that_verb_would_make(out, recordmill):
    before = whole_folder(out)
    assert len([name for name in before if name.startswith(".index/")]) == 2
    assert recordmill("index", out).code == 0
    assert whole_folder(out) == before
    shutil.rmtree(out / ".index")
    assert recordmill("verify", out, "--check", "hashes").code == 1
    assert recordmill("index", out).code == 0
    assert whole_folder(out) == before
    assert recordmill("verify", out, "--check", "hashes").code == 0


def test_foreign_files_are_indexed_all_or_none(tmp_path, recordmill):
    for name in ("a/x.tfrecord", "a/y.tfrecord", "b/z"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(framed(*RECORDS))
    (tmp_path / "packed").write_bytes(gzip.compress(framed(*RECORDS)))
    assert recordmill("index", tmp_path / "a", tmp_path / "packed").code == 2
    assert not (tmp_path / "a" / ".index").exists()
    assert recordmill("index", f"{tmp_path}/a/*", tmp_path / "a" / "x.tfrecord", tmp_path / "b" / "z").code == 0
    for name in ("a/.index/x.tfrecord.idx", "a/.index/y.tfrecord.idx", "b/.index/z.idx"):
        assert (tmp_path / name).read_bytes() == INDEX


def test_sample_of_shards_and_foreign_path(copy_converted, tmp_path, recordmill):
    copy_converted(folder := tmp_path / "out", "--num-shards", 3)
    (folder / SHARD).write_bytes((folder / SHARD).read_bytes()[:-100])
    assert recordmill("verify", folder, "--check", "hashes", "--sample", "0.1").code == 0
    assert recordmill("verify", folder, "--check", "hashes").code == 1
    manifest = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(manifest.replace(SHARD, f"../{SHARD}"))
    assert recordmill("verify", folder).code == 2
