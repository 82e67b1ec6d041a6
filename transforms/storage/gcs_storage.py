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
"""Number of bytes that one request of a stream reads."""
READS = 32
"""Number of concurrent range requests of a process."""
DELETIONS = 16
"""Maximum number of concurrent deletions."""
_CRC32C = re.compile("crc32c=([^, ]+)")


class GcsStorage(Storage):
    """Buckets of Google Cloud Storage. See `recordmill.transforms.storage.interface.Storage` for the methods.

    Every method may also raise:
        ConfigError: The credentials or the bucket are missing, or the path must name an object and does not.
        PermissionError: The account lacks a permission. It is no UnreadableFileError, because other objects fail too.
        OSError: The server refuses the request, or fails for `gcs_client.RETRY_S` seconds of retries.
    """

    def walk(self, folder: str, within: NameRange = ALL_NAMES) -> Iterator[StoredFile]:
        """Yield all objects below `folder`, ordered by name; none if the folder does not exist. `version` is the
        generation."""
        bucket, prefix = _split_folder(folder)
        root = f"gs://{bucket}/{prefix}"
        for item in _list_objects(folder, "items(name,size,generation)", within):
            if item.name < within.start or item.name >= (within.end or item.name + "-"):
                continue  # emulators may not support ranges
            name = item.name[len(prefix) :]
            yield StoredFile(root + name, item.size, item.generation, name)

    def parts(self, folder: str) -> list[NameRange]:
        # The first page is enough: it has up to 1,000 sub-folders. A folder with more files before them is one range.
        bucket, prefix = _split_folder(folder)
        query = {"prefix": prefix, "delimiter": "/", "fields": "prefixes,nextPageToken"}
        with translate_errors(folder):
            folders = sorted(next(gcs_requests.list_pages(folder, bucket, query)).prefixes)
        return [NameRange(*bounds) for bounds in pairwise(["", *folders[1:], ""])]

    def names(self, folder: str) -> list[str]:
        prefix = _split_folder(folder)[1]
        return sorted(item.name[len(prefix) :] for item in _list_objects(folder, "items(name)", delimiter="/"))

    def is_folder(self, path: str) -> bool:
        """Return True if `path` has objects below it. Return True for any bucket."""
        first = next(_list_objects(path, "items(name)", with_markers=True, maxResults=1), None)
        return first is not None or not split_path(path)[1]

    def stat(self, path: str) -> StoredFile | None:
        if path.endswith("/") or not split_path(path)[1]:
            return None
        try:
            metadata = read_metadata(path)
            return StoredFile(path, metadata.size, metadata.generation, path.rpartition("/")[2], metadata.crc32c)
        except FileNotFoundError:
            return None

    def regions(self, path: str) -> tuple[str, ...]:
        """Return the region, the multi-region (`us`), or both regions of the bucket of `path`; empty if unknown.

        The service does not list the regions of a predefined dual-region, such as `nam4`.
        """
        place = gcs_requests.read_place(path)
        is_one = place.location and place.location_type != "dual-region"
        locations = place.custom_placement_config.get("dataLocations") or ([place.location] if is_one else [])
        return tuple(region.lower() for region in locations)

    def protection(self, path: str) -> str:
        """Return an object's hold or retention policy, or ""."""
        metadata = read_metadata(path)
        if metadata.event_based_hold:
            return "a hold, which the bucket places on new objects"
        until = metadata.retention_expiration_time
        return f"the bucket's retention policy, until {until:%Y-%m-%d %H:%M} UTC" if until else ""

    def open(self, path: str, version: str = "") -> BinaryIO:
        """Return the object as a seekable stream that reads `RANGE_BYTES` at a time.

        The stream reads one generation, and fails if the object is replaced meanwhile. Ranges carry no checksum, so
        the bytes are verified only by reading from the first to the last byte, at the end.
        """
        metadata = read_metadata(path)
        if version not in ("", metadata.generation):
            raise ChangedFileError(errno.ESTALE, "written to since it was opened", path)
        if metadata.content_encoding == "gzip":  # ranges would be of the compressed bytes
            return io.BytesIO(self.read(path, metadata.generation))
        ranges = _CheckedRanges(path, metadata.size, metadata.generation, metadata.crc32c)
        return io.BufferedReader(RangeStream(ranges, path, metadata.size, RANGE_BYTES), RANGE_BYTES)

    def read(self, path: str, version: str = "", most_bytes: int | None = None) -> bytes:
        """Return all bytes by one request, with verified checksum. Objects with gzip encoding are decompressed.

        Args:
            version: Generation, as from `walk`; empty for the newest.
            most_bytes: Maximum number of bytes. Reading stops beyond, so that no request for the size is needed.

        Raises:
            UnreadableFileError: The bytes did not match their checksum after all retries.
            FileTooLargeError: The object has more than `most_bytes`.
        """
        from google.cloud.storage.exceptions import DataCorruption

        def download() -> bytes:
            headers, body = gcs_requests.read_object(path, version, most_bytes=most_bytes)
            expected = _CRC32C.search(headers.get("X-Goog-Hash", ""))
            if expected and expected[1] != crc32c_text(google_crc32c.Checksum(body)):
                raise DataCorruption(None, f"their checksum is not {expected[1]}, that of the object")
            is_packed = headers.get("Content-Encoding") == "gzip"
            return _decompress_gzip(path, body, most_bytes) if is_packed else body

        with translate_errors(path, version):
            try:
                return retry_at_once(retry(path)(download), lambda error: isinstance(error, DataCorruption))
            except DataCorruption as error:
                strerror = f"the received bytes did not match their checksum in {gcs_client.TRIES} tries"
                raise UnreadableFileError(errno.EIO, strerror, path) from error

    def read_range(self, path: str, start: int, length: int, version: str = "") -> bytes:
        """Return `length` stored bytes from `start`; fewer at the end of the object. The bytes are not verified."""
        from google.api_core.exceptions import RequestRangeNotSatisfiable

        if length <= 0:
            return b""
        range_ = f"bytes={start}-{start + length - 1}"
        with translate_errors(path, version):
            try:
                return retry(path)(gcs_requests.read_object)(path, version, range_)[1]
            except RequestRangeNotSatisfiable:
                return b""

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str) -> list[bytes]:
        """Read each range by one request, concurrently."""
        if len(ranges) == 1:
            return [self.read_range(path, *ranges[0], version)]
        return list(
            _readers(os.getpid()).map(lambda range_: self.read_range(path, range_[0], range_[1], version), ranges)
        )

    def checksum(self, path: str) -> tuple[int, str]:
        metadata = read_metadata(path)
        return metadata.size, metadata.crc32c

    def create(self, path: str, folder: str = "") -> GcsUpload:
        return GcsUpload(path, self.move)

    def move(self, path: str, target: str) -> None:
        """Copy on the server, then delete: buckets cannot rename atomically."""
        gcs_requests.copy_object(path, target)
        self.delete(path)

    def delete(self, path: str) -> None:
        gcs_requests.delete_object(path)

    def delete_folder(self, path: str) -> None:
        """Delete all objects below a folder. A complete bucket is refused with a ConfigError."""
        bucket, prefix = _split_folder(path)
        if not prefix:
            raise ConfigError(f"{path} is a bucket, not a folder, and is not deleted. Name a folder in it")
        paths = [f"gs://{bucket}/{item.name}" for item in _list_objects(path, "items(name)", with_markers=True)]
        with ThreadPoolExecutor(DELETIONS) as pool:
            list(pool.map(self.delete, paths))


@lru_cache(maxsize=1)
def _readers(process: int) -> ThreadPoolExecutor:
    """Return the thread pool of a process for range reads. Threads do not survive a fork."""
    return ThreadPoolExecutor(READS, "ranges")


def _decompress_gzip(path: str, data: bytes, most_bytes: int | None) -> bytes:
    """Decompress bytes with gzip encoding."""
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        unpacked = file.read(-1 if most_bytes is None else most_bytes + 1)
    if most_bytes is not None and len(unpacked) > most_bytes:
        raise too_large(path, None, most_bytes)
    return unpacked


class _CheckedRanges:
    """Reader of ranges of an object. It verifies the checksum if the ranges run from the first to the last byte."""

    def __init__(self, path: str, size_bytes: int, version: str, crc32c: str):
        self._path = path
        self._size = size_bytes
        self._version = version
        self._crc32c = crc32c
        self._checksum = google_crc32c.Checksum()
        self._summed = 0  # number of bytes in the checksum, from the first byte

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
    """Return the bucket, and the prefix of all object names in the folder."""
    bucket, name = split_path(path)
    name = name.rstrip("/")
    return bucket, f"{name}/" if name else ""


# Requests


def _list_objects(
    folder: str, fields: str, within: NameRange = ALL_NAMES, with_markers: bool = False, **query: str | int
) -> Iterator[Metadata]:
    """Yield objects below a folder. Markers, whose names end in `/`, are made by consoles to show empty folders."""
    bucket, prefix = _split_folder(folder)
    bounds = {"prefix": prefix, "startOffset": within.start, "endOffset": within.end}
    asked = {**bounds, "fields": f"{fields},nextPageToken", **query}
    with translate_errors(folder):
        for page in gcs_requests.list_pages(folder, bucket, asked):
            yield from page.items if with_markers else (item for item in page.items if not item.name.endswith("/"))
