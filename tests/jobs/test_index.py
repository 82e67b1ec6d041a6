"""Indexes: written with the shards, made for others, checked."""

import gzip
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.gcs_stand_in import running
from tests.jobs.folders import whole_folder
from tests.transforms.show.records import framed

RECORDS = [b"one", b"", b"three" * 1000]
INDEX = b"0 19\n19 16\n35 5016\n"


@pytest.fixture
def out(tmp_path, copy_converted) -> Path:
    copy_converted(tmp_path / "out", "--num-shards", 2)
    return tmp_path / "out"


def test_a_data_set_has_the_indexes_that_the_verb_would_make(out, recordmill):
    before = whole_folder(out)
    assert len([name for name in before if name.startswith(".index/")]) == 2
    assert recordmill("index", out).out.count("2 were there") == 1
    shutil.rmtree(out / ".index")
    outcome = recordmill("verify", out, "--check", "hashes")
    assert (outcome.code, outcome.out.count(".idx: missing")) == (1, 2)
    assert "there" not in recordmill("index", out).out
    assert whole_folder(out) == before
    assert recordmill("verify", out, "--check", "hashes").code == 0


def test_an_index_of_no_shard_is_told(out, recordmill):
    (out / ".index" / "coco-train.tfrecord-00007-of-00009.idx").touch()
    outcome = recordmill("verify", out, "--check", "hashes")
    assert outcome.code == 1
    assert ".index/coco-train.tfrecord-00007-of-00009.idx: unlisted" in outcome.out


def test_compressed_shards_have_no_index_and_none_is_made(tmp_path, recordmill, copy_converted):
    copy_converted(tmp_path, "--num-shards", 2, "--gzip")
    before = whole_folder(tmp_path)
    assert not (tmp_path / ".index").exists()
    outcome = recordmill("index", tmp_path)
    assert outcome.code == 2
    assert "GZIP" in outcome.err
    assert whole_folder(tmp_path) == before


def test_anybody_s_files_are_indexed_several_at_once_and_all_or_none(tmp_path, recordmill):
    for name in ("a/x.tfrecord", "a/y.tfrecord", "b/z"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(framed(*RECORDS))
    (tmp_path / "packed").write_bytes(gzip.compress(framed(*RECORDS)))
    assert recordmill("index", tmp_path / "a", tmp_path / "packed").code == 2
    assert not (tmp_path / "a" / ".index").exists()
    outcome = recordmill("index", f"{tmp_path}/a/*", tmp_path / "a" / "x.tfrecord", tmp_path / "b" / "z")
    assert outcome.code == 0
    assert f"3 files with 9 records are in {tmp_path}/a/.index, {tmp_path}/b/.index" in outcome.out.replace("\n", " ")
    for name in ("a/.index/x.tfrecord.idx", "a/.index/y.tfrecord.idx", "b/.index/z.idx"):
        assert (tmp_path / name).read_bytes() == INDEX


def test_a_file_that_is_cut_or_not_the_manifest_s_is_an_error(out, tmp_path, recordmill):
    (tmp_path / "x").write_bytes(framed(*RECORDS)[:-1])
    outcome = recordmill("index", tmp_path / "x")
    assert outcome.code == 1
    assert f"{tmp_path}/x: record 2 at byte 35" in outcome.err
    shard = min(out.glob("coco-*"))
    shard.write_bytes(framed(*RECORDS))
    outcome = recordmill("index", shard)
    assert outcome.code == 1
    assert "has 3 records, where its manifest says" in outcome.err


def test_no_path_at_all(recordmill):
    outcome = recordmill("index")
    assert outcome.code == 2
    assert "PATH is missing" in outcome.err


def test_in_a_bucket(recordmill, monkeypatch):
    with running() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        server.put("folder/x.tfrecord", framed(*RECORDS))
        assert recordmill("index", "gs://bucket/folder").code == 0
        assert server.objects()["folder/.index/x.tfrecord.idx"] == INDEX
        assert recordmill("index", "gs://bucket/folder/*").code == 0


def test_two_at_once_write_the_same(tmp_path):
    from recordmill.transforms.index.write_index import index_shard

    (tmp_path / "x").write_bytes(framed(*RECORDS))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: index_shard(str(tmp_path / "x"), None, lambda records: None), range(50)))
    assert whole_folder(tmp_path) == {"x": framed(*RECORDS), ".index/x.idx": INDEX}
