"""Buckets in another region than the job."""

import pytest

from recordmill.launch.preflight.check_regions import bucket_places, distant_buckets
from recordmill.transforms.storage.gcs_storage import BucketPlace
from tests.gcs_stand_in import Fault, Kind, running


@pytest.fixture
def gcs(monkeypatch):
    with running() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        yield server


@pytest.mark.parametrize(
    ("location", "region"),
    [
        ("europe-west4", "europe-west4"),
        ("nam4", "us-central1"),
        ("nam4", "us-east1"),
        ("eur4", "europe-north1"),
        ("eur5", "europe-west2"),
        ("eur7", "europe-west3"),
        ("eur8", "europe-west6"),
        ("asia1", "asia-northeast2"),
        ("", "us-central1"),  # as some emulators say
    ],
)
def test_a_bucket_from_which_reading_is_free(location, region):
    assert list(distant_buckets({"b": BucketPlace(location)}, region)) == []


@pytest.mark.parametrize(
    ("location", "region"),
    [
        ("us-east1", "us-central1"),
        ("us", "europe-west4"),
        ("eu", "us-central1"),
        ("europe-west4", "europe-west40"),
        ("nam4", "us-west1"),
        ("eur4", "europe-west1"),
    ],
)
def test_a_bucket_elsewhere_is_told(location, region):
    (line,) = distant_buckets({"b": BucketPlace(location)}, region)
    assert line.startswith(f"gs://b is in {location}, the job runs in {region}")


@pytest.mark.parametrize(
    ("location", "region"), [("us", "us-central1"), ("eu", "europe-west1"), ("asia", "asia-east1")]
)
def test_reading_from_a_multi_region_is_paid_for_within_it_too(location, region):
    (line,) = distant_buckets({"b": BucketPlace(location)}, region)
    assert line.startswith(f"gs://b is in {location}, a multi-region, from which reading is paid for in {region}, too")


def test_a_dual_region_may_be_of_any_two_regions(gcs):
    """The bucket's location is the multi-region that they are in."""
    gcs.bucket_place = {"location": "US", "customPlacementConfig": {"dataLocations": ["US-EAST1", "US-WEST1"]}}
    places = bucket_places(["gs://bucket/images"])
    assert places == {"bucket": BucketPlace("us", ("us-east1", "us-west1"))}
    assert list(distant_buckets(places, "us-west1")) == []
    (line,) = distant_buckets(places, "us-central1")
    assert line.startswith("gs://bucket is in us-east1 and us-west1, the job runs in us-central1")


def test_the_place_is_that_which_the_bucket_has(gcs):
    found = bucket_places(["gs://bucket/x", "gs://bucket/y", "local/folder"])
    assert found == {"bucket": BucketPlace("us", (), "STANDARD")}


def test_a_bucket_whose_place_may_not_be_asked_for_is_passed_over(gcs):
    assert bucket_places(["gs://there-is-none/x"]) == {}
    gcs.faults = [Fault(Kind.STATUS, status=403, message="no storage.buckets.get access")]
    assert bucket_places(["gs://bucket/x"]) == {}
