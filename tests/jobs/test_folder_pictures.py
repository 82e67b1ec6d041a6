"""`recordmill folder`: what becomes of pictures, which are left out, and that the bytes are the same every time."""

import zipfile

from tests.conftest import rejects_of, shard_bytes
from tests.jobs.folders import three_splits


def test_a_job_that_cannot_succeed_any_more_stops_and_reads_no_more_pictures(tmp_path, recordmill):
    images = tmp_path / "images" / "a"
    images.mkdir(parents=True)
    for number in range(400):
        (images / f"{number}.jpg").write_bytes(b"")
    flags = ["--images", images.parent, "--classes", "a", "--output", tmp_path / "out", "--examples-per-shard", 20]
    assert recordmill("folder", *flags).code == 1
    assert 100 <= len(rejects_of(tmp_path / "out")) < 200


# The same bytes every time


def test_the_same_bytes_from_a_zip_and_one_thread(pictures, converted, tmp_path, recordmill):
    archive = tmp_path / "pictures.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(pictures.rglob("*")):
            file.write(path, path.relative_to(pictures).as_posix())
    assert recordmill("folder", *three_splits(archive, tmp_path / "out"), "--workers", 1).code == 0
    assert shard_bytes(tmp_path / "out") == shard_bytes(converted)
