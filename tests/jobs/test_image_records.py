"""Digests of the records of whole jobs: those of write time are those of one read of the shards."""

import json
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest

from recordmill.launch.runners.beam_options import beam_options
from recordmill.launch.verbs import add_image_records as add_module
from recordmill.launch.verbs.add_image_records import add_image_records
from recordmill.schemas.containers import CONTAINERS, TFRECORD
from recordmill.schemas.dataset.manifest import encode_manifest
from recordmill.schemas.errors import ConfigError, FaultyDatasetError, JobError
from recordmill.schemas.image_records import IMAGES_VERSION, ShardImages
from recordmill.transforms.dataset.dataset_folder import read_split_manifests
from recordmill.transforms.shards import plan_blocks, read_image_records
from recordmill.transforms.shards.commit_splits import publish
from recordmill.transforms.shards.image_records import read_images
from recordmill.transforms.shards.read_image_records import read_shard_images, shards_to_digest
from tests.conftest import every_kind, manifest_of
from tests.jobs.folders import differing_files, draw, whole_folder

KINDS = {
    "every_kind": ["--masks", "rle"],
    "fields": ["--masks", "png", "--fields", "image.weather,score"],
    "tiles": ["--tile", "64", "--masks", "png"],
    "keras": ["--layout", "keras", "--examples-per-shard", "7"],
    "tfds": ["--layout", "tfds", "--num-shards", "2"],
    "floats": ["--dtype", "image/object/id=float32", "--rename", "image/filename=name"],
    "jpeg": ["--image-format", "jpeg", "--max-side", "50", "--duplicates", "report"],
}
OTHERS = [
    pytest.param(name, marks=pytest.mark.skipif(not row.is_installed, reason=f"without extra {row.extra}"))
    for name, row in CONTAINERS.items()
    if name != TFRECORD
]


def lines(folder: Path, split: str) -> list[ShardImages]:
    return list(read_images(str(folder / f"images-{split}.jsonl")))


def names(images: ShardImages) -> list[str]:
    return msgspec.json.decode(images.names)


def check_read(folder: Path) -> int:
    """Compare the files of a data set with one read of its shards; return the number of images."""
    manifests, number = read_split_manifests(str(folder)), 0
    for split, manifest in manifests.items():
        noted = {images.shard: images for images in lines(folder, split)}
        shards = shards_to_digest(str(folder), [manifest])
        assert sorted(noted) == sorted(shard.info.file for shard in shards)
        for shard in shards:
            images, read = noted[shard.info.file], read_shard_images(shard)
            rows = images.array
            is_written = rows["records"] > 0
            assert [name for name, has_record in zip(names(images), is_written, strict=True) if has_record] == names(
                read
            )
            for column in ("image", "labels", "id", "records", "objects"):
                assert (rows[column][is_written] == read.array[column]).all(), column
            assert images.ids.tolist() == read.ids.tolist()
            number += int(is_written.sum())
    return number


def with_fields(sample, folder: Path) -> Path:
    """Write the sample's annotations with a field of images and one of objects."""
    document = json.loads(Path(sample.instances).read_bytes())
    for number, image in enumerate(document["images"]):
        image["weather"] = "rain" if number % 3 else "snow"
    for annotation in document["annotations"]:
        annotation["score"] = annotation["id"] % 7 / 7
    (folder / "fields.json").write_text(json.dumps(document))
    return folder / "fields.json"


@pytest.fixture(name="plans")
def sums_of_plans(monkeypatch) -> dict[str, tuple[int, int]]:
    """Expected bytes and records of the splits that are planned."""
    plans: dict[str, tuple[int, int]] = {}
    report = plan_blocks.report_plans

    def report_plans(planned, *more):
        plans.update({split: (plan.bytes, plan.examples) for split, plan in planned.items()})
        report(planned, *more)

    monkeypatch.setattr(plan_blocks, "report_plans", report_plans)
    return plans


@pytest.mark.parametrize("kind", KINDS)
def test_read_of_each_kind_of_records(kind, sample, plans, recordmill, tmp_path):
    """The read finds what the job noted. Sizes and numbers are those of the plan."""
    flags = every_kind(sample)
    if kind == "fields":
        flags[:4] = "--images", sample.images, "--instances", with_fields(sample, tmp_path)
    if kind == "tfds":
        del flags[4:6]  # keypoints, which this layout lacks
    elif kind != "every_kind":
        del flags[4:]
    made = recordmill("convert", *flags, "--max-rejects", 0.2, "--output", tmp_path / "out", *KINDS[kind])
    assert made.code == 0, made
    images = manifest_of(tmp_path / "out")["splits"]["train"]["images"]
    least = images.get("tiles") or images["written"]
    assert check_read(tmp_path / "out") >= least > 0
    rows = np.concatenate([images.array for images in lines(tmp_path / "out", "train")])
    assert (int(rows["size"].sum()), int(rows["planned"].sum())) == plans["train"]
    assert rows["continues"].any() == (kind == "keras")


@pytest.mark.parametrize("container", [TFRECORD, *OTHERS])
def test_read_of_each_container(container, copy_converted, recordmill, tmp_path):
    more = ["--gzip"] if container == TFRECORD else ["--container", container]
    copy_converted(tmp_path / "one", "--num-shards", 2)
    copy_converted(tmp_path / "out", "--num-shards", 2, *more)
    assert check_read(tmp_path / "out") == 22
    for one, other in zip(lines(tmp_path / "one", "train"), lines(tmp_path / "out", "train"), strict=True):
        assert (one.names, one.rows, one.object_ids) == (other.names, other.rows, other.object_ids)


def test_class_folders_and_rows_of_tables(recordmill, tmp_path):
    for number in range(6):
        draw(tmp_path / "pics" / ("cat", "dog")[number % 2] / f"{number}.png", number)
    rows = [f"{('cat', 'dog')[n % 2]}/{n}.png,{n}" for n in (0, 0, 1, 2, 3, 4, 5)]
    (tmp_path / "rows.csv").write_text("\n".join(["path,price", *rows, ""]))
    folder = ["convert", tmp_path / "pics", "--format", "folder", "--split", "train=0.5,val=0.5"]
    table = ["convert", tmp_path / "rows.csv", "--format", "table", "--images", tmp_path / "pics"]
    raw = [*table, "--image-column", "path", "--raw-size", "8x9"]
    for number, flags in enumerate((folder, [*table, "--image-column", "path"], raw)):
        assert recordmill(*flags, "--output", tmp_path / str(number)).code == 0
        assert check_read(tmp_path / str(number)) == (6, 7, 7)[number]
    assert recordmill(*table[:4], "--output", tmp_path / "rows").code == 0
    assert not list((tmp_path / "rows").glob("images-*"))
    assert "images_sha256" not in manifest_of(tmp_path / "rows")["splits"]["train"]


def test_planned_images_without_record(sample, recordmill, tmp_path):
    """Rejected images, and those without objects in layout keras, are rows without records."""
    flags = every_kind(sample)[:4]
    assert recordmill("convert", *flags, "--max-rejects", 0.2, "--layout", "keras", "-o", tmp_path / "out").code == 0
    entry = manifest_of(tmp_path / "out")["splits"]["train"]
    rows = np.concatenate([images.array for images in lines(tmp_path / "out", "train")])
    without = entry["images"]["without_record"] + entry["images"]["rejected"].get("image_unreadable", 0)
    assert int((rows["records"] == 0).sum()) == without > 0
    assert int(rows["records"].sum()) == entry["annotations"]["objects"] == int(rows["objects"].sum())


def test_parts_and_one_job_write_the_same_file(sample, recordmill, tmp_path):
    flags = ["convert", *every_kind(sample)[:4], "--max-rejects", 0.2, "--num-shards", 3, "--output"]
    assert recordmill(*flags, tmp_path / "one").code == 0
    for part in ("0/2", "1/2"):
        assert recordmill(*flags, tmp_path / "out", "--part", part).code == 0
    assert recordmill("seal", tmp_path / "out").code == 0
    assert differing_files(tmp_path / "out", tmp_path / "one") == []
    assert (tmp_path / "out" / "images-train.jsonl").exists()


def without_images(folder: Path) -> None:
    """Make the data set one of an earlier version."""
    for split, manifest in read_split_manifests(str(folder)).items():
        entry = msgspec.structs.replace(manifest.splits[split], images_sha256=msgspec.UNSET)
        older = msgspec.structs.replace(manifest, splits={split: entry})
        (folder / f"manifest-{split}.json").write_bytes(encode_manifest(older))
        (folder / f"images-{split}.jsonl").unlink()
    publish(str(folder))


@pytest.fixture(name="older")
def data_set_without_images(copy_converted, tmp_path) -> Path:
    copy_converted(tmp_path / "out", "--split", "train=0.75,val=0.25", "--num-shards", 2)
    shutil.copytree(tmp_path / "out", tmp_path / "new")
    without_images(tmp_path / "out")
    return tmp_path / "out"


def test_data_set_without_digests_gets_them(older, recordmill, capfd):
    """All splits, by one read, with sizes as planned, but for the two rejected images. Another call reads nothing."""
    add_image_records(str(older), beam_options([]))
    assert "one read of 4 shards of train and val adds them" in capfd.readouterr().out
    for split in ("train", "val"):
        for one, other in zip(lines(older, split), lines(older.parent / "new", split), strict=True):
            is_written = one.array["records"] > 0
            assert is_written.all()
            planned = other.array[other.array["records"] > 0]
            assert one.array["size"].tolist() == planned["size"].tolist()
    assert recordmill("verify", older, "--check", "decode").code == 0
    before = whole_folder(older)
    add_image_records(str(older), beam_options([]))
    assert (whole_folder(older), capfd.readouterr().out) == (before, "")


def test_digests_of_another_version_are_made_again(older, empty_pages):
    add_image_records(str(older), beam_options([]))
    new = (older / "images-train.jsonl").read_bytes()
    for split, manifest in read_split_manifests(str(older)).items():
        path = older / f"images-{split}.jsonl"
        path.write_bytes(path.read_bytes().replace(b'"version":%d' % IMAGES_VERSION, b'"version":0'))
        assert manifest.splits[split].images_sha256
    add_image_records(str(older), beam_options([]))
    assert (older / "images-train.jsonl").read_bytes() == new


def test_template_cannot_read_shards_first(older, monkeypatch):
    monkeypatch.setattr(add_module, "job_purpose", lambda beams: "template")
    with pytest.raises(ConfigError, match="once without --template_location"):
        add_image_records(str(older), beam_options([]))


@pytest.mark.parametrize("step", ["publish", "encode_manifest"])
def test_kill_within_the_commit_loses_nothing(step, older, recordmill, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(read_image_records, step, lambda *_: 1 / 0)
        with pytest.raises(JobError):
            add_image_records(str(older), beam_options([]))
    assert "images_sha256" not in manifest_of(older)["splits"]["train"]
    add_image_records(str(older), beam_options([]))
    assert "images_sha256" in manifest_of(older)["splits"]["train"]
    assert recordmill("verify", older, "--check", "hashes").code == 0


@pytest.mark.parametrize("damage", ["cut", "gone", "other"])
def test_damaged_shards_are_an_error(damage, older, empty_pages):
    shard = min(older.glob("*-train.tfrecord-*"))
    data = shard.read_bytes()
    shard.unlink()
    if damage != "gone":
        shard.write_bytes(data[:-9] if damage == "cut" else data[:-30] + b"\0" + data[-29:])
    before = whole_folder(older)
    with pytest.raises(FaultyDatasetError, match=rf"{shard.name}.*recordmill verify lists all damage"):
        add_image_records(str(older), beam_options([]))
    assert whole_folder(older) == before


def test_verify_compares_the_file(copy_converted, recordmill, tmp_path):
    copy_converted(tmp_path / "out")
    path = tmp_path / "out" / "images-train.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"version":1', b'"version":2'))
    outcome = recordmill("verify", tmp_path / "out", "--check", "hashes")
    assert outcome.code == 1
    assert "images-train.jsonl" in outcome.out
    assert json.loads((tmp_path / "out" / "manifest.json").read_bytes())["splits"]["train"]["images_sha256"]
