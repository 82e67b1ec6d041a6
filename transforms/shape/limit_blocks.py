"""Leave out images of large splits (`--limit`) and of frequent classes (`--max-per-class`), by a hash of their names.

Images with one name are one unit. The choice depends on the names and classes of all images, not on Blocks or workers.
One worker has 8 bytes per image in memory (16 with groups), and with `--max-per-class` 12 more per class of an image.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import AsList, AsSingleton, PCollection

from recordmill.schemas.block import Block, are_among, spans, starts_of
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.limits import Limits
from recordmill.schemas.inputs.splits import Division
from recordmill.schemas.rejects import Metric
from recordmill.transforms.blocks.image_tasks import labels_of
from recordmill.transforms.blocks.pack_block import pack_block, unpack_block
from recordmill.transforms.blocks.run_step import HASH_BITS, run_step
from recordmill.transforms.dataset.collect_facts import WithFacts
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.join.match_blocks import name_keys
from recordmill.transforms.runtime.beam_steps import pack, unpacker

_Packed = bytes
_AT_ONCE = 1 << 16


class LimitUnits(msgspec.Struct, frozen=True, array_like=True):
    """Some images of a split, as columns.

    Attributes:
        names: int64 [N], hash of each image's name.
        groups: int64 [N], hash of its group; empty without groups.
        numbers: int32 [N], number of classes of each image; empty if classes are not limited.
        classes: int64 [K], number or hash of each class of an image.
        objects: int32 [K], objects of the class in the image.
    """

    split: str
    names: _Packed
    groups: _Packed = b""
    numbers: _Packed = b""
    classes: _Packed = b""
    objects: _Packed = b""


Remaining = Mapping[str, _Packed]
"""Hashes of the names that remain in each split, ascending: int64 [N]."""


def hash_texts(texts: Iterable[str]) -> np.ndarray:
    """Return a hash of each name: int64, independent of the hashes of splits and of the order of records.

    >>> hash_texts(["cat.jpg"]).tolist()
    [7340726732749964103]
    """
    start = blake2b(b"limit ", digest_size=8)

    def digest(text: str) -> bytes:
        state = start.copy()
        state.update(text.encode(errors="surrogatepass"))
        return state.digest()

    digests = b"".join(map(digest, texts))
    return (np.frombuffer(digests, ">u8").astype(np.uint64) >> np.uint64(64 - HASH_BITS)).astype(np.int64)


def make_units(split: str, names: np.ndarray, groups: np.ndarray | None, pairs: np.ndarray | None) -> LimitUnits:
    """Return the columns of some images of one split.

    Args:
        names, groups: int64 [N], see LimitUnits; None without groups.
        pairs: int64 [P, 2], image and class of each object, in any order; None if classes are not limited.
    """
    columns = {} if groups is None else {"groups": groups.tobytes()}
    if pairs is not None:
        rows = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
        is_first = np.append(True, (np.diff(rows, axis=0) != 0).any(axis=1))[: len(rows)]
        first = np.flatnonzero(is_first)
        numbers = np.bincount(rows[first, 0], minlength=len(names))
        columns |= {
            "numbers": numbers.astype(np.int32).tobytes(),
            "classes": np.ascontiguousarray(rows[first, 1]).tobytes(),
            "objects": np.diff(np.append(first, len(rows))).astype(np.int32).tobytes(),
        }
    return LimitUnits(split, names.tobytes(), **columns)


def choose_units(units: np.ndarray, limit: int) -> np.ndarray:
    """Return at most `limit` images as their units, ascending: int64. A unit that does not fit is skipped.

    Args:
        units: int64 [N], hash of each image's name or group.

    >>> choose_units(np.array([3, 1, 1, 1, 2, 5]), 3).tolist()
    [1]
    >>> choose_units(np.array([3, 1, 1, 1, 2, 5]), 2).tolist()
    [2, 3]
    """
    places, sizes = np.unique(units, return_counts=True)
    if len(places) == len(units):
        return places[:limit]
    is_chosen = np.zeros(len(places), bool)
    left = limit
    for place, size in enumerate(sizes.tolist()):
        if size <= left:
            is_chosen[place] = True
            left -= size
            if not left:
                break
    return places[is_chosen]


def choose_by_class(
    names: np.ndarray, starts: np.ndarray, classes: np.ndarray, objects: np.ndarray, maximum: int
) -> np.ndarray:
    """Return the units that stay, ascending: int64. In the order of hashes, a unit stays while one of its classes has
    fewer than `maximum` objects. A unit without classes stays.

    Args:
        names, objects: See LimitUnits.
        starts: int64 [N + 1], first class of each image.
        classes: int32 [K], number of each class of an image, from 0.
    """
    order, lengths = np.argsort(names, kind="stable"), np.diff(starts)
    ordered = names[order]
    firsts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(names)])  # first image of each unit
    left = np.full(int(classes.max(initial=-1)) + 1, maximum, np.int64)
    chosen = [np.zeros(0, bool)]
    for start in range(0, len(firsts), _AT_ONCE):
        borders = np.append(firsts, len(names))[start : start + _AT_ONCE + 1]
        images = order[borders[0] : borders[-1]]
        rows, ends = spans(starts[images], lengths[images]), starts_of(lengths[images])
        chosen.append(_choose_run(ends[borders - borders[0]], classes[rows], objects[rows], left))
    return ordered[firsts[np.concatenate(chosen)]]


def _choose_run(starts: np.ndarray, classes: np.ndarray, objects: np.ndarray, left: np.ndarray) -> np.ndarray:
    """Return which units stay: bool [N], and subtract their objects from `left`, the objects that each class lacks."""
    unit = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    has_room = np.bincount(unit[left[classes] > 0], minlength=len(starts) - 1) > 0
    is_chosen = has_room | (np.diff(starts) == 0)
    is_open = has_room[unit]
    sums = np.bincount(classes[is_open], objects[is_open], len(left)).astype(np.int64)
    if ((left <= 0) | (sums <= left)).all():  # no class gets full before its last unit of the run
        left -= sums
        return is_chosen
    room, class_list, object_list, bounds = left.tolist(), classes.tolist(), objects.tolist(), starts.tolist()
    for row in np.flatnonzero(has_room).tolist():
        first, end = bounds[row], bounds[row + 1]
        if max(room[index] for index in class_list[first:end]) > 0:
            for place in range(first, end):
                room[class_list[place]] -= object_list[place]
        else:
            is_chosen[row] = False
    left[:] = room
    return is_chosen


class _Columns(NamedTuple):
    """All units of a split as arrays, see LimitUnits.

    Attributes:
        starts: int64 [N + 1], first class of each image.
        classes: int32 [K], classes numbered from 0.
    """

    names: np.ndarray
    groups: np.ndarray
    starts: np.ndarray
    classes: np.ndarray
    objects: np.ndarray


def _join_units(parts: Sequence[LimitUnits]) -> _Columns:
    def join(name: str, dtype: Any = np.int64) -> np.ndarray:
        return np.frombuffer(b"".join(getattr(part, name) for part in parts), dtype)

    classes = [np.frombuffer(part.classes, np.int64) for part in parts]
    distinct = np.unique(np.concatenate(list(map(np.unique, classes))))
    numbers = np.concatenate([np.searchsorted(distinct, part).astype(np.int32) for part in classes])
    return _Columns(
        join("names"), join("groups"), starts_of(join("numbers", np.int32)), numbers, join("objects", np.int32)
    )


def choose_images(units: Iterable[LimitUnits], limits: Limits, facts: FactsBuilder) -> dict[str, _Packed]:
    """Return the hashes of the names that remain in each split, see Remaining. Facts have the numbers of images that
    are left out.

    Raises:
        ConfigError: Each group of a split has more images than the limit.
    """
    by_split: dict[str, list[LimitUnits]] = {}
    for part in units:
        by_split.setdefault(part.split, []).append(part)
    remaining = {}
    for split, parts in sorted(by_split.items()):
        columns = _join_units(parts)
        is_left = np.ones(len(columns.names), bool)
        if limits.images is not None:
            groups = columns.groups if len(columns.groups) else columns.names
            is_left = are_among(groups, choose_units(groups, limits.images))
            facts.count(split, Metric.OVER_LIMIT, int((~is_left).sum()))
            _check_limit(split, columns, is_left, limits.images)
        if limits.per_class is not None:
            is_left = _limit_classes(split, columns, is_left, limits.per_class, facts)
        remaining[split] = np.unique(columns.names[is_left]).tobytes()
    return remaining


def _check_limit(split: str, columns: _Columns, is_left: np.ndarray, limit: int) -> None:
    if not is_left.any():
        has_groups = len(columns.groups) > 0
        sizes = np.unique(columns.groups if has_groups else columns.names, return_counts=True)[1]
        unit = "group" if has_groups else "set of images with one name"
        raise ConfigError(
            f"--limit {limit} leaves nothing in split {split}, because its smallest {unit} has {sizes.min():,} members "
            f"and stays whole. Use --limit {sizes.min()} or more{', or no groups' if has_groups else ''}"
        )


def _limit_classes(split: str, columns: _Columns, is_left: np.ndarray, maximum: int, facts: FactsBuilder) -> np.ndarray:
    """Return which images remain after `--max-per-class`: bool [N].

    Args:
        is_left: bool [N], images that remain after `--limit`.
    """
    numbers = np.where(is_left, np.diff(columns.starts), 0)
    is_left_entry = np.repeat(is_left, np.diff(columns.starts))
    if not is_left_entry.any():
        facts.warn(split, f"--max-per-class {maximum} does nothing, because no image of {split} has a class or object")
        return is_left
    # Images that are left out already have no class here, so they do not count.
    chosen = choose_by_class(
        columns.names, starts_of(numbers), columns.classes[is_left_entry], columns.objects[is_left_entry], maximum
    )
    is_chosen = is_left & are_among(columns.names, chosen)
    facts.count(split, Metric.OVER_CLASS_LIMIT, int(is_left.sum() - is_chosen.sum()))
    return is_chosen


def are_remaining(hashes: np.ndarray, splits: np.ndarray, names: Sequence[str], remaining: Remaining) -> np.ndarray:
    """Return which images remain: bool [N].

    Args:
        hashes: int64 [N], hashes of the images' names.
        splits: int64 [N], index of each image's split in `names`.
    """
    result = np.zeros(len(hashes), bool)
    for index in np.unique(splits).tolist():
        result |= (splits == index) & are_among(hashes, np.frombuffer(remaining[names[index]], np.int64))
    return result


class ChooseImages(beam.PTransform):
    """Convert packed LimitUnits of all images to one Remaining. Facts have the numbers of left out images."""

    def __init__(self, limits: Limits):
        super().__init__()
        self._limits = limits

    def expand(self, units: PCollection[bytes]) -> PCollection:
        once = units.pipeline | "OnceLimited" >> beam.Impulse()
        return once | "ChooseImages" >> WithFacts(_choose_images, AsList(units), self._limits)


def _choose_images(_: bytes, facts: FactsBuilder, packed: list[bytes], limits: Limits) -> Iterator[dict[str, _Packed]]:
    yield choose_images(map(unpacker(LimitUnits), packed), limits, facts)


class LimitBlocks(beam.PTransform):
    """Convert (BlockKey, packed complete Block) to Blocks without the images over the limits.

    Facts have the numbers of images that are left out, and of their annotations.

    Args:
        splits: Splits of the job; the column `split` has their indices.
        division: Groups of images, which `--limit` keeps whole; None without groups.
        labels: One LabelMap, of all classes.
    """

    def __init__(
        self, limits: Limits, splits: Sequence[str], division: Division | AsSingleton | None, labels: AsSingleton
    ):
        super().__init__()
        self._limits, self._splits, self._division, self._labels = limits, tuple(splits), division, labels

    def expand(self, blocks: PCollection) -> PCollection:
        has_classes = self._limits.per_class is not None
        sides = self._splits, self._division, self._labels if has_classes else None
        units = blocks | "ListUnits" >> beam.FlatMap(_pack_units, *sides).with_output_types(bytes)
        remaining = units | "Choose" >> ChooseImages(self._limits)
        return blocks | "Limit" >> WithFacts(_limit_images, self._splits, AsSingleton(remaining))


def _pack_units(
    keyed: tuple[Any, bytes], splits: Sequence[str], division: Division | None, labels: LabelMap | None
) -> Iterator[bytes]:
    yield from map(pack, list_units(unpack_block(keyed[1]), splits, division, labels))


def list_units(
    block: Block, splits: Sequence[str], division: Division | None, labels: LabelMap | None
) -> Iterator[LimitUnits]:
    """Yield the images of each split of a complete Block.

    Args:
        division: Groups of images; None without groups.
        labels: Classes; None if classes are not limited.
    """
    keys = name_keys(block.file_name.texts())
    names, groups = hash_texts(keys), _hash_groups(block, keys, division)
    pairs = None if labels is None else class_pairs(block, labels)
    for split in np.unique(block.split).tolist():
        images = np.flatnonzero(block.split == split)
        own = None
        if pairs is not None:
            own = pairs[block.split[pairs[:, 0]] == split]
            own[:, 0] = np.searchsorted(images, own[:, 0])
        yield make_units(splits[split], names[images], None if groups is None else groups[images], own)


def _hash_groups(block: Block, keys: Sequence[str], division: Division | None) -> np.ndarray | None:
    if division is not None:
        return hash_texts(division.group_of(key) or key for key in keys)
    groups = [labels.row.group if labels.row else "" for labels in labels_of(block)]  # of `--group-column`
    return hash_texts(group or key for group, key in zip(groups, keys, strict=True)) if any(groups) else None


def class_pairs(block: Block, labels: LabelMap) -> np.ndarray:
    """Return the image and the class index of each object, class and tag of a complete Block: int64 [P, 2]. Stuff and
    segments do not count."""
    index_by_name = {category.name: index for index, category in enumerate(labels.categories)}
    named = [
        (row, index_by_name[name])
        for row, image in enumerate(labels_of(block))
        for name in (*filter(None, [image.class_name]), *image.tags)
        if name in index_by_name
    ]
    pairs = np.array(named, np.int64).reshape(-1, 2)
    if not block.num_objects:
        return pairs
    index_by_id = labels.index_by_id()
    ids, inverse = np.unique(block.category_id, return_inverse=True)
    indices = np.array([index_by_id[id_] for id_ in ids.tolist()], np.int64)[inverse]
    return np.concatenate([pairs, np.stack([block.image_of_object, indices], axis=1)])


def _limit_images(
    keyed: tuple[Any, bytes], facts: FactsBuilder, splits: tuple[str, ...], remaining: Remaining
) -> Iterator[Any]:
    def limit(blocks: list[Block]) -> Block:
        return limit_block(blocks[0], splits, remaining, facts)

    block = run_step("limit images", limit, [unpack_block(keyed[1])])
    if len(block):
        yield keyed[0], pack_block(block)


def limit_block(block: Block, splits: Sequence[str], remaining: Remaining, facts: FactsBuilder) -> Block:
    """Return a complete Block with the images that remain. Facts count the annotations of the others."""
    is_left = are_remaining(hash_texts(name_keys(block.file_name.texts())), block.split, splits, remaining)
    annotations = block.objects_per_image + np.array([labels.rows for labels in labels_of(block)], np.int64)
    for split in np.unique(block.split[~is_left]).tolist():
        number = int(annotations[~is_left & (block.split == split)].sum())
        facts.count(splits[split], Metric.OF_LIMITED_IMAGES, number)
    return block if is_left.all() else block.take(is_left)
