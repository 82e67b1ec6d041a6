import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.dataset.dataset_folder import read_manifest, require_manifest


def test_a_folder_without_one(tmp_path):
    for folder, told in ((tmp_path, "it is no Recordmill data set"), (tmp_path / "gone", "no such folder")):
        assert read_manifest(str(folder)) is None
        with pytest.raises(ConfigError, match=told):
            require_manifest(str(folder))
