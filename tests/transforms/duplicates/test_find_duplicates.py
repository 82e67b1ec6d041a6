import random

import msgspec
import numpy as np

from recordmill.schemas.duplicates import (
    FINGERPRINT,
    FINGERPRINT_VERSION,
    Agreement,
    Fingerprints,
    Likeness,
    SplitDuplicates,
)
from recordmill.transforms.duplicates.find_duplicates import Found, copied_classes, find_duplicates

HASHES = np.random.default_rng(0).integers(1, 1 << 64, 100, dtype=np.uint64).tolist()


def image(name: str, picture: int, hash_: int = 0, labels: int = 0) -> tuple[str, int, int, int]:
    return name, picture, hash_, labels


def shard(name: str, *images: tuple[str, int, int, int]) -> Fingerprints:
    rows = np.zeros(len(images), FINGERPRINT)
    for index, (_, picture, hash_, labels) in enumerate(images):
        rows[index] = ((picture % 3, picture), hash_, labels, 100 * index, 90, index, 0)
    names = msgspec.Raw(msgspec.json.encode([each[0] for each in images]))
    return Fingerprints(name, names, rows.tobytes(), FINGERPRINT_VERSION)


def names(found: Found) -> list[list[str]]:
    return [[f"{image.split}/{image.file_name}" for image in group.images] for group in found.groups]


def test_equal_pictures_are_found_within_and_across_splits_these_first():
    found = find_duplicates(
        {
            "val": [shard("v", image("x", 3), image("y", 5))],
            "train": [
                shard("t0", image("a", 1), image("b", 2), image("e", 4)),
                shard("t1", image("c", 1), image("d", 3)),
            ],
        },
        has_classes=False,
    )
    assert names(found) == [["train/d", "val/x"], ["train/a", "train/c"]]
    assert [group.is_leak for group in found.groups] == [True, False]
    (place,) = [each for each in found.groups[0].images if each.split == "train"]
    assert (place.shard, place.record, place.offset, place.bytes) == ("t1", 1, 100, 90)
    assert found.splits == {"train": SplitDuplicates(exact=3, leaked=1), "val": SplitDuplicates(exact=1, leaked=1)}


def test_pictures_that_look_alike_are_a_group_with_their_copies():
    near = HASHES[0] ^ 0b111
    found = find_duplicates(
        {
            "train": [
                shard("t", image("a", 1, HASHES[0]), image("c", 2), image("b", 2, near), image("d", 3, HASHES[1]))
            ],
            "val": [shard("v", image("e", 4, HASHES[0]), image("f", 5), image("g", 3))],
        },
        has_classes=False,
    )
    assert names(found) == [["train/d", "val/g"], ["train/a", "train/b", "train/c", "val/e"]]
    assert [group.kind for group in found.groups] == [Likeness.EXACT, Likeness.NEAR]
    assert found.splits["train"] == SplitDuplicates(exact=3, near=1, leaked=4)
    assert found.splits["val"] == SplitDuplicates(exact=1, near=1, leaked=2)


def test_the_form_is_of_a_copy_that_was_looked_at_whatever_its_split_is_called():
    looked_at = shard("v", image("b", 2, 0b111), image("c", 3, 0b110))  # so few bits that forms count
    rows = looked_at.array.copy()
    rows["form"] = np.iinfo(rows["form"].dtype).max
    looked_at = msgspec.structs.replace(looked_at, rows=rows.tobytes())
    for first, second in (("x", "y"), ("y", "x")):
        found = find_duplicates({first: [shard("u", image("a", 2))], second: [looked_at]}, has_classes=False)
        assert [len(group.images) for group in found.groups] == [3]


def test_labels_of_copies_are_compared_and_of_near_ones_the_classes():
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
        found = find_duplicates({"train": [shard("t", *images)]}, has_classes=False)
        assert {group.kind for group in found.groups} == {kind}
        differ = {group.images[0].file_name[:-1] for group in found.groups if group.labels is Agreement.DIFFER}
        assert differ == differing
        assert names(found)[: len(differing)] == [[f"train/{name}0", f"train/{name}1"] for name in sorted(differing)]
        assert found.splits["train"].labels_differ == 2 * len(differing)


def test_what_is_found_does_not_depend_on_order_or_shards():
    of = random.Random(2)
    images = [image(f"{n}", n % 37, HASHES[n % 37 % 9] ^ (n % 37 // 9), n % 2) for n in range(80)]
    splits = {"a": images[:50], "b": images[50:]}
    expected = [
        (group.kind, group.labels, sorted((each.split, each.file_name) for each in group.images))
        for group in find_duplicates({name: [shard("s", *of_split)] for name, of_split in splits.items()}, False).groups
    ]
    assert len(expected) == 9
    for _ in range(3):
        mixed = {name: of.sample(of_split, len(of_split)) for name, of_split in reversed(splits.items())}
        parts = {name: [shard("0", *many[:20]), shard("1"), shard("2", *many[20:])] for name, many in mixed.items()}
        found = find_duplicates(parts, False)
        assert [
            (group.kind, group.labels, [(each.split, each.file_name) for each in group.images])
            for group in found.groups
        ] == expected


def test_of_none_there_are_none():
    assert find_duplicates({"train": [shard("t")], "val": []}, True) == (
        [],
        {"train": SplitDuplicates(), "val": SplitDuplicates()},
        {},
    )


def test_a_class_of_copies_is_found_and_not_the_classes_that_it_copies():
    cats, dogs = range(8), range(8, 14)
    pictures = [*cats, *dogs, *cats, *dogs, 90]
    of_class = [1] * 8 + [2] * 6 + [0] * 15
    assert copied_classes(np.array(pictures), np.array(of_class)) == {0: 14}
    few = [*range(9), 90, 91, 92, 93, 94, 0, 1]  # two of nine
    assert copied_classes(np.array(few), np.array([1] * 9 + [2] * 7)) == {}
    small = [0, 1, 2, 3, 0, 1, 2, 3]
    assert copied_classes(np.array(small), np.array([1] * 4 + [2] * 4)) == {}
    two = [*range(6), *range(6), *range(20, 26), *range(20, 26)]
    assert copied_classes(np.array(two), np.repeat([0, 1, 2, 3], 6)) == {0: 6, 2: 6}


def test_classes_of_images_are_looked_at_where_they_have_one():
    both = {
        "train": [shard("t", *(image(f"{n}", n, labels=1 << 32) for n in range(6)))],
        "val": [shard("v", *(image(f"{n}", n, labels=2 << 32) for n in [*range(6), 7]))],
    }
    assert find_duplicates(both, has_classes=True).copied == {1: 6}
    assert find_duplicates(both, has_classes=False).copied == {}
