import pytest

from tests.gcs_stand_in import running


@pytest.fixture
def gcs(monkeypatch):
    with running() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        yield server
