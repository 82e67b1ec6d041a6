"""Facts of finished records, compared with the statistics and counts that the job wrote with them."""

from collections import Counter
from itertools import groupby
from pathlib import Path

import msgspec
import numpy as np
import pytest
from PIL import Image

from recordmill.schemas.rejects import Metric
from recordmill.schemas.statistics import SplitStatistics, Statistics
from recordmill.transforms.blocks.image_facts import RecordPlaces, sort_objects
from recordmill.transforms.containers.container import Contents, container_of
from recordmill.transforms.dataset.dataset_folder import read_manifest, read_statistics
from recordmill.transforms.grow.record_facts import RecordFacts
from recordmill.transforms.insight.count_images import ImageCounter, describe_statistics
from recordmill.transforms.records.parse_record import RecordParser
from tests.conftest import CATEGORIES, annotation, convert, draw_jpeg, image_row, write_coco
from tests.jobs.folders import draw_all
from tests.literal_data import write_coco_set

OF_PIXELS = ("dark", "bright", "blank", "blurred", "twelve_bits", "odd_aspect")
"""Findings that fingerprints list by name; facts of records have no measures of pixels."""


def facts_of_folder(out) -> tuple[Statistics, Counter[Metric]]:
    manifest = read_manifest(str(out))
    ((_, entry),) = manifest.splits.items()
    read, counter, counted, last = RecordFacts(manifest.table, manifest.labels), ImageCounter(), Counter(), None
    parse = RecordParser(manifest.table)
    for shard in entry.shards:
        reader = container_of(manifest.container).read(str(out / shard.file), Contents(manifest.table, manifest.labels))
        for name, records in groupby(reader.records(), lambda record: parse(record)["image.file_name"]):
            facts = read(list(records), name == last)
            objects = None if facts.columns.first_object_of_image is None else sort_objects(facts.columns)
            zeros = np.zeros(1, np.int64)
            counter.add(facts.columns, RecordPlaces(zeros, zeros, zeros, zeros), objects, facts.fields)
            counted += facts.counted
            last = name
    return counter.statistics(""), counted


def without_pixels(statistics: SplitStatistics) -> SplitStatistics:
    findings = {name: finding.number for name, finding in statistics.findings.items() if name not in OF_PIXELS}
    return msgspec.structs.replace(statistics, examples={}, findings=findings, measured=0)


@pytest.fixture
def coco_set(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_coco_set(tmp_path)
    rng = np.random.default_rng(1)
    images = tmp_path / "images"
    for path in sorted(path for path in images.rglob("*.*") if path.is_file()):
        with Image.open(path) as image:
            units = rng.integers(1, 1 << 16, image.size[::-1]).astype(np.uint16)
        units[:3] = 0
        draw_png((tmp_path / "depth" / path.relative_to(images)).with_suffix(".png"), units)
    return tmp_path


def draw_png(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def check(out) -> None:
    statistics, counted = facts_of_folder(out)
    manifest = read_manifest(str(out))
    ((name, entry),) = manifest.splits.items()
    described = describe_statistics(statistics, manifest.labels, manifest.table, entry.class_counts)
    assert without_pixels(described) == without_pixels(read_statistics(str(out), [name])[name])
    images, annotations = entry.images, entry.annotations
    assert {metric.value: counted[metric] for metric in sorted(counted, key=str)} == {
        metric.value: number
        for metric, number in {
            Metric.RECORD_BYTES: entry.record_bytes,
            Metric.IMAGES: images.written,
            Metric.OBJECTS: annotations.objects,
            Metric.CAPTIONS: annotations.captions,
            Metric.MASKS: annotations.masks,
            Metric.PANOPTIC: annotations.panoptic,
            Metric.REGIONS: annotations.stuff,
            Metric.SEMANTIC_MASKS: annotations.semantic_masks,
            Metric.DEPTH_MAPS: annotations.depth_maps,
            Metric.TILES: images.tiles,
            Metric.KEYPOINTS_OUTSIDE: annotations.keypoints_outside,
        }.items()
        if metric in counted
    }


COCO = "convert images --instances instances.json"


@pytest.mark.parametrize(
    "flags",
    [
        f"{COCO} --keypoints points.json --masks rle --num-shards 2",
        f"{COCO} --masks png --label-as text --dtype image/object/id=float32",
        f"{COCO} --layout keras --examples-per-shard 5",
        f"{COCO} --layout tfds --container arrayrecord",
        f"{COCO} --tile 16 --num-shards 2",
        f"{COCO} --tile 16 --layout keras --examples-per-shard 7 --gzip",
        f"{COCO} --depth-images depth --depth-scale 0.001",
        f"{COCO} --depth-images depth --depth-scale 0.0002 --tile 16 --num-shards 2",
    ],
)
def test_facts_of_coco(flags, coco_set, recordmill):
    outcome = recordmill(*flags.split(), "--output", "out")
    assert outcome.code == 0, outcome
    check(coco_set / "out")


KINDS = ("images", "instances", "captions", "panoptic", "panoptic_masks", "keypoints", "stuff")


@pytest.mark.parametrize(
    ("kinds", "flags"),
    [
        (KINDS[:6], "--masks both --num-shards 2"),
        (KINDS[:5], "--layout tfds"),
        (KINDS[:6], "--tile 64"),
        ((*KINDS[:3], "stuff"), "--masks rle"),
    ],
)
def test_facts_of_every_kind(kinds, flags, sample, tmp_path, recordmill):
    given = [part for kind in kinds for part in (f"--{kind.replace('_', '-')}", getattr(sample, kind))]
    done = recordmill("convert", *given, *flags.split(), "--max-rejects", 0.2, "--output", tmp_path / "out")
    assert done.code == 0, done
    check(tmp_path / "out")


@pytest.mark.parametrize("flags", ["", "--layout keras --examples-per-shard 4", "--layout tfds", "--tile 32"])
def test_facts_of_fields(flags, tmp_path, recordmill):
    """Numbers, texts, booleans, lists of one length and of several; missing ones, and a list of missing values."""
    objects = [
        {"score": 0.1, "rank": 3, "kind": "red", "is_far": True, "pair": [1, 2], "tags": ["a", "b"], "sizes": [0.5]},
        {"score": 7, "rank": -1, "is_far": False, "pair": [-1, 4], "tags": [], "sizes": [1, 2, 3]},
        {"kind": "blau", "tags": ["c"]},
    ]
    draw_jpeg(tmp_path / "images" / "a.jpg")
    draw_jpeg(tmp_path / "images" / "b.jpg")
    rows = [annotation(id_, 1 + id_ % 2) | objects[id_ % 3] for id_ in range(1, 10)]
    images = [image_row(1, "a.jpg") | {"licence": 4, "place": "x", "lens": [0.5, 2]}, image_row(2, "b.jpg")]
    instances = write_coco(tmp_path, images, rows, CATEGORIES)
    done = convert(recordmill, tmp_path, instances, "--fields", "all", *flags.split())
    assert done.code == 0, done
    check(tmp_path / "out")


def test_facts_of_class_folders(tmp_path, recordmill):
    draw_all(tmp_path / "data", [f"{'ab'[number % 2]}/{number}.jpg" for number in range(9)])
    assert recordmill("convert", tmp_path / "data", "--output", tmp_path / "out").code == 0
    check(tmp_path / "out")
