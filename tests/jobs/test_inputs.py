"""Images, by which names they are found, and annotation files: what fails before a picture is read, what is carried."""

import json
from pathlib import Path

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
    write_coco,
)

NAMES = [f"{number}.jpg" for number in range(4)]


@pytest.fixture
def pictures_read(monkeypatch) -> list[str]:
    """The names of pictures that are read, by whichever writer."""
    read, load = [], load_images.load_image

    def loaded(task, *arguments):
        read.append(task.file_name)
        return load(task, *arguments)

    monkeypatch.setattr(load_images, "load_image", loaded)
    return read


def coco(folder: Path, names=NAMES, categories=(1, 1, 1, 1)) -> Path:
    """A COCO file that names these images, with an object each."""
    rows = [image_row(id_, name) for id_, name in enumerate(names)]
    return write_coco(folder, rows, [annotation(*id_) for id_ in zip(range(4), range(4), strict=True)], CATEGORIES)


def with_unknown_categories(folder: Path, number: int) -> Path:
    """One of four annotations is of a category that is none, or more."""
    path = coco(folder)
    content = json.loads(path.read_text())
    for row in content["annotations"][:number]:
        row["category_id"] = 99
    path.write_text(json.dumps(content))
    return path


def draw(folder: Path, names=NAMES) -> Path:
    for name in names:
        draw_jpeg(folder / name)
    return folder


def flags(images: Path, instances: Path, out: Path, *more: object) -> list[object]:
    return ["coco", "--images", images, "--instances", instances, "--output", out, *more]


def test_annotations_that_are_known_to_be_bad_fail_before_the_first_picture(tmp_path, recordmill, pictures_read):
    job = flags(draw(tmp_path / "images"), with_unknown_categories(tmp_path, 1), tmp_path / "out")
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
def test_where_no_picture_is_found_nothing_is_written(tmp_path, recordmill, pictures_read, more, out):
    images, instances = draw(tmp_path / "images", ["train/0.jpg", "train/1.jpg"]), coco(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert recordmill(*flags(images, instances, tmp_path / out, "--max-rejects", 1, *more)).code == 2
    assert (sorted(tmp_path.rglob("*")), pictures_read) == (before, [])


def test_without_a_listing_the_same_records_are_written(sample, tmp_path, recordmill, copy_converted):
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
