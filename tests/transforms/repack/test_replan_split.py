from typing import NamedTuple

import msgspec
import numpy as np
import pytest

from recordmill.schemas.image_records import IMAGE_ROW, ShardImages
from recordmill.schemas.problems import FINGERPRINT, Fingerprints
from recordmill.schemas.shards import ShardSizing
from recordmill.transforms.blocks.run_step import hash_images
from recordmill.transforms.repack.replan_metadata import MovedRecords, moved_lists
from recordmill.transforms.repack.replan_split import Replan, UnorderedImagesError, replan_split
from recordmill.transforms.shards.image_records import shard_images

A, B, C, D, E, F = (int(id_) for id_ in np.arange(1, 7)[np.argsort(hash_images(np.arange(1, 7), 0))])
"""Ids in the order of a conversion."""


class Row(NamedTuple):
    id: int
    records: int = 1
    planned: int = 1
    size: int = 100
    continues: int = 0
    name: str = ""
    source: str = ""


def images_of(*rows: Row) -> ShardImages:
    array = np.zeros(len(rows), IMAGE_ROW)
    for column in ("id", "records", "planned", "size", "continues"):
        array[column] = [getattr(row, column) for row in rows]
    array["image"][:, 0] = np.where(array["records"], array["id"], 0)
    array["labels"] = array["records"][:, None]
    array["objects"] = array["records"]
    names = [row.name or str(row.id) for row in rows]
    sources = [row.source or name for row, name in zip(rows, names, strict=True)]
    ids = np.repeat(array["id"], array["records"]) * 10
    return shard_images("", names, array, ids, sources if sources != names else None)


def plan(*shards: ShardImages, is_grown: bool = True, **sizing: int) -> Replan:
    return replan_split(shards, ShardSizing(**sizing), 0, is_grown)


def moves_of(replan: Replan) -> list[tuple[int, ...]]:
    """Old shard, first record, number of records, new shard."""
    return list(zip(*(column.tolist() for column in replan.moves), strict=True))


def ids_of(replan: Replan) -> list[list[int]]:
    """Ids of images of each new shard."""
    return [replan.images.rows["id"][replan.images.target == shard].tolist() for shard in range(replan.plan.shards)]


def test_additions_take_their_places():
    replan = plan(images_of(*map(Row, (A, B, D))), images_of(Row(F)), images_of(*map(Row, (C, E))), num_shards=2)
    assert ids_of(replan) == [[A, B, C], [D, E, F]]
    assert moves_of(replan) == [(0, 0, 2, 0), (2, 0, 1, 0), (0, 2, 1, 1), (2, 1, 1, 1), (1, 0, 1, 1)]
    assert replan.images.objects.tolist() == [10 * id_ for id_ in (A, B, C, D, E, F)]
    assert not replan.has_estimates


def test_rejected_images_count_in_the_plan():
    replan = plan(images_of(Row(A, records=0), Row(B), Row(C, records=0)), images_of(Row(D)), num_shards=2)
    assert ids_of(replan) == [[A, B], [C, D]]
    assert moves_of(replan) == [(0, 0, 1, 0), (1, 0, 1, 1)]


@pytest.mark.parametrize(
    ("again", "left"),
    [
        ((Row(A), Row(D)), (1, 0)),  # rejected at first, added later
        ((Row(A, records=0), Row(D)), (1, 0)),  # rejected twice
        ((Row(D), Row(E, name=str(A))), (1, 1)),  # added with another id
    ],
)
def test_image_listed_again_counts_once(again, left):
    replan = plan(images_of(Row(A, records=0), Row(B)), images_of(*again), num_shards=1)
    images = replan.images
    row = [str(A) == name for name in (str(id_) for id_ in images.rows["id"].tolist())]
    places = list(zip(images.source.tolist(), images.row.tolist(), strict=True))
    assert (len(places), left in places, (0, 0) in places) == (3, True, False), row


def test_record_stays_if_a_later_form_is_rejected():
    replan = plan(images_of(Row(A), Row(B)), images_of(Row(A, records=0), Row(C)), num_shards=1)
    assert moves_of(replan) == [(0, 0, 2, 0), (1, 0, 1, 0)]


def test_tiles_of_an_image_listed_again():
    """Its first form had other tiles."""
    first = [Row(A, 0, name=name, source="a") for name in ("a_0_0", "a_0_8", "a_8_0")]
    again = [Row(A, name=name, source="a") for name in ("a_0_0", "a_0_9")]
    replan = plan(images_of(*first, Row(B, name="b_0_0", source="b")), images_of(*again), num_shards=1)
    assert moves_of(replan) == [(1, 0, 2, 0), (0, 0, 1, 0)]
    assert replan.plan.images == 3


def test_tiles_over_a_shard_written_again():
    """Shard 0 has become shard 2, whose last image continues in shard 1."""
    tiles = [[Row(B, name=f"b{number}", source="b") for number in numbers] for numbers in ((2, 3), (0, 1))]
    shards = images_of(*tiles[0], Row(C)), images_of(Row(A), *tiles[1])
    assert moves_of(plan(*shards, num_shards=1)) == [(1, 0, 3, 0), (0, 0, 3, 0)]


def keras(id_: int, number: int, rejected: int = 0, continues: int = 0) -> Row:
    return Row(id_, number - rejected, number, 50 * number, continues)


def test_annotations_of_an_image_are_joined_and_cut():
    """Of three records each shard: B's are joined, and cut elsewhere."""
    old = images_of(keras(A, 2), keras(B, 2)), images_of(keras(B, 2, continues=1), keras(D, 2)), images_of(keras(C, 1))
    replan = plan(*old, examples_per_shard=3)
    assert replan.examples.tolist() == [3, 3, 3]
    assert ids_of(replan) == [[A, B], [B], [C, D]]
    assert moves_of(replan) == [(0, 0, 3, 0), (0, 3, 1, 1), (1, 0, 2, 1), (2, 0, 1, 2), (1, 2, 2, 2)]
    rows = replan.images.rows
    assert rows["continues"].tolist() == [0, 0, 1, 0, 0]
    assert rows["size"].tolist() == [100, 50, 150, 50, 100]
    assert rows["image"][:, 0].tolist() == [A, B, B, C, D]
    assert replan.images.is_cut.tolist() == [False, True, True, False, False]
    joined = plan(*old, num_shards=4)
    assert joined.examples.tolist() == [2, 4, 1, 2]
    assert joined.images.rows["labels"].tolist() == [[2, 2], [4, 4], [1, 1], [2, 2]]  # sums


def test_annotations_of_the_first_shard_are_all_rejected():
    """Its row has no digest of the image."""
    old = (
        images_of(keras(A, 2, rejected=2), keras(B, 1, rejected=1)),
        images_of(keras(B, 2, continues=1), keras(C, 1, rejected=1)),
    )
    assert plan(*old, num_shards=1).images.rows["image"][:, 0].tolist() == [0, B, 0]


def test_rejected_image_of_two_shards_is_listed_again():
    """Its first shard has been written again, and is the last."""
    old = images_of(keras(B, 2, rejected=2, continues=1), keras(C, 1)), images_of(keras(B, 4))
    replan = plan(*old, images_of(keras(A, 2), keras(B, 2, rejected=2)), examples_per_shard=9)
    assert moves_of(replan) == [(2, 0, 2, 0), (1, 0, 4, 0), (0, 0, 1, 0)]
    assert replan.images.rows["planned"].tolist() == [2, 4, 1]


def test_annotations_begin_in_a_shard_written_again():
    """It has lost its other image, so that both shards have annotations of one image only."""
    old = images_of(keras(B, 3, continues=1)), images_of(keras(B, 3, continues=1), keras(C, 1)), images_of(keras(B, 1))
    replan = plan(*old, num_shards=1)
    assert moves_of(replan) == [(2, 0, 1, 0), (0, 0, 3, 0), (1, 0, 4, 0)]


@pytest.mark.parametrize(("per_shard", "is_guess"), [(3, True), (4, False), (6, False)])
def test_cut_among_rejected_annotations_is_a_guess(per_shard, is_guess):
    old = images_of(keras(A, 2), keras(B, 2, rejected=1)), images_of(keras(B, 2, continues=1))
    assert plan(*old, examples_per_shard=per_shard).has_guesses is is_guess


def test_sizes_of_read_shards_are_estimates():
    replan = plan(images_of(Row(A, planned=0), Row(B, planned=0)), is_grown=False, num_shards=2)
    assert (replan.has_estimates, replan.examples.tolist()) == (True, [1, 1])


@pytest.mark.parametrize(
    "shards",
    [
        [images_of(Row(B), Row(A))],
        [images_of(Row(0, planned=0, name="a")), images_of(Row(0, planned=0, name="b"))],
    ],
)
def test_unknown_order_is_an_error(shards):
    with pytest.raises(UnorderedImagesError):
        plan(*shards, num_shards=1)


def test_fingerprints_keep_their_version():
    old = [msgspec.structs.replace(images_of(Row(id_)), shard=file) for id_, file in ((A, "a"), (B, "b"), (C, "c"))]
    rows = np.zeros(1, FINGERPRINT).tobytes()
    fingerprints = [
        Fingerprints(file, msgspec.Raw(b'["x"]'), rows, version) for file, version in (("a", 2), ("b", 1), ("c", 2))
    ]
    replan = plan(*old, num_shards=2)
    lists = moved_lists(
        replan, MovedRecords(replan, [None] * 2), iter(fingerprints), iter(old), ["a", "b", "c"], ["d", "e"]
    )
    joined = {line.shard: line for line, _ in lists if line}
    assert {file: (line.version, len(line.array)) for file, line in joined.items()} == {"d": (1, 2), "e": (2, 1)}
