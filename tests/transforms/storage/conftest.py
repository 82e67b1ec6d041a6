"""A bucket and archives for the tests of storage."""

import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from recordmill.transforms.storage import gcs_client
from tests.gcs_stand_in import BUCKET, running


@pytest.fixture(scope="module")
def server():
    with running() as stand_in:
        yield stand_in


@pytest.fixture
def gcs(server, monkeypatch):
    """A stand-in without objects, asked by clients without patience."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
    monkeypatch.setattr(gcs_client, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(gcs_client, "LONGEST_WAIT_S", 0.02)
    server.reset()
    return server


def path_of(name: str) -> str:
    return f"gs://{BUCKET}/{name}"


def archive(path: Path, members: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> str:
    """Write a .zip, and return its path."""
    with zipfile.ZipFile(path, "w", method) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return str(path)
