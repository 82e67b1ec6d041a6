"""How the bytes of a shard's images are fetched: a file by one read, members of an archive in a bucket by a few reads.

A request to a bucket takes some 30 ms whatever it brings, so members that are neighbours in the archive come together.
The images of a shard are in the order of a hash, so its members are first sorted into spans, and a span's bytes are
kept until the last of its members has been asked for. What is kept is bounded: a shard is cut into windows of
WINDOW_BYTES of images, spans are of one window, and at most half of a span is what lies between its members.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from recordmill.schemas.images import ImageRef
from recordmill.schemas.limits import MAX_FILE_BYTES
from recordmill.transforms.storage.interface import is_remote
from recordmill.transforms.storage.resolve import archive_of, storage_for
from recordmill.transforms.storage.zip_members import DamagedMemberError
from recordmill.transforms.storage.zip_storage import ZipStorage

WINDOW_BYTES = 200_000_000
SPAN_BYTES = 8 << 20
GAP_BYTES = 128 << 10
"""The largest gap between two members that is read to save a request; gaps are never more than half of a span."""

Fetch = Callable[[ImageRef], bytes]
"""Reads an image file; used by several threads.

Raises:
    FileNotFoundError: it is gone since it was listed, or (a ChangedFileError) another one is there.
    UnreadableFileError: only this file cannot be read; a FileTooLargeError where it has more than MAX_FILE_BYTES.
    OSError: storage fails.
"""


def fetch_file(file: ImageRef) -> bytes:
    """A Fetch that takes one read per file."""
    return storage_for(file.path).read(file.path, file.version, MAX_FILE_BYTES)


def fetch_for(files: Iterable[ImageRef]) -> Fetch:
    """How to fetch these files. They are all asked for, in about this order: what is not asked for would be kept."""
    members = [file for file in files if is_remote(file.path) and archive_of(file.path)]
    return FetchMembers(members) if members else fetch_file


class Member(NamedTuple):
    """The bytes of a member of an archive, with its header."""

    start: int
    length: int
    path: str


class FetchMembers:
    """A Fetch of members of archives in buckets, in few reads; of other files a read each.

    Args:
        files: the members.
    """

    def __init__(self, files: Iterable[ImageRef]):
        self._spans: dict[str, _Span] = {}
        for window in _windows(file for file in files if file.size_bytes <= MAX_FILE_BYTES):
            by_archive: dict[str, tuple[ZipStorage, list[Member]]] = {}
            for file in window:
                path = file.path
                storage = storage_for(path)
                if isinstance(storage, ZipStorage) and (extent := storage.span(path)):
                    if extent[1] > MAX_FILE_BYTES:  # it says that it unpacks to less; reading it alone is refused
                        continue
                    by_archive.setdefault(storage.archive, (storage, []))[1].append(Member(*extent, path))
            for storage, members in by_archive.values():
                for span in spans_of(members):
                    shared = _Span(storage, span)
                    self._spans |= {member.path: shared for member in span}

    def __call__(self, file: ImageRef) -> bytes:
        span = self._spans.get(file.path)
        if span:
            try:
                return span.take(file.path, file.version)
            except DamagedMemberError:
                pass  # damaged in transfer, perhaps: it is read again
        return fetch_file(file)


class _Span:
    """Neighbouring members, read when the first of them is asked for and forgotten with the last."""

    def __init__(self, storage: ZipStorage, members: Sequence[Member]):
        self._storage = storage
        self._members = {member.path: member for member in members}
        self._start = members[0].start
        self._end = max(member.start + member.length for member in members)
        self._wanted = set(self._members)
        self._data = b""
        self._lock = threading.Lock()

    def take(self, path: str, version: str) -> bytes:
        """The content of a member."""
        member = self._members[path]
        with self._lock:
            if not self._data:
                self._data = self._storage.read_span(self._start, self._end - self._start)
            begin = member.start - self._start
            data = self._data[begin : begin + member.length]
            self._wanted.discard(path)
            if not self._wanted:
                self._data = b""
        return self._storage.unpack(path, data, version)


def _windows(files: Iterable[ImageRef]) -> Iterator[list[ImageRef]]:
    """Files in their order, up to WINDOW_BYTES of them together; some windows may be empty."""
    window: list[ImageRef] = []
    size = 0
    for file in files:
        if size + file.size_bytes > WINDOW_BYTES:
            yield window
            window, size = [], 0
        window.append(file)
        size += file.size_bytes
    yield window


def spans_of(members: Iterable[Member]) -> Iterator[list[Member]]:
    """Members in spans of neighbours, each of SPAN_BYTES at the most unless one member is larger."""
    span: list[Member] = []
    end = between = 0  # the span's end, and its bytes that are of no member
    for member in sorted(set(members)):
        last = member.start + member.length
        gap = max(0, member.start - end) if span else 0
        size = last - span[0].start if span else 0
        if span and (gap > GAP_BYTES or size > SPAN_BYTES or 2 * (between + gap) > size):
            yield span
            span, between, gap = [], 0, 0
        span.append(member)
        end, between = max(end, last), between + gap
    if span:
        yield span
