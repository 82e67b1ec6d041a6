"""File names from COCO rows. They are untrusted input."""

import posixpath
import re
import shlex
import unicodedata
from typing import Literal, NamedTuple

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_DRIVE = re.compile(r"[A-Za-z]:")
_DATASET = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_MAX_DATASET = 80
_MAX_FOLDER = 255


Match = Literal["path", "suffix", "name"]
"""Rule to match an image's name with a file's: complete path, longest common suffix, or last part."""


class NameSources(NamedTuple):
    """Sources of the names of images and files."""

    images: tuple[str, ...]  # folders of image files
    rows: tuple[str, ...]  # files that name the images: COCO's JSON files, or tables
    match: str = ""  # a Match; empty if the verb has no such option
    is_listed: bool = True  # True if the folders were listed
    images_option: str = "--images"  # option of the folders of image files; DATA if they are positional
    most_folders: int | None = None  # maximum number of folders of image files; None without a limit

    def use_images(self, *folders: str) -> str:
        """Return the words that name folders of images in a command. The current folder is `./`, because a sentence may
        end after it.

        >>> NameSources((), ()).use_images(".", "b"), NameSources((), (), images_option="DATA").use_images("a b", "b")
        ('--images ./ --images b', "'a b' b as DATA")
        """
        words = [shlex.quote("./" if folder == "." else folder) for folder in folders]
        if self.images_option == "DATA":
            return f"{' '.join(words)} as DATA"
        return " ".join(f"{self.images_option} {word}" for word in words)


def name_fault(file_name: str) -> str:
    """Return the reason why a name must not be looked up below an image folder; empty for a valid name.

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


def set_name_fault(name: object) -> str:
    """Return the reason why a set of several data sets cannot have the name, with which its file names begin; empty for
    a valid name.

    >>> set_name_fault("coco 2017"), set_name_fault("a/b"), set_name_fault("."), set_name_fault(None)
    ('', 'has a slash', 'is the folder itself', 'is not a text')
    """
    if not isinstance(name, str):
        return "is not a text"
    if "/" in name or "\\" in name:
        return "has a slash"
    if name == ".":
        return "is the folder itself"
    if len(name.encode(errors="replace")) > _MAX_FOLDER:
        return f"has more than {_MAX_FOLDER} bytes, the most of a folder's name"
    return name_fault(name)


def is_absolute(file_name: str) -> bool:
    """Return True for an absolute path or a URL."""
    return file_name.startswith(("/", "\\")) or bool(_DRIVE.match(file_name) or _SCHEME.match(file_name))


def dataset_name_fault(name: str) -> str:
    """Return the reason why a data set, and so its files, cannot have the name; empty for a valid name.

    >>> dataset_name_fault("coco-2017"), dataset_name_fault("../x")
    ('', 'must be letters, digits, _ . - and begin with a letter or digit')
    """
    if not _DATASET.fullmatch(name):
        return "must be letters, digits, _ . - and begin with a letter or digit"
    return "" if len(name) <= _MAX_DATASET else f"has {len(name)} characters; file names have room for {_MAX_DATASET}"


def has_control_character(text: str) -> bool:
    """Return True if the text contains a control character or a surrogate, which UTF-8 cannot encode."""
    return not text.isprintable() and any(unicodedata.category(char) in ("Cc", "Cs") for char in text)


def name_key(file_name: str) -> str:
    """Return a key that is equal for all spellings of a name: `./a//b.jpg` and `a/b.jpg`; an accented letter written as
    one character or as two (NFC).

    macOS stores decomposed names. JSON files mostly have composed names.
    """
    return unicodedata.normalize("NFC", posixpath.normpath(file_name))


def name_parts(file_name: str) -> list[str]:
    r"""Return the folders and the name of a path, separated by / or \; at least one part.

    >>> name_parts("C:\\data\\1.jpg"), name_parts("/img//1.jpg")
    (['C:', 'data', '1.jpg'], ['img', '1.jpg'])
    """
    return [part for part in re.split(r"[/\\]", name_key(file_name)) if part] or [""]
