"""Names of images from the paths in tables, and names of label files from the names of images."""

import os
import posixpath
from functools import lru_cache

from recordmill.schemas.names import name_key


def path_key(path: str, folders: tuple[str, ...]) -> str:
    """Return the `recordmill.schemas.names.name_key` of a path in a table, relative to its folder of images."""
    return name_key(path_below(path.strip(), folders))


def path_below(path: str, folders: tuple[str, ...]) -> str:
    """Return a path relative to its folder of images; unchanged if it is relative, or in none of the folders."""
    if not path.startswith("/") and "://" not in path:
        return path
    absolute = _absolute_path(path)
    return next(
        (absolute[len(folder) :] for folder in _absolute_folders(folders, os.getcwd()) if absolute.startswith(folder)),
        path,
    )


@lru_cache
def _absolute_folders(folders: tuple[str, ...], _: str) -> list[str]:
    """Return absolute folders, the innermost first. The second parameter is the working folder: a key of the cache."""
    return sorted((f"{_absolute_path(folder)}/" for folder in folders), key=len, reverse=True)


def _absolute_path(path: str) -> str:
    """Return the normalized absolute path; the text before `://` is unchanged."""
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
