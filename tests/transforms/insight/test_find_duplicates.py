import random

import msgspec
import numpy as np
import pytest

from recordmill.schemas.problems import (
    FINGERPRINT,
    FINGERPRINT_VERSION,
    Agreement,
    Fingerprints,
    Likeness,
    SplitDuplicates,
)
from recordmill.transforms.blocks.image_facts import NO_OFFSET, RecordPlaces
from recordmill.transforms.insight import find_duplicates as module
from recordmill.transforms.insight.find_duplicates import (
    DuplicateFindings,
    _Images,
    bits_set,
    copied_classes,
    find_duplicates,
)
from recordmill.transforms.insight.fingerprint_images import ImageFingerprints
from tests.transforms.insight.drawn_facts import ImageFacts, fact_columns


def near_groups(hashes: np.ndarray) -> np.ndarray:
    """Groups of images of one form."""
    return module.near_groups(hashes, np.zeros((len(hashes), 2), np.uint8))


def distinct(number: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 64, number, dtype=np.uint64)


def flipped(hashes: np.ndarray, bits: int, seed: int = 1) -> np.ndarray:
    of = np.random.default_rng(seed)
    masks = [sum(1 << int(bit) for bit in of.choice(64, bits, replace=False)) for _ in hashes]
    return hashes ^ np.array(masks, np.uint64)


@pytest.mark.parametrize("pairs_at_once", [3, 1 << 19])
@pytest.mark.parametrize("bits", range(1, 8))
def test_hashes_that_differ_in_less_than_eight_bits_are_found(bits, pairs_at_once, monkeypatch):
    monkeypatch.setattr(module, "_PAIRS_AT_ONCE", pairs_at_once)
    hashes = distinct(200)
    groups = near_groups(np.concatenate([hashes, flipped(hashes, bits)]))
    assert groups.tolist() == [*range(200), *range(200)]


def test_near_is_eight_bits_or_fewer():
    hashes = distinct(1000)
    both = near_groups(np.concatenate([hashes, flipped(hashes, 8)]))
    assert 0.94 < np.mean(both[:1000] == both[1000:]) < 0.99
    assert near_groups(np.concatenate([hashes, flipped(hashes, 9)])).tolist() == [*range(2000)]
    assert bits_set(hashes).tolist() == [int(number).bit_count() for number in hashes]


def test_group_joins_near_images_in_steps():
    (first,) = distinct(1)
    steps = [first ^ np.uint64((1 << 5 * step) - 1) for step in range(12)]
    order = [7, 0, 3, 11, 5, 1, 9, 2, 10, 4, 8, 6]
    hashes = np.concatenate([distinct(3, seed=5), np.array(steps)[order]])
    assert near_groups(hashes).tolist() == [0, 1, 2, *[3] * 12]


def test_hashes_of_few_bits_count_where_forms_are_near():
    """Hashes of drawings have few bits."""
    few, many = np.uint64((1 << 20) - 1), np.uint64((1 << 32) - 1)
    forms = np.array([[100, 7], [104, 3], [105, 7], [100, 7], [200, 7]], np.uint8)
    hashes = np.array([few, few ^ np.uint64(1), few ^ np.uint64(2), many, many ^ np.uint64(1 << 5)])
    assert module.near_groups(hashes, forms).tolist() == [0, 0, 0, 3, 3]
    forms[2] = 116, 7
    assert module.near_groups(hashes, forms).tolist() == [0, 0, 2, 3, 3]
    forms[1] = 255, 3  # less and more by more than a byte holds
    forms[0] = 3, 3
    assert module.near_groups(hashes, forms).tolist() == [0, 1, 2, 3, 3]


@pytest.mark.parametrize("forms", [(0, 200, 200), (200, 0, 200)])
def test_forms_separate_weak_hashes(forms):
    one = np.uint64((1 << 24) - 1)
    hashes = np.array([one, one, one ^ np.uint64(1)])
    assert module.near_groups(hashes, np.array(forms, np.uint8)[:, None]).tolist() == [0, 0, 0]


def test_many_equal_hashes_are_bounded(monkeypatch):
    monkeypatch.setattr(module, "_MOST_COMPARED", 2)
    hashes = np.repeat(distinct(2), 50)
    assert sum(len(one) for one, _ in module._near_pairs(hashes)) <= 2 * len(hashes)


def test_equal_hash_and_form_group(monkeypatch):
    monkeypatch.setattr(module, "_MOST_COMPARED", 1)
    hashes = np.full(60, (1 << 20) - 1, np.uint64)  # of few bits
    forms = np.arange(0, 240, 8)[np.arange(60) % 30][:, None].astype(np.uint8)
    compared = []
    pairs = module._near_pairs
    monkeypatch.setattr(module, "_near_pairs", lambda hashes: compared.append(len(hashes)) or pairs(hashes))
    assert module.near_groups(hashes, forms).tolist() == [*range(30), *range(30)]
    forms[::-1] = forms + 2  # of which the next ones are near, too
    many = np.full(60, (1 << 40) - 1, np.uint64)
    assert module.near_groups(many, forms).tolist() == [0] * 60
    assert compared == [30, 1]


def test_forms_near_are_compared_first_of_one_hash(monkeypatch):
    monkeypatch.setattr(module, "_MOST_COMPARED", 1)
    forms = np.array([[200, 9], [10, 9], [203, 9], [12, 9], [90, 9]], np.uint8)
    assert module.near_groups(np.full(5, 3, np.uint64), forms).tolist() == [0, 1, 0, 1, 4]


def test_group_has_key_of_first_image():
    assert near_groups(distinct(0)).tolist() == []
    (hash_,) = distinct(1) | np.uint64(1)
    assert near_groups(np.array([hash_, hash_ ^ np.uint64(1), hash_])).tolist() == [0, 0, 0]
    assert near_groups(np.array([1, 0, hash_, hash_ ^ np.uint64(1)], np.uint64)).tolist() == [0, 0, 2, 2]


HASHES = np.random.default_rng(0).integers(1, 1 << 64, 100, dtype=np.uint64).tolist()


def image(name: str, digest: int, hash_: int = 0, labels: int = 0) -> tuple[str, int, int, int]:
    return name, digest, hash_, labels


def shard(name: str, *images: tuple[str, int, int, int], version: int = FINGERPRINT_VERSION) -> Fingerprints:
    rows = np.zeros(len(images), FINGERPRINT)
    for index, (_, digest, hash_, labels) in enumerate(images):
        rows[index] = ((digest % 3, digest), hash_, labels, 100 * index, 90, index, 0)
    names = msgspec.Raw(msgspec.json.encode([image_[0] for image_ in images]))
    return Fingerprints(name, names, rows.tobytes(), version)


def names(findings: DuplicateFindings) -> list[list[str]]:
    return [[f"{image.split}/{image.file_name}" for image in group.images] for group in findings.groups]


def test_leakage_comes_first():
    train = [shard("t0", image("a", 1), image("b", 2), image("e", 4)), shard("t1", image("c", 1), image("d", 3))]
    findings = find_duplicates({"val": [shard("v", image("x", 3), image("y", 5))], "train": train}, has_classes=False)
    assert names(findings) == [["train/d", "val/x"], ["train/a", "train/c"]]
    assert [group.is_leak for group in findings.groups] == [True, False]
    (place,) = [member for member in findings.groups[0].images if member.split == "train"]
    assert (place.shard, place.record, place.offset, place.bytes) == ("t1", 1, 100, 90)
    assert findings.splits == {
        "train": SplitDuplicates(exact=3, leaked=1, conflicting=0),
        "val": SplitDuplicates(exact=1, leaked=1, conflicting=0),
    }


def test_near_images_are_in_group_with_their_copies():
    near = HASHES[0] ^ 0b111
    train = shard("t", image("a", 1, HASHES[0]), image("c", 2), image("b", 2, near), image("d", 3, HASHES[1]))
    val = shard("v", image("e", 4, HASHES[0]), image("f", 5), image("g", 3))
    findings = find_duplicates({"train": [train], "val": [val]}, has_classes=False)
    assert names(findings) == [["train/d", "val/g"], ["train/a", "train/b", "train/c", "val/e"]]
    assert [group.kind for group in findings.groups] == [Likeness.EXACT, Likeness.NEAR]
    assert findings.splits["train"] == SplitDuplicates(exact=3, near=1, leaked=4, conflicting=0)
    assert findings.splits["val"] == SplitDuplicates(exact=1, near=1, leaked=2, conflicting=0)


def test_conflicting_labels_are_of_exact_copies():
    cat, moved, dog = 1 << 32 | 5, 1 << 32 | 6, 2 << 32 | 5
    near = HASHES[0] ^ 0b111
    train = [image("a", 1, HASHES[0], cat), image("b", 1, HASHES[0], moved), image("c", 2, near, dog)]
    train += [image("d", 3, 0, cat), image("e", 3, 0, cat)]
    val = [image("f", 4, 0, cat), image("g", 4, 0, cat), image("h", 4, 0, dog), image("i", 3, 0, cat)]
    findings = find_duplicates({"train": [shard("t", *train)], "val": [shard("v", *val)]}, has_classes=False)
    conflicting = {split: counts.conflicting for split, counts in findings.splits.items()}
    assert (conflicting, findings.conflicts) == ({"train": 2, "val": 3}, 2)


def test_boxes_are_compared_in_fingerprints_of_one_version():
    """Version 1 had other digests of the same boxes."""
    cat, other_digest, dog = 1 << 32 | 5, 1 << 32 | 6, 2 << 32 | 7
    train = shard("t", image("a", 1, 0, cat), image("b", 2, 0, cat), image("c", 2, 0, other_digest), version=1)
    val = [image("d", 1, 0, other_digest), image("e", 3, 0, cat), image("f", 3, 0, other_digest)]
    findings = find_duplicates({"train": [train], "val": [shard("v", *val, version=2)]}, has_classes=False)
    assert names(findings) == [["train/a", "val/d"], ["train/b", "train/c"], ["val/e", "val/f"]]
    assert [group.labels.value for group in findings.groups] == ["same", "differ", "differ"]
    assert findings.conflicts == 2
    other_class = shard("v", image("d", 1, 0, dog), version=2)
    assert find_duplicates({"train": [train], "val": [other_class]}, has_classes=False).conflicts == 2


def test_form_is_that_of_compared_copy():
    looked_at = shard("v", image("b", 2, 0b111), image("c", 3, 0b110))  # so few bits that forms count
    rows = looked_at.array.copy()
    rows["form"] = np.iinfo(rows["form"].dtype).max
    looked_at = msgspec.structs.replace(looked_at, rows=rows.tobytes())
    for first, second in (("x", "y"), ("y", "x")):
        findings = find_duplicates({first: [shard("u", image("a", 2))], second: [looked_at]}, has_classes=False)
        assert [len(group.images) for group in findings.groups] == [3]


def test_labels_of_duplicates():
    cat, cat_elsewhere, dog = 1 << 32 | 5, 1 << 32 | 6, 2 << 32 | 5
    pairs = {"same": (cat, cat), "moved": (cat, cat_elsewhere), "class": (cat, dog)}
    exact = [
        image(name + end, index, labels=labels)
        for index, (name, both) in enumerate(pairs.items())
        for end, labels in zip("01", both, strict=True)
    ]
    near = [
        image(name + end, 10 * index + number, HASHES[index] ^ number, labels)
        for index, (name, both) in enumerate(pairs.items())
        for number, (end, labels) in enumerate(zip("01", both, strict=True))
    ]
    for images, differing, kind in ((exact, {"moved", "class"}, Likeness.EXACT), (near, {"class"}, Likeness.NEAR)):
        findings = find_duplicates({"train": [shard("t", *images)]}, has_classes=False)
        assert {group.kind for group in findings.groups} == {kind}
        differ = {group.images[0].file_name[:-1] for group in findings.groups if group.labels is Agreement.DIFFER}
        assert differ == differing
        assert names(findings)[: len(differing)] == [[f"train/{name}0", f"train/{name}1"] for name in sorted(differing)]
        assert findings.splits["train"].labels_differ == 2 * len(differing)


def test_findings_are_independent_of_order_and_shards():
    of = random.Random(2)
    images = [image(f"{n}", n % 37, HASHES[n % 37 % 9] ^ (n % 37 // 9), n % 2) for n in range(80)]
    splits = {"a": images[:50], "b": images[50:]}

    def groups(parts) -> list[tuple]:
        found_groups = find_duplicates(parts, has_classes=False).groups
        return [
            (group.kind, group.labels, [(member.split, member.file_name) for member in group.images])
            for group in found_groups
        ]

    expected = groups({name: [shard("s", *split_images)] for name, split_images in splits.items()})
    assert len(expected) == 9
    for _ in range(3):
        mixed = {name: of.sample(split_images, len(split_images)) for name, split_images in reversed(splits.items())}
        parts = {name: [shard("0", *many[:20]), shard("1"), shard("2", *many[20:])] for name, many in mixed.items()}
        assert groups(parts) == expected


def test_of_none_there_are_none():
    none = dict.fromkeys(("train", "val"), SplitDuplicates(conflicting=0))
    assert find_duplicates({"train": [shard("t")], "val": []}, has_classes=True) == ([], none, {}, 0, {})


@pytest.mark.parametrize(
    ("images", "classes", "copies"),
    [
        ([*range(14), *range(14), 90], [1] * 8 + [2] * 6 + [0] * 15, {0: 14}),
        ([*range(9), 90, 91, 92, 93, 94, 0, 1], [1] * 9 + [2] * 7, {}),  # two of nine
        ([0, 1, 2, 3, 0, 1, 2, 3], [1] * 4 + [2] * 4, {}),
        ([*range(6), *range(6), *range(20, 26), *range(20, 26)], np.repeat([0, 1, 2, 3], 6), {0: 6, 2: 6}),
    ],
)
def test_class_of_copies_is_found(images, classes, copies):
    assert copied_classes(np.array(images), np.array(classes)) == copies


def test_classes_of_images_are_looked_at_where_they_have_one():
    both = {
        "train": [shard("t", *(image(f"{n}", n, labels=1 << 32) for n in range(6)))],
        "val": [shard("v", *(image(f"{n}", n, labels=2 << 32) for n in [*range(6), 7]))],
    }
    assert find_duplicates(both, has_classes=True).copied == {1: 6}
    assert find_duplicates(both, has_classes=False).copied == {}


@pytest.mark.parametrize(
    ("position", "stored"),
    [((7, 2, NO_OFFSET, 0), {"record": 7, "records": 2}), ((7, 2, 90, 40), {"record": 7, "offset": 90, "bytes": 40})],
)
def test_position_of_duplicate(position, stored):
    fingerprints = ImageFingerprints()
    facts = fact_columns([ImageFacts(name, 8, 8, "jpeg", 9, sha256="ab" * 32) for name in "xy"])
    fingerprints.add(facts, RecordPlaces(*np.array([position] * 2).T))
    (group,) = _Images([("train", fingerprints.collect("s"))], np.ones(2, bool)).groups()
    known = msgspec.to_builtins(group.images[0])
    assert known == {"split": "train", "file_name": "x", "shard": "s"} | stored
