"""The statistics of whole jobs: what is counted on the way is what the records hold."""

import json

import msgspec

from recordmill.schemas.statistics import SplitComparison, SplitStatistics
from recordmill.transforms.dataset.dataset_folder import require_manifest
from recordmill.transforms.insight.across_splits import compare_splits
from tests.conftest import read_examples


def test_splits_of_folder_each_have_theirs(sample, tmp_path, recordmill):
    flags = ("folder", "--images", sample.classes, "--output", tmp_path, "--split", "train=0.5,val=0.5")
    assert recordmill(*flags).code == 0
    whole = json.loads((tmp_path / "statistics.json").read_bytes())
    both = whole["splits"]
    expected = compare_splits({name: msgspec.convert(of, SplitStatistics) for name, of in both.items()})
    assert msgspec.convert(whole["across_splits"], SplitComparison) == expected
    manifest = require_manifest(str(tmp_path))
    for split, statistics in both.items():
        assert json.loads((tmp_path / f"statistics-{split}.json").read_bytes()) == statistics
        assert statistics["images"] == len(read_examples(tmp_path, split))
        assert [each["images"] for each in statistics["classes"]] == list(manifest.splits[split].class_counts)
