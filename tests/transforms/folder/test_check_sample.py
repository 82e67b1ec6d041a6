"""A bucket without a picture of a class is told before any machine starts."""

import logging

import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.folder import choose_classes as module
from recordmill.transforms.folder.folder_options import FolderOptions
from tests.gcs_stand_in import running


@pytest.fixture
def gcs(monkeypatch):
    monkeypatch.setattr(module, "_SAMPLE", 4)
    with running() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        server.page_size = 4
        yield server


def looked_at(*folders: str, **options) -> None:
    module.check_sample(FolderOptions(images=folders, output="out", **options))


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["a.jpg", "b.jpg"], "'a.jpg' is in no folder"),
        (["cat/a.txt", "cat/.b.jpg"], "'cat/.b.jpg' has no suffix of an image format"),
    ],
)
def test_bucket_without_any_is_refused(gcs, names, why):
    for name in names:
        gcs.put(f"images/{name}", b"")
    with pytest.raises(ConfigError) as caught:
        looked_at("gs://bucket/images")
    assert str(caught.value) == f"--images gs://bucket/images has no image of a class: {why}"


def test_bucket_without_any_among_its_first_files_is_warned_of(gcs, caplog):
    for number in range(9):
        gcs.put(f"images/a{number}.txt", b"")
    gcs.put("images/cat/1.jpg", b"")
    with caplog.at_level(logging.WARNING):
        looked_at("gs://bucket/images")
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith("--images gs://bucket/images: no image of a class among its first 4 files: 'a0.txt'")
    assert [call.operation for call in gcs.log] == ["list"]


def test_another_folder_may_have_them(gcs, tmp_path, caplog):
    gcs.put("one/a.jpg", b"")
    gcs.put("two/cat/a.jpg", b"")
    with caplog.at_level(logging.WARNING):  # whatever another test has set
        looked_at("gs://bucket/one", "gs://bucket/two")
        looked_at("gs://bucket/one", str(tmp_path))
    assert len(caplog.records) == 2


def test_classes_may_stand_in_names(gcs):
    gcs.put("images/cat_1.jpg", b"")
    looked_at("gs://bucket/images", label_from="name")


def test_local_folders_are_for_job_to_see(tmp_path):
    (tmp_path / "a.jpg").touch()
    looked_at(str(tmp_path))


@pytest.mark.parametrize("verb", [["folder"], ["embed", "--model", "mobilenet-v2"]])
def test_the_commands_look(gcs, recordmill, verb):
    gcs.put("images/a.jpg", b"")
    outcome = recordmill(*verb, "--images", "gs://bucket/images", "--output", "gs://bucket/out")
    assert (outcome.code, "has no image of a class: 'a.jpg' is in no folder" in outcome.err) == (2, True), outcome


def test_where_table_names_images_nobody_looks(gcs, recordmill):
    gcs.put("images/a.jpg", b"")
    gcs.put("labels.csv", b"path,label\nb.jpg,cat\n")
    flags = ["--images", "gs://bucket/images", "--labels", "gs://bucket/labels.csv", "--output", "gs://bucket/out"]
    assert "none of the 1 images has a file" in recordmill("folder", *flags).err
