"""File names as COCO rows give them. They are input that must not be trusted."""

import posixpath
import re
import unicodedata
from typing import Literal, NamedTuple

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_DRIVE = re.compile(r"[A-Za-z]:")
_DATASET = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_MAX_DATASET = 80


Match = Literal["path", "suffix", "name"]
"""Match of an image's name with a file's: the complete name, the longest common end, or the last part."""


class NameSources(NamedTuple):
    """Sources of the names of images and files."""

    images: tuple[str, ...]  # folders of image files
    rows: tuple[str, ...]  # what names the images: COCO's JSON files, or tables
    match: str = ""  # a Match; empty where the verb has no such option
    is_listed: bool = True  # whether the folders were looked into


def name_fault(file_name: str) -> str:
    """Why a name must not be looked up below an image folder; empty for a good one.

    >>> name_fault("train2017/a b.jpg"), name_fault("../x")
    ('', 'has .. in it')
    """
    if not file_name.strip():
        return "is empty"
    if has_control_character(file_name):
        return "has a control character"
    if _SCHEME.match(file_name):
        return "is a URL"
    if is_absolute(file_name):
        return "is an absolute path"
    if ".." in file_name and ".." in re.split(r"[/\\]", file_name):
        return "has .. in it"
    return ""


def is_absolute(file_name: str) -> bool:
    """Return True if the name is an absolute path or a URL."""
    return file_name.startswith(("/", "\\")) or bool(_DRIVE.match(file_name) or _SCHEME.match(file_name))


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
    return not text.isprintable() and any(unicodedata.category(char) in ("Cc", "Cs") for char in text)


def name_key(file_name: str) -> str:
    """A key that is equal for all spellings of one name: `./a//b.jpg` and `a/b.jpg`; an accented letter written as one
    character or as two (NFC).

    macOS stores names decomposed, JSON files mostly hold them composed.
    """
    return unicodedata.normalize("NFC", posixpath.normpath(file_name))


def name_parts(file_name: str) -> list[str]:
    r"""Folders and name, whether / or \ is between them; at least one part.

    >>> name_parts("C:\\data\\1.jpg"), name_parts("/img//1.jpg")
    (['C:', 'data', '1.jpg'], ['img', '1.jpg'])
    """
    return [part for part in re.split(r"[/\\]", name_key(file_name)) if part] or [""]
