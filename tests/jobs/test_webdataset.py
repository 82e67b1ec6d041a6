"""Whole jobs with `--container webdataset`, read by Python's tarfile and by a reader of RF-DETR's contract."""

import io
import json
import re
import shutil
import tarfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco_mask

import recordmill as library
from recordmill.transforms.containers.container import Contents, container_of
from tests.conftest import annotation, every_kind, image_row, write_coco
from tests.jobs.folders import whole_folder
from tests.literal_data import jpeg, write_coco_set, write_files

CONTAINER = ("--container", "webdataset")


@pytest.fixture
def coco(tmp_path) -> list[object]:
    write_coco_set(tmp_path)
    return ["convert", tmp_path / "images", "--instances", tmp_path / "instances.json"]


@pytest.fixture
def out(tmp_path, recordmill, coco) -> Path:
    folder = tmp_path / "out"
    outcome = recordmill(*coco, "--masks", "rle", "--num-shards", 3, "--output", folder, *CONTAINER)
    assert outcome.code == 0, outcome
    return folder


def detr_samples(folder: Path, split: str) -> Iterator[tuple[Image.Image, dict]]:
    """Read a split as RF-DETR does: the index, then neighbours with one base name."""
    index = json.loads((folder / f"{split}-index.json").read_bytes())
    assert index["version"] == 1
    assert index["split"] == split
    assert not set(split) & set("/\\:*?[]")
    assert index["category_ids"] in ("remap", "raw")
    ids = {category["id"] for category in index["categories"]}
    assert all(isinstance(category["name"], str) and category["supercategory"] for category in index["categories"])
    assert set(index["annotated_category_ids"]) <= ids
    assert index["num_samples"] == sum(index["samples_per_shard"])
    annotated = set()
    for shard, number in zip(index["shards"], index["samples_per_shard"], strict=True):
        assert (folder / shard).resolve().parent == folder.resolve()
        with tarfile.open(folder / shard) as archive:
            samples = [list(group) for _, group in groupby(archive, key=lambda member: member.name.partition(".")[0])]
            assert len(samples) == number
            for members in samples:
                files = {m.name.partition(".")[2]: archive.extractfile(m).read() for m in members}
                (image,) = (files[ending] for ending in ("jpg", "jpeg", "png", "webp", "bmp") if ending in files)
                row = json.loads(files["json"])
                annotated |= {object_["category_id"] for object_ in row["annotations"]}
                yield Image.open(io.BytesIO(image)), row
    assert annotated == set(index["annotated_category_ids"])


def test_rf_detr_reads_boxes_and_masks_of_source(out, tmp_path):
    source = json.loads((tmp_path / "instances.json").read_text())
    rows = {row["id"]: row for row in source["annotations"]}
    names = {row["id"]: row["file_name"] for row in source["images"]}
    samples, objects = list(detr_samples(out, "train")), 0
    assert sorted(row["image_id"] for _, row in samples) == sorted(names)
    for image, row in samples:
        assert (image.size, row["file_name"]) == ((row["width"], row["height"]), names[row["image_id"]])
        for object_ in row["annotations"]:
            objects += 1
            expected = rows[object_["id"]]
            assert expected["image_id"] == row["image_id"]
            assert object_["category_id"] == expected["category_id"]
            assert object_["iscrowd"] == expected["iscrowd"]
            assert np.float32(object_["area"]) == np.float32(expected["area"])
            x, y, width, height = expected["bbox"]
            assert object_["bbox"] == pytest.approx([x, y, min(width, 40 - x), min(height, 30 - y)], abs=1e-5)
            assert coco_mask.decode(object_["segmentation"]).shape == (30, 40)
    assert objects == 80


def raw_records(folder: Path) -> list[bytes]:
    manifest = library.decode_manifest((folder / "manifest.json").read_bytes(), "")
    container, contents = container_of(manifest.container), Contents(manifest.table, manifest.labels)
    paths = [str(folder / shard.file) for shard in manifest.splits["train"].shards]
    return [record for path in paths for record in container.read(path, contents).records()]


def equal_values(one: dict, other: dict) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert np.array_equal(value, other[name]), name


@pytest.mark.parametrize("masks", ["rle", "none"])
def test_every_kind_has_records_of_tfrecords(sample, recordmill, tmp_path, masks):
    """Panoptic maps, keypoints, captions, stuff and masks; order, records and readers' values are the same."""
    flags = ["convert", *every_kind(sample), "--masks", masks, "--num-shards", 2, "--output"]
    assert recordmill(*flags, tmp_path / "records").code == 0
    assert recordmill(*flags, tmp_path / "tars", *CONTAINER).code == 0
    assert raw_records(tmp_path / "records") == raw_records(tmp_path / "tars")
    one, other = (library.open(tmp_path / name)["train"] for name in ("records", "tars"))
    assert len(one) == len(other) > 4
    for number in range(len(one)):
        equal_values(one[number], other[number])
    with tarfile.open(tmp_path / "tars" / "coco-train-000000.tar") as archive:
        endings = {member.name.partition(".")[2] for member in archive} - {"png", "jpg"}
    assert endings == {"json", "semantic.png", "category.png", "instance.png"}
    for one_item, other_item in zip(one.numpy(), other.numpy(), strict=True):
        equal_values(one_item, other_item)
    equal_values(one.grain()[3], other.grain()[3])


def test_classes_are_members(tmp_path, recordmill):
    write_files(tmp_path, {f"images/{name}/{number}.jpg": jpeg(number) for name in "ab" for number in range(3)})
    flags = ["--split", "train=0.5,val=0.5", "--output", tmp_path / "out", *CONTAINER]
    assert recordmill("convert", tmp_path / "images", "--format", "folder", *flags).code == 0
    assert not list((tmp_path / "out").glob("*-index.json"))
    found = {}
    for shard in (tmp_path / "out").glob("*.tar"):
        with tarfile.open(shard) as archive:
            files = {member.name: archive.extractfile(member).read() for member in archive}
        for name in files:
            if name.endswith(".json"):
                found[json.loads(files[name])["file_name"]] = files[name.replace(".json", ".cls")]
    assert found == {f"{name}/{number}.jpg": b"%d" % index for index, name in enumerate("ab") for number in range(3)}
    assert recordmill("verify", tmp_path / "out").code == 0


def test_verbs_read_tars(out, tmp_path, recordmill):
    before = whole_folder(out)
    assert recordmill("verify", out).code == 0
    shown = recordmill("show", out, "--count", 2)
    assert shown.code == 0, shown
    assert recordmill("show", out / "coco-train-000001.tar").code == 0
    assert recordmill("report", out).code == 0
    assert recordmill("extract", out, tmp_path / "back").code == 0
    images = json.loads((tmp_path / "instances.json").read_text())["images"]
    for row in images:
        data = (tmp_path / "back" / "images" / "train" / row["file_name"]).read_bytes()
        assert data == (tmp_path / "images" / row["file_name"]).read_bytes()
    for path in (out / ".index").iterdir():
        path.unlink()
    assert recordmill("verify", out).code == 1
    assert recordmill("index", out).code == 0
    assert {name: data for name, data in whole_folder(out).items() if name != "report.html"} == {
        name: data for name, data in before.items() if name != "report.html"
    }


def flip(path: Path, text: bytes, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(text) + offset] ^= 1
    path.write_bytes(data)


def swap(one: Path, other: Path) -> None:
    one_data, other_data = one.read_bytes(), other.read_bytes()
    one.write_bytes(other_data)
    other.write_bytes(one_data)


def write_tar(path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        archive.addfile(tarfile.TarInfo("0.jpg"), io.BytesIO())


SHARD, OTHER = "coco-train-000000.tar", "coco-train-000001.tar"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda out: flip(out / SHARD, b"000000-00000002.json", 3), f"{SHARD}.*record 2.*header"),
        (lambda out: flip(out / SHARD, b"000000-00000002.json", 512), f"{SHARD}.*record 2.*JSON"),
        (lambda out: flip(out / SHARD, b"000000-00000002.png", 512 + 40), f"{SHARD}.*record 2.*SHA-256"),
        (lambda out: flip(out / SHARD, b'"iscrowd":0', 10), SHARD),  # valid JSON, and another value
        (lambda out: (out / SHARD).write_bytes((out / SHARD).read_bytes()[:-1500]), f"{SHARD}.*record 3.*truncated"),
        (lambda out: swap(out / SHARD, out / OTHER), SHARD),
        (lambda out: (out / SHARD).unlink(), SHARD),
        (lambda out: write_tar(out / SHARD), f"{SHARD}.*record 0.*the member 0.jpg instead of 0-00000000.jpg or png"),
        (lambda out: shutil.copy(out / OTHER, out / "coco-train-000003.tar"), "coco-train-000003.tar.*unlisted"),
        (lambda out: flip(out / ".index" / f"{SHARD}.idx", b"v1.2", 6), f"{SHARD}.idx"),
        (lambda out: flip(out / "train-index.json", b'"num_samples": 12', 16), "train-index.json"),
    ],
)
def test_verify_finds_damage(out, recordmill, damage, said):
    damage(out)
    outcome = recordmill("verify", out)
    assert outcome.code == 1
    assert re.search(said, outcome.out + outcome.err), outcome


def test_foreign_tar_beside_shards_is_ignored(out, coco, recordmill):
    """It is no shard of the data set: no verb reads or deletes it. `index` reads it by name."""
    shown = recordmill("show", out).out
    write_tar(foreign := out / "mine.tar")
    data = foreign.read_bytes()
    assert recordmill("verify", out).code == 0
    assert recordmill("show", out).out == shown
    assert "mine.tar is a tar file" in recordmill("show", foreign).err
    assert "Indexes of 3 files with 12 records" in recordmill("index", out).out
    assert recordmill("index", foreign).code == 0
    flags = "--masks", "rle", "--num-shards", 1, "--output", out, *CONTAINER
    assert recordmill(*coco, *flags, "--overwrite").code == 0
    assert sorted(path.name for path in out.glob("*.tar")) == ["coco-train-000000.tar", "mine.tar"]
    assert sorted(path.name for path in (out / ".index").iterdir()) == ["coco-train-000000.tar.idx", "mine.tar.idx"]
    assert foreign.read_bytes() == data
    assert recordmill("verify", out).code == 0


def test_foreign_tars_are_indexed(tmp_path, recordmill):
    for name in ("a.tar", "b.tar"):
        with tarfile.open(tmp_path / name, "w") as archive:
            for member in ("x/0.jpg", "x/0.cls", "x/1.jpg"):
                archive.addfile(tarfile.TarInfo(member), io.BytesIO())
    assert recordmill("index", tmp_path).code == 0
    index = b"v1.2 2\njpg 512 0 x/0.jpg cls 1024 0 x/0.cls\njpg 1536 0 x/1.jpg\n"
    assert [path.read_bytes() for path in sorted((tmp_path / ".index").iterdir())] == [index, index]
    (tmp_path / "a.tar").write_bytes(bytes(10_240))
    outcome = recordmill("index", tmp_path / "a.tar")
    assert (outcome.code, "no samples" in outcome.err) == (2, True)
    with tarfile.open(tmp_path / "c.tar.gz", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("0.jpg"), io.BytesIO())
    outcome = recordmill("index", tmp_path / "c.tar.gz")
    assert (outcome.code, "Unpack it with gunzip" in outcome.err) == (2, True)
    assert "c.tar.gz is a tar file" in recordmill("show", tmp_path / "c.tar.gz").err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--masks", "png"), "--masks rle"),
        (("--masks", "both"), "--masks rle"),
        (("--gzip",), "--container tfrecord"),
        (("--layout", "tfds"), "detection or classification"),
        (("--num-shards", 13), "Use --num-shards 12"),
    ],
)
def test_what_tars_cannot_hold_is_error(coco, tmp_path, recordmill, flags, said):
    outcome = recordmill(*coco, *flags, "--output", tmp_path / "out", *CONTAINER)
    assert (outcome.code, said in outcome.err) == (2, True), outcome
    assert not list(tmp_path.glob("out/*.tar"))


def test_shard_that_rejects_leave_empty_is_error(tmp_path, recordmill):
    write_files(tmp_path, {"images/0.jpg": jpeg(0), "images/1.jpg": b"no image"})
    images = [image_row(number, f"{number}.jpg") for number in range(2)]
    instances = write_coco(tmp_path, images, [annotation(1, 0), annotation(2, 1)], [{"id": 1, "name": "cat"}])
    flags = ["convert", tmp_path / "images", "--instances", instances, "--output", tmp_path / "out", *CONTAINER]
    outcome = recordmill(*flags, "--max-rejects", 1, "--num-shards", 2)
    assert (outcome.code, "smaller --num-shards than 2" in outcome.err) == (2, True), outcome
    assert "has no records: 1 image rejected, the first: '1.jpg': not an image in a known format" in outcome.err
    assert not (tmp_path / "out" / "manifest.json").exists()
    assert recordmill(*flags, "--max-rejects", 1, "--num-shards", 1).code == 0


def test_split_that_rejects_leave_empty_is_error(tmp_path, recordmill):
    write_files(tmp_path, {"set/cat/1.jpg": b"none"})
    flags = "--format", "folder", "--classes", "cat", "--max-rejects", 1, "--split", "val"
    outcome = recordmill("convert", tmp_path / "set", "--output", tmp_path / "out", *CONTAINER, *flags)
    assert outcome.code == 2
    assert "shard 0 of val has no records: 1 image rejected, the first: 'cat/1.jpg'" in outcome.err
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_resume_and_container_of_recipe(out, coco, tmp_path, recordmill):
    """The same command has nothing to do; another container is another output's."""
    flags = [*coco, "--masks", "rle", "--num-shards", 3, "--output", out]
    before = whole_folder(out)
    assert recordmill(*flags, *CONTAINER).code == 0
    assert whole_folder(out) == before
    assert recordmill(*flags).code == 2


def test_in_a_bucket(gcs, coco, recordmill):
    flags = ["--num-shards", 3, "--output", "gs://bucket/out", *CONTAINER]
    assert recordmill(*coco, *flags).code == 0
    assert recordmill("verify", "gs://bucket/out").code == 0
    split = library.open("gs://bucket/out")["train"]
    assert [row["image_id"] for row in split.numpy()] == [split[number]["image_id"] for number in range(len(split))]
    assert len(split) == 12
