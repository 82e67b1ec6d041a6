import base64
import os
import zipfile

import google_crc32c
import pytest

from recordmill.schemas.recipes import InputFile
from recordmill.transforms.images.listing import Listing, join_parts, listing_of
from recordmill.transforms.storage.interface import StoredFile
from recordmill.transforms.storage.resolve import storage_for
from tests.gcs_stand_in import running

FILES = {"dog/1.jpg": 4, "cat/1.jpg": 3, "cat/é.jpg": 5, "cat.d/2.png": 6, "cat/notes.txt": 7, ".x/1.jpg": 8}
LINES = "6 cat.d/2.png\n3 cat/1.jpg\n5 cat/é.jpg\n4 dog/1.jpg\n"


@pytest.fixture
def gcs(monkeypatch):
    with running() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        yield server


def checksum(lines: bytes) -> str:
    return base64.b64encode(google_crc32c.Checksum(lines).digest()).decode()


def fill(folder: str) -> str:
    for name, size in FILES.items():
        storage_for(folder).write(f"{folder}/{name}", bytes(size))
    return folder


def found(folder: str) -> InputFile:
    return InputFile("images", folder, 18, checksum(LINES.encode()))


def test_a_local_folder(tmp_path):
    folder = fill(str(tmp_path))
    assert listing_of(folder) == found(folder)


def test_an_archive(tmp_path):
    path = str(tmp_path / "a.zip")
    with zipfile.ZipFile(path, "w") as archive:
        for name, size in FILES.items():
            archive.writestr(name, bytes(size))
    assert listing_of(path) == found(path)


def test_a_bucket_of_several_pages(gcs):
    gcs.page_size = 2
    folder = fill("gs://bucket/images")
    assert listing_of(folder) == found(folder)


def test_a_name_that_is_not_utf_8(tmp_path):
    open(os.path.join(os.fsencode(tmp_path), b"caf\xe9.jpg"), "wb").close()
    assert listing_of(str(tmp_path)).crc32c == checksum(b"0 caf\xe9.jpg\n")


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "cat" / "2.jpg").write_bytes(b""),
        lambda folder: (folder / "cat" / "1.jpg").write_bytes(bytes(4)),
        lambda folder: (folder / "cat" / "1.jpg").unlink(),
        lambda folder: (folder / "cat" / "1.jpg").rename(folder / "dog" / "2.jpg"),
    ],
    ids=["added", "of another size", "gone", "of another class"],
)
def test_what_changed_is_another_listing(tmp_path, change):
    folder = fill(str(tmp_path))
    before = listing_of(folder)
    assert listing_of(folder) == before
    change(tmp_path)
    assert listing_of(folder) != before


def test_files_of_a_bucket_are_taken_as_they_come():
    """None is held to be sorted, however many there are: Cloud Storage lists them in the order of their names."""
    listing = Listing("gs://bucket/images")
    files = [StoredFile(name, "", 1, "") for name in ("b.jpg", "a.jpg")]
    assert list(listing.count(iter(files))) == files
    assert join_parts("gs://bucket/images", [listing.found()]).crc32c == checksum(b"1 b.jpg\n1 a.jpg\n")


def test_parts_in_any_order_are_as_the_whole(gcs):
    folder = fill("gs://bucket/images")
    storage = storage_for(folder)
    parts = []
    for part in storage.parts(folder):
        listing = Listing(folder, part.start)
        assert all(name.path for name in listing.count(storage.walk(folder, part)))
        parts.append(listing.found())
    assert [part.start for part in storage.parts(folder)] == ["", "images/cat.d/", "images/cat/", "images/dog/"]
    assert join_parts(folder, reversed(parts)) == found(folder)
