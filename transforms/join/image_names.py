"""Names of images by the paths that tables have, and of label files by the names of images."""

import os
import posixpath
from functools import lru_cache

from recordmill.schemas.names import name_key


def image_name(path: str, folders: tuple[str, ...]) -> str:
    """Return the `recordmill.schemas.names.name_key` of the file that a table's path names, relative to its folder."""
    return name_key(path_below(path.strip(), folders))


def path_below(path: str, folders: tuple[str, ...]) -> str:
    """Return a path relative to its folder of images; unchanged if it is relative, or in no such folder."""
    if not path.startswith("/") and "://" not in path:
        return path
    whole = _whole(path)
    return next(
        (whole[len(folder) :] for folder in _whole_folders(folders, os.getcwd()) if whole.startswith(folder)), path
    )


@lru_cache
def _whole_folders(folders: tuple[str, ...], _: str) -> list[str]:
    """Return folders, the innermost first; relative ones are below the working folder, the second parameter."""
    return sorted((f"{_whole(folder)}/" for folder in folders), key=len, reverse=True)


def _whole(path: str) -> str:
    """Return the one spelling of a path, from its root; the text before `://` is unchanged."""
    scheme, separator, rest = path.rpartition("://")
    return scheme + separator + posixpath.normpath(rest) if separator else os.path.abspath(path)


def label_file(image: str) -> str:
    """Return the path of an image's label file, where Ultralytics looks for it.

    >>> label_file("/images/train/images/1.x.jpg")
    '/images/train/labels/1.x.txt'
    """
    return f"{labels_folder(image).rpartition('.')[0]}.txt"


def labels_folder(path: str) -> str:
    """Return the path with `labels` in place of the last `images` among its folders."""
    return "/labels/".join(path.rsplit("/images/", 1))
