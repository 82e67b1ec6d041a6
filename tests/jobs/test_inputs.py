"""Jobs that fail before the first image is read, and jobs that list no images."""

import pytest

from recordmill.transforms.images import load_images
from tests.conftest import (
    CATEGORIES,
    annotation,
    coco_flags,
    draw_jpeg,
    image_row,
    manifest_of,
    read_examples,
    rejects_of,
    staged_shards,
    write_coco,
)
from tests.jobs.folders import whole_folder

NAMES = [f"{number}.jpg" for number in range(4)]


@pytest.fixture
def pictures_read(monkeypatch) -> list[str]:
    """The names of images that are read, by whichever writer."""
    read, load = [], load_images.read_or_reject
    monkeypatch.setattr(
        load_images, "read_or_reject", lambda task, *more: read.append(task.file_name) or load(task, *more)
    )
    return read


@pytest.fixture
def job(tmp_path) -> list[object]:
    """`convert` on four images with an object each, one of which has no known category."""
    rows = [image_row(id_, name) for id_, name in enumerate(NAMES)]
    objects = [annotation(id_, id_, category_id=1 if id_ else 99) for id_ in range(4)]
    instances = write_coco(tmp_path, rows, objects, CATEGORIES)
    return ["convert", "--images", tmp_path / "images", "--instances", instances, "--progress", "none"]


def test_bad_annotations_fail_before_first_picture(tmp_path, recordmill, job, pictures_read):
    for name in NAMES:
        draw_jpeg(tmp_path / "images" / name)
    job += ["--output", tmp_path / "out"]
    dry = recordmill(*job, "--dry-run")
    assert not (tmp_path / "out").exists()
    real = recordmill(*job)
    assert dry.code == real.code == 1
    assert real.err.replace(f"They are listed in {tmp_path}/out/.recordmill-train/rejects.jsonl. ", "") == dry.err
    assert pictures_read == []
    assert [line["reason"] for line in rejects_of(tmp_path / "out")] == ["unknown_category"]
    assert recordmill(*job, "--max-rejects", 0.25).code == 0
    assert sorted(pictures_read) == NAMES


@pytest.mark.parametrize(("out", "more"), [("deep/in/out", []), ("out", ["--dry-run"])])
def test_where_no_picture_is_found_nothing_is_written(tmp_path, recordmill, job, pictures_read, more, out):
    draw_jpeg(tmp_path / "images" / "train" / "0.jpg")
    before = sorted(tmp_path.rglob("*"))
    assert recordmill(*job, "--output", tmp_path / out, "--max-rejects", 1, *more).code == 2
    assert (sorted(tmp_path.rglob("*")), pictures_read) == (before, [])


def test_finished_shards_stay_where_a_rerun_finds_no_picture(tmp_path, recordmill, job):
    for name in NAMES:
        draw_jpeg(tmp_path / "images" / name)
    for name in NAMES[2:]:
        (tmp_path / "images" / name).write_bytes(b"damaged")
    job += ["--output", tmp_path / "out", "--max-rejects", 0.4]
    assert recordmill(*job).code == 1
    before = whole_folder(tmp_path / "out")
    assert staged_shards(tmp_path / "out")
    (tmp_path / "images").rename(tmp_path / "elsewhere")
    draw_jpeg(tmp_path / "images" / "train" / "0.jpg")
    assert recordmill(*job).code == 2
    assert whole_folder(tmp_path / "out") == before


def test_without_listing_records_are_same(sample, tmp_path, recordmill, copy_converted):
    """Missing files show when they are read."""
    listed, unlisted = tmp_path / "listed", tmp_path / "unlisted"
    copy_converted(listed)
    assert recordmill(*coco_flags(sample, unlisted, "--no-list")).code == 0
    for read, names in ((read_examples, None), (rejects_of, ("id", "reason"))):
        one, other = (
            sorted(str([row[n] for n in names or sorted(row)]) for row in read(f)) for f in (listed, unlisted)
        )
        assert one == other
    assert manifest_of(unlisted)["splits"]["train"]["images"]["rows"] == 24
