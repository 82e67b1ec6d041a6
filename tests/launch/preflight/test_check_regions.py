"""Warnings of buckets in another region than the job."""

import pytest

from recordmill.launch.preflight.check_runner import distant_buckets
from tests.gcs_stand_in import Fault, Kind

CUSTOM = {
    "location": "US",
    "locationType": "dual-region",
    "customPlacementConfig": {"dataLocations": ["US-EAST1", "US-WEST1"]},
}


@pytest.mark.parametrize(
    ("place", "region", "where"),
    [
        ({"location": "EUROPE-WEST4", "locationType": "region"}, "europe-west4", None),
        ({"location": "EUROPE-WEST4", "locationType": "region"}, "europe-west40", "europe-west4"),
        ({"location": "US", "locationType": "multi-region"}, "us-central1", "us"),  # reading costs money within it, too
        (CUSTOM, "us-west1", None),
        (CUSTOM, "us-central1", "us-east1 and us-west1"),
        ({"location": "NAM4", "locationType": "dual-region"}, "us-west1", None),  # its regions are not listed
        ({}, "us-west1", None),  # as some emulators answer
    ],
)
def test_bucket_is_near_if_one_of_its_regions_is_jobs(gcs, place, region, where):
    gcs.bucket_place = place
    warnings = list(distant_buckets(["gs://bucket/x", "gs://bucket/y", "local/folder"], region))
    beginning = f"gs://bucket is in {where}, the job runs in {region}: "
    assert [line[: len(beginning)] for line in warnings] == ([beginning] if where else [])


def test_bucket_whose_metadata_cannot_be_read_is_skipped(gcs):
    assert list(distant_buckets(["gs://there-is-none/x"], "us-west1")) == []
    gcs.faults = [Fault(Kind.STATUS, status=403, message="no storage.buckets.get access")]
    assert list(distant_buckets(["gs://bucket/x"], "us-west1")) == []
