"""Write files from records, never outside of one folder."""

import errno
import hashlib
import posixpath
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import google_crc32c
import msgspec
import numpy as np

from recordmill.schemas.features import FeatureKind, FeatureTable
from recordmill.schemas.field_features import is_field
from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.names import name_fault
from recordmill.schemas.paths import is_remote
from recordmill.transforms.images.load_images import fetch_file
from recordmill.transforms.records.parse_record import (
    RecordParseError,
    RecordParser,
    convert_to_layout_types,
    length_faults,
)
from recordmill.transforms.storage.interface import UnreadableFileError, crc32c_text
from recordmill.transforms.storage.resolve import find_archive, join_path, storage_for


class UnusableRecordError(ValueError):
    """Error of a record, or a part of one, that cannot be extracted. It becomes a Fault.

    Attributes:
        reason: `schema`, `object_lists`, `keypoints`, `image_undecodable`, `file_name` or `mask`.
    """

    def __init__(self, reason: str, detail: str):
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def read_record(record: bytes, table: FeatureTable, labels: LabelMap) -> dict[str, Any]:
    """Return values by source: bytes for a single text or file, and otherwise a flat array.

    Raises:
        UnusableRecordError: The record does not parse, lists of objects differ in length, or a number is not finite.
    """
    try:
        values = RecordParser(table)(record)
    except RecordParseError as error:
        raise UnusableRecordError("schema", str(error)) from error
    for reason, detail in length_faults(values, table, labels.keypoints):
        raise UnusableRecordError(reason, detail)
    for feature in table.features:
        has_nan = is_field(feature.source)  # for a missing value
        if feature.kind is FeatureKind.FLOAT and not has_nan and not np.isfinite(values[feature.source]).all():
            raise UnusableRecordError("schema", f"{feature.name} has a number that is not finite")
    return convert_to_layout_types(values, table, labels)


def decode_text(value: bytes, name: str) -> str:
    """Return UTF-8 bytes as text; `name` is for the message.

    Raises:
        UnusableRecordError: The bytes are not UTF-8.
    """
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise UnusableRecordError("schema", f"{name} is not UTF-8: {value[:80]!r}") from error


_NAME_ERRORS = {errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EINVAL, errno.EILSEQ, errno.ELOOP}
"""Error numbers that are caused by a name, and not by the disk."""
_REMEMBERED = 10_000
"""Maximum number of recent files that a writer skips when they repeat."""


class ExtractedFile(msgspec.Struct, frozen=True):
    """A file to write.

    Attributes:
        path: Path relative to the folder.
        data: Contents.
        source: File to link in place of writing `data`; None without one.
    """

    path: str
    data: bytes
    source: ImageFile | None = None


class WrittenFile(msgspec.Struct, frozen=True):
    """A file that was written.

    Attributes:
        path: Path relative to the folder.
        sha256: Hex digest; equal for equal contents. That of a link identifies the file that it leads to.
        crc32c: Checksum of `Storage.checksum`; empty for a link.
    """

    path: str
    bytes: int
    sha256: str
    crc32c: str
    is_linked: bool = False


def extraction_path(folder: str, file_name: str) -> str:
    """Return `file_name` inside `folder`.

    Raises:
        UnusableRecordError: The name leads outside the folder, or is not the name of a file.

    >>> extraction_path("images/val", "./more//a.jpg")
    'images/val/more/a.jpg'
    """
    fault = name_fault(file_name)
    plain = posixpath.normpath(file_name) if not fault else ""
    if fault or plain == ".":
        raise UnusableRecordError("file_name", f"the file name {file_name!r} {fault or 'is the name of a folder'}")
    return f"{folder}/{plain}"


def describe_file(file: ExtractedFile) -> WrittenFile:
    """Return a file's path, size and checksums, as if it had been written."""
    crc32c = crc32c_text(google_crc32c.Checksum(file.data))
    return WrittenFile(file.path, len(file.data), hashlib.sha256(file.data).hexdigest(), crc32c)


class FileWriter:
    """Writer of files below a folder. Thread-safe."""

    def __init__(self, folder: str):
        self._folder = folder
        self._storage = storage_for(folder)
        self._written: OrderedDict[str, str] = OrderedDict()
        self._lock = Lock()

    def write(self, file: ExtractedFile) -> WrittenFile:
        """Write a file, unless the same file was written recently: records of an image's objects follow each other.

        Raises:
            UnusableRecordError: A file cannot have that name.
            OSError: Storage fails.
        """
        if file.source is not None and self._link(file.path, file.source):
            digest = hashlib.sha256(msgspec.msgpack.encode(file.source)).hexdigest()
            return WrittenFile(file.path, file.source.size_bytes, digest, "", True)
        data = file.data if file.source is None else read_source(file.source)
        written = describe_file(ExtractedFile(file.path, data))
        with self._lock:
            if self._written.get(file.path) == written.sha256:
                return written
        with _name_errors(file.path):
            self._storage.write(join_path(self._folder, file.path), data)
        with self._lock:  # only after the write: it may fail, and other threads read this
            self._written[file.path] = written.sha256
            if len(self._written) > _REMEMBERED:
                self._written.popitem(last=False)
        return written

    def _link(self, path: str, source: ImageFile) -> bool:
        """Link a file, unless it was replaced after it was listed. Return False if it must be copied."""
        if is_remote(source.path) or find_archive(source.path):
            return False
        stored = storage_for(source.path).stat(source.path)
        if stored is None or source.version not in ("", stored.version):
            return False  # the read of its bytes reports why
        with _name_errors(path):
            return self._storage.link_file(join_path(self._folder, path), source.path)


@contextmanager
def _name_errors(path: str) -> Iterator[None]:
    """Convert errors that are caused by the name of a file to UnusableRecordError."""
    try:
        yield
    except RecursionError as error:  # os.makedirs supports about a thousand levels of folders
        raise _file_name_error(path, "its folders are nested too deeply") from error
    except OSError as error:
        if error.errno not in _NAME_ERRORS:
            raise
        raise _file_name_error(path, str(error.strerror)) from error


def read_source(file: ImageFile) -> bytes:
    """Return the bytes of an image file.

    Raises:
        UnusableRecordError: The file is gone, was replaced, or cannot be read.
        OSError: Storage fails.
    """
    try:
        return fetch_file(file)
    except (FileNotFoundError, UnreadableFileError) as error:
        raise UnusableRecordError("image_missing", f"{file.path}: {error.strerror}") from error


def _file_name_error(path: str, why: str) -> UnusableRecordError:
    return UnusableRecordError("file_name", f"the file {path[:300]!r} cannot be created ({why})")


def is_unchanged(folder: str, file: WrittenFile) -> bool:
    """Return True if a file still has the written bytes, and can be read; for a link, if it exists."""
    try:
        if file.is_linked:
            return storage_for(folder).size(join_path(folder, file.path)) == file.bytes
        return storage_for(folder).checksum(join_path(folder, file.path)) == (file.bytes, file.crc32c)
    except OSError:  # the file is written again, which reports the error if it fails
        return False
