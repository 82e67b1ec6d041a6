import io
import zipfile

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.images import ImageRef, ImageTask
from recordmill.transforms.images import fetch_images
from recordmill.transforms.images.fetch_images import (
    GAP_BYTES,
    SPAN_BYTES,
    WINDOW_BYTES,
    FetchMembers,
    Member,
    fetch_file,
    fetch_for,
    spans_of,
)
from recordmill.transforms.storage.interface import ChangedFileError, FileTooLargeError
from recordmill.transforms.storage.resolve import storage_for
from tests.gcs_stand_in import Fault, Kind, running

KB = 1000


def members_at(*places: tuple[int, int]) -> list[Member]:
    return [Member(start, length, f"{start}.jpg") for start, length in places]


@st.composite
def archives(draw) -> list[Member]:
    """Members with gaps between, as those of other shards leave them."""
    members, place = [], 0
    for _ in range(draw(st.integers(1, 40))):
        place += draw(st.sampled_from([0, 0, 1, 500, 100 * KB, GAP_BYTES, GAP_BYTES + 1, 5_000_000]))
        length = draw(st.sampled_from([30, 2 * KB, 100 * KB, 3_000_000, SPAN_BYTES + 1]))
        members.append(Member(place, length, f"{place}.jpg"))
        place += length
    return draw(st.permutations(members))


@given(archives())
def test_every_member_is_in_one_span_and_at_most_half_of_a_span_is_not_wanted(members):
    spans = list(spans_of(members))
    assert sorted(member for span in spans for member in span) == sorted(members)
    for span in spans:
        size = span[-1].start + span[-1].length - span[0].start
        assert size <= 2 * sum(member.length for member in span)
        assert size <= SPAN_BYTES or len(span) == 1


@pytest.mark.parametrize(
    ("members", "lengths"),
    [
        (members_at((0, 100 * KB), (100 * KB, 100 * KB)), [2]),
        (members_at((100 * KB, 100 * KB), (0, 100 * KB)), [2]),
        (members_at((0, 200 * KB), (200 * KB + GAP_BYTES, 200 * KB)), [2]),
        (members_at((0, 200 * KB), (201 * KB + GAP_BYTES, 200 * KB)), [1, 1]),
        # Small ones far apart: a window of them would be mostly what lies between.
        (members_at(*((place * 100 * KB, 2 * KB) for place in range(50))), [1] * 50),
        (members_at(*((place * 3 * KB, 2 * KB) for place in range(50))), [50]),
        (members_at((0, SPAN_BYTES + 1), (SPAN_BYTES + 1, 10)), [1, 1]),
        (members_at((0, SPAN_BYTES - 10), (SPAN_BYTES - 10, 10)), [2]),
        (members_at((9_000 * KB, 100 * KB), (9_100 * KB, 100 * KB)), [2]),
        # What lay in or before a span counts no more in the next.
        (members_at((0, 100 * KB), (9_000 * KB, 100 * KB), (9_100 * KB, 100 * KB)), [1, 2]),
        (members_at((0, 200 * KB), (300 * KB, 200 * KB), (9_000 * KB, 2 * KB), (9_002 * KB, 2 * KB)), [2, 2]),
    ],
)
def test_neighbours_come_together(members, lengths):
    assert [len(span) for span in spans_of(members)] == lengths


def test_a_member_that_two_rows_name_is_read_once():
    assert [len(span) for span in spans_of(members_at((0, 10), (0, 10)))] == [1]


@pytest.fixture
def archive(monkeypatch):
    """A .zip of 40 members in a bucket, the tasks of them in another order, and the server."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        for number in range(40):
            file.writestr(f"{number:02d}.jpg", bytes([number]) * 5000)
    with running() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        server.put("images.zip", data.getvalue())
        folder = "gs://bucket/images.zip"
        files = sorted(storage_for(folder).walk(folder), key=lambda file: file.name[::-1])
        yield (
            [
                ImageTask(
                    int(file.name[:2]), file.name, None, None, ImageRef(file.path, 5000, file.version), "train", ()
                )
                for file in files
            ],
            server,
        )


def test_members_are_fetched_by_one_read_and_forgotten_with_the_last(archive):
    tasks, server = archive
    fetch = fetch_for([task.ref for task in tasks])
    assert isinstance(fetch, FetchMembers)
    before = len(server.calls("read"))
    again = [tasks[0], *tasks]  # as two rows may name one file
    assert [fetch(task.ref) for task in again] == [bytes([task.image_id]) * 5000 for task in again]
    assert len(server.calls("read")) - before == 1
    assert all(not span._data for span in fetch._spans.values())


def test_a_member_that_was_damaged_on_its_way_is_read_anew(archive):
    """Once with its neighbours, once alone: ranges come without a checksum."""
    tasks, server = archive
    fetch = fetch_for([task.ref for task in tasks])
    server.log.clear()
    server.faults.append(Fault(Kind.CORRUPTED, "read", times=2))
    assert [fetch(task.ref) for task in tasks] == [bytes([task.image_id]) * 5000 for task in tasks]
    assert [call.operation for call in server.log] == ["read"] * 3  # and nobody asks whether the archive has changed


def test_members_of_several_archives_and_other_files_are_fetched_together(archive):
    """The other files take no room in a window, as nothing of them is kept."""
    tasks, server = archive
    server.put("other.zip", server.objects()["images.zip"])
    server.put("alone.jpg", b"alone")
    alone = ImageRef("gs://bucket/alone.jpg", WINDOW_BYTES)
    others = [
        msgspec.structs.replace(task.ref, path=task.ref.path.replace("images.zip", "other.zip")) for task in tasks
    ]
    pairs = zip([task.ref for task in tasks], others, strict=True)
    files = [file for pair in pairs for file in (*pair, alone)]
    fetch = fetch_for(files)
    server.log.clear()
    found = [fetch(file) for file in files if file != alone]
    assert found[::2] == found[1::2] == [bytes([task.image_id]) * 5000 for task in tasks]
    assert len(server.calls("read")) == 2
    assert fetch(alone) == b"alone"


def test_another_member_than_was_listed_is_refused(archive):
    tasks, _ = archive
    fetch = fetch_for([task.ref for task in tasks])
    with pytest.raises(ChangedFileError):
        fetch(msgspec.structs.replace(tasks[0].ref, version="0badc0de"))


def test_a_window_bounds_what_is_kept(archive, monkeypatch):
    tasks, server = archive
    monkeypatch.setattr(fetch_images, "WINDOW_BYTES", 50 * KB)
    fetch = FetchMembers([task.ref for task in tasks])
    before = len(server.calls("read"))
    for task in tasks:
        assert fetch(task.ref) == bytes([task.image_id]) * 5000
        kept = {id(span): len(span._data) for span in fetch._spans.values()}
        assert sum(kept.values()) <= 2 * 51 * KB
    # Ten members a window, of which one in ten of the archive's are neighbours: 00, 01 and 02, 10 and 11, …
    assert len(server.calls("read")) - before == 16


def test_files_that_are_in_no_archive_of_a_bucket_are_read_each(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"picture")
    task = ImageTask(1, "a.jpg", None, None, ImageRef(str(tmp_path / "a.jpg"), 7), "train", ())
    assert fetch_for([task.ref]) is fetch_file
    assert fetch_file(task.ref) == b"picture"
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("b.jpg", b"picture")
    assert fetch_for([ImageRef(f"{tmp_path}/a.zip/b.jpg", 7)]) is fetch_file
    assert fetch_for([ImageRef("gs://bucket/a.jpg", 7)]) is fetch_file


@pytest.mark.parametrize("is_packed", [True, False], ids=["unpacks to more", "is packed in more"])
def test_a_member_that_is_larger_than_is_ever_read_comes_with_no_span(archive, monkeypatch, is_packed):
    _, server = archive
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED if is_packed else zipfile.ZIP_STORED) as file:
        file.writestr("a.jpg", bytes(90_000))
    found = data.getvalue()
    if not is_packed:  # in the directory: 90,000 bytes that would become 5
        size = found.index(b"PK\1\2") + 24
        found = found[:size] + (5).to_bytes(4, "little") + found[size + 4 :]
    server.put(f"{is_packed}.zip", found)
    folder = f"gs://bucket/{is_packed}.zip"
    (file,) = storage_for(folder).walk(folder)
    monkeypatch.setattr(fetch_images, "MAX_FILE_BYTES", 80_000)
    fetch = FetchMembers([ImageRef(file.path, file.size_bytes, file.version)])
    server.log.clear()
    with pytest.raises(FileTooLargeError):
        fetch(ImageRef(file.path, file.size_bytes, file.version))
    assert server.log == []
