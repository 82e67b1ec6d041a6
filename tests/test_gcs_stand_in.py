"""The stand-in for Google Cloud Storage, asked by clients that are not ours: what it must do and refuse, or tests of
ours would pass that should not."""

import socket
import time

import pytest

from tests.gcs_stand_in import BUCKET, running

BYTES = bytes(range(256)) * 4


@pytest.fixture
def gcs(monkeypatch):
    with running() as stand_in:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", stand_in.url)
        monkeypatch.setenv("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
        yield stand_in


@pytest.fixture
def bucket(gcs):
    """A bucket of Google's own client, which retries nothing where tests do not let it."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    return storage.Client(project="none", credentials=AnonymousCredentials()).bucket(BUCKET)


def test_googles_client_writes_lists_reads_and_deletes(gcs, bucket):
    bucket.blob("a b/ü#?%.bin").upload_from_string(BYTES, content_type="image/jpeg")
    large = bucket.blob("large", chunk_size=256 * 1024)
    large.upload_from_string(BYTES * 9000)  # 9 MB
    assert gcs.objects() == {"a b/ü#?%.bin": BYTES, "large": BYTES * 9000}
    assert large.generation == gcs.generation("large")
    assert [call.operation for call in gcs.log] == ["upload", "start", *["chunk"] * 36]

    blobs = {blob.name: blob for blob in bucket.list_blobs()}
    assert {name: (blob.size, blob.content_type) for name, blob in blobs.items()} == {
        "a b/ü#?%.bin": (1024, "image/jpeg"),
        "large": (9_216_000, "text/plain"),
    }
    for checksum in ("crc32c", "md5"):
        assert blobs["large"].download_as_bytes(checksum=checksum) == BYTES * 9000
    assert bucket.blob("large").download_as_bytes(start=3, end=9) == BYTES[3:10]
    blobs["large"].delete()
    assert not blobs["large"].exists()
    assert [call.range for call in gcs.calls("read")] == ["", "", "bytes=3-9"]


def test_conditions_and_generations(gcs, bucket):
    from google.api_core.exceptions import NotFound, PreconditionFailed

    first = gcs.put("a", BYTES).generation
    gcs.put("a", b"new")
    with pytest.raises(NotFound, match="No such object"):
        bucket.blob("a", generation=first).download_as_bytes()
    with pytest.raises(PreconditionFailed):
        bucket.blob("a").upload_from_string(b"", if_generation_match=0)
    with pytest.raises(PreconditionFailed):
        bucket.blob("a").delete(if_generation_match=first)
    assert gcs.objects() == {"a": b"new"}


def test_wrong_checksums_of_uploads_are_refused(gcs, bucket):
    from google.api_core.exceptions import BadRequest

    blob = bucket.blob("a")
    blob.crc32c = "AAAAAA=="
    with pytest.raises(BadRequest, match="doesn't match calculated"):
        blob.upload_from_string(BYTES, checksum=None)
    assert gcs.objects() == {}


def test_beam_writes_renames_reads_and_deletes(gcs):
    from apache_beam.io.gcp.gcsio import GcsIO, create_storage_client
    from apache_beam.options.pipeline_options import PipelineOptions

    beam = GcsIO(create_storage_client(PipelineOptions([]), use_credentials=False))
    for name in ("1", "2"):
        with beam.open(f"gs://{BUCKET}/{name}", "w") as file:
            file.write(BYTES)
    assert beam.copy_batch([(f"gs://{BUCKET}/1", f"gs://{BUCKET}/d/3")])[0][2] is None
    assert beam.open(f"gs://{BUCKET}/d/3").read() == BYTES
    assert [path for path, _ in beam.list_files(f"gs://{BUCKET}/")] == [f"gs://{BUCKET}/{n}" for n in ("1", "2", "d/3")]
    assert [code for _, code in beam.delete_batch([f"gs://{BUCKET}/{n}" for n in ("1", "2", "gone")])] == [None] * 3
    assert gcs.objects() == {"d/3": BYTES}
    assert [call.status for call in gcs.calls("delete")] == [204, 204, 404]
    assert beam.get_bucket(BUCKET).name == BUCKET
    assert beam.get_bucket("another") is None


def test_what_a_client_had_sent_is_carried_out_when_all_have_hung_up(gcs):
    """A process that is killed leaves its last requests in the server's hands."""
    gcs.latency_s = 0.2
    with socket.create_connection(("127.0.0.1", int(gcs.url.rpartition(":")[2]))) as client:
        client.sendall(b"POST /upload/storage/v1/b/bucket/o?name=a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc")
        while not gcs.log:
            time.sleep(0.01)
    gcs.wait_until_all_hung_up()
    assert gcs.objects() == {"a": b"abc"}
