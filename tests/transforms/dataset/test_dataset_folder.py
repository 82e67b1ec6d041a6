import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.dataset.dataset_folder import read_manifest, require_manifest
from recordmill.transforms.storage.local_storage import LocalStorage
from tests.transforms.shards.test_write_metadata import write


def test_a_folder_without_one(tmp_path):
    for folder, told in ((tmp_path, "it is not a Recordmill data set"), (tmp_path / "gone", "no such folder")):
        assert read_manifest(str(folder)) is None
        with pytest.raises(ConfigError, match=told):
            require_manifest(str(folder))


def test_one_that_another_run_deletes_meanwhile_is_none(tmp_path, monkeypatch):
    split = write(tmp_path)
    assert require_manifest(str(tmp_path)).splits == {"train": split}
    size = LocalStorage.size

    def then_gone(self, path):
        found = size(self, path)
        (tmp_path / "manifest.json").unlink()
        return found

    monkeypatch.setattr(LocalStorage, "size", then_gone)
    assert read_manifest(str(tmp_path)) is None
