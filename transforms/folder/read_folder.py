"""Image folders, and tables of labels, become Blocks of images of one class each."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.block import Block
from recordmill.schemas.image_labels import PathLabels
from recordmill.schemas.manifest import InputRows
from recordmill.schemas.splits import Division
from recordmill.transforms.blocks.order_images import hash_images, ranges_of
from recordmill.transforms.blocks.pack_block import pack_parts, unpack_block
from recordmill.transforms.blocks.run_step import run_step
from recordmill.transforms.dataset.facts import FACTS, Facts, FactsBuilder, tagged
from recordmill.transforms.folder.join_files import join_files
from recordmill.transforms.folder.label_paths import label_paths, named_rows
from recordmill.transforms.folder.read_labels import LabelTable, read_labels
from recordmill.transforms.images.listing import Listing, join_parts
from recordmill.transforms.join.list_images import FILES_AT_ONCE, ListParts, batched, file_block, list_outside
from recordmill.transforms.shards.plan_blocks import BlockKey, cut_range
from recordmill.transforms.storage.interface import NameRange

_LISTINGS = "listings"
RANGE_BITS = 6
"""A million images are some 3 MB in each of 64 ranges."""

Keyed = tuple[int, bytes]
"""Number of a range, and a packed Block."""


class FolderRules(NamedTuple):
    """How images are labelled.

    Attributes:
        output: folder of the data set, which may be within a folder of images.
        rule: finds the class in a path; None if a table of labels names the images.
        source, kind: path and kind of the input, for its numbers of rows; empty if they are counted elsewhere.
    """

    output: str
    rule: PathLabels | None
    classes: tuple[str, ...]
    splits: tuple[str, ...]
    seed: int
    source: str
    kind: str


class ListedFolders(NamedTuple):
    """(range, packed Block) of image rows or files, and PCollections of Facts."""

    blocks: PCollection
    facts: tuple[PCollection, ...]


class ListFolders(beam.PTransform):
    """Convert paths of folders to ListedFolders: rows if paths give the classes, else files."""

    def __init__(self, rules: FolderRules, division: Division | AsSingleton):
        super().__init__()
        self._rules = rules
        self._division = division

    def expand(self, folders: PCollection[str]):
        parts = folders | "ListParts" >> ListParts()
        listed = parts | "ListFolder" >> beam.FlatMap(_list, self._rules, self._division).with_output_types(
            Keyed
        ).with_outputs(_LISTINGS, FACTS, main="blocks")
        listings = (
            listed[_LISTINGS]
            | "GroupByFolder" >> beam.GroupByKey()  # (folder, [ListedPart])
            | "JoinParts" >> beam.MapTuple(_join_parts)
        )
        return ListedFolders(listed.blocks, (listings, listed[FACTS]))


def _join_parts(folder: str, parts: Iterable[Any]) -> Facts:
    return Facts(listings={folder: join_parts(folder, parts)})


def _list(listed: tuple[str, tuple[str, str]], rules: FolderRules, division: Division) -> Iterator[Any]:
    folder, bounds = listed
    part = NameRange(*bounds)
    listing = Listing(folder, part.start)
    facts = FactsBuilder()
    for files in batched(list_outside(folder, part, rules.output, listing), FILES_AT_ONCE):
        if rules.rule:
            block = label_paths(files, rules.rule, division, rules.splits, facts)
        else:
            block = named_rows(file_block(files))
        ranges = ranges_of(hash_images(block.image_id, rules.seed), RANGE_BITS)
        yield from pack_parts(block, ranges)
    yield TaggedOutput(_LISTINGS, (folder, listing.found()))
    facts.count_rejected_rows(rules.source, rules.kind)
    yield tagged(facts)


class ReadTables(beam.PTransform):
    """Convert LabelTable to (range, packed Block of image rows) in the output `rows`, and Facts in `facts`."""

    def __init__(self, rules: FolderRules, division: Division | AsSingleton):
        super().__init__()
        self._rules = rules
        self._division = division

    def expand(self, tables: PCollection[LabelTable]):
        read = beam.FlatMap(_read, self._rules, self._division).with_output_types(Keyed)
        return tables | "ReadTable" >> read.with_outputs(FACTS, main="rows")


def _read(table: LabelTable, rules: FolderRules, division: Division) -> Iterator[Any]:
    facts = FactsBuilder()
    for block in read_labels(table, division, rules.splits, facts):
        yield from pack_parts(block, ranges_of(hash_images(block.image_id, rules.seed), RANGE_BITS))
    facts.count_rejected_rows(rules.source, rules.kind)
    yield tagged(facts)


class JoinFiles(beam.PTransform):
    """Convert (range, packed Block) of image rows and files to (BlockKey, packed Block) of whole Blocks.

    The outputs are `blocks` and `facts`."""

    def __init__(self, rules: FolderRules):
        super().__init__()
        self._rules = rules

    def expand(self, sides):
        join = beam.FlatMap(_join, self._rules).with_output_types(tuple[BlockKey, bytes])
        grouped = sides | "BothSides" >> beam.Flatten() | "GroupByRange" >> beam.GroupByKey()
        return grouped | "Join" >> join.with_outputs(FACTS, main="blocks")


def _join(group: tuple[int, Iterable[bytes]], rules: FolderRules) -> Iterator[Any]:
    number, packed = group

    def join(blocks: list[Block]) -> tuple[Block | None, FactsBuilder]:
        facts = FactsBuilder()
        for block in blocks:
            if block.split is not None and rules.source:
                for split, images in enumerate(np.bincount(block.split).tolist()):
                    if images:
                        facts.add_rows(rules.splits[split], InputRows(rules.source, rules.kind, images, 0))
        return join_files(blocks, rules.classes, rules.splits, rules.seed, facts), facts

    joined, facts = run_step("join files", join, list(map(unpack_block, packed)))
    yield tagged(facts)
    if joined is not None:
        yield from cut_range(number, joined)
