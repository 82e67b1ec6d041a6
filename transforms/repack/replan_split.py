"""Plan the shards of a finished split as one conversion of all its images does."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from recordmill.schemas.block import spans, starts_of
from recordmill.schemas.image_records import IMAGE_ROW, ShardImages
from recordmill.schemas.shards import ShardSizing
from recordmill.transforms.blocks.run_step import hash_images
from recordmill.transforms.shards.plan_blocks import Pieces, SplitPlan, place_sizes, plan_split


class Moves(NamedTuple):
    """Runs of consecutive records of an old shard, in the order of the new shards: int64 [R] each.

    Attributes:
        source: Index of the old shard, in the order of shard numbers.
        first, records: First record of the run in it, and number of records.
        target: Number of the new shard.
    """

    source: np.ndarray
    first: np.ndarray
    records: np.ndarray
    target: np.ndarray


class NewImages(NamedTuple):
    """Images in the order of the new shards. An image is repeated for each shard that has records of it.

    Attributes:
        rows: IMAGE_ROW [P]; `labels` of a row in `is_cut` are undefined.
        target: int64 [P], number of the new shard.
        source, row: int64 [P], old shard of the image, or of its first part, and its row there.
        is_cut: bool [P], True if the image has further records in another new shard.
        objects: int64, ids of the annotations in records, image by image.
    """

    rows: np.ndarray
    target: np.ndarray
    source: np.ndarray
    row: np.ndarray
    is_cut: np.ndarray
    objects: np.ndarray


class Replan(NamedTuple):
    """New shards of a split.

    Attributes:
        examples: int64 [S], number of records of each new shard.
        has_estimates: True if planned sizes of some images are unknown.
        has_guesses: True if an image whose annotations were partly rejected is cut at another annotation than before.
    """

    plan: SplitPlan
    examples: np.ndarray
    moves: Moves
    images: NewImages
    has_estimates: bool
    has_guesses: bool


class _Rows(NamedTuple):
    """Rows of images of all old shards, in any order: [N] each.

    Attributes:
        array: IMAGE_ROW.
        source, row: int64, old shard and row there.
        first: int64, first record in that shard.
        first_object: int64, first of its annotations' ids among those of all shards.
    """

    array: np.ndarray
    source: np.ndarray
    row: np.ndarray
    first: np.ndarray
    first_object: np.ndarray

    def take(self, rows: np.ndarray) -> "_Rows":
        return _Rows(*(column[rows] for column in self))


class UnorderedImagesError(ValueError):
    """The order of a conversion's images is unknown."""


def replan_split(images: Sequence[ShardImages], sizing: ShardSizing, seed: int, is_grown: bool) -> Replan:
    """Plan the shards of a split with at least one image.

    Args:
        images: Images of the old shards, in the order of shard numbers.
        sizing, seed: Of the conversion that wrote the first shards.
        is_grown: True if further conversions have added images. An image that they list again counts in its last form.

    Raises:
        UnorderedImagesError: Ids of images are unknown, or the records of an old shard are not in their order.
    """
    rows = _join_rows(images)
    if is_grown:
        rows = rows.take(_last_forms(images, rows))
    rows = rows.take(_order_rows(rows, seed))
    _check_order(rows)
    sizes, records = rows.array["size"].astype(np.int64), rows.array["records"].astype(np.int64)
    planned = rows.array["planned"].astype(np.int64)
    is_unknown = (planned == 0) & (records > 0)
    planned = np.where(is_unknown, records, planned)
    same_id = np.concatenate([[False], np.diff(rows.array["id"]) == 0])
    starts = np.flatnonzero(~(same_id & (rows.array["continues"] > 0)))  # of each image among the rows
    image_sizes, image_planned = np.add.reduceat(sizes, starts), np.add.reduceat(planned, starts)
    with_examples = image_sizes[image_planned > 0]
    last_bytes = int(with_examples[-1]) if len(with_examples) else 0
    sums = np.array([[len(starts)], [image_sizes.sum()], [image_planned.sum()]])
    plan = plan_split(sizing, sums, int(image_sizes.max()), last_bytes)
    pieces = place_sizes(plan, np.zeros(3, np.int64), image_sizes, image_planned)
    cuts, has_guesses = _cut_records(pieces, starts, planned, records)
    new_records = np.diff(cuts)
    examples = np.zeros(plan.shards, np.int64)
    np.add.at(examples, pieces.shard, new_records)
    new = _new_images(rows, images, starts, pieces, new_records)
    return Replan(plan, examples, _find_moves(rows, examples), new, bool(is_unknown.any()), has_guesses)


def _join_rows(images: Sequence[ShardImages]) -> _Rows:
    arrays = [shard.array for shard in images]
    lengths = np.array(list(map(len, arrays)), np.int64)
    array = np.concatenate([np.zeros(0, IMAGE_ROW), *arrays])
    numbers = np.concatenate([np.zeros(0, np.int64), *(starts_of(shard["records"])[:-1] for shard in arrays)])
    source = np.repeat(np.arange(len(images)), lengths)
    row = spans(np.zeros(len(images), np.int64), lengths)
    return _Rows(array, source, row, numbers, starts_of(array["objects"])[:-1])


def _last_forms(images: Sequence[ShardImages], rows: _Rows) -> np.ndarray:
    """Return the rows without those of images that a later run lists again: int64. A form with records stays."""
    names, wholes = list[str](), list[str]()
    for shard in images:
        shard_names, shard_wholes = shard.image_names()
        names += shard_names
        wholes += shard_wholes
    has_no_id = (rows.array["id"] == 0) & (rows.array["planned"] == 0)
    if len({whole for whole, unknown in zip(wholes, has_no_id.tolist(), strict=True) if unknown}) > 1:
        raise UnorderedImagesError("records do not have the ids of their images, which order a data set")
    forms = _number_forms(names, wholes, rows)
    newest, with_records = dict[str, int](), dict[str, int]()
    for whole, form, records in zip(wholes, forms, rows.array["records"].tolist(), strict=True):
        newest[whole] = max(form, newest.get(whole, 0))
        if records:
            with_records[whole] = max(form, with_records.get(whole, 0))
    last = newest | with_records
    return np.flatnonzero([form == last[whole] for whole, form in zip(wholes, forms, strict=True)])


def _number_forms(names: Sequence[str], wholes: Sequence[str], rows: _Rows) -> list[int]:
    """Number the runs that list an image, from 0. A tile that is listed again belongs to the next form of its image.

    Args:
        names, wholes: File name of each row, and of its whole image.
    """
    is_end = np.append(np.diff(rows.source) != 0, True).tolist()
    continues, records = ((rows.array[name] > 0).tolist() for name in ("continues", "records"))
    firsts: dict[str, list[tuple[bool, bool, int]]] = {}
    current: dict[str, int] = {}
    forms = [0] * len(names)
    for row in np.flatnonzero(rows.array["continues"] == 0).tolist():
        known = firsts.setdefault(names[row], [])
        form = forms[row] = current[wholes[row]] = max(current.get(wholes[row], 0), len(known))
        known.append((is_end[row], records[row], form))
    # A shard may have been written again, so that the image begins in a shard with a larger number.
    for row in np.flatnonzero(continues).tolist():
        begins = firsts.get(names[row], [(True, True, 0)])
        forms[row] = max(begins, key=lambda begin: (begin[0], begin[1] == records[row], begin[2]))[2]
    return forms


def _order_rows(rows: _Rows, seed: int) -> np.ndarray:
    """Return the indices that sort rows as a conversion does, see `recordmill.transforms.blocks.run_step.image_order`.
    Rows of one image stay in the order of their shards."""
    ids = rows.array["id"]
    hashes = hash_images(ids, seed)
    # A shard that was written again has a larger number than the shard that continues its last image.
    with_records = np.flatnonzero(rows.array["records"])
    sources, first = np.unique(rows.source[with_records], return_index=True)
    first, last = with_records[first], with_records[np.append(first[1:], len(with_records)) - 1]
    ranks = np.zeros(int(rows.source.max()) + 1, np.int64)
    begins = rows.array["continues"][first], ids[last], hashes[last], ids[first], hashes[first]
    ranks[sources[np.lexsort(begins)]] = np.arange(len(sources))
    return np.lexsort((ranks[rows.source], ids, hashes))


def _check_order(rows: _Rows) -> None:
    """Raise UnorderedImagesError if records of an old shard are not in order."""
    rows = rows.take(np.flatnonzero(rows.array["records"]))
    by_source = np.argsort(rows.source, kind="stable")
    is_after = np.diff(rows.row[by_source]) > 0
    if not (is_after | (np.diff(rows.source[by_source]) > 0)).all():
        raise UnorderedImagesError("its records are not in the order of the ids of their images")


def _cut_records(
    pieces: Pieces, starts: np.ndarray, planned: np.ndarray, records: np.ndarray
) -> tuple[np.ndarray, bool]:
    """Return the records before each piece of an image, and before the end: int64 [P + 1]; and True if one is a guess.

    Args:
        starts: int64 [N], first row of each image.
        planned, records: int64, planned and written records of each row.
    """
    planned_before, records_before = starts_of(planned), starts_of(records)
    first_row = starts[pieces.image]
    cuts = np.append(records_before[first_row], records_before[-1])
    has_guesses = False
    for piece in np.flatnonzero(pieces.start > 0).tolist():
        place = int(planned_before[first_row[piece]] + pieces.start[piece])
        row = int(np.searchsorted(planned_before, place, side="right")) - 1
        inside = place - int(planned_before[row])
        has_guesses |= inside > 0 and bool(planned[row] != records[row])
        cuts[piece] = records_before[row] + min(inside, int(records[row]))
    return cuts, has_guesses


def _find_moves(rows: _Rows, examples: np.ndarray) -> Moves:
    """Cut the records in the new order where a new shard begins, or another run of an old shard.

    Args:
        rows: In the new order.
        examples: int64 [S], records of each new shard.
    """
    rows = rows.take(np.flatnonzero(rows.array["records"]))
    begins, borders = starts_of(rows.array["records"]), starts_of(examples)
    continues = np.diff(rows.source) == 0
    continues &= rows.first[1:] == rows.first[:-1] + rows.array["records"][:-1]
    runs = np.concatenate([[0], begins[1:-1][~continues], [begins[-1]]])
    cuts = np.unique(np.concatenate([runs, borders]))
    places = cuts[:-1]
    row = np.searchsorted(begins, places, side="right") - 1
    first = rows.first[row] + places - begins[row]
    target = np.searchsorted(borders, places, side="right") - 1
    return Moves(rows.source[row], first, np.diff(cuts), target)


def _new_images(
    rows: _Rows,
    images: Sequence[ShardImages],
    starts: np.ndarray,
    pieces: Pieces,
    records: np.ndarray,
) -> NewImages:
    """Return the images of the new shards.

    Args:
        rows: In the new order.
        starts: int64 [N], first row of each image.
        records: int64 [P], number of records of each piece.
    """
    old, first_row = rows.array, starts[pieces.image]
    new = old[first_row].copy()
    for name in ("labels", "size", "records", "objects", "planned"):
        new[name] = np.add.reduceat(old[name], starts, axis=0, dtype=old[name].dtype)[pieces.image]
    with_records = np.append(np.flatnonzero(old["records"]), len(old))
    with_image = with_records[np.searchsorted(with_records, starts)]  # a row without records has no image
    with_image = np.where(with_image < np.append(starts[1:], len(old)), with_image, starts)
    new["image"] = old["image"][with_image[pieces.image]]
    new["continues"] = np.diff(pieces.image, prepend=-1) == 0
    is_cut = new["continues"] > 0
    is_cut[:-1] |= is_cut[1:]
    if is_cut.any():
        part = pieces.end - pieces.start
        new["size"][is_cut] = new["size"][is_cut] // np.maximum(new["planned"][is_cut], 1) * part[is_cut]
        new["planned"][is_cut] = part[is_cut]
        new["objects"][is_cut] = np.where(new["objects"][is_cut] > 0, records[is_cut], 0)
        new["records"][is_cut] = records[is_cut]
        new["image"][new["records"] == 0] = 0
    return NewImages(
        new, pieces.shard, rows.source[first_row], rows.row[first_row], is_cut, _move_objects(rows, images)
    )


def _move_objects(rows: _Rows, images: Sequence[ShardImages]) -> np.ndarray:
    """Return the ids of annotations of the rows in order."""
    ids = np.concatenate([np.zeros(0, np.int64), *(shard.ids for shard in images)])
    return ids[spans(rows.first_object, rows.array["objects"].astype(np.int64))]
