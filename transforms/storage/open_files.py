"""Files that stay open between reads."""

import os
from collections.abc import Callable, Hashable
from threading import RLock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class OpenFiles(Generic[K, T]):
    """Thread-safe LRU cache of open files, which garbage collection closes.

    Args:
        open_file: Opens the file of a key.
        limit: Maximum number of files. Many systems allow a process 1,024.
    """

    def __init__(self, open_file: Callable[[K], T], limit: int):
        self._open_file = open_file
        self._limit = limit
        self._files: dict[K, T] = {}  # the most recently used one last
        self._locks: dict[int, RLock] = {}

    @property
    def _lock(self) -> RLock:
        """Lock of this process: one that a thread has during a fork stays locked. It is reentrant: garbage collection
        in a thread that has the lock may call `release`."""
        return self._locks.setdefault(os.getpid(), RLock())

    def get(self, key: K) -> T:
        with self._lock:
            file = self._files.pop(key, None) or self._open_file(key)
            self._files[key] = file
            if len(self._files) > self._limit:
                del self._files[next(iter(self._files))]
            return file

    def release(self, key: K) -> None:
        """Close a file once no thread reads it."""
        with self._lock:
            self._files.pop(key, None)
