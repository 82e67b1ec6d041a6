"""What the stand-in for Cloud Storage must refuse, asked by Google's client: tests of ours would pass otherwise."""

import pytest
from google.api_core.exceptions import BadRequest, NotFound, PreconditionFailed
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from tests.gcs_stand_in import BUCKET, running


def test_other_generations_and_wrong_checksums_are_refused(monkeypatch):
    monkeypatch.setenv("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
    with running() as gcs:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.url)
        first = gcs.put("a", b"old").resource["generation"]
        gcs.put("a", b"new")
        bucket = storage.Client(project="none", credentials=AnonymousCredentials()).bucket(BUCKET)
        with pytest.raises(NotFound):
            bucket.blob("a", generation=first).download_as_bytes()
        with pytest.raises(PreconditionFailed):
            bucket.blob("a").delete(if_generation_match=first)
        for size in (3, 9_000_000):
            with pytest.raises(PreconditionFailed):
                bucket.blob("a").upload_from_string(bytes(size), if_generation_match=0)
        wrong = bucket.blob("b")
        wrong.crc32c = "AAAAAA=="
        with pytest.raises(BadRequest):
            wrong.upload_from_string(b"b", checksum=None)
        assert gcs.objects() == {"a": b"new"}
