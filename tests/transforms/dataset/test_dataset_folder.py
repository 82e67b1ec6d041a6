import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.dataset.dataset_folder import read_manifest, require_manifest
from tests.transforms.shards.test_write_metadata import write


def test_a_folder_without_one(tmp_path):
    for folder, told in ((tmp_path, "it is not a Recordmill data set"), (tmp_path / "gone", "no such folder")):
        assert read_manifest(str(folder)) is None
        with pytest.raises(ConfigError, match=told):
            require_manifest(str(folder))


def test_manifest_is_none_once_it_is_deleted(tmp_path):
    split = write(tmp_path)
    assert require_manifest(str(tmp_path)).splits == {"train": split}
    (tmp_path / "manifest.json").unlink()
    assert read_manifest(str(tmp_path)) is None
