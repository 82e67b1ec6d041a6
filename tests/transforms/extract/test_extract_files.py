import pytest

from recordmill.schemas.inputs.labels import LabelMap
from recordmill.transforms.extract.extract_files import (
    ExtractedFile,
    FileWriter,
    UnusableRecordError,
    WrittenFile,
    extraction_path,
    is_unchanged,
    read_record,
)
from tests.transforms.records.test_parse_record import TABLE, record

SHA256_OF_A = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a.jpg", "images/a.jpg"),
        ("b/a.jpg", "images/b/a.jpg"),
        ("./b//a.jpg/", "images/b/a.jpg"),
        ("..a/b..jpg", "images/..a/b..jpg"),
        ("été à la mer.JPG", "images/été à la mer.JPG"),
    ],
)
def test_a_name_within_the_folder(name, path):
    assert extraction_path("images", name) == path


@pytest.mark.parametrize("name", ["", "./.", "a/..", "../a", "/a", "..\\a", "C:\\a", "a\0", "file://a", "\x1b[2J"])
def test_name_that_leads_elsewhere_or_is_no_file_s(name):
    with pytest.raises(UnusableRecordError) as caught:
        extraction_path("images", name)
    assert caught.value.reason == "file_name"
    assert repr(name) in caught.value.detail


def test_a_file_is_written_once(tmp_path):
    writer = FileWriter(str(tmp_path))
    written = WrittenFile("x/a", 1, SHA256_OF_A, "wdBDMA==")
    assert writer.write(ExtractedFile("x/a", b"a")) == written
    (tmp_path / "x" / "a").write_bytes(b"not again")
    assert writer.write(ExtractedFile("x/a", b"a")) == written
    assert (tmp_path / "x" / "a").read_bytes() == b"not again"
    writer.write(ExtractedFile("x/a", b"b"))
    assert (tmp_path / "x" / "a").read_bytes() == b"b"
    assert [path.name for path in (tmp_path / "x").iterdir()] == ["a"]


@pytest.mark.parametrize("path", ["a/b", "folder", "n" * 300, "deep/" * 2000 + "x"])
def test_there_can_be_no_file_of_that_name(path, tmp_path):
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    writer = FileWriter(str(tmp_path))
    for _ in range(2):  # the records of two objects may have the same image
        with pytest.raises(UnusableRecordError, match=r"the file .* cannot be created"):
            writer.write(ExtractedFile(path, b"a"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "folder"]


def test_a_folder_called_zip(tmp_path):
    """A name in a record does not make the writer look into an archive."""
    writer = FileWriter(str(tmp_path))
    writer.write(ExtractedFile("a.zip", b"PK"))
    with pytest.raises(UnusableRecordError, match=r"the file .* cannot be created"):
        writer.write(ExtractedFile("a.zip/b", b"a"))


@pytest.mark.parametrize("data", [None, b"b", b"aa"])
def test_whether_file_is_still_as_it_was(data, tmp_path):
    written = FileWriter(str(tmp_path)).write(ExtractedFile("x/a", b"a"))
    assert is_unchanged(str(tmp_path), written)
    (tmp_path / "x" / "a").unlink() if data is None else (tmp_path / "x" / "a").write_bytes(data)
    assert not is_unchanged(str(tmp_path), written)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"no record", "schema"),
        (record(**{"objects/id": [5]}), "object_lists"),
        (record(**{"objects/bbox": [0.0] * 4}), "object_lists"),
        (record(**{"objects/bbox": [0.0] * 7}), "schema"),
        (record(**{"objects/bbox": [0.0] * 7 + [float("inf")]}), "schema"),
    ],
)
def test_a_record_that_cannot_be_used(data, reason):
    with pytest.raises(UnusableRecordError) as caught:
        read_record(data, TABLE, LabelMap(()))
    assert caught.value.reason == reason
    assert "\n" not in caught.value.detail
