"""Buckets in another region than the job."""

import pytest

from recordmill.launch.preflight.check_regions import distant_buckets
from recordmill.transforms.storage.gcs_storage import GcsStorage
from tests.gcs_stand_in import Fault, Kind, running


@pytest.fixture
def located(monkeypatch):
    """Makes all buckets lie in a place."""

    def locate(location: str) -> None:
        monkeypatch.setattr(GcsStorage, "location", lambda self, path: location)

    return locate


@pytest.mark.parametrize(
    ("location", "region", "told"),
    [
        ("EUROPE-WEST4", "europe-west4", False),
        ("US", "us-central1", False),
        ("EU", "europe-west1", False),
        ("ASIA", "asia-east1", False),
        ("", "us-central1", False),  # as some emulators say
        ("US-EAST1", "us-central1", True),
        ("US", "europe-west4", True),
        ("EU", "us-central1", True),
        ("EUROPE-WEST4", "europe-west40", True),
    ],
)
def test_a_bucket_elsewhere_is_told(located, location, region, told):
    located(location)
    lines = list(distant_buckets(["gs://b/images", "gs://b/out", "local/folder"], region))
    assert len(lines) == told
    assert all(line.startswith(f"gs://b is in {location}, the job runs in {region}") for line in lines)


def test_a_bucket_whose_place_may_not_be_asked_for_is_passed_over(monkeypatch):
    with running() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        assert list(distant_buckets(["gs://there-is-none/x"], "us-central1")) == []
        server.faults = [Fault(Kind.STATUS, status=403, message="no storage.buckets.get access")]
        assert list(distant_buckets(["gs://bucket/x"], "us-central1")) == []


def test_the_place_is_that_which_the_bucket_has(monkeypatch):
    with running() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        assert GcsStorage().location("gs://bucket/x") == "US"
