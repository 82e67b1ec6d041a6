import os
import zipfile
from pathlib import Path

import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.storage.local_copy import local_copy
from tests.transforms.storage.conftest import path_of


def test_what_is_on_this_machine_is_read_where_it_is(tmp_path):
    with local_copy(str(tmp_path / "model.keras")) as path:
        assert path == str(tmp_path / "model.keras")


def test_a_file_of_a_bucket_has_its_name_and_is_gone_afterwards(gcs):
    gcs.put("models/tiny.keras", b"model" * 1_000_000)
    with local_copy(path_of("models/tiny.keras")) as path:
        assert os.path.basename(path) == "tiny.keras"  # Keras looks at its ending
        assert Path(path).read_bytes() == b"model" * 1_000_000
    assert not os.path.exists(os.path.dirname(path))


def test_a_file_in_an_archive(tmp_path):
    with zipfile.ZipFile(tmp_path / "models.zip", "w") as archive:
        archive.writestr("in/tiny.keras", b"model")
    with local_copy(str(tmp_path / "models.zip" / "in" / "tiny.keras")) as path:
        assert Path(path).read_bytes() == b"model"


def test_what_is_not_there(gcs):
    with pytest.raises(ConfigError, match="gs://bucket/nothing: no such file"), local_copy(path_of("nothing")):
        pass
