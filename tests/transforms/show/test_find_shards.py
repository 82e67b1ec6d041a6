from pathlib import Path

import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.show.find_shards import find_shards
from tests.gcs_stand_in import BUCKET, running
from tests.transforms.show.records import framed, write


def test_a_data_set_s_folder(tmp_path, copy_converted):
    copy_converted(tmp_path, "--num-shards", 3)
    found = find_shards(str(tmp_path), "")
    assert found.is_whole
    assert found.manifest.layout == "detection"
    assert [shard.split for shard in found.shards] == ["train"] * 3
    assert sum(shard.records for shard in found.shards) == 22
    with pytest.raises(ConfigError, match="it has train"):
        find_shards(str(tmp_path), "val")


def test_shard_is_known_by_manifest_beside_it(tmp_path, copy_converted):
    copy_converted(tmp_path, "--num-shards", 3)
    (shard,) = find_shards(str(tmp_path / "coco-train.tfrecord-00001-of-00003"), "").shards
    assert (shard.split, shard.records) == ("train", 7)
    found = find_shards(f"{tmp_path}/coco-train*", "")
    assert (len(found.shards), found.manifest is None, found.is_whole) == (3, False, False)


def test_files_of_others_beside_data_set_are_theirs(tmp_path, copy_converted):
    copy_converted(tmp_path)
    path = write(tmp_path / "mine.tfrecord", b"")
    found = find_shards(path, "")
    assert (found.manifest, found.shards[0].records, found.shards[0].split) == (None, None, "")


@pytest.mark.parametrize("ending", ["idx", "index"])
def test_indexes_of_others_are_no_shards(tmp_path, ending):
    paths = [write(tmp_path / f"{name}.tfrecord", b"") for name in "ab"]
    for path in paths:
        Path(f"{path}.{ending}").write_text("0 16\n")
    for named in (tmp_path, f"{tmp_path}/*"):
        assert [shard.path for shard in find_shards(str(named), "").shards] == paths
    assert [shard.path for shard in find_shards(f"{paths[0]}.{ending}", "").shards] == [f"{paths[0]}.{ending}"]


def test_a_folder_of_tfds(tmp_path):
    write(tmp_path / "faces-val.tfrecord-00000-of-00001", b"")
    write(tmp_path / "faces-train.tfrecord-00000-of-00001", b"")
    (tmp_path / "faces-label.labels.txt").write_text("cat\ndog\n")
    (tmp_path / "image.class.label.labels.txt").write_text("a\n")
    (tmp_path / "features.json").write_text("{}")
    found = find_shards(str(tmp_path), "val")
    assert [shard.split for shard in found.shards] == ["val"]
    assert found.class_names == {"faces-label": ("cat", "dog"), "image-class-label": ("a",)}


def test_manifest_of_another_tool_is_passed_over_where_files_are_named(tmp_path):
    (tmp_path / "manifest.json").write_text('{"version": 2}')
    path = write(tmp_path / "x.tfrecord", b"")
    assert find_shards(path, "").manifest is None
    with pytest.raises(ConfigError, match="not a Recordmill manifest"):
        find_shards(str(tmp_path), "")


@pytest.mark.parametrize(
    ("path", "told"), [("gone", "no such file or folder"), ("*.none", "no file matches"), (".", "has no manifest")]
)
def test_what_is_not_there(path, told, tmp_path):
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(ConfigError, match=told):
        find_shards(str(tmp_path / path), "")


def test_a_bucket(monkeypatch):
    with running() as gcs:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.url)
        gcs.put("in/a-train.tfrecord-00000-of-00001", framed(b"abc"))
        gcs.put("in/notes.txt", b"")
        for path in ("in", "in/a-*", "in/a-train.tfrecord-00000-of-00001"):
            (shard,) = find_shards(f"gs://{BUCKET}/{path}", "").shards
            assert shard.path == f"gs://{BUCKET}/in/a-train.tfrecord-00000-of-00001"
