import os
from pathlib import Path

import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.storage.gcs_storage import GcsStorage
from recordmill.transforms.storage.resolve import archive_of, join_path, local_copy, storage_for
from tests.transforms.storage.conftest import archive, path_of


def test_archive_in_bucket_is_read_there(tmp_path, gcs):
    gcs.put("resolved/x.zip", Path(archive(tmp_path / "x.zip", {"a/b.txt": b"of the bucket"})).read_bytes())
    path = path_of("resolved/x.zip/a/b.txt")
    assert archive_of(path) == path_of("resolved/x.zip")
    assert storage_for(path).read(path) == b"of the bucket"


def test_paths_of_buckets_and_of_nobody():
    assert isinstance(storage_for("gs://b/a"), GcsStorage)
    for path in ("gs://", "s3://", "s3:///"):
        with pytest.raises(ConfigError, match="names no bucket"):
            storage_for(path)
    with pytest.raises(ConfigError, match="ftp:// is not supported"):
        storage_for("ftp://b/a")


def test_local_copy_of_a_local_file(tmp_path):
    with local_copy(str(tmp_path / "model.keras")) as path:
        assert path == str(tmp_path / "model.keras")


def test_local_copy_of_bucket_s_file_has_its_name_and_is_gone_afterwards(gcs):
    gcs.put("models/tiny.keras", b"model" * 1_000_000)
    with local_copy(path_of("models/tiny.keras")) as path:
        assert os.path.basename(path) == "tiny.keras"  # Keras looks at its ending
        assert Path(path).read_bytes() == b"model" * 1_000_000
    assert not os.path.exists(os.path.dirname(path))


def test_local_copy_of_a_member(tmp_path):
    with local_copy(f"{archive(tmp_path / 'models.zip', {'in/tiny.keras': b'model'})}/in/tiny.keras") as path:
        assert Path(path).read_bytes() == b"model"


def test_local_copy_of_nothing(gcs):
    with pytest.raises(ConfigError, match="gs://bucket/nothing: no such file"), local_copy(path_of("nothing")):
        pass


JOINED = [
    ("out", "a.json", "out/a.json"),
    ("out/", ".state/a.json", "out/.state/a.json"),
    ("", "a.json", "a.json"),
    ("gs://b", "x/y", "gs://b/x/y"),
    ("gs://b/a/", "x/y", "gs://b/a/x/y"),
]


@pytest.mark.parametrize(("folder", "name", "path"), JOINED)
def test_join_path(folder, name, path):
    assert join_path(folder, name) == path
