import os
import unicodedata

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.images import ImageRef
from recordmill.transforms.blocks.image_tasks import image_paths
from recordmill.transforms.blocks.pack_block import unpack_block
from recordmill.transforms.join.list_images import ListFiles, list_images, list_outside
from recordmill.transforms.join.match_blocks import name_buckets
from recordmill.transforms.storage.interface import ALL_NAMES


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


def named(keyed: tuple[int, bytes]) -> list[tuple[int, str, str, int, str]]:
    """The files of a Block: bucket, name, path, size and version."""
    bucket, block = keyed[0], unpack_block(keyed[1])
    columns = block.file_name.texts(), image_paths(block), block.file_bytes.tolist(), block.file_version.texts()
    return [(bucket, *file) for file in zip(*columns, strict=True)]


@pytest.mark.parametrize("match", ["path", "suffix"])
def test_list_files(tmp_path, match):
    names = ["a.jpg", "deep/a.jpg", "e\u0301.jpg", "b/c.png"]
    expected = []
    for folder in ("one", "two"):
        for name in names:
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(name.encode())
            os.utime(path, ns=(5, 5))
            key = unicodedata.normalize("NFC", name)
            bucket = int(name_buckets([key], match, 8)[0])
            expected.append((bucket, key, str(path), len(name.encode()), "5"))
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        folders = p | beam.Create([f"{tmp_path}/one", f"{tmp_path}/two"])
        listed = folders | ListFiles(str(tmp_path / "out"), match, 8)
        assert_that(listed | beam.FlatMap(named), equal_to(expected))


@pytest.mark.parametrize("output", ["images/out", "link/out", "images/out/"])
def test_list_outside(tmp_path, output):
    for name in ("a.jpg", "out/.recordmill-train/recipe.json", "out/b.jpg", "outside/c.jpg"):
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "images" / name).touch()
    (tmp_path / "link").symlink_to(tmp_path / "images")
    found = list_outside(str(tmp_path / "images"), ALL_NAMES, f"{tmp_path}/{output}", None)
    assert sorted(name for name, _ in found) == ["a.jpg", "outside/c.jpg"]
