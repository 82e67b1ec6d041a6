"""Which storage holds a path: a local folder, a bucket, or a .zip archive in either."""

import os
import re
from functools import cache, lru_cache
from importlib.util import find_spec

from recordmill.schemas.errors import ConfigError, missing_extra
from recordmill.transforms.storage.fsspec_storage import FsspecStorage
from recordmill.transforms.storage.gcs_storage import GcsStorage
from recordmill.transforms.storage.interface import Storage, is_remote
from recordmill.transforms.storage.local_storage import LocalStorage
from recordmill.transforms.storage.zip_storage import ZipStorage

GCS = "gs"
"""The scheme of Google Cloud Storage, the only one of Dataflow's own files."""
_LOCAL = LocalStorage()
_S3_CURE = (
    "credentials come from AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; AWS_ENDPOINT_URL names another "
    "server than Amazon's"
)
# By scheme: the storage, the module that it needs, and the extra that installs the module.
_REMOTE: dict[str, tuple[Storage, str, str]] = {
    GCS: (GcsStorage(), "google.cloud.storage", "gs"),
    "s3": (FsspecStorage("s3", _S3_CURE), "s3fs", "fsspec"),
}
SCHEMES = tuple(_REMOTE)


def storage_for(path: str) -> Storage:
    """The storage that holds `path`.

    Raises:
        ConfigError: a scheme that no storage speaks.
    """
    archive = archive_of(path)
    return ZipStorage(archive, file_storage_for(archive)) if archive else file_storage_for(path)


def file_storage_for(path: str) -> Storage:
    """The storage that holds `path`, which is no member of an archive.

    Raises:
        ConfigError: a scheme that no storage speaks, or whose client is not installed.
    """
    scheme, separator, _ = path.partition("://")
    if not separator:
        return _LOCAL
    if scheme not in _REMOTE:
        known = " or ".join(f"{known}://bucket/folder" for known in _REMOTE)
        raise ConfigError(f"{path}: {scheme}:// is not supported; give a local path, {known}")
    storage, module, extra = _REMOTE[scheme]
    _require(module, scheme, extra)
    return storage


@cache
def _require(module: str, scheme: str, extra: str) -> None:
    try:
        found = find_spec(module)
    except ModuleNotFoundError:  # not even google.cloud
        found = None
    if not found:
        raise missing_extra(f"{scheme}://", extra)


_ARCHIVE = re.compile(r"\.zip(?=/|$)", re.IGNORECASE)


def archive_of(path: str) -> str:
    """The .zip that `path` is in, or is; empty where there is none. Folders may be called so, too."""
    if not _ARCHIVE.search(path):
        return ""
    candidates = (path[: match.end()] for match in _ARCHIVE.finditer(path))
    is_file = _is_remote_file if is_remote(path) else os.path.isfile
    return next(filter(is_file, candidates), "")


@lru_cache(maxsize=64)
def _is_remote_file(path: str) -> bool:
    return file_storage_for(path).size(path) is not None
