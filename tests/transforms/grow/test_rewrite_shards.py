"""Shards of finished data sets, copied without some images: records, metadata, numbers."""

import json
import shutil
from pathlib import Path

import apache_beam as beam
import msgspec
import numpy as np
import pytest

from recordmill.schemas.dataset.dataset_files import state_folder
from recordmill.schemas.image_records import split_images
from recordmill.schemas.problems import NO_FINGERPRINT_OFFSET, split_fingerprints
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.schemas.shards import ShardInfo, ShardKey, ShardResult, SplitSize
from recordmill.schemas.statistics import Finding, Statistics
from recordmill.transforms.containers.container import Contents, container_of
from recordmill.transforms.dataset.dataset_folder import read_manifest, read_statistics
from recordmill.transforms.dataset.facts import Facts
from recordmill.transforms.grow.rewrite_shards import RewriteShards
from recordmill.transforms.insight.across_splits import FingerprintFile
from recordmill.transforms.insight.invert_statistics import invert_statistics
from recordmill.transforms.records.parse_record import RecordParser
from recordmill.transforms.shards.image_records import read_images
from recordmill.transforms.shards.moved_shard import record_starts
from recordmill.transforms.shards.shard_file import FinishedShards, WrittenShard, written_shard
from recordmill.transforms.shards.take_out import Removed, take_out
from tests.beam_pipeline import Pipeline
from tests.literal_data import write_coco_set

COCO = "convert images --instances instances.json --num-shards 3"
JOBS = [
    COCO,
    f"{COCO} --gzip --masks rle --keypoints points.json",
    f"{COCO} --layout keras",
    f"{COCO} --layout tfds --container arrayrecord",
    f"{COCO} --container webdataset",
    f"{COCO} --container parquet --masks rle",
    f"{COCO} --tile 16",
]
NEW_SHARDS = 2


@pytest.fixture
def coco_set(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_coco_set(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def converted() -> dict[str, Path]:
    """Data sets by the job that made them."""
    return {}


@pytest.fixture
def convert(converted, coco_set, tmp_path_factory, recordmill):
    """Fills `out` with what a job makes of `coco_set`; each job runs once."""

    def run(job: str) -> None:
        if job not in converted:
            converted[job] = tmp_path_factory.mktemp("converted")
            done = recordmill(*job.split(), "--output", converted[job])
            assert done.code == 0, done
        shutil.copytree(converted[job], coco_set / "out")

    return run


_FOUND: list = []


def _note(one) -> None:
    _FOUND.append(one)


def rewrite(out: Path, names: set[str], rejected: tuple[WrittenShard, ...] = ()) -> tuple[list[ShardResult], Removed]:
    """Return the notes of the copies, by key, and the sums of the removed images."""
    manifest = read_manifest(str(out))
    _FOUND.clear()
    rows = [
        ("train", images.shard, name)
        for images in read_images(str(out / split_images("train")))
        for name, records in zip(images.image_names()[1], images.array["records"], strict=True)
        if name in names and records
    ]
    with Pipeline() as p:
        planned = p | "Plan" >> beam.Create([Facts(plans={"train": SplitSize(9, 9, NEW_SHARDS)})])
        labels = p | "Labels" >> beam.Create([manifest.labels])
        inputs = p | "Rows" >> beam.Create(rows), p | "Written" >> beam.Create(rejected)
        rewritten = inputs | RewriteShards(str(out), manifest, ("train",), planned, labels, 1)
        rewritten.notes | "Notes" >> beam.Map(_note)
        rewritten.removed | "Removed" >> beam.Map(_note)
    (removed,) = [one for one in _FOUND if isinstance(one, Removed)]
    finished = FinishedShards(str(out), manifest.name, manifest.layout, manifest.container)
    notes = sorted(one for one in _FOUND if not isinstance(one, Removed))
    return [finished.result(key, note) for key, note in notes], removed


def names_in(out: Path, file: str) -> list[str]:
    """Name of each record's image, of a tile that of the whole image."""
    manifest = read_manifest(str(out))
    parse = RecordParser(manifest.table)
    records = (
        container_of(manifest.container).read(str(out / file), Contents(manifest.table, manifest.labels)).records()
    )
    values = [parse(record) for record in records]
    return [one.get("tile.file_name", one["image.file_name"]).decode() for one in values]


@pytest.mark.parametrize("job", JOBS)
def test_copies_lack_the_images_and_nothing_else(job, coco_set, convert):
    convert(job)
    out, state = coco_set / "out", state_folder("train")
    entry = read_manifest(str(out)).splits["train"]
    by_shard = {shard.file: names_in(out, shard.file) for shard in entry.shards}
    first, _, third = by_shard
    removed = {*by_shard[first][:1], *by_shard[third]}  # nothing is left of the third
    expected = {file: [name for name in names if name not in removed] for file, names in by_shard.items()}
    rewritten = [file for file in by_shard if expected[file] != by_shard[file]]
    results, sums = rewrite(out, removed)
    assert sums.files == {"train": rewritten}
    copied = [file for file in rewritten if expected[file]]
    assert [result.key.index for result in results] == [3 + NEW_SHARDS + rewritten.index(file) for file in copied]
    assert {result.key.count for result in results} == {3 + NEW_SHARDS + len(rewritten)}
    fingerprints = {line.shard: line for line in FingerprintFile(str(out / split_fingerprints("train")))}
    for file, result in zip(copied, results, strict=True):
        assert names_in(out, f"{state}/{result.info.file}") == expected[file]
        names = msgspec.json.decode(result.fingerprints.names)
        assert names == [name for name in msgspec.json.decode(fingerprints[file].names) if name not in removed]
        assert [
            names_in(out, f"{state}/{result.info.file}")[row] for row in result.fingerprints.array["record"]
        ] == names
        check_ranges(out, result)
        assert result.images.image_names()[1] == [
            name
            for line in read_images(str(out / split_images("train")))
            if line.shard == file
            for name in line.image_names()[1]
            if name not in removed
        ]
        assert len(result.images.ids) == result.images.array["objects"].sum()
    left = entry.examples - sum(len(by_shard[file]) - len(expected[file]) for file in rewritten)
    assert left == sum(map(len, expected.values()))
    assert sums.facts.counts["train", "images"] == len(removed)
    again, same = rewrite(out, removed)
    assert (again, same) == (results, sums)


@pytest.mark.parametrize("job", [*JOBS, f"{COCO} --tile 16 --layout keras"])
def test_numbers_are_those_of_a_conversion_without_the_images(job, coco_set, convert, recordmill):
    convert(job)
    ids, names = (1, 4, 7), set()
    for file in map(Path, ("instances.json", "points.json")):
        document = json.loads(file.read_text())
        names |= {row["file_name"] for row in document["images"] if row["id"] in ids}
        document["images"] = [row for row in document["images"] if row["id"] not in ids]
        document["annotations"] = [row for row in document["annotations"] if row["image_id"] not in ids]
        file.write_text(json.dumps(document))
    assert recordmill(*job.split(), "--output", "less").code == 0
    _, removed = rewrite(coco_set / "out", names)
    described = read_statistics("out", ["train"])["train"]
    table = read_manifest("out").table
    before = read_manifest("out").splits["train"]
    entry, statistics = take_out(before, invert_statistics(described, table), removed)
    expected = read_manifest("less").splits["train"]
    known = invert_statistics(read_statistics("less", ["train"])["train"], table)
    assert without_examples(statistics) == without_examples(known)
    for field in ("class_counts", "record_bytes", "findings"):
        assert getattr(entry, field) == getattr(expected, field), field
    for field in ("written", "without_objects", "tiles"):
        assert getattr(entry.images, field) == getattr(expected.images, field), field
    for field in ("objects", "captions", "masks"):
        assert getattr(entry.annotations, field) == getattr(expected.annotations, field), field
    assert entry.images.replaced == before.images.written - expected.images.written
    assert entry.images.accounted == entry.images.rows
    assert entry.annotations.accounted == entry.annotations.rows
    left = {shard.file for shard in entry.shards}
    assert {one.shard for all_ in statistics.examples.values() for one in all_} & set(removed.files["train"]) == set()
    assert left.isdisjoint(removed.files["train"])


def without_examples(statistics: Statistics) -> Statistics:
    """Statistics without examples and ends of histograms, which are estimates."""
    findings = {name: Finding(finding.number) for name, finding in statistics.findings.items()}
    histograms = {
        name: msgspec.structs.replace(one, least=None, largest=None) for name, one in statistics.histograms.items()
    }
    return msgspec.structs.replace(statistics, examples={}, findings=findings, histograms=histograms)


def check_ranges(out: Path, result: ShardResult) -> None:
    """Each fingerprint has the byte range of the image's records in the file, or their number."""
    manifest = read_manifest(str(out))
    container, rows = container_of(manifest.container), result.fingerprints.array
    path = str(out / state_folder("train") / result.info.file)
    reader = container.read(path, Contents(manifest.table, manifest.labels))
    starts = record_starts(np.array(list(map(len, reader.records()))), container)
    records = result.images.array["records"][result.images.array["records"] > 0]
    if starts is None:
        assert set(rows["offset"]) <= {NO_FINGERPRINT_OFFSET}
        assert rows["bytes"].tolist() == records.tolist()
    else:
        assert starts[rows["record"]].tolist() == rows["offset"].tolist()
        assert set((rows["offset"] + rows["bytes"]).tolist()) <= set(starts.tolist())


def test_image_that_the_run_rejects_stays(coco_set, convert):
    convert(COCO)
    out = coco_set / "out"
    names = names_in(out, read_manifest(str(out)).splits["train"].shards[0].file)[:2]
    reject = Rejected("image", 7, Reason.RECORD_TOO_LARGE, "its record is large").named(names[0])
    info = ShardInfo("x", 1, 1, "", "")
    written = written_shard("n", ShardResult(ShardKey("train", 3, 5), "", {}, info, {}, (reject,), Statistics()))
    (result,), removed = rewrite(out, set(names), (written,))
    assert removed.facts.counts["train", "images"] == 1
    assert names[0] in names_in(out, f"{state_folder('train')}/{result.info.file}")
