"""The statistics of whole jobs: what is counted on the way is what the records hold."""

import json
import math
from collections import Counter, defaultdict

import msgspec
import pytest

from recordmill.schemas.statistics import SplitComparison, SplitStatistics
from recordmill.transforms.dataset.dataset_folder import require_manifest
from recordmill.transforms.insight.across_splits import compare_splits
from tests.conftest import read_examples

KINDS = ("--captions", "{0.captions}", "--panoptic", "{0.panoptic}", "--panoptic-masks", "{0.panoptic_masks}")


def read_back(folder, split: str = "train") -> dict:
    """The statistics of a split, of its records as TensorFlow reads them."""
    numbers: dict[str, list[float]] = defaultdict(list)
    objects: Counter[str] = Counter()
    images: Counter[str] = Counter()
    examples = read_examples(folder, split)
    for example in examples:
        (width,), (height,) = example["image/width"], example["image/height"]
        names = [name.decode() for name in example["image/object/class/text"]]
        xs, ys = ([example[f"image/object/bbox/{axis}{end}"] for end in ("min", "max")] for axis in "xy")
        sizes = [((right - left) * width, (low - top) * height) for left, right, top, low in zip(*xs, *ys, strict=True)]
        numbers["image_width"].append(width)
        numbers["image_height"].append(height)
        numbers["image_bytes"].append(len(example["image/encoded"][0]))
        numbers["objects_an_image"].append(len(names))
        numbers["classes_an_image"].append(len(set(names)))
        numbers["box_side"] += [math.sqrt(across * down) for across, down in sizes]
        numbers["box_aspect"] += [across / down for across, down in sizes]
        objects.update(names)
        images.update(set(names))
    return {
        "images": len(examples),
        "formats": Counter(example["image/format"][0].decode() for example in examples),
        "classes": {name: (number, images[name]) for name, number in objects.items()},
        "histograms": {name: (len(of), min(of), max(of), sum(of) / len(of)) for name, of in numbers.items()},
    }


@pytest.mark.parametrize(
    "flags",
    [(*KINDS, "--keypoints", "{0.keypoints}", "--masks", "png"), ("--stuff", "{0.stuff}", "--gzip")],
    ids=["every kind", "stuff"],
)
def test_statistics_are_those_of_the_records(sample, tmp_path, copy_converted, flags):
    copy_converted(tmp_path, *(flag.format(sample) for flag in flags))
    expected = read_back(tmp_path)
    statistics = json.loads((tmp_path / "statistics-train.json").read_bytes())
    assert (statistics["images"], statistics["formats"]) == (expected["images"], expected["formats"])
    classes = {each["name"]: (each["objects"], each["images"]) for each in statistics["classes"]}
    assert {name: of for name, of in classes.items() if any(of)} == expected["classes"]
    for name, of in expected["histograms"].items():
        found = [statistics["histograms"][name][field] for field in ("count", "least", "largest", "mean")]
        assert found == pytest.approx(of, rel=1e-5)
    assert json.loads((tmp_path / "statistics.json").read_bytes()) == {"splits": {"train": statistics}}


def test_splits_of_a_folder_each_have_theirs(sample, tmp_path, recordmill):
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
