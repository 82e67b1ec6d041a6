"""Adopt the classes, fields and ids of a data set for images that are added to it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton, TaggedOutput

from recordmill.schemas.block import Block
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import FeatureTable, Part, format_parts
from recordmill.schemas.field_features import field_columns
from recordmill.schemas.image_records import ShardImages
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import ExistingLabels, LabelMap, name_warnings
from recordmill.schemas.inputs.splits import name_id
from recordmill.schemas.layouts import requested_fields
from recordmill.schemas.names import name_key
from recordmill.schemas.sizes import first_texts
from recordmill.transforms.blocks.cut_range import BlockKey
from recordmill.transforms.blocks.pack_block import pack_block, unpack_block
from recordmill.transforms.blocks.run_step import run_step
from recordmill.transforms.dataset.collect_facts import WithFacts
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.join.choose_categories import check_label_names, select_categories
from recordmill.transforms.shape.join_sets import Ids, RenumberClashes, buckets_of, name_images
from recordmill.transforms.shape.map_classes import ClassMapping
from recordmill.transforms.shape.union_labels import grow_labels

NEW_CLASSES = "added images have"
"""Beginning of a warning, which holds for one run."""

_TABLE, _MAPPING = "table", "mapping"
_SHOWN = 5

_KNOWN: BlockKey = -1
"""Stands for the records of the data set among keys of Blocks."""

OwnedIds = tuple[bytes, bytes, bytes, bytes]
"""Ids of images and hashes of their names, ids of objects and hashes of the names of their images: int64."""


class AdoptDataSet(beam.PTransform):
    """Convert (BlockKey, packed Block), one LabelMap and one FeatureTable of images to those of the data set that gets
    them. Facts have warnings about new classes and missing fields.

    At run time, raises the errors of `grow_labels` and `adopt_table`.

    Args:
        existing: Classes and features of the data set.
        set_name: Prefix of the names of the images; empty for none.
        names: Selected classes, which the images or the data set have.
    """

    def __init__(
        self, existing: ExistingLabels, splits: Sequence[str], set_name: str = "", names: tuple[str, ...] = ()
    ):
        super().__init__()
        self._existing, self._splits, self._set_name, self._names = existing, tuple(splits), set_name, names

    def expand(self, parts):  # several PCollections: Beam accepts no type hints
        blocks, labels, table = parts
        arguments = AsSingleton(table), self._existing, self._names, self._splits
        adopt = WithFacts(_adopt, *arguments, types=LabelMap, tags=(_TABLE, _MAPPING))
        grown, own_table, mapping = labels | "AdoptLabels" >> adopt
        place = beam.Map(_place_block, self._set_name, len(self._splits), AsSingleton(mapping))
        return blocks | "AdoptBlocks" >> place.with_output_types(tuple[BlockKey, bytes]), grown, own_table


def _adopt(
    labels: LabelMap,
    facts: FactsBuilder,
    table: FeatureTable,
    existing: ExistingLabels,
    names: tuple[str, ...],
    splits: tuple[str, ...],
) -> Iterator[Any]:
    known = existing.table or table
    grown, mapping = grow_labels(labels, existing, known)
    check_label_names(grown, known)
    select_categories(grown, names)  # raises an error if neither has one of them
    facts.warn_all(splits[:1], [*_class_warnings(grown, existing), *_field_warnings(table, known)])
    yield grown
    yield TaggedOutput(_TABLE, adopt_table(table, known, existing.where))
    yield TaggedOutput(_MAPPING, mapping)


def adopt_table(table: FeatureTable, known: FeatureTable, where: str) -> FeatureTable:
    """Return the features of the records of a data set, for images that may lack some of them.

    Args:
        table: Features that the images would have in a data set of their own.
        known: Features of the records of the data set.

    Raises:
        ConfigError: The images have parts or fields that the records do not have.
    """
    more = tuple(part for part in table.parts if part not in (*known.parts, Part.CATEGORY_ID))
    if more:
        raise ConfigError(
            f"the images have {format_parts(more)}, and the records of {where} do not. All records of a data set have "
            "the same parts. Leave these out, or write all images to another output"
        )
    requested, stored = ({column.shown for column in requested_fields(features)} for features in (table, known))
    if fields := sorted(requested - stored):
        raise ConfigError(
            f"the images have the field{'s' * (len(fields) > 1)} {first_texts(fields, _SHOWN)}, and the records of "
            f"{where} do not. All records of a data set have the same fields. Name its fields by --fields, or write "
            "all images to another output"
        )
    return known


def _class_warnings(grown: LabelMap, existing: ExistingLabels) -> Iterator[str]:
    old = {category.id for category in existing.labels.all}
    if new := [category for category in grown.all if category.id not in old]:
        shown = first_texts(map(_describe_class, new), _SHOWN)
        yield f"{NEW_CLASSES} {len(new):,} new class{'es' * (len(new) > 1)}: {shown}"
        yield from name_warnings(grown)


def _describe_class(category: Category) -> str:
    return f"{category.name!r} (id {category.id})"


def _field_warnings(table: FeatureTable, known: FeatureTable) -> Iterator[str]:
    own = {(column.axis, column.path) for column in field_columns(table)}
    for column in requested_fields(known):
        if (column.axis, column.path) not in own:
            stored = column.missing or "empty text"
            yield f"field {column.shown}: the added images have no value; {stored} is stored there"


def _place_block(
    keyed: tuple[BlockKey, bytes], set_name: str, splits: int, mapping: ClassMapping
) -> tuple[BlockKey, bytes]:
    if not set_name and all(old == new for old, new in mapping.ids.items()):
        return keyed

    def place(blocks: list[Block]) -> Block:
        return name_images(blocks[0], set_name, mapping, range(splits))

    return keyed[0], pack_block(run_step("adopt classes of the data set", place, [unpack_block(keyed[1])]))


class RenumberImages(beam.PTransform):
    """Give images, and objects, a hash in place of an id that another file of the data set has.

    Input is (BlockKey, packed Block) of images, and the ShardImages of the data set. Ids of the data set are compared
    in buckets, so that no worker has all of them. An image that the data set has in any split keeps its ids.
    """

    def expand(self, parts):  # several PCollections: Beam accepts no type hints
        blocks, shards = parts
        types = tuple[int, tuple[BlockKey, OwnedIds]]
        block_ids = blocks | "ListIds" >> beam.FlatMap(_list_ids).with_output_types(types)
        known_ids = shards | "ListKnown" >> beam.FlatMap(_list_known).with_output_types(types)
        owned = (
            (block_ids, known_ids)
            | "AllIds" >> beam.Flatten()
            | "ByBucket" >> beam.GroupByKey()
            | "FindClashes" >> beam.FlatMap(_find_clashes).with_output_types(tuple[BlockKey, Ids])
        )
        return (blocks, owned) | "Renumber" >> RenumberClashes()


def _by_bucket(ids: Sequence[np.ndarray], owners: Sequence[np.ndarray]) -> Iterator[tuple[int, OwnedIds]]:
    """Yield the ids of images and of objects, and the hashes of names, in each bucket."""
    buckets = [*map(buckets_of, ids)]
    for bucket in np.unique(np.concatenate(buckets)).tolist():
        image_ids, object_ids = (
            (kind_ids[own == bucket].tobytes(), kind_owners[own == bucket].tobytes())
            for kind_ids, kind_owners, own in zip(ids, owners, buckets, strict=True)
        )
        yield bucket, (*image_ids, *object_ids)


def _hash_names(names: Iterable[str]) -> np.ndarray:
    return np.array([name_id(name_key(name)) for name in names], np.int64)


def _list_ids(keyed: tuple[BlockKey, bytes]) -> Iterator[tuple[int, tuple[BlockKey, OwnedIds]]]:
    block = unpack_block(keyed[1])
    names = _hash_names(block.file_name.texts())
    object_ids, images = np.zeros(0, np.int64), np.zeros(0, np.int64)
    if block.num_objects:
        object_ids, images = block.object_id, block.image_of_object
    for bucket, ids in _by_bucket((block.image_id, object_ids), (names, names[images])):
        yield bucket, (keyed[0], ids)


def _list_known(images: ShardImages) -> Iterator[tuple[int, tuple[BlockKey, OwnedIds]]]:
    """Yield the ids of the records of a shard; nothing if they have no ids."""
    rows = images.array
    owners = _hash_names(images.image_names()[1])
    object_owners = np.repeat(owners, rows["objects"])
    object_ids = images.ids.astype(np.int64)
    is_stored = (rows["records"] > 0) & bool(rows["id"].any())
    ids = rows["id"][is_stored].astype(np.int64), object_ids
    for bucket, owned in _by_bucket(ids, (owners[is_stored], object_owners[: len(object_ids)])):
        yield bucket, (_KNOWN, owned)


def _find_clashes(group: tuple[int, Iterable[tuple[BlockKey, OwnedIds]]]) -> Iterator[tuple[BlockKey, Ids]]:
    """Yield the ids of each Block that another file of the data set has."""
    pieces = [*group[1]]
    known_ids = [ids for key, ids in pieces if key == _KNOWN]
    known = [np.frombuffer(b"".join(parts), np.int64) for parts in zip(*known_ids, strict=True)]
    for key, ids in pieces if known else ():
        if key == _KNOWN:
            continue
        own = [np.frombuffer(part, np.int64) for part in ids]
        image_ids, object_ids = (find_owned(*own[start : start + 2], *known[start : start + 2]) for start in (0, 2))
        if len(image_ids) or len(object_ids):
            yield key, (image_ids.tobytes(), object_ids.tobytes())


def find_owned(ids: np.ndarray, owners: np.ndarray, known: np.ndarray, known_owners: np.ndarray) -> np.ndarray:
    """Return the ids that another owner has: int64.

    Args:
        ids, known: int64.
        owners, known_owners: Owner of each id.

    >>> find_owned(*map(np.array, ([7, 8, 9, 5], [1, 1, 2, 3], [7, 8, 8, 9], [1, 1, 2, 5]))).tolist()
    [8, 9]
    """
    order = np.lexsort((known_owners, known))
    known, known_owners = known[order], known_owners[order]
    first, end = (np.searchsorted(known, ids, side) for side in ("left", "right"))
    is_known = first < end
    least, largest = (np.zeros(len(ids), np.int64) for _ in range(2))
    least[is_known], largest[is_known] = known_owners[first[is_known]], known_owners[end[is_known] - 1]
    return ids[is_known & ((least != owners) | (largest != owners))]
