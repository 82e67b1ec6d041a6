import base64
import os
import unicodedata
import zipfile

import apache_beam as beam
import google_crc32c
import pytest
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.dataset.recipes import InputFile
from recordmill.schemas.inputs.files import ImageFile
from recordmill.transforms.blocks.image_tasks import image_paths
from recordmill.transforms.blocks.pack_block import unpack_block
from recordmill.transforms.join.list_images import (
    ListFolders,
    Listing,
    files_by_name,
    join_parts,
    list_folder,
    list_images,
    list_outside,
)
from recordmill.transforms.join.match_blocks import assign_buckets
from recordmill.transforms.storage.interface import ALL_NAMES, StoredFile
from recordmill.transforms.storage.resolve import storage_for
from tests.beam_pipeline import Pipeline
from tests.transforms.dataset.kinds import applied

FILES = {"dog/1.jpg": 4, "cat/1.jpg": 3, "cat/é.jpg": 5, "cat.d/2.png": 6, "cat/notes.txt": 7, ".x/1.jpg": 8}
LINES = "6 cat.d/2.png\n3 cat/1.jpg\n5 cat/é.jpg\n4 dog/1.jpg\n"


def checksum(lines: bytes) -> str:
    return base64.b64encode(google_crc32c.Checksum(lines).digest()).decode()


def fill(folder: str) -> str:
    if folder.endswith(".zip"):
        with zipfile.ZipFile(folder, "w") as archive:
            for name, size in FILES.items():
                archive.writestr(name, bytes(size))
        return folder
    for name, size in FILES.items():
        storage_for(folder).write(f"{folder}/{name}", bytes(size))
    return folder


def expected_listing(folder: str) -> InputFile:
    return InputFile("images", folder, 18, checksum(LINES.encode()))


@pytest.mark.parametrize("folder", ["{}/images", "{}/a.zip", "gs://bucket/images"])
def test_list_folder(gcs, tmp_path, folder):
    gcs.page_size = 2
    folder = fill(folder.format(tmp_path))
    assert list_folder(folder) == expected_listing(folder)


def test_a_name_that_is_not_utf_8(tmp_path):
    open(os.path.join(os.fsencode(tmp_path), b"caf\xe9.jpg"), "wb").close()
    assert list_folder(str(tmp_path)).crc32c == checksum(b"0 caf\xe9.jpg\n")


def test_change_gives_another_listing(tmp_path):
    """Files added, of another size, gone, of another class."""
    folder = fill(str(tmp_path))
    cat, listings = tmp_path / "cat", [list_folder(folder)]
    assert list_folder(folder) == listings[0]
    (cat / "2.jpg").write_bytes(b"")
    listings.append(list_folder(folder))
    (cat / "2.jpg").write_bytes(b"1")
    listings.append(list_folder(folder))
    (cat / "2.jpg").rename(tmp_path / "dog" / "2.jpg")
    listings.append(list_folder(folder))
    (cat / "1.jpg").unlink()
    listings.append(list_folder(folder))
    assert len({listing.crc32c for listing in listings}) == len(listings)


def test_files_of_bucket_are_taken_as_they_come():
    """None is held to be sorted, however many there are: Cloud Storage lists them in the order of their names."""
    listing = Listing("gs://bucket/images")
    files = [StoredFile("", 1, "", name) for name in ("b.jpg", "a.jpg")]
    assert list(listing.count(iter(files))) == files
    assert join_parts("gs://bucket/images", [listing.to_part()]).crc32c == checksum(b"1 b.jpg\n1 a.jpg\n")


def test_parts_in_any_order_are_as_whole(gcs):
    folder = fill("gs://bucket/images")
    storage = storage_for(folder)
    parts = []
    for part in storage.parts(folder):
        listing = Listing(folder, part.start)
        assert all(name.path for name in listing.count(storage.walk(folder, part)))
        parts.append(listing.to_part())
    assert [part.start for part in storage.parts(folder)] == ["", "images/cat.d/", "images/cat/", "images/dog/"]
    assert join_parts(folder, reversed(parts)) == expected_listing(folder)


def test_every_file_is_listed_by_its_name_below_folder(tmp_path):
    """Names are composed, and paths are as stored."""
    names = {
        "a.jpg": "a.jpg",
        "notes.txt": "notes.txt",
        ".hidden": ".hidden",
        "deep/er/\u00e9 b.png": "deep/er/e\u0301 b.png",
    }
    for stored in names.values():
        (tmp_path / stored).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / stored).write_bytes(stored.encode())
    files = dict(list_images(str(tmp_path)))
    assert files == {
        name: ImageFile(str(tmp_path / stored), len(stored.encode()), str((tmp_path / stored).stat().st_mtime_ns))
        for name, stored in names.items()
    }


@pytest.mark.parametrize("suffix", ["", "/", "/.", "//"])
def test_folder_s_spelling_is_no_part_of_names(tmp_path, suffix):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.jpg").write_bytes(b"a")
    ((name, ref),) = list_images(f"{tmp_path}{suffix}")
    assert name == "x/a.jpg"
    assert os.path.samefile(ref.path, tmp_path / "x" / "a.jpg")


def test_names_not_utf_8_are_skipped_with_warning(tmp_path, caplog):
    (tmp_path / "a.jpg").write_bytes(b"")
    for name in (b"caf\xe9.jpg", b"caf\xe8.jpg", b"caf\xea.jpg"):
        open(os.path.join(os.fsencode(tmp_path), name), "wb").close()
    assert [name for name, _ in list_images(str(tmp_path))] == ["a.jpg"]
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "number: 3" in warning
    assert f"the first {str(tmp_path) + '/caf' + chr(0xDCE8) + '.jpg'!r}" in warning


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
            bucket = int(assign_buckets([key], match, 8)[0])
            expected.append((bucket, key, str(path), len(name.encode()), "5"))
    with Pipeline() as p:
        folders = p | beam.Create([f"{tmp_path}/one", f"{tmp_path}/two"])
        listed, _ = applied(folders, ListFolders(str(tmp_path / "out"), files_by_name, match, 8))
        assert_that(listed | beam.FlatMap(named), equal_to(expected))


@pytest.mark.parametrize("output", ["images/out", "link/out", "images/out/"])
def test_list_outside(tmp_path, output):
    for name in ("a.jpg", "out/.recordmill-train/recipe.json", "out/b.jpg", "outside/c.jpg"):
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "images" / name).touch()
    (tmp_path / "link").symlink_to(tmp_path / "images")
    files = list_outside(str(tmp_path / "images"), ALL_NAMES, f"{tmp_path}/{output}", None)
    assert sorted(name for name, _ in files) == ["a.jpg", "outside/c.jpg"]
