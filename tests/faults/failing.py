"""Code that fails where it is told to."""

import io
from typing import Any

from recordmill.transforms.storage import local_storage


def fail_once(monkeypatch, owner: type, method: str, at: int, error: BaseException) -> None:
    """Let the `at`th call of a method (from 1) raise."""
    original = getattr(owner, method)
    calls = []

    def failing(*arguments):
        calls.append(arguments)
        if len(calls) == at:
            raise error
        return original(*arguments)

    monkeypatch.setattr(owner, method, failing)


def raise_(error: BaseException) -> None:
    raise error


def open_failing(mode: str, ending: str, stage: str, error: OSError, path: str, wanted: str, **how: Any) -> io.IOBase:
    """`open`, but files that are opened in one mode, and whose name ends so, are failing ones."""
    fails = wanted == mode and path.endswith(ending)
    return FailingFile(stage, error, path, mode) if fails else open(path, wanted, **how)


class FailingFile(io.FileIO):
    """A file whose last part the disk does not take."""

    def __init__(self, stage: str, error: OSError, path: str, mode: str):
        super().__init__(path, mode)
        self._stage, self._error, self._taken = stage, error, 0

    def write(self, data) -> int:
        self._taken += 1
        if self._stage == "write" and self._taken > 5:
            raise self._error
        return super().write(data)

    def flush(self) -> None:
        raise_(self._error) if self._stage == "flush" else super().flush()

    def close(self) -> None:
        fails = self._stage == "close" and not self.closed
        super().close()
        if fails:
            raise self._error


def fail_reads(monkeypatch, ending: str, error: OSError) -> None:
    """Let each read of a local file fail whose name ends so."""
    read = local_storage._read_file

    def failing(descriptor: int, path: str, *arguments: object) -> bytes:
        if path.endswith(ending):
            raise error
        return read(descriptor, path, *arguments)

    monkeypatch.setattr(local_storage, "_read_file", failing)
