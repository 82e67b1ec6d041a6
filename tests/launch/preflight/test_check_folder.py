"""Can a folder be made, and written to?"""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from recordmill.launch.preflight.check_folder import folder_fault


@pytest.fixture
def open_folder():
    """A folder that every user may enter; pytest's own are for one."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def fault_for_nobody(path: Path) -> str:
    """`folder_fault` as a user sees it whom rights bind."""
    answer, told = os.pipe()
    child = os.fork()
    if child == 0:
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        os.write(told, folder_fault(str(path)).encode())
        os._exit(0)
    os.close(told)
    assert os.waitpid(child, 0)[1] == 0
    with open(answer) as text:
        return text.read()


@pytest.mark.parametrize("name", ["new", "new/er/and newer", "."])
def test_a_folder_that_can_be_made(name, tmp_path):
    assert folder_fault(str(tmp_path / name)) == ""


def test_a_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert folder_fault("new") == ""
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_its_place_or_above(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    assert "is a file" in folder_fault(str(tmp_path / "file"))
    assert f"is below {tmp_path / 'file'}, which is a file" in folder_fault(str(tmp_path / "file" / "a" / "b"))


@pytest.mark.parametrize("name", ["n" * 256, "n/" * 2100])
def test_a_name_that_is_too_long(name, tmp_path):
    assert "too long" in folder_fault(str(tmp_path / name))


def test_links_in_a_circle(tmp_path):
    (tmp_path / "a").symlink_to("a")
    assert "circle" in folder_fault(str(tmp_path / "a" / "b"))


def test_folder_that_may_not_be_written_to(open_folder):
    (open_folder / "out").mkdir(mode=0o555)
    out = open_folder / "out"
    assert fault_for_nobody(out).startswith(f"this user may not write to {out}.")
    assert fault_for_nobody(out / "a" / "b").startswith(
        f"{out}/a/b cannot be created: this user may not write to {out}."
    )


def test_folder_that_may_not_be_entered(open_folder):
    (open_folder / "closed").mkdir(mode=0o000)
    assert fault_for_nobody(open_folder / "closed" / "out").startswith(f"{open_folder}/closed/out: permission denied")


def test_file_system_that_may_only_be_read(tmp_path):
    mount = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", tmp_path]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system may be mounted here")
    try:
        assert f"this user may not write to {tmp_path}." in folder_fault(str(tmp_path / "out"))
    finally:
        subprocess.run(["umount", tmp_path], check=True)
