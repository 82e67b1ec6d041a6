"""`--limit` and `--max-per-class`, as a user runs it."""

import re
from collections import Counter
from pathlib import Path

import apache_beam as beam
import pytest

from recordmill.beam import LimitImages, ReadDataset, Sample, SampleObject, WriteDataset
from recordmill.schemas.errors import ConfigError
from tests.beam_pipeline import Pipeline
from tests.conftest import (
    CATEGORIES,
    annotation,
    draw_jpeg,
    image_row,
    manifest_of,
    read_examples,
    shard_bytes,
    write_coco,
)
from tests.jobs.folders import draw, write_table

pytestmark = pytest.mark.usefixtures("empty_pages")
SHARES = ("--split", "train=0.7,val=0.3")
CLASS_IDS = [category["id"] for category in CATEGORIES][:2]


@pytest.fixture(scope="module")
def instances(tmp_path_factory) -> Path:
    """40 images of cases of 4. All have an object of one class, and every fifth also one of another."""
    folder = tmp_path_factory.mktemp("coco")
    images = [image_row(number, f"case{number // 4}_{number}.jpg") for number in range(1, 41)]
    for row in images:
        draw_jpeg(folder / "images" / row["file_name"])
    pairs = [(row["id"], CLASS_IDS[0]) for row in images] + [(id_, CLASS_IDS[1]) for id_ in range(1, 41, 5)]
    rows = [annotation(number, id_, category_id=label) for number, (id_, label) in enumerate(pairs, 1)]
    return write_coco(folder, images, rows, CATEGORIES)


def convert(recordmill, out: Path, instances: Path, *more: object):
    images = instances.parent / "images"
    return recordmill("convert", "--instances", instances, "--images", images, "-o", out, *more)


def names(out: Path, split: str = "train") -> set[bytes]:
    return {record["image/filename"][0] for record in read_examples(out, split)}


def test_a_smaller_limit_is_a_subset(recordmill, tmp_path, instances):
    outcomes = {}
    for limit in (5, 9):
        out = tmp_path / str(limit)
        assert convert(recordmill, out, instances, *SHARES, "--limit", limit).code == 0
        outcomes[limit] = out
    for split in ("train", "val"):
        assert names(outcomes[5], split) < names(outcomes[9], split)
        assert [len(names(out, split)) for out in outcomes.values()] == [5, 9]
    entry = manifest_of(outcomes[5])["splits"]["train"]
    assert entry["images"]["over_limit"] == entry["images"]["rows"] - 5
    assert entry["recipe"]["options"]["limit"] == 5
    assert recordmill("verify", outcomes[5]).code == 0


def test_another_limit_is_another_recipe(recordmill, tmp_path, instances):
    assert convert(recordmill, tmp_path, instances, "--limit", 4).code == 0
    outcome = convert(recordmill, tmp_path, instances, "--limit", 5)
    assert outcome.code == 2
    assert "limit: 4, now 5" in outcome.err


def test_groups_and_classes(recordmill, tmp_path, instances):
    flags = "--limit", 22, "--group-from", "case[0-9]+_", "--max-per-class", 3
    outcome = convert(recordmill, tmp_path, instances, *flags, "--dry-run")
    assert outcome.code == 0, outcome.err
    assert re.search("over --limit [0-9]+, over --max-per-class [0-9]+", outcome.out)
    assert "of 2 classes have fewer than 3 objects (--max-per-class)" in outcome.out
    assert convert(recordmill, tmp_path, instances, *flags[:4]).code == 0
    cases = Counter(name.split(b"_")[0] for name in names(tmp_path))
    whole = {b"case0": 3, b"case10": 1} | {b"case%d" % number: 4 for number in range(1, 10)}
    assert all(number == whole[case] for case, number in cases.items())
    assert 18 < cases.total() <= 22


def test_bytes_do_not_depend_on_the_runner(recordmill, tmp_path, instances):
    flags = "--limit", 9, "--max-per-class", 4, "--num-shards", 2
    runner = "--", "--runner", "DirectRunner", "--direct_num_workers", 2, "--direct_running_mode", "multi_threading"
    assert convert(recordmill, tmp_path / "one", instances, *flags).code == 0
    assert convert(recordmill, tmp_path / "two", instances, *flags, *runner).code == 0
    assert shard_bytes(tmp_path / "one") == shard_bytes(tmp_path / "two") != {}


def test_class_folders_are_balanced(recordmill, tmp_path):
    for number in range(12):
        draw(tmp_path / "set" / ("cat" if number < 9 else "dog") / f"{number}.jpg", number)
    outcome = recordmill("convert", tmp_path / "set", "-o", tmp_path / "out", "--max-per-class", 4)
    assert outcome.code == 0, outcome.err
    assert manifest_of(tmp_path / "out")["splits"]["train"]["class_counts"] == [4, 3]
    assert "1 of 2 classes have fewer than 4 images (--max-per-class), and dog has the fewest, 3" in outcome.out


def test_rejects_are_a_fraction_of_the_limited_images(recordmill, tmp_path):
    for number in range(100):
        draw(tmp_path / "set" / "ab"[number % 2] / f"{number}.jpg", number % 50)
    flags = "convert", tmp_path / "set", "-o", tmp_path / "out", "--limit", 10
    assert recordmill(*flags).code == 0
    broken = min(names(tmp_path / "out")).decode()
    (tmp_path / "set" / broken).write_bytes((tmp_path / "set" / broken).read_bytes()[:400])
    outcome = recordmill(*flags, "--overwrite", "--max-rejects", 0.05)  # 1 of all 100 are fewer
    assert "1 of the 10 images within the limits (10.0%) are rejected, more than --max-rejects 0.05" in outcome.err
    assert recordmill(*flags, "--overwrite", "--max-rejects", 0.1).code == 0
    images = manifest_of(tmp_path / "out")["splits"]["train"]["images"]
    assert (images["written"], images["rejected"], images["over_limit"]) == (9, {"image_unreadable": 1}, 90)


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    rows = [[f"r{number}", "aaab"[number % 4], f"p{number // 6}", number] for number in range(300)]
    return write_table(tmp_path_factory.mktemp("table") / "rows.csv", [["id", "kind", "patient", "x"], *rows])


@pytest.mark.parametrize(
    ("flags", "written"),
    [
        (("--key", "id", "--limit", 20), 20),
        (("--limit", 20), 20),
        (("--group-column", "patient", "--limit", 20), 18),
        (("--key", "id", "--label", "kind", "--max-per-class", 7), 14),
        (("--key", "id", "--label", "kind", "--max-per-class", 7, "--limit", 3), 3),
    ],
)
def test_rows(recordmill, tmp_path, table, flags, written):
    outcome = recordmill("convert", table, "-o", tmp_path, *flags)
    assert outcome.code == 0, outcome.err
    records = read_examples(tmp_path)
    assert len(records) == written
    images = manifest_of(tmp_path)["splits"]["train"]["images"]
    assert (images["rows"], images.get("over_limit", 0) + images.get("over_class_limit", 0)) == (300, 300 - written)
    if "--group-column" in flags:
        assert set(Counter(record["patient"][0] for record in records).values()) == {6}
    if "--limit" not in flags:
        assert Counter(record["kind"][0] for record in records) == {0: 7, 1: 7}


def test_rows_of_each_split(recordmill, tmp_path, table):
    few, many = tmp_path / "few", tmp_path / "many"
    for out, limit in ((few, 10), (many, 25)):
        assert recordmill("convert", table, "-o", out, "--key", "id", *SHARES, "--limit", limit).code == 0
    for split in ("train", "val"):
        small, large = ({record["id"][0] for record in read_examples(out, split)} for out in (few, many))
        assert (len(small), len(large)) == (10, 25)
        assert small < large


def test_groups_of_split_files_stay_whole(recordmill, tmp_path):
    (tmp_path / "rows").mkdir()
    for split, number in (("train", 40), ("val", 10)):
        rows = [["patient", "x"], *([f"p{row // 3}", row] for row in range(number))]
        write_table(tmp_path / "rows" / f"{split}.csv", rows)
    flags = "convert", tmp_path / "rows", "-o", tmp_path / "out", "--group-column", "patient"
    outcome = recordmill(*flags, "--limit", 8)
    assert outcome.code == 0, outcome.err
    for split in ("train", "val"):
        numbers = Counter(record["patient"][0] for record in read_examples(tmp_path / "out", split))
        assert 6 <= numbers.total() <= 8
        assert {*numbers.values()} <= {3, 1}


def test_rows_with_images(recordmill, tmp_path):
    lines = [["path", "kind", "patient"], *([f"{number}.jpg", "ab"[number % 2], number // 5] for number in range(20))]
    for number in range(20):
        draw(tmp_path / "pics" / f"{number}.jpg", number)
    rows = write_table(tmp_path / "rows.csv", lines)
    flags = "convert", rows, "--images", tmp_path / "pics", "--image-column", "path", "--label", "kind"
    outcome = recordmill(*flags, "-o", tmp_path / "out", "--limit", 12, "--group-column", "patient")
    assert outcome.code == 0, outcome.err
    numbers = {int(name.split(b".")[0]) // 5 for name in names(tmp_path / "out")}
    assert len(read_examples(tmp_path / "out")) == 10 == 5 * len(numbers)
    assert recordmill(*flags, "-o", tmp_path / "balanced", "--max-per-class", 3).code == 0
    assert manifest_of(tmp_path / "balanced")["splits"]["train"]["class_counts"] == [3, 3]


# Samples


def test_samples_are_those_of_the_command(recordmill, tmp_path, instances):
    flags = "--limit", 15, "--max-per-class", 4
    assert convert(recordmill, tmp_path / "command", instances, *flags).code == 0
    with Pipeline() as p:
        read = p | ReadDataset(instances=str(instances), images=str(instances.parent / "images"))
        read | LimitImages(limit=15, max_per_class=4) | WriteDataset(tmp_path / "beam")
    assert names(tmp_path / "beam") == names(tmp_path / "command")
    images, annotations = (
        manifest_of(tmp_path / "beam")["splits"]["train"][what] for what in ("images", "annotations")
    )
    assert images["removed"] == 40 - images["written"] > 25
    assert annotations["rows"] == 48
    assert manifest_of(tmp_path / "beam")["categories"] == manifest_of(tmp_path / "command")["categories"]


def test_limits_of_a_reading_transform(recordmill, tmp_path, instances):
    with Pipeline() as p:
        given = {"instances": str(instances), "images": str(instances.parent / "images")}
        read = p | ReadDataset(**given, limit=22, max_per_class=3, group_from="case[0-9]+_")
        read | beam.Filter(lambda sample: len(sample.objects) > 1) | WriteDataset(tmp_path)
    entry = manifest_of(tmp_path)["splits"]["train"]
    images, annotations = entry["images"], entry["annotations"]
    left_out = images["over_limit"] + images["over_class_limit"] + images["removed"]
    assert (images["rows"], images["written"] + left_out) == (40, 40)
    assert (
        annotations["objects"] + annotations["of_limited_images"] + annotations["removed"] == annotations["rows"] == 48
    )
    assert min(images["over_limit"], images["over_class_limit"], images["removed"]) > 0


def test_samples_by_split_and_class():
    samples = [
        Sample(f"{number}.jpg", path="x", split="ab"[number % 2], class_name="cat", tags=("rare",) * (number < 2))
        for number in range(30)
    ]
    # WriteDataset rejects these
    samples += [Sample(7, path="x"), Sample("w.jpg", path="x", objects=[SampleObject(None, (0, 0, 1, 1))], tags=None)]
    with Pipeline() as p:
        left = p | beam.Create(samples) | LimitImages(max_per_class=4)
        pairs = left | beam.Map(lambda sample: (str(sample.split), 1)) | beam.CombinePerKey(sum)
        pairs | beam.combiners.ToList() | beam.Map(_check_counts)


def _check_counts(pairs: list[tuple[str, int]]) -> None:
    numbers = dict(pairs)
    assert numbers.pop("") == 2
    assert all(4 <= number <= 5 for number in numbers.values())
    assert len(numbers) == 2


@pytest.mark.parametrize("limits", [{}, {"limit": 0}, {"max_per_class": True}, {"limit": 1.5}])
def test_wrong_limits_of_samples(limits):
    with pytest.raises(ConfigError, match="LimitImages: "):
        LimitImages(**limits)
