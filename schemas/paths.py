"""Schemes and relations of paths. Everything that only looks at a path imports this module, and no storage."""

import os

GCS = "gs"
"""Scheme of Google Cloud Storage. Dataflow's staging and temporary files need this scheme."""
SCHEMES = (GCS, "s3")
"""Schemes of buckets."""


def is_remote(path: str) -> bool:
    """Return True if each read of `path` is a request over a network."""
    return "://" in path


def absolute_path(path: str) -> str:
    """Return the absolute path of a file or folder; of a URI, the URI without slashes at its end."""
    return path.rstrip("/") if is_remote(path) else os.path.abspath(path)


def relative_path(path: str, folder: str) -> str | None:
    """Return a path relative to a folder, "" for the folder itself; None for a path elsewhere.

    >>> relative_path("./a//b/c", "a/b"), relative_path("a", "a/"), relative_path("ab", "a"), relative_path("a", ".")
    ('c', '', None, 'a')
    """
    inner, outer = absolute_path(path), absolute_path(folder).rstrip("/")
    return inner[len(outer) :].strip("/") if f"{inner}/".startswith(f"{outer}/") else None
