"""The statistics of whole jobs: what is counted on the way is what the records hold."""

import json

import msgspec
import pytest

from recordmill.schemas.manifest import encode_json
from recordmill.schemas.statistics_file import SplitComparison, SplitStatistics
from recordmill.transforms.metadata.dataset_folder import require_manifest
from recordmill.transforms.records.shard_reader import ShardReader
from recordmill.transforms.statistics.add_statistics import add_statistics
from recordmill.transforms.statistics.compare_splits import compare_splits
from recordmill.transforms.statistics.count_records import count_records
from recordmill.transforms.statistics.describe_statistics import describe_statistics

KINDS = ("--captions", "{0.captions}", "--panoptic", "{0.panoptic}", "--panoptic-masks", "{0.panoptic_masks}")


def read_back(folder, split: str = "train") -> bytes:
    """The statistics of a split, counted from its records alone."""
    manifest = require_manifest(str(folder))
    table, labels = manifest.table, manifest.labels
    is_measured = manifest.splits[split].recipe.is_measured
    found = [
        count_records(
            ShardReader(str(folder / shard.file)).records(), table, labels, shard.file, is_measured
        ).statistics
        for shard in manifest.splits[split].shards
    ]
    whole = found[0]
    for each in found[1:]:
        whole = add_statistics(each, whole)
    counts = manifest.splits[split].class_counts
    return encode_json(describe_statistics(whole, manifest.labels, manifest.table, counts))


@pytest.mark.parametrize(
    "flags",
    [
        (*KINDS, "--keypoints", "{0.keypoints}", "--masks", "png"),
        ("--layout", "tfds", *KINDS),
        ("--stuff", "{0.stuff}", "--gzip"),
        ("--writer", "beam", "--num-shards", "2"),
    ],
    ids=["every kind", "tfds", "stuff", "Beam's sink"],
)
def test_statistics_are_those_of_the_records(sample, tmp_path, copy_converted, flags):
    copy_converted(tmp_path, *(flag.format(sample) for flag in flags))
    found = (tmp_path / "statistics-train.json").read_bytes()
    assert read_back(tmp_path) == found
    statistics, manifest = json.loads(found), json.loads((tmp_path / "manifest.json").read_bytes())["splits"]["train"]
    assert statistics["images"] == manifest["images"]["written"]
    assert statistics["histograms"]["box_side"]["count"] == manifest["annotations"]["objects"]
    assert [each["objects"] for each in statistics["classes"]] == manifest["class_counts"]
    assert json.loads((tmp_path / "statistics.json").read_bytes()) == {"splits": {"train": statistics}}


def test_in_layout_keras_images_are_counted_once(copy_converted, tmp_path):
    """Boxes are read back of pixels, and rounded otherwise."""
    copy_converted(tmp_path, "--layout", "keras")
    found, again = json.loads((tmp_path / "statistics-train.json").read_bytes()), json.loads(read_back(tmp_path))
    for name in ("images", "classes"):
        assert found[name] == again[name]
    for name in ("image_width", "objects_an_image"):
        assert found["histograms"][name] == again["histograms"][name]
    assert found["histograms"]["box_side"]["mean"] == pytest.approx(again["histograms"]["box_side"]["mean"], rel=1e-5)


def test_splits_of_a_folder_each_have_theirs(sample, tmp_path, recordmill):
    flags = ("folder", "--images", sample.classes, "--output", tmp_path, "--split", "train=0.5,val=0.5")
    assert recordmill(*flags, "--writer", "beam").code == 0
    whole = json.loads((tmp_path / "statistics.json").read_bytes())
    both = whole["splits"]
    expected = compare_splits({name: msgspec.convert(of, SplitStatistics) for name, of in both.items()})
    assert msgspec.convert(whole["across_splits"], SplitComparison) == expected
    manifest = require_manifest(str(tmp_path))
    for split, statistics in both.items():
        assert json.loads(read_back(tmp_path, split)) == statistics
        assert [each["images"] for each in statistics["classes"]] == list(manifest.splits[split].class_counts)
