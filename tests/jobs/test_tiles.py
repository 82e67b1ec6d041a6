"""Whole jobs with --tile: what is counted of images, and what of tiles."""

import io
import json

import numpy as np
import pytest
from PIL import Image

import recordmill
from recordmill.launch.cli import main
from recordmill.schemas.containers import CONTAINERS, TFRECORD
from tests.conftest import examples_by_name, manifest_of, rejects_of
from tests.jobs.folders import differing_files, whole_folder

WIDTH, HEIGHT, SIDE = 300, 200, 128
NAMES = {"train": ("a.png", "b.png", "black.png", "broken.png"), "val": ("c.png",)}
SEEDS = {"a.png": 1, "b.png": 2, "c.png": 2, "broken.png": 4}  # c is a copy of b


def png(name: str) -> bytes:
    rng = np.random.default_rng(SEEDS.get(name))
    pixels = (
        rng.integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8) if name in SEEDS else np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    )
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()[: -500 if name == "broken.png" else None]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A thin object in the top left tile of each image, and a large one in four tiles."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "annotations").mkdir()
    (folder / "images").mkdir()
    for split, names in NAMES.items():
        annotations = []
        for image_id, name in enumerate(names, 1):
            (folder / "images" / name).write_bytes(png(name))
            for box in ([10, 10, 3, 50], [100, 100, 60, 60]):
                more = {"id": len(annotations) + 1, "image_id": image_id, "category_id": 1, "iscrowd": 0}
                annotations.append(more | {"bbox": box, "area": box[2] * box[3]})
        images = [{"id": id_, "file_name": name, "width": WIDTH, "height": HEIGHT} for id_, name in enumerate(names, 1)]
        document = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "x"}]}
        (folder / "annotations" / f"instances_{split}.json").write_text(json.dumps(document))
    return folder


def convert(data, out, *flags: str) -> int:
    fixed = ("--max-rejects", "0.5", "--tile", str(SIDE), "--tile-min-visible", "0", "--keep-empty", "1")
    return main(["convert", str(data), "--output", str(out), *fixed, *flags])


@pytest.fixture(scope="module")
def out(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("out") / "tiles"
    assert convert(data, folder, "--num-shards", "4") == 0
    return folder


def lines(path) -> list[dict]:
    return list(map(json.loads, path.read_text().splitlines()))


def test_images_and_tiles_are_counted_apart(out):
    train = manifest_of(out)["splits"]["train"]
    assert {name: train["images"].get(name) for name in ("rows", "written", "tiles", "rejected")} == {
        "rows": 4,
        "written": 3,
        "tiles": 18,
        "rejected": {"image_unreadable": 1},
    }
    objects = {
        name: train["annotations"].get(name) for name in ("rows", "objects", "tile_copies", "of_rejected_images")
    }
    assert objects == {"rows": 8, "objects": 15, "tile_copies": 12, "of_rejected_images": 5}
    assert main(["verify", str(out)]) == 0


def test_broken_image_is_one_reject_in_several_shards(out):
    (reject,) = [line for line in rejects_of(out) if line["what"] == "image"]
    assert (reject["id"], reject["file_name"], reject["reason"]) == (4, "broken.png", "image_unreadable")


def test_duplicates_and_problems_are_of_images(out):
    (group,) = lines(out / "duplicates.jsonl")
    assert group["labels"] == "same"
    assert [f"{image['split']}/{image['file_name']}" for image in group["images"]] == ["train/b.png", "val/c.png"]
    problems = [(line["kind"], line["file_name"], line.get("id")) for line in lines(out / "problems-train.jsonl")]
    assert ("leakage", "b.png", None) in problems
    assert ("blank", "black.png", None) in problems
    assert ("thin_boxes", "a.png", 1) in problems
    assert len(problems) == 5


def test_problems_can_be_excluded(data, out, tmp_path):
    assert convert(data, tmp_path / "again", "--exclude", f"{out}/problems-train.jsonl") == 0
    train = manifest_of(tmp_path / "again")["splits"]["train"]
    assert train["images"]["rejected"] == {"excluded": 2, "image_unreadable": 1}
    assert train["annotations"]["rejected"] == {"excluded": 1}


def test_extracted_tiles_are_said_to_be_tiles(out, tmp_path, capsys):
    assert main(["extract", str(out), str(tmp_path / "coco")]) == 0
    printed = capsys.readouterr().out
    assert "train: 18 tiles, " in printed
    assert "the images are 24 tiles of 4 images" in printed
    document = json.loads((tmp_path / "coco/annotations/instances_train.json").read_text())
    assert len({image["file_name"] for image in document["images"]}) == 18


@pytest.mark.parametrize("container", [name for name in CONTAINERS if name != TFRECORD])
def test_containers_have_the_same_records_and_are_resumed(data, out, tmp_path, container):
    folder, flags = tmp_path / "tiles", ("--num-shards", "3", "--container", container)
    assert convert(data, folder, *flags) == 0
    expected = recordmill.open(out)["train"]
    split, numbers = recordmill.open(folder)["train"], range(len(expected))
    assert list(split.read(numbers)) == list(expected.read(numbers))
    shard = sorted(path for path in folder.glob("coco-train*") if path.is_file())[1]
    before = shard.read_bytes()
    shard.unlink()
    assert convert(data, folder, *flags) == 0
    assert shard.read_bytes() == before


def test_images_of_class_folders_are_upright(tmp_path):
    pixels = np.random.default_rng(7).integers(0, 256, (40, 90, 3), np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6  # stored on its side
    for name in ("cat", "dog"):
        (tmp_path / "data" / name).mkdir(parents=True)
        Image.fromarray(pixels).save(tmp_path / "data" / name / "a.png", exif=exif)
    assert convert(tmp_path / "data", tmp_path / "out", "--format", "folder", "--tile", "50") == 0
    tiles = examples_by_name(tmp_path / "out")
    assert {name for name in tiles if "cat" in name} == {"cat/a_0_0.png", "cat/a_0_50.png"}
    stored = np.asarray(Image.open(io.BytesIO(tiles["cat/a_0_50.png"]["image/encoded"][0])))
    assert np.array_equal(stored, np.rot90(pixels, -1)[50:90])


def test_two_jobs_write_the_same_bytes_with_other_processes(data, out, tmp_path):
    copy = tmp_path / "copy"
    assert convert(data, copy, "--num-shards", "4", "--workers", "1") == 0
    shards = {name for name in whole_folder(out) if ".tfrecord-" in name}
    assert len(shards) == 16  # with indexes
    assert shards.isdisjoint(differing_files(out, copy))
