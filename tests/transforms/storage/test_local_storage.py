import io
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from recordmill.schemas.inputs.files import NO_FILE
from recordmill.transforms.storage import local_storage
from recordmill.transforms.storage.interface import ChangedFileError, UnreadableFileError
from recordmill.transforms.storage.local_storage import LocalStorage, LocalUpload, TemporaryName
from recordmill.transforms.storage.open_files import OpenFiles
from recordmill.transforms.storage.resolve import storage_for

STORAGE = LocalStorage()


def contents(folder) -> dict[str, bytes]:
    """Every file below a folder, hidden ones too."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("path", ["a", "/a/b", "../x", "C:/x", "a:/b", "file:/x"])
def test_paths_are_local(path):
    assert isinstance(storage_for(path), LocalStorage)


# Reading


def test_walk_tells_changed_file_apart(tmp_path):
    (tmp_path / "a").write_text("1")
    os.utime(tmp_path / "a", ns=(10, 10))
    (before,) = STORAGE.walk(str(tmp_path))
    os.utime(tmp_path / "a", ns=(10, 11))
    (after,) = STORAGE.walk(str(tmp_path))
    assert before.version != after.version


def test_names_are_listed_without_a_look_at_each_file(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).touch()
    names = STORAGE.walk_names(str(tmp_path))
    first = next(names)
    for name in ("a", "b"):
        (tmp_path / name).unlink()
    assert sorted([first, *names]) == ["a", "b"]


@pytest.mark.parametrize(("may_read", "names"), [(True, ["a/1", "lost+found/2"]), (False, ["a/1"])])
def test_walk_skips_lost_and_found_that_only_root_reads(tmp_path, monkeypatch, may_read, names):
    for name in ("a/1", "lost+found/2"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    monkeypatch.setattr(os, "access", lambda path, mode: may_read)
    assert sorted(file.name for file in STORAGE.walk(str(tmp_path))) == names


def test_walk_follows_links(tmp_path):
    (tmp_path / "images" / "deep").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "b").write_text("b")
    (tmp_path / "images" / "a").write_text("a")
    (tmp_path / "images" / "deep" / "up").symlink_to(tmp_path / "images")
    (tmp_path / "images" / "file").symlink_to(tmp_path / "elsewhere" / "b")
    for folder in ("folder", "deep/folder"):
        (tmp_path / "images" / folder).symlink_to(tmp_path / "elsewhere")
    names = [file.name for file in STORAGE.walk(str(tmp_path / "images"))]
    assert sorted(names) == ["a", "deep/folder/b", "file", "folder/b"]


@pytest.mark.parametrize("target", ["gone", "link"])
def test_walk_tells_links_that_lead_nowhere_from_files(tmp_path, target):
    (tmp_path / "a").write_text("a")
    (tmp_path / "link").symlink_to(target)
    assert {file.name: file.version == NO_FILE for file in STORAGE.walk(str(tmp_path))} == {"a": False, "link": True}


class FewAtOnce(io.FileIO):
    def read(self, size: int = -1) -> bytes:
        return super().read(min(size, 8))


def test_file_is_read_whole_where_system_reads_less_at_once(tmp_path, monkeypatch):
    """Linux reads at most 2 GiB per call."""
    path, data = str(tmp_path / "a"), bytes(range(100))
    Path(path).write_bytes(data)
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda file, length, start: pread(file, min(length, 8), start))
    monkeypatch.setattr(local_storage, "open", lambda path, *_, **__: FewAtOnce(path), raising=False)
    monkeypatch.setattr(local_storage, "_READ_AT_ONCE", 8)
    version = STORAGE.stat(path).version
    assert STORAGE.read(path) == data
    ranges = [(3, 7), (3, 8), (3, 16), (3, 17), (91, 40), (100, 9)]
    wanted = [data[start : start + length] for start, length in ranges]
    assert [STORAGE.read_range(path, *range_) for range_ in ranges] == wanted
    assert STORAGE.read_ranges(path, ranges, version) == wanted


def test_file_read_last_stays_open(tmp_path, monkeypatch):
    monkeypatch.setattr(local_storage, "_OPEN", OpenFiles(lambda key: local_storage._VersionFile(*key), 2))
    for name in "abc":
        (tmp_path / name).write_text(name)
    versions = {file.name: file.version for file in STORAGE.walk(str(tmp_path))}

    def read(name: str) -> list[bytes]:
        return STORAGE.read_ranges(str(tmp_path / name), [(0, 1)], versions[name])

    for name in "abac":
        read(name)
    for name in "ab":
        (tmp_path / name).unlink()
    assert read("a") == [b"a"]
    with pytest.raises(FileNotFoundError):
        read("b")


def test_process_forked_while_thread_opens_file_opens_others():
    is_opening, may_go_on = threading.Event(), threading.Event()

    def slowly(key):
        if key == "slow":
            is_opening.set()
            may_go_on.wait(10)
        return key

    files = OpenFiles(slowly, 2)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(files.get, "slow")
        is_opening.wait(10)
        child = os.fork()
        if not child:
            signal.alarm(5)
            os._exit(files.get("other") != "other")
        assert os.waitpid(child, 0)[1] == 0
        may_go_on.set()


@pytest.mark.parametrize("read", [STORAGE.read, lambda path, version: STORAGE.read_range(path, 0, 3, version)])
def test_changed_file_is_another(tmp_path, read):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    (file,) = STORAGE.walk(str(tmp_path))
    assert read(file.path, file.version) == b"old"
    path.write_bytes(b"new")  # of the same size
    os.utime(path, ns=(0, int(file.version) + 1))
    with pytest.raises(ChangedFileError) as caught:
        read(file.path, file.version)
    assert caught.value.filename == file.path
    assert read(file.path, "") == b"new"


# Writing


def test_write_in_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    STORAGE.write("a", b"here")
    assert contents(tmp_path) == {"a": b"here"}


def test_failed_write_keeps_old_file(tmp_path):
    path = str(tmp_path / "a")
    STORAGE.write(path, b"old")
    with pytest.raises(TypeError):
        STORAGE.write(path, "text")
    assert contents(tmp_path) == {"a": b"old"}


def test_write_over_folder_fails_and_leaves_no_trace(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError, match="directory"):
        STORAGE.write(str(tmp_path / "a"), b"data")
    assert contents(tmp_path) == {}


def test_all_bytes_are_on_disk_before_they_have_their_name(tmp_path, monkeypatch):
    """Or a machine that loses its power has a shard of zeros by the right name."""
    synced: dict[int, int] = {}
    renamed: dict[str, int | None] = {}
    fsync, replace = os.fsync, os.replace

    def note_sync(descriptor: int) -> None:
        fsync(descriptor)
        status = os.fstat(descriptor)
        synced[status.st_ino] = status.st_size

    def note_rename(source: str, target: str) -> None:
        renamed[target] = synced.get(os.stat(source).st_ino)
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_rename)
    upload = STORAGE.create(str(tmp_path / "a"))
    upload.write(b"0123456789")
    upload.commit(str(tmp_path / "b"))
    assert renamed == {str(tmp_path / "b"): 10}


def test_two_uploads_of_one_file_do_not_mix(tmp_path):
    first, second = STORAGE.create(str(tmp_path / "a")), STORAGE.create(str(tmp_path / "a"))
    first.write(b"1" * 10)
    second.write(b"2" * 5)
    second.commit()
    first.commit()
    assert contents(tmp_path) == {"a": b"1" * 10}


# Deleting


def test_folder_written_to_while_it_is_deleted_is_deleted(tmp_path, monkeypatch):
    """By another run, which is done a moment later."""
    state = tmp_path / "state"
    STORAGE.write(str(state / "a"), b"")
    rmdir, late = os.rmdir, ["b", "c"]

    def rmdir_late(path):
        if late:
            (state / late.pop()).write_bytes(b"")
        rmdir(path)

    monkeypatch.setattr(os, "rmdir", rmdir_late)
    STORAGE.delete_folder(str(state))
    assert list(tmp_path.iterdir()) == []


def killed_upload(path) -> Path:
    """A temporary file whose process was killed."""
    code = (
        "import os, sys; from recordmill.transforms.storage.local_storage import LocalStorage; "
        "LocalStorage().create(sys.argv[1]).write(b'killed'); os._exit(9)"
    )
    before = set(path.parent.iterdir())
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    (temporary,) = set(path.parent.iterdir()) - before
    return temporary


def test_leftovers_are_deleted(tmp_path):
    for name in ("coco-train.tfrecord-00000-of-00002", "rejects.jsonl", "x" * 255):
        killed_upload(tmp_path / name)
    remaining_names = [
        "a",
        ".a",
        ".a.tmp",
        ".a.01234567.tmp",
        ".a.012345-1-01234g.0123.tmp",
        "a.012345-1-012345.0123.tmp",
    ]
    for name in remaining_names:
        (tmp_path / name).write_text("mine")
    STORAGE.delete_leftovers(str(tmp_path))
    assert set(contents(tmp_path)) == set(remaining_names)
    STORAGE.delete_leftovers(str(tmp_path / "gone"))


def test_file_of_live_process_is_no_leftover(tmp_path):
    upload = STORAGE.create(str(tmp_path / "ours-1"))
    upload.write(b"still being written")
    STORAGE.delete_leftovers(str(tmp_path))
    upload.commit()
    assert contents(tmp_path) == {"ours-1": b"still being written"}


def temporary(folder: Path, **changed) -> Path:
    """A temporary file, as this process names its own but for the fields that are changed."""
    name = TemporaryName.parse(TemporaryName.make("ours-1"))._replace(**changed)
    path = folder / f".{name.name}.{name.host}-{name.process}-{name.run}.0000.tmp"
    path.touch()
    return path


def test_zombie_s_file_is_leftover(tmp_path):
    """A container may have no process that waits for orphans."""
    process = subprocess.Popen(["sleep", "60"])
    theirs = temporary(tmp_path, process=process.pid)
    STORAGE.delete_leftovers(str(tmp_path))
    assert theirs.exists()
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    STORAGE.delete_leftovers(str(tmp_path))
    assert not theirs.exists()
    process.wait()


@pytest.mark.parametrize(("idle_s", "left"), [(60, True), (3 * 3600, False)])
def test_file_of_another_machine_stays_an_hour(tmp_path, idle_s, left):
    theirs = temporary(tmp_path, host="000000", process=1)  # or of an earlier run in a container of this name
    written = time.time() - idle_s
    os.utime(theirs, (written, written))
    STORAGE.delete_leftovers(str(tmp_path))
    assert theirs.exists() == left


def test_a_process_of_another_user_is_alive(tmp_path, monkeypatch):
    def refuse(*_: int) -> None:
        raise PermissionError

    theirs = temporary(tmp_path, process=1)
    monkeypatch.setattr(os, "kill", refuse)
    STORAGE.delete_leftovers(str(tmp_path))
    assert theirs.exists()


def test_earlier_run_of_same_process_number_is_over(tmp_path):
    earlier = temporary(tmp_path, run="000000")
    assert f"-{os.getpid()}-" in earlier.name
    STORAGE.delete_leftovers(str(tmp_path))
    assert not earlier.exists()


def test_temporary_names_of_process_are_all_different():
    assert len({TemporaryName.make("ours-1") for _ in range(2000)}) == 2000


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127, "x" * 201])
def test_names_as_long_as_file_system_has_them_are_written(tmp_path, name):
    STORAGE.write(str(tmp_path / name), b"long")
    assert contents(tmp_path) == {name: b"long"}


def test_vanished_folder_is_made_again(tmp_path, monkeypatch):
    path = tmp_path / "state" / "shard.json"
    commit, commits = LocalUpload.commit, []

    def disturbed(self, path=None):
        commits.append(self)
        if len(commits) == 1:
            STORAGE.delete_folder(str(tmp_path / "state"))
        commit(self, path)

    monkeypatch.setattr(LocalUpload, "commit", disturbed)
    STORAGE.write(str(path), b"{}")
    assert (path.read_bytes(), len(commits)) == (b"{}", 2)


@pytest.mark.parametrize("size", [0, 4, 6])
def test_file_written_to_while_it_is_read_is_named_as_changed(tmp_path, monkeypatch, size):
    """Between the question how large it is and the reading; what came would be cut, or of two files."""
    path = tmp_path / "a.jpg"
    path.write_bytes(b"12345")
    fstat = os.fstat

    def fstat_then_write(descriptor: int) -> os.stat_result:
        status = fstat(descriptor)
        os.truncate(path, size)
        return status

    monkeypatch.setattr(os, "fstat", fstat_then_write)
    with pytest.raises(ChangedFileError, match="written to while it was read"):
        STORAGE.read(str(path))


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc")
def test_file_of_unknown_size():
    with pytest.raises(ChangedFileError):
        STORAGE.read("/proc/self/status")


def test_pipe_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, told in ((tmp_path / "pipe", "a pipe or a device"), (tmp_path, "directory")):
        for read in (STORAGE.open, STORAGE.read):
            with pytest.raises(UnreadableFileError, match=told):
                read(str(path))
