"""Image rows of label files are joined by image: partial Blocks become whole ones with the classes of the data set."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import AsList, AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.block import Block, join_blocks, ragged_bytes
from recordmill.schemas.dataset.manifest import InputRows
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.inputs.annotations import Caption, ImageLabels
from recordmill.schemas.inputs.labels import LabelMap, LabelsBeside, adopt_labels
from recordmill.schemas.inputs.splits import name_id
from recordmill.schemas.names import name_key
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.annotated.read_labels import AnnotatedRules
from recordmill.transforms.annotated.source import FILES, FRACTIONS, NOTE, PIXELS, Source
from recordmill.transforms.blocks.cut_range import BlockKey, cut_range
from recordmill.transforms.blocks.image_tasks import label_column, labels_of
from recordmill.transforms.blocks.pack_block import unpack_block
from recordmill.transforms.blocks.run_step import hash_images, image_order, run_step
from recordmill.transforms.dataset.facts import FACTS, Facts, FactsBuilder, tagged
from recordmill.transforms.join.choose_categories import choose_features, select_categories
from recordmill.transforms.join.match_blocks import without_faults
from recordmill.transforms.join.screen_objects import screen_annotations, screen_objects
from recordmill.transforms.join.traits import Trait, choose_labels, parts_of, trait_warnings
from recordmill.transforms.runtime.beam_steps import pack, unpacker
from recordmill.transforms.shards.limit_records import limit_records

_UNPACK_REJECTED = unpacker(list[Rejected])
_LABELS, _TABLE = "labels", "table"
_CURE = "write all splits by one command, or give each the same classes"

Keyed = tuple[int, bytes]
"""Number of a range of images, and a packed Block."""


class ClassRules(NamedTuple):
    """Classes and features that are written.

    Attributes:
        categories: names of the classes that are wanted; empty for all.
        asked, layout: features that were asked for, and all of the layout.
        beside: labels of the data set that the splits are added to; None without one.
    """

    source: Source
    splits: tuple[str, ...]
    categories: tuple[str, ...]
    asked: FeatureTable
    layout: FeatureTable
    beside: LabelsBeside | None


class DescribedClasses(NamedTuple):
    """PCollections of one LabelMap of all classes, one of those that are wanted, one FeatureTable; and Facts."""

    categories: PCollection
    labels: PCollection
    table: PCollection
    facts: PCollection


@dataclass(eq=False, repr=False)
class DescribeClasses(beam.PTransform):
    """Convert Traits to DescribedClasses."""

    rules: ClassRules

    def expand(self, traits: PCollection):
        once = traits.pipeline | "Once" >> beam.Create([self.rules])
        found = once | "Describe" >> beam.FlatMap(_describe, AsList(traits)).with_outputs(
            _LABELS, _TABLE, FACTS, main="categories"
        )
        return DescribedClasses(found.categories, found[_LABELS], found[_TABLE], found[FACTS])


def _describe(rules: ClassRules, traits: list[tuple[str, str, int, int]]) -> Iterator[Any]:
    found, known = [Trait(*trait) for trait in traits], rules.source.categories
    if not rules.source.label_name and not any(trait.kind == FILES for trait in found):
        raise ConfigError(f"{rules.source.path}: no label file of the format {rules.source.kind} is in it")
    notes = frozenset(trait.name for trait in found if trait.kind == NOTE)
    warnings = [*rules.source.warnings, *rules.source.check(notes), *frame_warnings(found, rules.source)]
    categories = choose_labels(found, of_image=False) if known is None else LabelMap(known)
    warnings += trait_warnings(found, categories)
    labels = select_categories(categories, rules.categories)
    if rules.beside:
        labels, absent = adopt_labels(labels, rules.beside, True, _CURE)
        warnings += [absent] if absent else []
    yield categories
    yield TaggedOutput(_LABELS, labels)
    table, parts = choose_features((), labels, rules.asked, rules.layout), parts_of(found)
    yield TaggedOutput(_TABLE, rules.layout.with_parts((*table.parts, *parts)))
    if without := sorted({*parts} - {*rules.source.parts, *rules.layout.parts}):  # of others, the command has warned
        warnings.append(f"the layout {rules.layout.layout} has no feature for {', '.join(without)}: not written")
    yield TaggedOutput(FACTS, Facts(warnings={(rules.splits[0], text) for text in warnings}))


def frame_warnings(traits: Iterable[Trait], source: Source) -> Iterator[str]:
    """Yield a warning of fractions among boxes in pixels.

    Raises:
        ConfigError: All boxes are fractions.
    """
    kinds = {trait.kind for trait in traits}
    if FRACTIONS in kinds and PIXELS not in kinds:
        raise ConfigError(
            f"{source.path}: all boxes are within 0..1, as fractions are, and boxes of {source.kind} are in pixels: "
            "multiply them by the image size"
        )
    if FRACTIONS in kinds:
        yield f"{source.path}: some boxes are within 0..1, as fractions are, and all are read as pixels: look at these"


@dataclass(eq=False, repr=False)
class JoinAnnotated(beam.PTransform):
    """Convert (range, packed Block) of image rows with objects to (BlockKey, packed Block) of whole Blocks, in the
    output `blocks`; Facts are in `facts`.

    Args:
        categories: a PCollection of one LabelMap, of all classes.
    """

    rules: AnnotatedRules
    categories: PCollection

    def expand(self, rows: PCollection[Keyed]):
        join = beam.FlatMap(_join, self.rules, AsSingleton(self.categories))
        grouped = rows | "GroupByRange" >> beam.GroupByKey()
        return grouped | "Join" >> join.with_output_types(tuple[BlockKey, bytes]).with_outputs(FACTS, main="blocks")


def wanted_labels(keyed: Keyed, labels: LabelMap, rules: AnnotatedRules) -> Iterator[Keyed]:
    """Yield int64 [N, 2] as bytes: image id and category id of objects that are wanted."""
    block = numbered(unpack_block(keyed[1]), labels, rules.source)
    if block.num_objects:
        is_wanted = screen_objects(block, labels, rules.filters).is_wanted
        pairs = np.stack([block.image_id[block.image_of_object], block.category_id], axis=1)[is_wanted]
        yield keyed[0], np.unique(pairs, axis=0).tobytes()


def _join(group: tuple[int, Iterable[bytes]], rules: AnnotatedRules, labels: LabelMap) -> Iterator[Any]:
    number, packed = group

    def join(blocks: list[Block]) -> tuple[Block, FactsBuilder]:
        facts = FactsBuilder()
        return join_rows(blocks, labels, rules, facts), facts

    block, facts = run_step("join annotations", join, list(map(unpack_block, packed)))
    yield tagged(facts)
    yield from cut_range(number, block)


def join_rows(blocks: Sequence[Block], labels: LabelMap, rules: AnnotatedRules, facts: FactsBuilder) -> Block:
    """Return the images of a range in order, with their objects that can be used and are wanted.

    Args:
        blocks: in any order. Several rows of an image in a split become one, with the objects of all.
        labels: all classes.
    """
    block = _without_rejected(merged(join_blocks(blocks)), rules, facts)
    block = without_faults(block, rules.splits, facts, rules.match, rules.group_from)
    block = numbered(block, labels, rules.source)
    if block.num_objects:
        block = screen_annotations(block, labels, rules.filters, rules.splits, facts)
    block = limit_records(block, rules.estimate, rules.splits, facts)
    return block.take(image_order(block, hash_images(block.image_id, rules.seed)))


def merged(block: Block) -> Block:
    """Return one row an image and split, with the objects of all its rows, in the order of files and rows in them. Rows
    that state different sizes are a reject of their image."""
    if block.part is None:
        return block
    block = block.take(np.lexsort((block.part, block.source, block.split, block.image_id)))
    is_first = np.append(True, (np.diff(block.image_id) != 0) | (np.diff(block.split) != 0))
    if is_first.all():
        return block
    firsts = np.flatnonzero(is_first)
    numbers = np.add.reduceat(block.objects_per_image, firsts)
    columns = dict(block.take(firsts).image_columns())
    spans = [*pairwise([*firsts.tolist(), len(block)])]
    rejects = [[] for _ in range(len(block))] if block.rejected is None else list(map(_rejects, block.rejected.rows()))
    columns["image_size_px"] = block.image_size_px[firsts]
    for row, (start, end) in enumerate(spans):
        if sizes := sorted({*map(tuple, block.image_size_px[start:end].tolist())} - {(0, 0)}):
            columns["image_size_px"][row] = sizes[0]
        if len(sizes) > 1:
            name = block.file_name.texts()[start]
            detail = f"{name!r} is {' but '.join(f'{width}x{height}' for width, height in sizes)} in its label files"
            rejects[start].append(
                Rejected(
                    "image", int(block.image_id[start]), Reason.SIZE_MISMATCH, detail, annotations=int(numbers[row])
                )
            )
    if any(rejects):
        columns["rejected"] = ragged_bytes([pack([*chain(*rejects[start:end])]) for start, end in spans])
    if block.labels is not None and block.labels.values.size:
        labels = labels_of(block)
        columns["labels"] = label_column([_with_captions(labels[start:end]) for start, end in spans])
    found = Block(**columns)
    if block.first_object_of_image is None:
        return found
    objects = dict(block.object_columns())
    owner = np.repeat(np.arange(len(firsts)), numbers)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
    has_several = np.diff(np.append(firsts, len(block)))[owner] > 1
    names, ids = found.file_name.texts(), block.object_id.copy()
    for row in np.flatnonzero(has_several).tolist():
        ids[row] = name_id(f"{name_key(names[owner[row]])} object {place[row]}")
    return found.replace(**objects | {"object_id": ids}, first_object_of_image=np.append(0, np.cumsum(numbers)))


def _with_captions(labels: Sequence[ImageLabels]) -> ImageLabels:
    """Return the first row's labels with all captions."""
    texts = [caption.caption for of_row in labels for caption in of_row.captions]
    return msgspec.structs.replace(labels[0], captions=tuple(map(Caption, range(len(texts)), texts)))


def _rejects(packed: bytes) -> list[Rejected]:
    return _UNPACK_REJECTED(packed) if packed else []


def _without_rejected(block: Block, rules: AnnotatedRules, facts: FactsBuilder) -> Block:
    """Count rows; drop images with an unreadable label file."""
    rejected = [[] for _ in range(len(block))] if block.rejected is None else list(map(_rejects, block.rejected.rows()))
    is_usable = np.ones(len(block), bool)
    for row, (split, found) in enumerate(zip(block.split.tolist(), rejected, strict=True)):
        for each in found:
            facts.reject(rules.splits[split], each)
            is_usable[row] &= each.what != "image"
    others = [labels.rows for labels in labels_of(block)]
    annotations = block.objects_per_image + others + [sum(each.what != "image" for each in found) for found in rejected]
    for split, name in enumerate(rules.splits):
        of_split = block.split == split
        if of_split.any():
            numbers = int(of_split.sum()), int(annotations[of_split].sum())
            facts.add_rows(name, InputRows(rules.source.path, rules.source.kind, *numbers))
    return block.replace(rejected=None, source=None, part=None).take(is_usable)


def numbered(block: Block, labels: LabelMap, source: Source) -> Block:
    """Return the Block with the ids of its categories, in place of hashes of their names."""
    if source.categories is not None or not block.num_objects:
        return block
    hashes = np.array([name_id(category.name) for category in labels.categories], np.int64)
    order = np.argsort(hashes)
    ids = np.array([category.id for category in labels.categories], np.int64)[order]
    return block.replace(category_id=ids[np.searchsorted(hashes[order], block.category_id)])
