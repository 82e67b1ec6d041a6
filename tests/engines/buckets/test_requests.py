"""How many requests a job makes."""

from collections import Counter
from pathlib import Path

import pytest

from recordmill.launch.cli import main
from recordmill.transforms.storage import zip_storage
from tests.conftest import CATEGORIES, annotation, draw_jpeg, image_row, write_coco
from tests.engines.buckets.jobs import DEFLATED, OUT, ROOT, STORED, files_of, shown, zipped


def test_an_image_is_one_request(gcs, converted, sample):
    gcs.page_size = 7
    assert main([*converted, "--overwrite"]) == 0
    images = Counter(call.name for call in gcs.calls("read") if call.name.startswith("sample/images/"))
    assert set(images) == {f"sample/images/{name}" for name in files_of(Path(sample.images))}
    assert set(images.values()) == {1}
    assert [call.name for call in gcs.calls("stat") if call.name.startswith("sample/images/")] == []
    assert {call.query.get("fields", "all") for call in gcs.calls("list")} <= {
        "items(name,size,generation),nextPageToken",
        "items(name),nextPageToken",
        "prefixes,nextPageToken",
    }
    pages = [call for call in gcs.calls("list") if call.query.get("prefix") == "sample/images/"]
    # 23 names are 4 pages of the one listing; the cut into sub-folders reads its first page only.
    assert sum("pageToken" in call.query for call in pages) == 3
    assert gcs.calls("bucket") == []


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    """A thousand images of 8x8."""
    folder = tmp_path_factory.mktemp("tiny")
    for number in range(1000):
        draw_jpeg(folder / "images" / f"{number}.jpg", 8, 8, (number % 256, number // 256 * 60, 0))
    rows = [image_row(number, f"{number}.jpg", 8, 8) for number in range(1000)]
    write_coco(folder, rows, [annotation(number, number, (1, 1, 4, 4)) for number in range(1000)], CATEGORIES)
    return folder


@pytest.mark.parametrize("method", [STORED, DEFLATED])
def test_member_of_large_archive_is_one_request(gcs, tiny, tmp_path, recordmill, method, monkeypatch):
    """The job and its workers are one process here, which reads the archive's directory twice."""
    monkeypatch.setattr(zip_storage, "CACHE_BYTES", 0)
    gcs.put("tiny.zip", zipped(files_of(tiny / "images"), method))
    gcs.put("tiny.json", (tiny / "instances.json").read_bytes())
    flags = ["--images", f"{ROOT}/tiny.zip", "--instances", f"{ROOT}/tiny.json", "--num-shards", 1, "--output", OUT]
    assert recordmill("convert", *flags).code == 0
    assert shown(gcs)["splits"]["train"]["images"]["written"] == 1000
    reads = [call for call in gcs.calls("read", "stat", "list") if call.name == "tiny.zip"]
    assert len({call.range for call in reads if call.range}) in range(1000, 1003)
    assert len(reads) <= 1010
    assert gcs.calls("bucket") == []
