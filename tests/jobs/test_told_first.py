"""What is known to fail is told before the first picture is read, and where no picture is found nothing is written."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest

from recordmill.transforms.images import load_picture
from tests.conftest import (
    CATEGORIES,
    annotation,
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
    read, load = [], load_picture.load_image

    def loaded(task, *arguments):
        read.append(task.file_name)
        return load(task, *arguments)

    monkeypatch.setattr(load_picture, "load_image", loaded)
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


@pytest.mark.parametrize("writer", [[], ["--writer", "beam", "--num-shards", 1]], ids=["planned", "beam"])
def test_annotations_that_are_known_to_be_bad_fail_before_the_first_picture(
    tmp_path, recordmill, pictures_read, writer
):
    job = flags(draw(tmp_path / "images"), with_unknown_categories(tmp_path, 1), tmp_path / "out", *writer)
    outcome = recordmill(*job)
    assert outcome.code == 1
    assert (
        "1 of 4 annotations (25.0%) are rejected, more than --max-rejects 0.01 allows: unknown_category 1"
        in outcome.err
    )
    assert pictures_read == []
    assert [line["reason"] for line in rejects_of(tmp_path / "out")] == ["unknown_category"]
    assert recordmill(*job, "--max-rejects", 0.25).code == 0
    assert sorted(pictures_read) == NAMES


def test_a_dry_run_fails_with_the_same_message_and_exit_code(tmp_path, recordmill):
    job = flags(draw(tmp_path / "images"), with_unknown_categories(tmp_path, 1), tmp_path / "out")
    dry = recordmill(*job, "--dry-run")
    assert not (tmp_path / "out").exists()
    real = recordmill(*job)
    assert dry.code == real.code == 1
    assert real.err.replace(f"They are listed in {tmp_path}/out/.recordmill-train/rejects.jsonl. ", "") == dry.err


@pytest.mark.parametrize(("out", "more"), [("deep/in/out", []), ("out", ["--dry-run"])])
def test_where_no_picture_is_found_nothing_is_written(tmp_path, recordmill, pictures_read, more, out):
    images, instances = draw(tmp_path / "images", ["train/0.jpg", "train/1.jpg"]), coco(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    outcome = recordmill(*flags(images, instances, tmp_path / out, "--max-rejects", 1, *more))
    assert outcome.code == 2
    assert "none of the 4 images has a file" in outcome.err
    assert "names '0.jpg', '1.jpg', '2.jpg' …" in outcome.err
    assert f"give --images {images}/train or --match suffix" in outcome.err
    assert (sorted(tmp_path.rglob("*")), pictures_read) == (before, [])


def test_what_an_output_folder_holds_stays_where_no_picture_is_found(tmp_path, recordmill):
    out = tmp_path / "out"
    assert recordmill(*flags(draw(tmp_path / "images"), coco(tmp_path), out)).code == 0
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    wrong = flags(draw(tmp_path / "others", ["a.jpg"]), coco(tmp_path), out, "--split", "val")
    assert recordmill(*wrong).code == 2
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert sorted(path.name for path in out.iterdir() if path.is_dir()) == [".index"]


@pytest.mark.parametrize("match", ["suffix", "name"])
def test_names_that_lead_elsewhere_are_found_by_their_end(tmp_path, recordmill, match):
    spelt = ["/home/me/train/0.jpg", "C:\\data\\train\\1.jpg", "train/2.jpg", "https://example.org/a/3.jpg"]
    images = draw(tmp_path / "images", [f"train/{number}.jpg" for number in range(5)])
    rows = [image_row(id_, name) for id_, name in enumerate([*spelt, "x/../4.jpg"])]
    instances = write_coco(tmp_path, rows, [annotation(id_, id_) for id_ in range(5)], CATEGORIES)
    assert recordmill(*flags(images, instances, tmp_path / "out", "--match", match)).code == 0
    found = {example["image/object/id"][0]: example["image/filename"] for example in read_examples(tmp_path / "out")}
    assert found == {id_: [f"train/{id_}.jpg".encode()] for id_ in range(5)}
    assert recordmill("extract", tmp_path / "out", tmp_path / "extracted").code == 0
    assert recordmill("verify", tmp_path / "out").code == 0


def test_by_its_end_an_image_is_found_in_a_zip(tmp_path, recordmill):
    draw(tmp_path / "images")
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        for name in NAMES:
            archive.write(tmp_path / "images" / name, f"coco/train/{name}")
    job = flags(tmp_path / "images.zip", coco(tmp_path), tmp_path / "out")
    assert recordmill(*job).code == 2
    assert recordmill(*job, "--match", "suffix").code == 0
    assert {example["image/filename"][0] for example in read_examples(tmp_path / "out")} == {
        f"coco/train/{name}".encode() for name in NAMES
    }


@pytest.mark.parametrize("match", ["suffix", "name"])
def test_what_could_be_two_files_is_an_error_that_names_both(tmp_path, recordmill, match):
    images = draw(tmp_path / "images", ["train/0.jpg", "val/0.jpg"])
    outcome = recordmill(*flags(images, coco(tmp_path, NAMES[:1]), tmp_path / "out", "--match", match))
    assert outcome.code == 1
    assert "'train/0.jpg' and 'val/0.jpg'" in outcome.err


@pytest.mark.parametrize("images", [["."], ["train", "valid"]])
def test_a_roboflow_folder_whose_pictures_are_in_two_places_converts(tmp_path, recordmill, images):
    """train/ and valid/, each with _annotations.coco.json beside its pictures; one file that has the rows of both."""
    for place, split in enumerate(("train", "valid")):
        draw(tmp_path / split, NAMES[place * 2 : place * 2 + 2])
        shutil.copyfile(coco(tmp_path), tmp_path / split / "_annotations.coco.json")
    more = [part for folder in images for part in ("--images", tmp_path / folder)]
    match = ["--match", "suffix"] if images == ["."] else []
    instances = tmp_path / "train" / "_annotations.coco.json"
    job = ["coco", *more, "--instances", instances, "--output", tmp_path / "out", *match]
    assert recordmill(*job).code == 0
    split = manifest_of(tmp_path / "out")["splits"]["train"]
    assert (split["images"]["written"], split["images"]["rejected"]) == (4, {})


def test_what_is_partly_missing_is_told_with_its_likely_cause(tmp_path, recordmill, pictures_read):
    images = draw(tmp_path / "images", ["0.jpg", "1.JPG", "2.JPG", "3.JPG"])
    outcome = recordmill(*flags(images, coco(tmp_path), tmp_path / "out"))
    assert outcome.code == 1
    assert "3 of 4 images (75.0%) are rejected" in outcome.err
    assert "'1.jpg' may be '1.JPG' (3 of 3 names compared): rename" in outcome.err
    assert (len(rejects_of(tmp_path / "out")), pictures_read) == (3, [])


def test_a_table_whose_paths_lead_nowhere_is_told_before_anything_is_written(tmp_path, recordmill):
    images = draw(tmp_path / "images", ["in/0.jpg"])
    (tmp_path / "labels.csv").write_text("path,label\n0.jpg,cat\n1.jpg,dog\n")
    job = ["folder", "--images", images, "--labels", tmp_path / "labels.csv", "--output", tmp_path / "out"]
    outcome = recordmill(*job, "--split", "train=0.5,val=0.5")
    assert outcome.code == 2
    assert "labels.csv names '0.jpg', '1.jpg'; " in outcome.err
    assert outcome.err.rstrip().endswith(f"give --images {images}/in.")
    assert not (tmp_path / "out").exists()


def test_without_a_listing_missing_pictures_show_when_they_are_read_and_names_cannot_be_matched(tmp_path, recordmill):
    job = flags(draw(tmp_path / "images", ["x.jpg"]), coco(tmp_path), tmp_path / "out", "--no-list")
    outcome = recordmill(*job)
    assert (outcome.code, "4 of 4 images (100.0%) are rejected" in outcome.err) == (1, True)
    outcome = recordmill(*job, "--match", "name")
    assert (outcome.code, "--no-list does not list them" in outcome.err) == (2, True)
