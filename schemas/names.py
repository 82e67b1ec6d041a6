"""File names as COCO rows give them. They are input that must not be trusted."""

import posixpath
import re
import unicodedata

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_DRIVE = re.compile(r"[A-Za-z]:")
_DATASET = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_MAX_DATASET = 80


def name_fault(file_name: str) -> str:
    """Why a name must not be looked up below an image folder; empty for a good one.

    >>> name_fault("train2017/a b.jpg"), name_fault("../x")
    ('', 'leads out of the image folder')
    """
    if not file_name.strip():
        return "is empty"
    if has_control_character(file_name):
        return "has a control character"
    if _SCHEME.match(file_name):
        return "is a URL"
    if file_name.startswith(("/", "\\")) or _DRIVE.match(file_name):
        return "is an absolute path"
    if ".." in re.split(r"[/\\]", file_name):
        return "leads out of the image folder"
    return ""


def dataset_name_fault(name: str) -> str:
    """Why a data set, whose name begins its files' names, cannot be called that; empty for a good name.

    >>> dataset_name_fault("coco-2017"), dataset_name_fault("../x")
    ('', 'must be letters, digits, _ . - and begin with a letter or digit')
    """
    if not _DATASET.fullmatch(name):
        return "must be letters, digits, _ . - and begin with a letter or digit"
    return "" if len(name) <= _MAX_DATASET else f"has {len(name)} characters; file names have room for {_MAX_DATASET}"


def has_control_character(text: str) -> bool:
    """Whether there is one, or half of a surrogate pair, which no UTF-8 has."""
    return any(unicodedata.category(char) in ("Cc", "Cs") for char in text)


def name_key(file_name: str) -> str:
    """A key that is equal for all spellings of one name: `./a//b.jpg` and `a/b.jpg`; an accented letter written as one
    character or as two (NFC).

    macOS stores names decomposed, JSON files mostly hold them composed.
    """
    return unicodedata.normalize("NFC", posixpath.normpath(file_name))
