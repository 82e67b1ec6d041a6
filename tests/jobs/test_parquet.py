"""Whole jobs with `--container parquet`, read by pyarrow."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import recordmill as library
from recordmill.transforms.containers.container import Contents, container_of
from tests.conftest import every_kind
from tests.jobs.folders import whole_folder
from tests.literal_data import write_coco_set, write_files

CONTAINER = ("--container", "parquet")


@pytest.fixture
def coco(tmp_path) -> list[object]:
    write_coco_set(tmp_path)
    return ["convert", tmp_path / "images", "--instances", tmp_path / "instances.json", "--num-shards", 3]


@pytest.fixture
def out(tmp_path, recordmill, coco) -> Path:
    folder = tmp_path / "out"
    outcome = recordmill(*coco, "--output", folder, *CONTAINER)
    assert outcome.code == 0, outcome
    return folder


def raw_records(folder: Path) -> list[bytes]:
    manifest = library.decode_manifest((folder / "manifest.json").read_bytes(), "")
    container, contents = container_of(manifest.container), Contents(manifest.table, manifest.labels)
    paths = [str(folder / shard.file) for split in manifest.splits.values() for shard in split.shards]
    return [record for path in paths for record in container.read(path, contents).records()]


def values_of(folder: Path) -> list[dict]:
    return list(library.open(folder)["train"])


def equal(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(value, other[name]) for name, value in one.items())


@pytest.mark.parametrize("masks", ["rle", "none"])
def test_every_kind_has_records_of_tfrecords(sample, recordmill, tmp_path, masks):
    """Panoptic maps, keypoints, captions, stuff and masks; order, records and readers' values are the same."""
    flags = ["convert", *every_kind(sample), "--masks", masks, "--num-shards", 2, "--output"]
    for name, more in (("records", ()), ("parquet", CONTAINER)):
        assert recordmill(*flags, tmp_path / name, *more).code == 0
    assert raw_records(tmp_path / "records") == raw_records(tmp_path / "parquet")
    one, other = (values_of(tmp_path / name) for name in ("records", "parquet"))
    assert len(one) == len(other) > 4
    assert all(map(equal, one, other))
    for verb in (("verify",), ("show",), ("report",)):
        assert recordmill(*verb, tmp_path / "parquet").code == 0


def test_rows_have_records_of_tfrecords(recordmill, tmp_path):
    rows = [f'{{"id": {number}, "note": "é\\n{number}", "sizes": [{number}.5]}}\n' for number in range(30)]
    write_files(tmp_path, {"rows.jsonl": "".join(rows)})
    flags = ["convert", tmp_path / "rows.jsonl", "--split", "train=0.7,val=0.3", "--key", "id", "--output"]
    for name, more in (("records", ()), ("parquet", CONTAINER)):
        assert recordmill(*flags, tmp_path / name, *more).code == 0
    assert raw_records(tmp_path / "records") == raw_records(tmp_path / "parquet")
    assert recordmill("verify", tmp_path / "parquet").code == 0


def test_extract_and_columns(out, recordmill, tmp_path):
    assert sum(pq.read_metadata(path).num_rows for path in out.glob("*.parquet")) == 12
    assert recordmill("extract", out, tmp_path / "extracted").code == 0
    extracted = json.loads(next((tmp_path / "extracted").rglob("*train*.json")).read_text())
    assert (len(extracted["images"]), len(extracted["annotations"])) == (12, 80)


def flip(path: Path, place: int = 300) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)


def swap(path: Path) -> None:
    other = path.with_name(path.name.replace("00000-of", "00001-of"))
    content = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def foreign(path: Path) -> None:
    shutil.copy(path, path.with_name("coco-train-00003-of-00004.parquet"))


def edit_card(path: Path) -> None:
    card = path.with_name("README.md")
    card.write_text(card.read_text().replace("num_examples: 12", "num_examples: 11"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (flip, "data_crc"),
        (lambda path: flip(path, 0), "sha256"),
        (cut, "truncated"),
        (swap, "sha256"),
        (Path.unlink, "missing"),
        (foreign, "unlisted"),
        (edit_card, "README.md: edited"),
        (lambda path: path.with_name("croissant.json").unlink(), "croissant.json: missing"),
    ],
)
def test_verify_finds(out, recordmill, change, said):
    change(out / "coco-train-00000-of-00003.parquet")
    outcome = recordmill("verify", out)
    assert (outcome.code, said in outcome.out + outcome.err) == (1, True), outcome


def test_card_with_a_users_text_and_index_of_litdata_are_no_fault(out, coco, recordmill):
    card = out / "README.md"
    card.write_text(card.read_text().replace("---\n\n# coco", "license: mit\n---\n\n# Mine"))
    (out / "index.json").write_text("{}")
    assert recordmill("verify", out).code == 0
    assert recordmill(*coco, "--split", "val", "--output", out, *CONTAINER).code == 0
    assert "# Mine" in card.read_text()
    assert "coco-val-" in card.read_text()
    assert "license: mit" in card.read_text()
    assert recordmill("verify", out).code == 0


def test_a_deleted_shard_is_written_again(out, coco, recordmill):
    before = whole_folder(out)
    (out / "coco-train-00001-of-00003.parquet").unlink()
    assert recordmill(*coco, "--output", out, *CONTAINER).code == 0
    assert whole_folder(out) == before


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--masks", "png"), "--masks rle"),
        (("--gzip",), "--container tfrecord"),
        (("--layout", "tfds"), "detection or classification or table"),
    ],
)
def test_what_parquet_cannot_hold_is_error(coco, tmp_path, recordmill, flags, said):
    outcome = recordmill(*coco, *flags, "--output", tmp_path / "out", *CONTAINER)
    assert (outcome.code, said in outcome.err) == (2, True), outcome
    assert not list(tmp_path.glob("out/*.parquet"))


def test_in_a_bucket(gcs, coco, recordmill):
    assert recordmill(*coco, "--output", "gs://bucket/out", *CONTAINER).code == 0
    assert recordmill("verify", "gs://bucket/out").code == 0
    split = library.open("gs://bucket/out")["train"]
    assert [row["image_id"] for row in split] == [split[number]["image_id"] for number in range(len(split))]
