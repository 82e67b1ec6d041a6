"""Folders of images become names and places."""

import os

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.images import ImageRef, JoinSide
from recordmill.transforms.images.list_images import ListImages, ListLabelledImages, list_images
from recordmill.transforms.images.listing import listing_of
from tests.gcs_stand_in import running


def test_every_file_is_listed_by_its_name_below_the_folder(tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for name in ("a.jpg", "notes.txt", ".hidden", "deep/a.jpg", "deep/er/\u00e9 b.png"):
        (tmp_path / name).write_bytes(name.encode())
    found = dict(list_images(str(tmp_path)))
    assert found == {
        name: ImageRef(str(tmp_path / name), len(name.encode()), version=str((tmp_path / name).stat().st_mtime_ns))
        for name in ("a.jpg", "notes.txt", ".hidden", "deep/a.jpg", "deep/er/\u00e9 b.png")
    }


@pytest.mark.parametrize("suffix", ["", "/", "/.", "//"])
def test_the_folder_s_spelling_is_no_part_of_the_names(tmp_path, suffix):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.jpg").write_bytes(b"a")
    ((name, ref),) = list_images(f"{tmp_path}{suffix}")
    assert name == "x/a.jpg"
    assert os.path.samefile(ref.path, tmp_path / "x" / "a.jpg")


def test_names_are_composed_and_paths_are_as_stored(tmp_path):
    (tmp_path / "e\u0301.jpg").write_bytes(b"")
    assert [(name, ref.path) for name, ref in list_images(str(tmp_path))] == [
        ("\u00e9.jpg", str(tmp_path / "e\u0301.jpg"))
    ]


def test_names_that_are_not_utf_8_are_passed_over_with_a_warning(tmp_path, caplog):
    (tmp_path / "a.jpg").write_bytes(b"")
    for name in (b"caf\xe9.jpg", b"caf\xe8.jpg", b"caf\xea.jpg"):
        open(os.path.join(os.fsencode(tmp_path), name), "wb").close()
    assert [name for name, _ in list_images(str(tmp_path))] == ["a.jpg"]
    (told,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "number: 3" in told
    assert f"the first {str(tmp_path) + '/caf' + chr(0xDCE8) + '.jpg'!r}" in told


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        list(list_images(str(tmp_path / "gone")))


def test_a_store_that_nothing_speaks_is_refused():
    with pytest.raises(ConfigError, match="ftp:// is not supported"):
        list(list_images("ftp://host/images"))


def test_the_transform_lists_several_folders(tmp_path):
    for folder, data in (("one", b"1"), ("two", b"22")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.jpg").write_bytes(data)
        os.utime(tmp_path / folder / "a.jpg", ns=(5, 5))
    expected = [
        ("a.jpg", JoinSide(file=ImageRef(f"{tmp_path}/one/a.jpg", 1, "5"))),
        ("a.jpg", JoinSide(file=ImageRef(f"{tmp_path}/two/a.jpg", 2, "5"))),
    ]
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        listed = p | beam.Create([str(tmp_path / "one"), str(tmp_path / "two")]) | ListImages(str(tmp_path / "out"))
        assert_that(listed, equal_to(expected))


@pytest.mark.parametrize("output", ["images/out", "link/out", "images/out/"])
def test_what_is_in_the_output_is_no_image(tmp_path, output):
    for name in ("a.jpg", "out/.recordmill-train/recipe.json", "out/b.jpg", "outside/c.jpg"):
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "images" / name).touch()
    (tmp_path / "link").symlink_to(tmp_path / "images")
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        listed = p | beam.Create([str(tmp_path / "images")]) | ListImages(f"{tmp_path}/{output}")
        assert_that(listed | beam.Keys(), equal_to(["a.jpg", "outside/c.jpg"]))


def test_a_folder_of_a_bucket_is_listed_in_parts_as_in_one(monkeypatch):
    folder = "gs://bucket/images"
    with running() as gcs:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.url)
        for number in range(40):
            gcs.put(f"images/{number % 3}/{number:03d}.jpg", bytes(number))
        gcs.put("images/out/x.jpg", b"")
        expected = [(name, JoinSide(file=file)) for name, file in list_images(folder) if name != "out/x.jpg"]
        whole = listing_of(folder)
        gcs.log.clear()
        with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
            listed = p | beam.Create([folder]) | ListLabelledImages(f"{folder}/out")
            assert_that(listed.files, equal_to(expected), "Files")
            assert_that(listed.listings, equal_to([whole]), "Listings")
        assert len({call.query.get("endOffset") for call in gcs.calls("list")}) == 4  # 1, 2, out and the rest
