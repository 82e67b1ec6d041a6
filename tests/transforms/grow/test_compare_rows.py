import numpy as np
import pytest

from recordmill.schemas.image_records import IMAGE_ROW
from recordmill.transforms.grow.compare_rows import (
    COMPARED_ROW,
    Outcome,
    compare_images,
    compared_rows,
    cut_to_buckets,
    digest_names,
    known_images,
    sum_rows,
)

Row = tuple[str, str, int, int, int, int]
"""Names of the whole image and of the row; image, labels, records and shard."""


def rows(*given: Row) -> np.ndarray:
    parts = [np.zeros(0, COMPARED_ROW)]
    for whole, name, image, labels, records, shard in given:
        row = np.zeros(1, IMAGE_ROW)
        row["image"], row["labels"], row["records"] = image, labels, records
        parts.append(compared_rows("train", 0, [name], [whole], row, shard))
    return np.concatenate(parts)


def whole(name: str, image: int = 5, labels: int = 7, records: int = 1, shard: int = 0) -> Row:
    return name, name, image, labels, records, shard


A, A_REJECTED = whole("a"), whole("a", 0, 0, 0)
TILES = ("a", "a_0_0", 5, 7, 1, 0), ("a", "a_9_0", 6, 8, 1, 1)


@pytest.mark.parametrize(
    ("data_set", "job", "outcomes"),
    [
        ([A], [A], {"a": (Outcome.PRESENT, [0])}),
        ([A], [whole("b")], {}),  # new
        ([A], [whole("a", labels=8)], {"a": (Outcome.LABELS, [0])}),
        ([A], [whole("a", image=6, labels=8)], {"a": (Outcome.IMAGE, [0])}),
        ([A], [whole("a", 0, 0, 0)], {"a": (Outcome.LABELS, [0])}),  # lost its objects, so it is not read
        ([A, A_REJECTED], [A], {"a": (Outcome.PRESENT, [0])}),  # rejected once, then written
        (
            [A, whole("b", shard=3)],
            [A, whole("b", labels=9)],
            {"a": (Outcome.PRESENT, [0]), "b": (Outcome.LABELS, [3])},
        ),
        # two ids have the file
        ([A, whole("a", labels=1)], [whole("a", labels=1), A], {"a": (Outcome.PRESENT, [0])}),
        ([A, whole("a", labels=1)], [A], {"a": (Outcome.LABELS, [0])}),
        # objects in two shards
        (
            [whole("a", labels=3, records=2), whole("a", labels=4, shard=1)],
            [whole("a", records=3)],
            {"a": (Outcome.PRESENT, [0])},
        ),
        (
            [whole("a", labels=3, records=2), whole("a", labels=4, shard=1)],
            [whole("a", labels=9, records=3)],
            {"a": (Outcome.LABELS, [0, 1])},
        ),
        ([whole("a", 0, 0, 0)], [whole("a", 0, 0, 0)], {"a": (Outcome.PRESENT, [0])}),
        ([whole("a", 0, 0, 0)], [whole("a")], {}),  # it has objects now
        (TILES, TILES, {"a": (Outcome.PRESENT, [0])}),
        (TILES, TILES[:1], {"a": (Outcome.IMAGE, [0, 1])}),  # of the stored images, one is missing
        (TILES, [TILES[0], ("a", "a_9_0", 9, 8, 1, 0)], {"a": (Outcome.IMAGE, [0, 1])}),
        (TILES, [TILES[0], ("a", "a_9_0", 6, 9, 1, 0)], {"a": (Outcome.LABELS, [0, 1])}),
    ],
)
def test_outcomes(data_set, job, outcomes):
    compared = compare_images(rows(*data_set), rows(*job))
    names = {digest_names("train", [name])[0]: name for name in "ab"}
    by_name: dict[str, tuple[Outcome, list[int]]] = {}
    for digest, outcome, shard in compared.tolist():
        by_name.setdefault(names[digest], (Outcome(outcome), []))[1].append(shard)
    assert by_name == outcomes


def test_large_digests_are_summed_modulo():
    big = (1 << 64) - 1
    (image,) = sum_rows(rows(("a", "a_0_0", big, big, 1, 0), ("a", "a_9_0", 2, 3, 1, 0)))
    assert (image["image"].tolist(), image["labels"].tolist(), image["records"]) == ([1, 1], [2, 2], 2)


def test_images_without_records_are_not_known():
    known = known_images(rows(A, whole("b", 0, 0, 0), whole("c", 0, 0, 0), whole("c")))
    assert sorted(known.tolist()) == sorted(digest_names("train", ["a", "c"]).tolist())


def test_each_image_is_in_the_bucket_of_its_name():
    digests = digest_names("train", [f"{number}.jpg" for number in range(2000)])
    buckets = dict(cut_to_buckets(digests))
    assert sorted(np.concatenate(list(buckets.values())).tolist()) == list(range(2000))
    assert len(buckets) > 200
    for bucket, images in buckets.items():
        (again,) = dict(cut_to_buckets(digests[images]))
        assert again == bucket
    assert list(cut_to_buckets(digests[:0])) == []
