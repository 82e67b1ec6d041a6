"""Google Cloud Storage: `gs://bucket/folder/file`."""

import errno
import gzip
import io
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from typing import BinaryIO

import google_crc32c

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.storage import gcs_client, gcs_requests
from recordmill.transforms.storage.gcs_client import retry, retry_at_once, split_path, translate_errors
from recordmill.transforms.storage.gcs_requests import GcsUpload, Metadata, read_metadata
from recordmill.transforms.storage.interface import (
    ALL_NAMES,
    ChangedFileError,
    NameRange,
    Storage,
    StoredFile,
    UnreadableFileError,
    crc32c_text,
    too_large,
)
from recordmill.transforms.storage.range_stream import RangeStream

RANGE_BYTES = 4 * 1024 * 1024
"""How much of a stream one request reads."""
READS = 32
"""Number of concurrent range requests of a process."""
DELETIONS = 16
"""How many deletions are in flight at once."""
_CRC32C = re.compile("crc32c=([^, ]+)")


class GcsStorage(Storage):
    """Buckets. See `recordmill.transforms.storage.interface.Storage` for what each method promises.

    Besides, every method may raise:
        ConfigError: there are no credentials, no such bucket, or no object in the path where one is needed.
        PermissionError: the account may not do it. No UnreadableFileError, as it will not be this object alone.
        OSError: what the server would not do in `gcs_client.RETRY_S` seconds of tries, or at all.
    """

    def walk(self, folder: str, within: NameRange = ALL_NAMES) -> Iterator[StoredFile]:
        """All objects below `folder`, in the order of names, `version` being their generation; none where there is no
        such folder."""
        bucket, prefix = _split_folder(folder)
        root = f"gs://{bucket}/{prefix}"
        for found in _list(folder, "items(name,size,generation)", within):
            if found.name < within.start or found.name >= (within.end or found.name + "-"):
                continue  # a stand-in's server may not know of ranges
            name = found.name[len(prefix) :]
            yield StoredFile(name, root + name, found.size, found.generation)

    def parts(self, folder: str) -> list[NameRange]:
        # The first page is enough: it has up to 1,000 sub-folders, and a folder of more files than that is one range.
        bucket, prefix = _split_folder(folder)
        query = {"prefix": prefix, "delimiter": "/", "fields": "prefixes,nextPageToken"}
        with translate_errors(folder):
            folders = sorted(next(gcs_requests.list_pages(folder, bucket, query)).prefixes)
        return [NameRange(*bounds) for bounds in pairwise(["", *folders[1:], ""])]

    def names(self, folder: str) -> list[str]:
        prefix = _split_folder(folder)[1]
        return sorted(found.name[len(prefix) :] for found in _list(folder, "items(name)", delimiter="/"))

    def is_folder(self, path: str) -> bool:
        """Whether there is anything below `path`; a bucket always is one."""
        first = next(_list(path, "items(name)", with_markers=True, maxResults=1), None)
        return first is not None or not split_path(path)[1]

    def stat(self, path: str) -> StoredFile | None:
        if path.endswith("/") or not split_path(path)[1]:
            return None
        try:
            found = read_metadata(path)
            return StoredFile(path.rpartition("/")[2], path, found.size, found.generation, found.crc32c)
        except FileNotFoundError:
            return None

    def regions(self, path: str) -> tuple[str, ...]:
        """Return the region, the multi-region (`us`), or both regions of the bucket of `path`; empty if unknown.

        The service does not list the regions of a predefined dual-region, such as `nam4`.
        """
        place = gcs_requests.read_place(path)
        is_one = place.location and place.location_type != "dual-region"
        found = place.custom_placement_config.get("dataLocations") or ([place.location] if is_one else [])
        return tuple(region.lower() for region in found)

    def protection(self, path: str) -> str:
        """Return the hold or retention policy that protects an object; empty without."""
        found = read_metadata(path)
        if found.event_based_hold:
            return "a hold, which new objects of the bucket are given"
        until = found.retention_expiration_time
        return f"the bucket's retention policy, until {until:%Y-%m-%d %H:%M} UTC" if until else ""

    def open(self, path: str, version: str = "") -> BinaryIO:
        """The object as a seekable stream, which reads `RANGE_BYTES` at a time.

        All of it is of one generation: replacing the object meanwhile makes reading fail. Ranges come without a
        checksum, so bytes are checked only if all of them are read from the first to the last, and then at the end.
        """
        found = read_metadata(path)
        if version not in ("", found.generation):
            raise ChangedFileError(errno.ESTALE, "written to since it was opened", path)
        if found.content_encoding == "gzip":  # its ranges would be of the compressed bytes
            return io.BytesIO(self.read(path, found.generation))
        ranges = _CheckedRanges(path, found.size, found.generation, found.crc32c)
        return io.BufferedReader(RangeStream(ranges, path, found.size, RANGE_BYTES), RANGE_BYTES)

    def read(self, path: str, version: str = "", most_bytes: int | None = None) -> bytes:
        """All bytes, by one request, their checksum checked. What is stored with gzip encoding is decompressed.

        Args:
            version: as of `walk`; empty for the newest.
            most_bytes: reading ends when more have come: what an object's size is need not be asked before.

        Raises:
            UnreadableFileError: the bytes did not match their checksum, time and again; a FileTooLargeError: there are
                more than `most_bytes`.
        """
        from google.cloud.storage.exceptions import DataCorruption

        def download() -> bytes:
            answer = gcs_requests.read_object(path, version, most_bytes=most_bytes)
            expected = _CRC32C.search(answer.headers.get("X-Goog-Hash", ""))
            if expected and expected[1] != crc32c_text(google_crc32c.Checksum(answer.data)):
                raise DataCorruption(None, f"their checksum is not {expected[1]}, as that of what is stored")
            is_packed = answer.headers.get("Content-Encoding") == "gzip"
            return _unpacked(path, answer.data, most_bytes) if is_packed else answer.data

        with translate_errors(path, version):
            try:
                return retry_at_once(retry(path)(download), lambda error: isinstance(error, DataCorruption))
            except DataCorruption as error:
                strerror = f"its bytes did not match their checksum when they came, {gcs_client.TRIES} times"
                raise UnreadableFileError(errno.EIO, strerror, path) from error

    def read_range(self, path: str, start: int, length: int, version: str = "") -> bytes:
        """The `length` bytes from `start` on, as stored; fewer only where the object ends. They have no checksum."""
        from google.api_core.exceptions import RequestRangeNotSatisfiable

        if length <= 0:
            return b""
        range_ = f"bytes={start}-{start + length - 1}"
        with translate_errors(path, version):
            try:
                return retry(path)(gcs_requests.read_object)(path, version, range_).data
            except RequestRangeNotSatisfiable:
                return b""

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str) -> list[bytes]:
        """A request each, several at once."""
        if len(ranges) == 1:
            return [self.read_range(path, *ranges[0], version)]
        return list(_readers(os.getpid()).map(lambda each: self.read_range(path, each[0], each[1], version), ranges))

    def checksum(self, path: str) -> tuple[int, str]:
        found = read_metadata(path)
        return found.size, found.crc32c

    def create(self, path: str, folder: str = "") -> GcsUpload:
        return GcsUpload(path, self.move)

    def move(self, path: str, target: str) -> None:
        """A copy, which the server makes, and then a deletion."""
        gcs_requests.copy_object(path, target)
        self.delete(path)

    def delete(self, path: str) -> None:
        gcs_requests.delete_object(path)

    def delete_folder(self, path: str) -> None:
        """Delete all that is below a folder, which cannot be a whole bucket."""
        bucket, prefix = _split_folder(path)
        if not prefix:
            raise ConfigError(f"{path} is a whole bucket, which is not deleted; name a folder in it")
        paths = [f"gs://{bucket}/{found.name}" for found in _list(path, "items(name)", with_markers=True)]
        with ThreadPoolExecutor(DELETIONS) as pool:
            list(pool.map(self.delete, paths))


@lru_cache(maxsize=1)
def _readers(process: int) -> ThreadPoolExecutor:
    """The threads that read ranges; none of them survives a fork."""
    return ThreadPoolExecutor(READS, "ranges")


def _unpacked(path: str, data: bytes, most_bytes: int | None) -> bytes:
    """Return the contents of bytes with gzip encoding."""
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        unpacked = file.read(-1 if most_bytes is None else most_bytes + 1)
    if most_bytes is not None and len(unpacked) > most_bytes:
        raise too_large(path, None, most_bytes)
    return unpacked


class _CheckedRanges:
    """Reads ranges of an object; if they are read from its first byte to its last, their checksum is checked, too."""

    def __init__(self, path: str, size_bytes: int, version: str, crc32c: str):
        self._path = path
        self._size = size_bytes
        self._version = version
        self._crc32c = crc32c
        self._checksum = google_crc32c.Checksum()
        self._summed = 0  # so many bytes from the first on

    def __call__(self, start: int, length: int) -> bytes:
        return retry_at_once(lambda: self._read(start, length), lambda error: isinstance(error, UnreadableFileError))

    def _read(self, start: int, length: int) -> bytes:
        data = GcsStorage().read_range(self._path, start, length, self._version)
        if start == self._summed:
            checksum = self._checksum.copy()
            checksum.update(data)
            end = start + len(data)
            if end == self._size and crc32c_text(checksum) != self._crc32c:
                raise UnreadableFileError(errno.EIO, "its bytes did not match their checksum", self._path)
            self._checksum, self._summed = checksum, end
        return data


def _split_folder(path: str) -> tuple[str, str]:
    """Bucket, and what the names of all objects in the folder begin with."""
    bucket, name = split_path(path)
    name = name.rstrip("/")
    return bucket, f"{name}/" if name else ""


# Requests


def _list(
    folder: str, fields: str, within: NameRange = ALL_NAMES, with_markers: bool = False, **query: str | int
) -> Iterator[Metadata]:
    """Objects below a folder. Markers are objects whose names end in `/`: consoles make them to show empty folders."""
    bucket, prefix = _split_folder(folder)
    bounds = {"prefix": prefix, "startOffset": within.start, "endOffset": within.end}
    asked = {**bounds, "fields": f"{fields},nextPageToken", **query}
    with translate_errors(folder):
        for page in gcs_requests.list_pages(folder, bucket, asked):
            yield from page.items if with_markers else (found for found in page.items if not found.name.endswith("/"))
