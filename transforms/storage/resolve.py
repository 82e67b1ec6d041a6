"""Find the storage of a path, match patterns, make local copies, and decompress gzip files."""

import difflib
import glob
import os
import re
import shutil
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib.util import find_spec
from itertools import chain
from tempfile import TemporaryDirectory

from recordmill.schemas.errors import AnnotationFileError, ConfigError, missing_extra
from recordmill.schemas.paths import GCS, is_remote
from recordmill.transforms.storage.fsspec_storage import FsspecStorage
from recordmill.transforms.storage.gcs_client import POOL_SIZE
from recordmill.transforms.storage.gcs_storage import GcsStorage
from recordmill.transforms.storage.interface import Storage
from recordmill.transforms.storage.local_storage import LocalStorage
from recordmill.transforms.storage.zip_storage import ZipStorage

_LOCAL = LocalStorage()
_S3_CURE = (
    "Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and for another server than Amazon's "
    "AWS_ENDPOINT_URL"
)
# By scheme: the storage, the module that it needs, and the extra that installs the module.
_REMOTE: dict[str, tuple[Storage, str, str]] = {
    GCS: (GcsStorage(), "google.cloud.storage", "gs"),
    "s3": (FsspecStorage("s3", _S3_CURE, config_kwargs={"max_pool_connections": POOL_SIZE}), "s3fs", "fsspec"),
}


_DRIVE = re.compile(r"([A-Za-z]):[\\/]+")


def tilde_hint(path: str) -> str:
    """Return a hint at a ~ that no shell has expanded, unless a folder has this name."""
    home = os.path.expanduser(path)
    if home == path or os.path.exists(path.split("/")[0]):
        return ""
    return f": only a shell expands ~, so give {home}"


def suggest_path(path: str) -> str:
    """Return a hint at the path that was probably meant."""
    if hint := tilde_hint(path):
        return hint
    if (drive := _DRIVE.match(path)) and not os.path.exists(path):
        below = path[drive.end() :].replace("\\", "/")
        return f": a path of Windows, in WSL /mnt/{drive[1].lower()}/{below}"
    if "\\" in path and os.path.exists(plain := path.replace("\\", "/")):
        return f" (did you mean {plain}?)"
    folder, name = os.path.split(path.rstrip("/"))
    if is_remote(path) or not os.path.isdir(folder or ".") or os.path.exists(path):
        return ""
    near = difflib.get_close_matches(name, os.listdir(folder or "."), 1)
    return f" (did you mean {os.path.join(folder, near[0])}?)" if near else ""


def storage_for(path: str) -> Storage:
    """Return the storage of `path`.

    Raises:
        ConfigError: See `file_storage_for`.
    """
    archive = find_archive(path)
    return ZipStorage(archive, file_storage_for(archive)) if archive else file_storage_for(path)


def file_storage_for(path: str) -> Storage:
    """Return the storage of `path`, which is not a member of an archive.

    Raises:
        ConfigError: The scheme is unknown, its client is not installed, or the path has no bucket.
    """
    scheme, separator, rest = path.partition("://")
    if not separator:
        if path.startswith(tuple(f"{known}:/" for known in _REMOTE)):
            raise ConfigError(f"{path} lacks a slash. Give {path.partition(':')[0]}://bucket/folder")
        return _LOCAL
    if scheme not in _REMOTE:
        known = " or ".join(f"{known}://bucket/folder" for known in _REMOTE)
        cure = f"Give a local path, {known}"
        if scheme == "file":
            cure = f"Give {rest}"
        elif scheme in ("http", "https", "ftp"):
            cure = "Download it, and give the local path"
        raise ConfigError(f"{path}: {scheme}:// is not supported. {cure}")
    if not rest.strip("/"):  # a path joined to "gs://" would be a local path
        raise ConfigError(f"{path} does not name a bucket. Give {scheme}://bucket/folder")
    storage, module, extra = _REMOTE[scheme]
    _require(module, scheme, extra)
    return storage


@cache
def _require(module: str, scheme: str, extra: str) -> None:
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:  # a parent module such as google.cloud is missing
        spec = None
    if not spec:
        raise missing_extra(f"{scheme}://", extra)


_ARCHIVE = re.compile(r"\.zip(?=/|$)", re.IGNORECASE)


def find_archive(path: str) -> str:
    """Return the .zip file that `path` is or is in; "" without. Folders named *.zip do not count."""
    if not _ARCHIVE.search(path):
        return ""
    candidates = (path[: match.end()] for match in _ARCHIVE.finditer(path))
    is_file = _is_remote_file if is_remote(path) else os.path.isfile
    return next(filter(is_file, candidates), "")


@lru_cache(maxsize=64)
def _is_remote_file(path: str) -> bool:
    return file_storage_for(path).size(path) is not None


def join_path(folder: str, name: str) -> str:
    """Return the path of a file in a folder."""
    if is_remote(folder) or find_archive(folder):
        return f"{folder.rstrip('/')}/{name}"
    return os.path.join(folder, name)


def list_existing(folder: str, names: Iterable[str]) -> list[str]:
    """Return the names of files that exist in a folder. A .zip with one folder has its files with and without the
    folder's name: of both, the last counts."""
    paths = ((name, join_path(folder, name)) for name in names)
    files = ((name, storage_for(path).stat(path)) for name, path in paths)
    return [*{file.path: name for name, file in files if file}.values()]


def split_folder(path: str) -> tuple[str, str]:
    """Split a path into folder and file name.

    >>> split_folder("gs://bucket/out/a.tfrecord"), split_folder("a.tfrecord")
    (('gs://bucket/out', 'a.tfrecord'), ('.', 'a.tfrecord'))
    """
    folder, slash, name = path.rpartition("/")
    return folder or slash or ".", name


_WILD = frozenset("*?[")


def match_files(pattern: str) -> list[str]:
    """Return the sorted files that match a pattern. A path without wild cards, or of an existing file, is returned
    unchanged. Brackets stand for themselves, or else for one of the characters in them.

    Raises:
        ConfigError: No file matches, or the folder of a pattern in a bucket has wild cards.
    """
    if not _WILD & set(pattern) or storage_for(pattern).size(pattern) is not None:
        return [pattern]
    paths = sorted(_glob_files(pattern, has_classes=False)) or sorted(_glob_files(pattern, has_classes=True))
    if not paths:
        raise ConfigError(f"{pattern}: no file matches")
    return paths


def _glob_files(pattern: str, has_classes: bool) -> Iterator[str]:
    """Yield the files that match. With classes, brackets stand for one of the characters in them."""
    folder, slash, name = pattern.rpartition("/")
    written = folder
    if not has_classes:
        written, name = written.replace("[", "[[]"), name.replace("[", "[[]")
    if not is_remote(pattern):
        # The name of an existing folder may have wild cards.
        above = glob.escape(folder) if os.path.isdir(folder) else written
        paths = glob.glob(f"{above}{slash}{name}", recursive=True)
        yield from filter(os.path.isfile, paths)
        return
    if {"*", "?"} & set(folder):
        raise ConfigError(f"{pattern}: in a bucket, only the file's name may have wild cards")
    storage = storage_for(folder)
    yield from (join_path(folder, file_name) for file_name in storage.names(folder) if fnmatchcase(file_name, name))


@contextmanager
def local_copy(path: str) -> Iterator[str]:
    """Yield a local path of a file: the path itself, or a temporary copy that is deleted when the block ends.

    Raises:
        ConfigError: The bucket or archive has no such file.
        OSError: Storage fails.
    """
    if not (is_remote(path) or find_archive(path)):
        yield path
        return
    storage = storage_for(path)
    with TemporaryDirectory(prefix="recordmill-") as folder:
        if storage.stat(path) is None:
            raise ConfigError(f"{path}: no such file")
        copy = os.path.join(folder, os.path.basename(path))
        with storage.open(path) as data, open(copy, "wb") as copied:
            shutil.copyfileobj(data, copied)
        yield copy


GZIP = b"\x1f\x8b"
_RATIO = 100
_ALWAYS = 256 << 20
"""Decompressed size that is always accepted. Above it, more than _RATIO is refused; JSON has factors of 3 to 30."""
_STEP = 1 << 20


def file_version(path: str) -> str:
    """Return the version of a file, see `check_unchanged`; empty if there is no file."""
    file = storage_for(path).stat(path)
    return file.version if file else ""


def check_unchanged(path: str, version: str) -> None:
    """Raise AnnotationFileError if a file that was read has another version. An empty version is any."""
    if version and file_version(path) != version:
        raise AnnotationFileError(f"{path} was changed while the job read it. Run again")


def read_unpacked(path: str) -> bytes:
    """Return all bytes of a file. A gzip file, with any name, is decompressed.

    Raises:
        AnnotationFileError: The file is truncated or damaged, or decompresses to more than 100 times its size, by
            gzip or as a member of a .zip.
        OSError: See `Storage.read`.
    """
    _check_ratio(path)
    data = storage_for(path).read(path)
    return unpack_gzip(path, data) if data.startswith(GZIP) else data


def unpack_gzip(path: str, data: bytes) -> bytes:
    """Decompress a gzip file, see `read_unpacked`."""
    return b"".join(_unpack_gzip(path, [data], len(data)))


def open_unpacked(path: str, most_bytes: int = _STEP) -> tuple[bool, Iterator[bytes]]:
    """Return whether a file is compressed, by gzip or in its archive (and so has no ranges), and the decompressed bytes
    of `read_unpacked` in pieces of at most `most_bytes`, or 1 MB."""
    is_compressed = _check_ratio(path)
    pieces = _file_pieces(path, min(most_bytes, _STEP))
    first = next(pieces, b"")
    whole = chain((first,), pieces)
    if first.startswith(GZIP):
        return True, _unpack_gzip(path, whole, storage_for(path).size(path) or 0)
    return is_compressed, whole


def _check_ratio(path: str) -> bool:
    """Return True if a file is a compressed member of an archive. Refuse a member that decompresses to too much."""
    file = storage_for(path).stat(path) if find_archive(path) else None
    if file is None or file.packed_bytes is None:
        return False
    most = max(_ALWAYS, _RATIO * file.packed_bytes)
    if file.size_bytes > most:
        raise _ratio_error(path, most)
    return True


def _ratio_error(path: str, most_bytes: int) -> AnnotationFileError:
    return AnnotationFileError(
        f"{path} is compressed and decompresses to more than {most_bytes:,} bytes, too many for a file of its size. If "
        "that is intended, give it decompressed"
    )


def _file_pieces(path: str, most_bytes: int) -> Iterator[bytes]:
    with storage_for(path).open(path) as file:
        yield from iter(lambda: file.read(max(len(GZIP), most_bytes)), b"")


def _unpack_gzip(path: str, packed: Iterable[bytes], packed_bytes: int) -> Iterator[bytes]:
    """Yield the contents of the members of a gzip file. Zeros may follow the last member."""
    pieces, data = iter(packed), b""
    given, most = 0, max(_ALWAYS, _RATIO * packed_bytes)
    member = None
    while True:
        if len(data) < len(GZIP):
            data += next(pieces, b"")
        if member is None:
            if not data.startswith(GZIP):
                if any(piece.strip(b"\0") for piece in chain((data,), pieces)):
                    raise AnnotationFileError(f"{path} has other bytes after its gzip data. Download it again")
                return
            member = zlib.decompressobj(wbits=31)
        try:
            content = member.decompress(data, _STEP)
        except zlib.error as error:
            raise AnnotationFileError(f"{path} is a damaged gzip file ({error}). Download it again") from error
        given += len(content)
        if given > most:
            raise _ratio_error(path, most)
        if content:
            yield content
        elif not data and not member.eof:
            raise AnnotationFileError(f"{path} is a truncated gzip file. Download it again")
        data = member.unused_data if member.eof else member.unconsumed_tail
        if member.eof:
            member = None
