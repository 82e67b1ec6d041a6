import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.dataset.dataset_folder import read_manifest, require_manifest
from tests.transforms.shards.test_write_metadata import write


def test_a_folder_without_one(tmp_path):
    (tmp_path / "shapes").mkdir()
    for folder, message in (
        (tmp_path, "it is not a Recordmill data set"),
        (tmp_path / "gone", r"no such folder\. Give the folder of a data set$"),
        (tmp_path / "shape", r"no such folder \(did you mean \S+/shapes\?\)$"),
    ):
        assert read_manifest(str(folder)) is None
        with pytest.raises(ConfigError, match=message):
            require_manifest(str(folder))


def test_a_shard_is_not_a_data_set(tmp_path):
    (tmp_path / "a-train.tfrecord-00000-of-00001").touch()
    shard = str(tmp_path / "a-train.tfrecord-00000-of-00001")
    with pytest.raises(ConfigError) as caught:
        require_manifest(shard)
    assert str(caught.value) == f"{shard} is a file. Give the folder of the data set: {tmp_path}"


def test_manifest_is_none_once_it_is_deleted(tmp_path):
    split = write(tmp_path)
    assert require_manifest(str(tmp_path)).splits == {"train": split}
    (tmp_path / "manifest.json").unlink()
    assert read_manifest(str(tmp_path)) is None
