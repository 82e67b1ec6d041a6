import json
import random
import tracemalloc
from hashlib import sha256
from itertools import pairwise

import msgspec
import numpy as np
import pytest

from recordmill.schemas.dataset.manifest import FORMAT, Manifest
from recordmill.schemas.errors import DuplicatesError
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.layouts import CLASSIFICATION
from recordmill.schemas.problems import FINGERPRINT, Fingerprints, SplitDuplicates
from recordmill.schemas.statistics import ClassDrift, ClassInOneSplit, ClassStatistics, SplitStatistics
from recordmill.transforms.insight.across_splits import (
    check_complete_duplicates,
    check_duplicates,
    compare_all_splits,
    compare_splits,
    fingerprint_line,
)
from recordmill.transforms.insight.read_examples import read_first_groups
from recordmill.transforms.shards.commit_splits import commit_splits
from tests.transforms.insight.test_find_duplicates import image, shard
from tests.transforms.shards.test_commit_splits import of_split, statistics_of
from tests.transforms.shards.test_write_metadata import stage

CATS = tuple(image(f"cat/{n}.jpg", n, labels=0 << 32) for n in range(6))
ALL = tuple(image(f"all/{n}.jpg", n, labels=1 << 32) for n in range(6))
OTHER = (image("cat/7.jpg", 7),)


def with_fingerprints(manifest: Manifest, lines: bytes) -> Manifest:
    """The manifest of one split, that has these."""
    ((split, entry),) = manifest.splits.items()
    entry = msgspec.structs.replace(entry, fingerprints_sha256=sha256(lines).hexdigest())
    return msgspec.structs.replace(manifest, splits={split: entry})


def fingerprint_lines(shards: list[Fingerprints]) -> bytes:
    return b"".join(map(fingerprint_line, shards))


def commit(folder, split: str, lines: bytes = b"") -> Manifest:
    """Commit a split whose shards have just been finished."""
    manifest = with_fingerprints(of_split(split), lines) if lines else of_split(split)
    stage(folder, manifest.splits[split].recipe, manifest.splits[split].shards)
    (folder / f".recordmill-{split}" / "fingerprints.jsonl").write_bytes(lines)
    return commit_splits(str(folder), manifest, statistics_of(manifest))


def written(folder, **splits: list[Fingerprints]) -> Manifest:
    """A folder of splits of which only fingerprints are there."""
    entries = {}
    for split, shards in splits.items():
        lines = fingerprint_lines(shards)
        (folder / f"fingerprints-{split}.jsonl").write_bytes(lines)
        entries |= with_fingerprints(of_split(split), lines).splits
    categories = (Category(1, "cat"), Category(2, "all"))
    return Manifest(FORMAT, "coco", "classification", (), categories, (), entries)


def test_all_splits_are_compared_and_classes_named(tmp_path):
    manifest = written(tmp_path, train=[shard("t1", *CATS), shard("t0", *OTHER)], val=[shard("v", *ALL)])
    assert json.loads((tmp_path / "fingerprints-val.jsonl").read_text())["names"][0] == "all/0.jpg"
    duplicates, _, files = compare_all_splits(str(tmp_path), manifest)
    lines = files["duplicates.jsonl"]
    assert (duplicates.groups, duplicates.leaks, duplicates.copied_classes) == (6, 6, {"cat": 6})
    counts = SplitDuplicates(exact=6, leaked=6, labels_differ=6, conflicting=6)
    assert (duplicates.splits, duplicates.conflicts) == ({"train": counts, "val": counts}, 6)
    assert duplicates.sha256 == sha256(lines).hexdigest()
    assert [copy["file_name"] for copy in json.loads(lines.splitlines()[0])["images"]] == ["cat/0.jpg", "all/0.jpg"]
    assert read_first_groups(str(tmp_path), 5) == []
    (tmp_path / "duplicates.jsonl").write_bytes(lines)
    assert [group.images[0].file_name for group in read_first_groups(str(tmp_path), 2)] == ["cat/0.jpg", "cat/1.jpg"]
    (tmp_path / "duplicates.jsonl").write_bytes(b'{"kind": "exa')
    assert read_first_groups(str(tmp_path), 5) == []


DAMAGED = msgspec.structs.replace(shard("v", *ALL), rows=b"not whole rows")


@pytest.mark.parametrize("damaged", [b"\xff", b"", fingerprint_lines([DAMAGED])])
def test_split_without_fingerprints(tmp_path, damaged):
    assert compare_all_splits(str(tmp_path), written(tmp_path)) is None
    manifest = written(tmp_path, train=[shard("t", *CATS)], val=[shard("v", *ALL)])
    (tmp_path / "fingerprints-val.jsonl").write_bytes(damaged)
    duplicates, problems, files = compare_all_splits(str(tmp_path), manifest)
    assert (list(duplicates.splits), list(problems)) == (["train"], ["train"])
    assert files == {"duplicates.jsonl": b"", "problems-train.jsonl": b""}


def test_damaged_fingerprints(tmp_path):
    commit(tmp_path, "train", fingerprint_lines([shard("t", *CATS)]))
    commit(tmp_path, "val", fingerprint_lines([shard("v", *ALL)]))
    (tmp_path / "fingerprints-val.jsonl").write_bytes(b"")
    with pytest.raises(DuplicatesError, match=r"cannot compare val of .*--overwrite"):
        check_duplicates(str(tmp_path), {"test": [shard("x", *OTHER)]}, CLASSIFICATION, "leakage")
    with pytest.raises(DuplicatesError, match=r"cannot compare val of "):
        check_complete_duplicates(str(tmp_path), ["train", "val"], CLASSIFICATION, "leakage")


def test_split_without_fingerprints_leaves_none_of_one_before(tmp_path):
    lines = fingerprint_lines([shard("v", *ALL, *CATS)])
    for fingerprints in (lines, b""):
        whole = commit(tmp_path, "val", fingerprints)
        assert (whole.duplicates is not msgspec.UNSET) == bool(fingerprints)
        for name in ("fingerprints-val.jsonl", "duplicates.jsonl", "problems-val.jsonl"):
            assert (tmp_path / name).exists() == bool(fingerprints)


@pytest.mark.parametrize(
    ("policy", "earlier", "own", "is_refused"),
    [
        ("leakage", CATS, (*OTHER, *OTHER), False),
        ("fail", CATS, (*OTHER, *OTHER), True),
        ("fail", (*CATS, *CATS), OTHER, False),  # which was there before
        ("leakage", CATS, ALL, True),
        ("fail", CATS, ALL, True),
        ("fail", CATS, OTHER, False),
    ],
)
def test_refusal_is_about_splits_of_job(tmp_path, policy, earlier, own, is_refused):
    commit(tmp_path, "train", fingerprint_lines([shard("t", *earlier)]))
    listed = tmp_path / ".recordmill-val" / "duplicates.jsonl"
    args = (str(tmp_path), {"val": [shard("v", *own)]}, CLASSIFICATION, policy)
    if not is_refused:
        assert check_duplicates(*args) == {"train", "val"}
        assert not listed.exists()
        return
    with pytest.raises(DuplicatesError, match="of val") as error:
        check_duplicates(*args)
    assert str(listed) in str(error.value)
    groups = [json.loads(line) for line in listed.read_text().splitlines()]
    assert len(groups) == (6 if own is ALL else 1)


def test_split_replaced_is_not_compared_with_itself(tmp_path):
    commit(tmp_path, "val", fingerprint_lines([shard("v", *CATS)]))
    check_duplicates(str(tmp_path), {"val": [shard("v", *ALL)]}, CLASSIFICATION, "fail")
    check_duplicates(str(tmp_path), {}, CLASSIFICATION, "fail")


def test_rows_of_images_without_copies_are_not_held(tmp_path):
    number = 1000
    rows = np.zeros((200, number), FINGERPRINT)
    rows["digest"][..., 0] = rows["hash"] = np.random.default_rng(0).integers(1, 1 << 63, rows.shape)
    names = msgspec.Raw(msgspec.json.encode([f"{index}.jpg" for index in range(number)]))
    shards = [Fingerprints(f"{index}", names, shard_rows.tobytes(), 1) for index, shard_rows in enumerate(rows)]
    manifest = written(tmp_path, train=shards)
    tracemalloc.start()
    try:
        compare_all_splits(str(tmp_path), manifest)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2 * (tmp_path / "fingerprints-train.jsonl").stat().st_size


def split(images: int, *class_images: int) -> SplitStatistics:
    classes = tuple(ClassStatistics(f"c{index}", 3 * number, number) for index, number in enumerate(class_images))
    return SplitStatistics(images, {}, (), {}, classes, (), {}, {}, 0)


def test_classes_that_other_splits_lack():
    comparison = compare_splits(
        {"a": split(9, 3, 0, 2, 0, 1), "b": split(9, 0, 5, 2, 0, 1), "c": split(9, 0, 0, 0, 0, 2)}
    )
    assert comparison.one_split_only == (ClassInOneSplit("c1", "b", 5), ClassInOneSplit("c0", "a", 3))
    # A file that was edited counts more images of a class than images.
    assert compare_splits({"a": split(9, 12), "b": split(9, 3)}).one_split_only == ()


def test_splits_without_classes_are_not_compared():
    assert compare_splits({"a": split(9, 3), "test": split(9, 0)}) is None
    assert compare_splits({"a": split(9, 3)}) is compare_splits({}) is None
    comparison = compare_splits({"a": split(900, 300, 0), "b": split(900, 310, 0), "test": split(900, 0, 0)})
    assert (comparison.one_split_only, comparison.drifting) == ((), ())


def test_worst_drift_comes_first():
    comparison = compare_splits({"train": split(8000, 4000, 800, 800), "val": split(2000, 1000, 400, 100)})
    assert comparison.drifting == (
        ClassDrift("c1", "train", 800, 0.1, 0.2),
        ClassDrift("c1", "val", 400, 0.2, 0.1),
        ClassDrift("c2", "train", 800, 0.1, 0.05),
        ClassDrift("c2", "val", 100, 0.05, 0.1),
    )

    comparison = compare_splits({"train": split(8000, 800), "val": split(1000, 180), "test": split(1000, 98)})
    assert next((drift.split, drift.share, drift.elsewhere) for drift in comparison.drifting) == (
        "val",
        0.18,
        898 / 9000,
    )
    assert "test" not in {drift.split for drift in comparison.drifting}


@pytest.mark.parametrize(
    ("one", "other", "drifts"),
    [
        # A difference of less than a quarter is none, however certain.
        ((10_000, 1240), (1_000_000, 100_000), False),
        ((10_000, 1250), (1_000_000, 100_000), True),
        # 2.58 standard deviations, which chance exceeds once in a hundred.
        ((1000, 137), (1000, 100), False),
        ((1000, 138), (1000, 100), True),
    ],
)
def test_two_shares_drift(one, other, drifts):
    assert bool(compare_splits({"a": split(*one), "b": split(*other)}).drifting) == drifts


def test_more_classes_further_off_one_has_to_be():
    few = {"a": split(1000, 100), "b": split(1000, 145)}
    many = {"a": split(1000, 100, *[9] * 99), "b": split(1000, 145, *[9] * 99)}
    assert (len(compare_splits(few).drifting), len(compare_splits(many).drifting)) == (2, 0)
    unused = {"a": split(1000, 100, *[0] * 99), "b": split(1000, 145, *[0] * 99)}
    assert compare_splits(unused).drifting == compare_splits(few).drifting


@pytest.mark.parametrize("shares", [(0.8, 0.2), (0.8, 0.1, 0.1), (0.98, 0.02)])
def test_random_splits_seldom_seem_to_drift(shares):
    """One of a hundred at the most; here, of 100 divisions with a long tail of classes, 5."""
    of = random.Random(0)
    ends = [sum(shares[:index]) for index in range(len(shares) + 1)]
    alarms = 0
    for _ in range(100):
        sizes = [round(2000 * (end - begin)) for begin, end in pairwise(ends)]
        class_images = [
            [sum(of.random() < 0.3 / rank for _ in range(size)) for rank in (1, 5, 20, 80)] for size in sizes
        ]
        splits = {
            str(index): split(size, *row) for index, (size, row) in enumerate(zip(sizes, class_images, strict=True))
        }
        alarms += bool(compare_splits(splits).drifting)
    assert alarms <= 5


def test_class_twice_as_frequent_in_one_split_is_found():
    of = random.Random(1)
    drifts = 0
    for _ in range(50):
        train, val = (sum(of.random() < share for _ in range(n)) for n, share in ((4000, 0.06), (1000, 0.12)))
        drifts += bool(compare_splits({"train": split(4000, train), "val": split(1000, val)}).drifting)
    assert drifts >= 48
