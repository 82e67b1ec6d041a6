"""Paths of a bucket, and archives, for the tests of storage."""

import zipfile
from collections.abc import Mapping
from pathlib import Path

from tests.gcs_stand_in import BUCKET


def path_of(name: str) -> str:
    return f"gs://{BUCKET}/{name}"


def archive(path: Path, members: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> str:
    """Write a .zip, and return its path."""
    with zipfile.ZipFile(path, "w", method) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return str(path)
