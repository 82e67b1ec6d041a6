"""Join several data sets: classes meet by name, ids are unique, and names of images begin with that of the set."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.block import Block, are_among, join_blocks, ragged_texts
from recordmill.schemas.errors import CollidingImagesError, ConfigError
from recordmill.schemas.inputs.image_options import ObjectOptions, StoredImageOptions
from recordmill.schemas.inputs.labels import ExistingLabels
from recordmill.schemas.inputs.options import ChoiceOptions
from recordmill.schemas.inputs.splits import name_id
from recordmill.schemas.names import name_key
from recordmill.transforms.blocks.cut_range import BlockKey, cut_range
from recordmill.transforms.blocks.flatten_collections import flatten_collections
from recordmill.transforms.blocks.image_tasks import file_folder, image_paths
from recordmill.transforms.blocks.pack_block import pack_block, pack_parts, unpack_block
from recordmill.transforms.blocks.run_step import hash_images, image_order, ranges_of, run_step
from recordmill.transforms.dataset.collect_facts import WithFacts, collect_facts, hand_over
from recordmill.transforms.dataset.facts import Facts, FactsBuilder
from recordmill.transforms.join.drop_images import ReportCopies
from recordmill.transforms.shape.map_classes import ClassMapping, map_block
from recordmill.transforms.shape.union_labels import (
    RecordRequest,
    SetLabels,
    SetTable,
    adopt_union,
    union_labels,
    union_tables,
)

_RANGE_BITS = 10
"""There are 2 ** 10 ranges of images, because their number is unknown."""
_BATCH = 32
"""Blocks that are cut to ranges at the same time. A range would have one or two images of a Block."""
_SPLIT_BITS = 16
"""A split has fewer than 2 ** 16 ranges."""
_BUCKET_BITS = 6
"""Ids are compared in 2 ** 6 buckets."""
_MIXING = np.uint64(0x9E3779B97F4A7C15)  # spreads consecutive ids over buckets (Fibonacci hashing)
_TABLE, _MAPPINGS, _BLOCKS, _HASHES = "table", "mappings", "blocks", "hashes"

SetKey = tuple[int, BlockKey]
"""Number of a set, and key of a Block in it."""
Ids = tuple[bytes, bytes]
"""Ids of images, and of objects: int64."""


class DataSetPart(NamedTuple):
    """A data set among several.

    Attributes:
        name: Prefix of the names of its images, unique.
        blocks, labels, table: See `recordmill.pipelines.gathered.Gathered`.
        splits: Its splits, by the column `split` of its Blocks.
        upright: True if EXIF turns its images without a size in the source.
    """

    name: str
    blocks: PCollection
    labels: PCollection
    table: PCollection
    splits: tuple[str, ...]
    upright: bool = False


@contextmanager
def facts_of_set(name: str) -> Iterator[None]:
    """Name the set in the Facts of all steps that are applied in the `with` block, see `Facts.with_set_name`."""
    with collect_facts() as collected:
        yield
    for number, facts in enumerate(collected):
        hand_over(facts | f"NameFacts{number}" >> beam.Map(Facts.with_set_name, name).with_output_types(Facts))


class JoinSets(beam.PTransform):
    """Convert the Blocks of several sets to those of one: (BlockKey, packed Block), one LabelMap and one FeatureTable.

    Input is a tuple of the parts' `blocks`. Facts have warnings about classes, fields and copies.

    Args:
        splits: Splits of the job. They have those of each part.
        options: Options of records: seed of the order of images, names of features, requested open fields.
        existing: Classes and features of the data set that gets more splits. Its classes are those of the sets, unless
            `options` change classes.
        reports_copies: True to warn about images of two sets whose files are equal.
    """

    def __init__(
        self,
        parts: Sequence[DataSetPart],
        splits: Sequence[str],
        options: StoredImageOptions,
        existing: ExistingLabels | None = None,
        reports_copies: bool = True,
    ):
        super().__init__()
        self._parts, self._splits, self._seed = tuple(parts), tuple(splits), options.seed
        names = dict(options.names_of_fields)
        self._request = RecordRequest(options.layout_table, names, _requested_fields(options), existing)
        self._existing = None if isinstance(options, ChoiceOptions) and options.changes_classes else existing
        self._reports_copies = reports_copies

    def expand(self, sides):  # several PCollections: Beam accepts no type hints
        p, names = sides[0].pipeline, tuple(part.name for part in self._parts)
        turns_some = any(part.upright for part in self._parts)
        labels, table, mappings = p | "Once" >> beam.Impulse() | "UnionLabels" >> self._union_labels(names)
        named = [
            blocks
            | f"NameImages {part.name}"
            >> beam.Map(
                _name_block,
                part.name,
                number,
                self._job_splits(part),
                AsSingleton(mappings),
                turns_some and not part.upright,
            ).with_output_types(tuple[SetKey, bytes])
            for number, (part, blocks) in enumerate(zip(self._parts, sides, strict=True))
        ]
        numbers = [_count_blocks(blocks, name) for blocks, name in zip(named, names, strict=True)]
        p | "OnceCounted" >> beam.Impulse() | "CheckNotEmpty" >> beam.Map(_check_not_empty, names, *numbers)
        joined = (
            tuple(named)
            | "RenumberSets" >> _RenumberSets()
            | "ToBatches" >> beam.BatchElements(min_batch_size=_BATCH, max_batch_size=_BATCH)
            | "ToRanges" >> beam.FlatMap(_cut_to_ranges, self._seed).with_output_types(tuple[int, bytes])
            | "GroupByRange" >> beam.GroupByKey()
            | "JoinRange" >> beam.FlatMap(_join_range, self._seed).with_output_types(tuple[BlockKey, bytes])
        )
        if self._reports_copies:
            joined | "ReportCopies" >> ReportCopies(self._splits)
        return joined, labels, table

    def _union_labels(self, names: tuple[str, ...]) -> WithFacts:
        """Return the step that emits the classes, and with tags the features and the mappings of classes."""
        sides = [AsSingleton(side) for part in self._parts for side in (part.labels, part.table)]
        return WithFacts(_union, names, self._splits, self._request, self._existing, *sides, tags=(_TABLE, _MAPPINGS))

    def _job_splits(self, part: DataSetPart) -> tuple[int, ...]:
        """Return the index of each split of a part in the job."""
        return tuple(self._splits.index(split) for split in part.splits)


class _RenumberSets(beam.PTransform):
    """Convert (SetKey, packed Block) of each set to packed Blocks whose ids are unique among the sets.

    Ids are compared in buckets, so that no worker has all of them. Blocks of the first set keep their ids and are not
    shuffled.
    """

    def expand(self, sets):  # several PCollections: Beam accepts no type hints
        first, *later = sets
        clashes = (
            sets
            | "AllSets" >> beam.Flatten()
            | "ListIds" >> beam.FlatMap(_list_ids).with_output_types(tuple[int, tuple[SetKey, Ids]])
            | "ByBucket" >> beam.GroupByKey()
            | "FindClashes" >> beam.FlatMap(_find_clashes).with_output_types(tuple[SetKey, Ids])
        )
        renumbered = (flatten_collections(later, "LaterSets"), clashes) | "Renumber" >> RenumberClashes()
        return (first, renumbered) | "Renumbered" >> beam.Flatten() | "WithoutKeys" >> beam.Values()


class RenumberClashes(beam.PTransform):
    """Give images and objects a hash in place of an id that is taken, see `renumber_block`.

    Input is (key, packed Block), and the taken ids of a Block by its key. Output is (key, packed Block).
    """

    def expand(self, blocks_and_clashes):  # several PCollections: Beam accepts no type hints
        renumbered = (
            blocks_and_clashes
            | "BlocksAndClashes" >> beam.CoGroupByKey()
            | "Renumber" >> beam.FlatMap(_renumber).with_outputs(_HASHES, main=_BLOCKS)
        )
        renumbered[_HASHES] | "ByHash" >> beam.GroupByKey() | "CheckHashes" >> beam.Map(_check_hashes)
        return renumbered[_BLOCKS]


def _requested_fields(options: StoredImageOptions) -> tuple[str, ...]:
    return options.fields if isinstance(options, ObjectOptions) else ()


def _union(
    _: bytes,
    facts: FactsBuilder,
    names: Sequence[str],
    splits: Sequence[str],
    request: RecordRequest,
    existing: ExistingLabels | None,
    *labels_and_tables: Any,
) -> Iterator[Any]:
    parts = [SetLabels(*pair) for pair in zip(names, labels_and_tables[::2], strict=True)]
    union, absent = adopt_union(parts, existing) if existing else (union_labels(parts), "")
    tables = [SetTable(*pair) for pair in zip(names, labels_and_tables[1::2], strict=True)]
    table, warnings = union_tables(tables, union.labels, request)
    facts.warn_all(splits[:1], [*warnings, *filter(None, [absent])])
    yield union.labels
    yield TaggedOutput(_TABLE, table)
    yield TaggedOutput(_MAPPINGS, union.mappings)


def _name_block(
    keyed: tuple[BlockKey, bytes],
    name: str,
    number: int,
    splits: tuple[int, ...],
    mappings: Sequence[ClassMapping],
    ignores_exif: bool,
) -> tuple[SetKey, bytes]:
    def join(blocks: list[Block]) -> Block:
        return name_images(blocks[0], name, mappings[number], splits, ignores_exif)

    return (number, keyed[0]), pack_block(run_step("name images of a set", join, [unpack_block(keyed[1])]))


def name_images(
    block: Block, name: str, mapping: ClassMapping, splits: Sequence[int], ignores_exif: bool = False
) -> Block:
    """Return a complete Block of a set with the names, classes and splits of the job.

    Args:
        name: Name of the set, the prefix of file names; empty for none.
        splits: Index in the job of each split of the set.
        ignores_exif: True if EXIF does not turn images without a size in the source, although it turns those of others.
    """
    if ignores_exif and block.class_name is None:  # EXIF turns every image with a class
        block = block.replace(ignores_exif=np.full(len(block), True))
    if any(old != new for old, new in mapping.ids.items()):
        block = map_block(block, mapping)
    block = block.replace(split=np.array(splits, np.int64)[block.split])
    if not name:
        return block
    names = [f"{name}/{own_name}" for own_name in block.file_name.texts()]
    folders = [file_folder(*pair) for pair in zip(image_paths(block), names, strict=True)]
    return block.replace(file_name=ragged_texts(names), file_folder=ragged_texts(folders))


def _count_blocks(blocks: PCollection, name: str) -> AsSingleton:
    return AsSingleton(blocks | f"CountBlocks {name}" >> beam.combiners.Count.Globally())


def _check_not_empty(_: bytes, names: Sequence[str], *numbers: int) -> None:
    """Raise ConfigError if a set has no Block."""
    for name, number in zip(names, numbers, strict=True):
        if not number:
            raise ConfigError(
                f"set {name} has no image to write: it has none, or all are rejected or excluded. Convert it alone to "
                "see why, or leave it out"
            )


def buckets_of(ids: np.ndarray) -> np.ndarray:
    """Return the bucket of each id, in which ids are compared: uint64."""
    return (ids.astype(np.uint64) * _MIXING) >> np.uint64(64 - _BUCKET_BITS)


def _list_ids(keyed: tuple[SetKey, bytes]) -> Iterator[tuple[int, tuple[SetKey, Ids]]]:
    """Yield the ids of a Block in each bucket."""
    block = unpack_block(keyed[1])
    ids = block.image_id, block.object_id if block.num_objects else np.zeros(0, np.int64)
    buckets = [*map(buckets_of, ids)]
    for bucket in np.unique(np.concatenate(buckets)).tolist():
        image_ids, object_ids = (part[own == bucket].tobytes() for part, own in zip(ids, buckets, strict=True))
        yield bucket, (keyed[0], (image_ids, object_ids))


def _find_clashes(group: tuple[int, Iterable[tuple[SetKey, Ids]]]) -> Iterator[tuple[SetKey, Ids]]:
    """Yield the ids of each Block that an earlier set has."""
    pieces = sorted(group[1])
    pairs = ([(key[0], np.frombuffer(ids[kind], np.int64)) for key, ids in pieces] for kind in (0, 1))
    for (key, _), *clashes in zip(pieces, *map(clashing_ids, pairs), strict=True):
        if any(map(len, clashes)):
            yield key, (clashes[0].tobytes(), clashes[1].tobytes())


def clashing_ids(pieces: Sequence[tuple[int, np.ndarray]]) -> list[np.ndarray]:
    """Return the ids of each piece that an earlier set has.

    Args:
        pieces: Number of a set, ascending, and ids: int64.

    >>> [ids.tolist() for ids in clashing_ids([(0, np.array([7, 8])), (1, np.array([9, 8])), (2, np.array([9, 7]))])]
    [[], [8], [9, 7]]
    """
    clashes, earlier, own, number = [], np.zeros(0, np.int64), list[np.ndarray](), 0
    for set_number, ids in pieces:
        if set_number != number:
            earlier, own, number = np.unique(np.concatenate([earlier, *own])), [], set_number
        clashes.append(ids[are_among(ids, earlier)])
        own.append(ids)
    return clashes


def _renumber(keyed: tuple[Any, tuple[Iterable[bytes], Iterable[Ids]]]) -> Iterator[Any]:
    """Yield a Block without ids that are taken, by its key, and with a tag the hashes of its objects, by bucket and
    split."""
    packed, clashes = keyed[1]
    image_ids, object_ids = (
        np.unique(np.frombuffer(b"".join(ids[kind] for ids in clashes), np.int64)) for kind in (0, 1)
    )

    def renumber(blocks: list[Block]) -> Block:
        return renumber_block(blocks[0], image_ids, object_ids)

    for block in map(unpack_block, packed):
        renumbered = run_step("renumber images of a set", renumber, [block])
        yield keyed[0], pack_block(renumbered)
        if block.num_objects:
            is_new = block.object_id != renumbered.object_id
            ids, splits = renumbered.object_id[is_new], block.split[block.image_of_object[is_new]]
            buckets = buckets_of(ids).astype(np.int64) + (splits << _BUCKET_BITS)
            for bucket in np.unique(buckets).tolist():
                yield TaggedOutput(_HASHES, (bucket, ids[buckets == bucket].tobytes()))


def renumber_block(block: Block, taken_images: np.ndarray, taken_objects: np.ndarray) -> Block:
    """Return a Block with hashes instead of ids that an earlier set has; `id_text` and `object_id_text` have the ids.

    An image gets the hash of its name, which begins with the set, and of its id too if several ids of the set have its
    file. An object gets the hash of the image's name and the object's id.

    Args:
        taken_images, taken_objects: int64, ascending.
    """
    names = [*map(name_key, block.file_name.texts())]
    images = np.flatnonzero(are_among(block.image_id, taken_images)).tolist()
    shared = block.list_rows("is_shared")
    if images:
        old_ids, new_ids = block.image_id.tolist(), block.image_id.copy()
        for image in images:
            text = f"{names[image]} image {old_ids[image]}" if shared[image] else names[image]
            new_ids[image] = name_id(text)
        texts = _old_ids(block.list_rows("id_text"), images, old_ids)
        block = block.replace(image_id=new_ids, id_text=ragged_texts(texts))
    if not block.num_objects:
        return block
    objects = np.flatnonzero(are_among(block.object_id, taken_objects)).tolist()
    if objects:
        old_ids, new_ids, image_of_object = block.object_id.tolist(), block.object_id.copy(), block.image_of_object
        for row in objects:
            new_ids[row] = name_id(f"{names[image_of_object[row]]} annotation {old_ids[row]}")
        texts = _old_ids(block.list_rows("object_id_text"), objects, old_ids)
        block = block.replace(object_id=new_ids, object_id_text=ragged_texts(texts))
    return block


def _old_ids(texts: list[str], rows: Iterable[int], ids: Sequence[int]) -> list[str]:
    """Return id texts with the ids of some rows, unless they have a text."""
    for row in rows:
        texts[row] = texts[row] or str(ids[row])
    return texts


def _check_hashes(group: tuple[int, Iterable[bytes]]) -> None:
    """Raise CollidingImagesError if two objects of a split have the same hash."""
    ids, numbers = np.unique(np.frombuffer(b"".join(group[1]), np.int64), return_counts=True)
    if (numbers > 1).any():
        raise CollidingImagesError(
            f"two annotations get the same id, {ids[numbers > 1][0]}, a hash of set, file name and id. Give a set "
            "another name"
        )


def _cut_to_ranges(packed: Sequence[bytes], seed: int) -> Iterator[tuple[int, bytes]]:
    """Yield the images of Blocks by the range of their hash."""
    block = join_blocks([unpack_block(part).replace(is_shared=None) for part in packed])
    yield from pack_parts(block, ranges_of(hash_images(block.image_id, seed), _RANGE_BITS), is_zipped=True)


def _join_range(group: tuple[int, Iterable[bytes]], seed: int) -> Iterator[tuple[BlockKey, bytes]]:
    def join(blocks: list[Block]) -> Block:
        block = join_blocks(blocks)
        block = block.take(image_order(block, hash_images(block.image_id, seed)))
        check_distinct_ids(block)
        return block

    block = run_step("join sets", join, list(map(unpack_block, group[1])))
    for split in np.unique(block.split).tolist():
        yield from cut_range((split << _SPLIT_BITS) + group[0], block.take(block.split == split))


def check_distinct_ids(block: Block) -> None:
    """Check that images with one id, which are adjacent, have one name and different splits.

    Raises:
        CollidingImagesError: Two images have one id.
    """
    same = np.flatnonzero(np.diff(block.image_id) == 0)
    for pair in (block.cut(row, row + 2) for row in same.tolist()):
        (name, other), splits = pair.file_name.texts(), pair.split.tolist()
        has_hash = any(pair.list_rows("id_text"))
        if splits[0] == splits[1] or (has_hash and name != other):
            raise CollidingImagesError(
                f"{name!r} and {other!r} get the same image id, {pair.image_id[0]}. Ids that a set has already become "
                "hashes of the set and the file name. Give a set another name, or each image of a set its own"
            )
