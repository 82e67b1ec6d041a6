import errno
import tempfile
from concurrent.futures import ThreadPoolExecutor, TimeoutError

import pytest

from recordmill.transforms.storage.growing_file import GrowingFile


@pytest.fixture
def file():
    file = GrowingFile()
    yield file
    file.close()


@pytest.fixture
def pool(file):
    with ThreadPoolExecutor() as pool:
        yield pool
        file.close()  # or a read that waits would be waited for


def test_reading_waits_until_as_much_is_written(file, pool):
    file.append(b"ab")
    read = pool.submit(file.read, 3)
    with pytest.raises(TimeoutError):
        read.result(0.05)
    file.append(b"cdef")
    assert read.result(10) == b"abc"
    assert file.tell() == 3
    assert file.read(3) == b"def"


def test_less_is_read_where_it_ends(file, pool):
    file.append(b"abc")
    read = pool.submit(file.read, 5)
    file.end()
    assert read.result(10) == b"abc"
    assert file.tell() == 3
    assert file.read(5) == b""


def test_it_is_read_once_more_while_it_is_written(file):
    file.append(b"abcd")
    assert file.read(4) == b"abcd"
    file.seek(0)
    file.append(b"ef")
    assert file.read(6) == b"abcdef"


def test_where_it_will_end_is_not_known(file):
    with pytest.raises(ValueError, match="whence"):
        file.seek(0, 2)


def test_a_read_that_waits_ends_when_the_file_is_closed(file, pool):
    file.append(b"a")
    read = pool.submit(file.read, 2)
    file.close()
    with pytest.raises(OSError, match="abandoned"):
        read.result(10)


def test_on_a_full_disk_its_folder_is_named_and_a_read_that_waits_ends(monkeypatch):
    full = open("/dev/full", "r+b")  # noqa: SIM115  closed by close
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda: full)
    file = GrowingFile()
    with ThreadPoolExecutor() as pool:
        read = pool.submit(file.read, 2)
        with pytest.raises(OSError, match=tempfile.gettempdir()) as caught:
            file.append(b"ab")
        file.close()
        with pytest.raises(OSError, match="abandoned"):
            read.result(10)
    assert caught.value.errno == errno.ENOSPC
