"""Check that a folder is writable, and compare paths."""

import os

from recordmill.schemas.paths import is_remote
from recordmill.transforms.storage.os_errors import explain_os_error
from recordmill.transforms.storage.resolve import storage_for


def real_path(path: str) -> str:
    """Return the canonical path of a file or folder."""
    return path.rstrip("/") if is_remote(path) else os.path.realpath(path)


def folder_fault(path: str) -> str:
    """Return the reason why a folder cannot be created or written at `path`; empty if it can. A bucket
    must exist and be readable.

    Raises:
        ConfigError, OSError: The answer of a bucket.
    """
    if is_remote(path):
        storage_for(path).is_folder(path)
        return ""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        return explain_os_error(error)
    above = path
    while not os.path.lexists(above):
        above = os.path.dirname(above) or "."
    if not os.path.isdir(above):
        what = "is a file" if above == path else f"is below {above}, which is a file"
        return f"{path} {what}. Choose a folder (it is created if needed)"
    if not os.access(above, os.W_OK | os.X_OK):
        start = "" if above == path else f"{path} cannot be created: "
        return (
            f"{start}this user may not write to {above}. Choose another folder, or change its permissions (see ls -ld)"
        )
    return ""
