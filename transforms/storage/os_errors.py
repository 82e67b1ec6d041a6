"""Messages for errors of the system: file, cause, cure."""

import ast
import errno
import os
import re
from typing import NamedTuple


class _Meaning(NamedTuple):
    """Cause of an errno, and its cure.

    Attributes:
        is_command_error: True if another path or other rights are the cure.
    """

    what: str
    cure: str
    is_command_error: bool = False


_NO_SPACE = _Meaning("no space is left", "Free some, or give a folder on another disk, and run the command again")
_CONNECTION = "Check the network and the address, and run the command again"

_MEANINGS = {
    errno.EACCES: _Meaning(
        "permission denied", "Change its permissions or those of the folders above it (see ls -ld)", True
    ),
    errno.EPERM: _Meaning(
        "not permitted", "Check its owner (ls -ld), and whether it is protected from changes (lsattr)", True
    ),
    errno.EROFS: _Meaning("its file system is read-only", "Write elsewhere, or mount it for writing", True),
    errno.ENOENT: _Meaning("no such file or folder", "Check the path", True),
    errno.ENOTDIR: _Meaning("a parent of the path is a file, not a folder", "Check the path", True),
    errno.EISDIR: _Meaning("it is a folder", "Give a file", True),
    errno.ELOOP: _Meaning("its links form a loop", "Give the path of the folder or file itself", True),
    errno.ENAMETOOLONG: _Meaning(
        "the name is too long", "Shorten it: most file systems allow 255 bytes per name and 4,095 per path", True
    ),
    errno.ENOSPC: _NO_SPACE,
    errno.EDQUOT: _Meaning("the disk quota of this user is used up", _NO_SPACE.cure),
    errno.EFBIG: _Meaning(
        "it would exceed the maximum size of files", "Raise the limit (ulimit -f), or write elsewhere"
    ),
    errno.EMFILE: _Meaning(
        "too many open files in this process", "Raise the limit (ulimit -n 4096), or lower --workers"
    ),
    errno.ENFILE: _Meaning("too many open files on this machine", "Close other programs, and run the command again"),
    errno.ENOMEM: _Meaning("there is not enough memory", "Lower --workers, or use a machine that has more"),
    errno.EIO: _Meaning("the disk failed to read or write", "Check the disk (dmesg), and run the command again"),
    errno.ESTALE: _Meaning("the network drive lost the file", "Mount the drive again, and run the command again"),
    errno.ETIMEDOUT: _Meaning("the connection timed out", _CONNECTION),
    errno.ECONNREFUSED: _Meaning("the connection was refused", _CONNECTION),
    errno.ECONNRESET: _Meaning("the connection was cut", _CONNECTION),
    errno.ENETUNREACH: _Meaning("the network cannot be reached", _CONNECTION),
    errno.EHOSTUNREACH: _Meaning("the machine cannot be reached", _CONNECTION),
}

_TEXT = re.compile(r"\[Errno (\d+)\] (.*?)(?:: (?:(?:b?'.*'|b?\".*\") -> )?(b?'.*'|b?\".*\"))?$")
"""Text of an OSError with up to two file names. The last name is that of the failed file."""
_SHOWN = 200


def is_command_error(error: OSError) -> bool:
    """Return True if the paths or rights of the command are the cause, and not the machine."""
    meaning = _MEANINGS.get(error.errno or 0)
    return meaning is not None and meaning.is_command_error


def explain_os_error(error: OSError) -> str:
    """Return a message with file, cause and cure.

    >>> explain_os_error(PermissionError(errno.EACCES, os.strerror(errno.EACCES), "out"))
    'out: permission denied. Change its permissions or those of the folders above it (see ls -ld)'
    """
    if error.errno is None:
        return str(error)
    path = error.filename2 or error.filename
    return _sentence(error.errno, error.strerror or "", path)


def explain_text(text: str) -> str:
    """Return the message for the text of an OSError in an error of Beam; "" for other texts."""
    match = _TEXT.search(text)
    if not match:
        return ""
    return _sentence(int(match[1]), match[2], ast.literal_eval(match[3]) if match[3] else None)


def _sentence(number: int, words: str, path: str | bytes | int | None) -> str:
    meaning = _MEANINGS.get(number)
    # Storages set other texts if they know more than the system.
    text = f"{meaning.what}. {meaning.cure}" if meaning and words == os.strerror(number) else words
    if path is None:
        return text
    shown = os.fsdecode(path) if not isinstance(path, int) else f"file {path}"
    shown = shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN // 2]}…{shown[-_SHOWN // 2 :]}"
    return f"{shown}: {text}"
