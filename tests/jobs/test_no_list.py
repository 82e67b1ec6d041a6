"""Images that are not listed, but taken to be there."""

import os

import pytest

from recordmill.transforms.join.join_images import assumed_file
from tests.conftest import (
    annotation,
    coco_flags,
    convert,
    draw_jpeg,
    image_row,
    manifest_of,
    read_examples,
    rejects_of,
    write_coco,
)

CATEGORIES = [{"id": 1, "name": "cat"}]


@pytest.mark.parametrize(
    ("folder", "name", "path"),
    [
        ("images", "a.jpg", "images/a.jpg"),
        ("images/", "./deep//a.jpg", "images/deep/a.jpg"),
        ("gs://bucket/images", "deep/a.jpg", "gs://bucket/images/deep/a.jpg"),
    ],
)
def test_a_file_is_in_the_folder_by_its_name(folder, name, path):
    assert assumed_file(folder, name).path == path


def test_the_same_records_are_written_and_missing_files_show_when_they_are_read(tmp_path, recordmill, sample):
    listed, unlisted = tmp_path / "listed", tmp_path / "unlisted"
    for folder, more in ((listed, ()), (unlisted, ("--no-list",))):
        outcome = recordmill(*coco_flags(sample, folder, "--num-shards", 2, *more))
        assert outcome.code == 0, outcome
    by_id = [{example["image/source_id"][0]: example for example in read_examples(f)} for f in (listed, unlisted)]
    assert by_id[0] == by_id[1]
    reasons = [sorted((line["id"], line["reason"]) for line in rejects_of(folder)) for folder in (listed, unlisted)]
    assert reasons[0] == reasons[1]
    assert manifest_of(unlisted)["splits"]["train"]["images"]["rows"] == 24


def test_two_rows_of_one_file_are_two_records(tmp_path, recordmill):
    draw_jpeg(tmp_path / "images" / "a.jpg")
    rows = [image_row(1, "a.jpg"), image_row(2, "./a.jpg")]
    instances = write_coco(tmp_path, rows, [annotation(1, 1), annotation(2, 2)], CATEGORIES)
    assert convert(recordmill, tmp_path, instances, "--no-list").code == 0
    assert manifest_of(tmp_path / "out")["splits"]["train"]["images"]["written"] == 2


def test_several_folders_and_archives_are_listed_in_any_case(tmp_path, recordmill):
    (tmp_path / "images").mkdir()
    instances = write_coco(tmp_path, [], [], CATEGORIES)
    outcome = convert(recordmill, tmp_path, instances, "--no-list", "--images", tmp_path / "more")
    assert (outcome.code, "--no-list takes all images to be in one folder" in outcome.err) == (2, True)
    flags = ["--images", tmp_path / "a.zip", "--instances", instances, "--output", tmp_path / "out", "--no-list"]
    outcome = recordmill("coco", *flags)
    assert (outcome.code, "--no-list is for folders" in outcome.err) == (2, True)


def test_what_is_no_file_or_far_too_large_is_not_read(tmp_path, recordmill):
    """A pipe into which nobody writes, which would be waited for; and ten gigabytes that take no room on the disk."""
    draw_jpeg(tmp_path / "images" / "a.jpg")
    os.mkfifo(tmp_path / "images" / "pipe.jpg")
    with open(tmp_path / "images" / "sparse.jpg", "wb") as file:
        file.truncate(10_000_000_000)
    rows = [image_row(1, "a.jpg"), image_row(2, "pipe.jpg"), image_row(3, "sparse.jpg")]
    instances = write_coco(tmp_path, rows, [], CATEGORIES)
    assert convert(recordmill, tmp_path, instances, "--no-list", "--max-rejects", "1").code == 0
    assert sorted((line["id"], line["reason"]) for line in rejects_of(tmp_path / "out")) == [
        (2, "image_inaccessible"),
        (3, "too_large"),
    ]
