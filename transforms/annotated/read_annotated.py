"""Folders and label files of a Source become Blocks of image rows with their objects."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.block import Block, join_blocks, ragged_texts
from recordmill.schemas.inputs.images import ImageRef, is_image_name
from recordmill.schemas.inputs.splits import Division
from recordmill.schemas.names import name_key
from recordmill.transforms.annotated.read_labels import (
    ALONE,
    AT_ONCE,
    BARE,
    BITS,
    NOTICES,
    SMALL_BYTES,
    TRAITS,
    AnnotatedRules,
    Keyed,
    LabelFile,
    ReadBeside,
    ReadNaming,
    ReadStated,
    buckets_of,
    label_files,
)
from recordmill.transforms.annotated.source import SourceFolder, SplitList
from recordmill.transforms.blocks.pack_block import pack_parts
from recordmill.transforms.dataset.compare_names import Names, add_names
from recordmill.transforms.dataset.facts import FACTS, Facts
from recordmill.transforms.join.list_images import FILES_AT_ONCE, batched, file_block, list_outside
from recordmill.transforms.join.match_blocks import MatchRows, name_buckets
from recordmill.transforms.storage.interface import NameRange, is_remote
from recordmill.transforms.storage.resolve import storage_for

_LABELS, _ROWS = "labels", "rows"
_IN_FLIGHT = 64
_CHUNK = 4096
"""Files that are Python objects at a time; columns take a tenth of their memory."""


class ReadSource(NamedTuple):
    """PCollections of (range, packed Block of image rows with objects), and of Traits as tuples; several of Facts."""

    rows: PCollection
    traits: PCollection
    facts: tuple[PCollection, ...]


@dataclass(eq=False, repr=False)
class ReadAnnotated(beam.PTransform):
    """Convert a Pipeline to the ReadSource of the label files of a data set.

    Args:
        division: None if the source has the split of each image.
    """

    rules: AnnotatedRules
    division: Division | AsSingleton | None

    def expand(self, p):
        rules, source = self.rules, self.rules.source
        listed = (
            p
            | "Folders" >> beam.Create(source.folders)
            | "CutNames" >> beam.FlatMap(_parts)
            | "SpreadParts" >> beam.Reshuffle()
            | "ListFolder"
            >> beam.FlatMap(_list, rules).with_output_types(Keyed).with_outputs(_LABELS, _ROWS, main="images")
        )
        labels = listed[_LABELS]
        threads = _IN_FLIGHT if any(is_remote(folder.path) for folder in source.folders) else 1
        if source.label_name:
            lists = p | "Lists" >> beam.Create(source.lists)
            of_lists = lists | "ReadList" >> beam.FlatMap(_read_list, rules).with_output_types(Keyed)
            rows = (of_lists, listed[_ROWS]) | "Rows" >> beam.Flatten()
            sides = (listed.images, labels, rows) | "ImagesAndLabels" >> beam.CoGroupByKey()
            read = sides | "ReadLabels" >> beam.ParDo(ReadBeside(rules, threads), self.division).with_output_types(
                Keyed
            ).with_outputs(FACTS, TRAITS, NOTICES, BARE, ALONE, main="rows")
            found, traits, notices, facts = read.rows, read[TRAITS], read[NOTICES], [read[FACTS]]
            if source.stated_label:
                parse = beam.ParDo(ReadStated(rules, threads)).with_output_types(Keyed)
                more = (
                    (read[BARE], read[ALONE])
                    | "ImagesAndStated" >> beam.CoGroupByKey()
                    | "ReadStated" >> parse.with_outputs(TRAITS, NOTICES, main="rows")
                )
                found = (found, more.rows) | "AllRows" >> beam.Flatten()
                traits = (traits, more[TRAITS]) | "AllTraits" >> beam.Flatten()
                notices = (notices, more[NOTICES]) | "AllNotices" >> beam.Flatten()
        else:
            parse = beam.ParDo(ReadNaming(rules, threads)).with_output_types(Keyed)
            read = (
                labels
                | "SpreadLabels" >> beam.Reshuffle()
                | "ReadLabels" >> parse.with_outputs(FACTS, TRAITS, NOTICES, main="rows")
            )
            has_images = any(folder.has_images for folder in source.folders)
            sides = (read.rows, listed.images) if has_images else (read.rows,)
            matched = sides | "MatchRows" >> MatchRows(rules.match, self.division, rules.seed, BITS)
            found, traits, notices, facts = matched.rows, read[TRAITS], read[NOTICES], [read[FACTS], matched[FACTS]]
        said = notices | "GroupNotices" >> beam.GroupByKey() | "Say" >> beam.Map(_said, rules.splits[0])
        return ReadSource(found, traits | "Distinct" >> beam.Distinct(), (*facts, said))


def _parts(folder: SourceFolder) -> Iterator[tuple[SourceFolder, tuple[str, str]]]:
    for part in storage_for(folder.path).parts(folder.path):
        yield folder, (part.start, part.end)


def _list(listed: tuple[SourceFolder, tuple[str, str]], rules: AnnotatedRules) -> Iterator[Any]:
    folder, bounds = SourceFolder(*listed[0]), listed[1]
    source = rules.source
    split = rules.index_of(folder.split) if folder.split and folder.has_images else -1
    files = list_outside(folder.path, NameRange(*bounds), rules.output, None)
    chunks = (_columns(chunk, folder, rules) for chunk in batched(files, _CHUNK))
    for several in batched(chunks, FILES_AT_ONCE // _CHUNK):
        images, buckets, labels = (list(parts) for parts in zip(*several, strict=True))
        block, of_block = join_blocks(images), np.concatenate(buckets)
        if not source.label_name:
            yield from pack_parts(block, of_block)
            yield from (TaggedOutput(_LABELS, run) for run in _runs([*chain.from_iterable(map(label_files, labels))]))
            continue
        yield from pack_parts(block.replace(split=np.full(len(block), split, np.int64)), of_block, is_zipped=True)
        if source.lists and folder.split and len(block):
            rows = Block(file_name=block.file_name, split=np.full(len(block), split, np.int64))
            yield from (TaggedOutput(_ROWS, keyed) for keyed in pack_parts(rows, of_block, is_zipped=True))
        block = join_blocks(labels)
        keyed_labels = pack_parts(block, buckets_of(block.file_name.texts()), is_zipped=True)
        yield from (TaggedOutput(_LABELS, keyed) for keyed in keyed_labels)


def _columns(
    files: Sequence[tuple[str, ImageRef]], folder: SourceFolder, rules: AnnotatedRules
) -> tuple[Block, np.ndarray, Block]:
    """Return the images of a folder, their buckets, and its label files."""
    source, named = rules.source, [(folder.prefix + name, file) for name, file in files]
    images = [(name, file) for name, file in named if folder.has_images and is_image_name(name)]
    names = [source.label_name(name) if source.label_name else name for name, _ in images]
    buckets = name_buckets(names, rules.match, 1 << BITS)
    labels = file_block((name, file) for name, file in named if source.is_label(name))
    return file_block(images), buckets, labels.replace(class_name=ragged_texts([folder.split] * len(labels)))


def _runs(labels: list[LabelFile]) -> Iterator[list[LabelFile]]:
    """Yield runs of small label files; large ones stay alone."""
    small = [label for label in labels if label[2] <= SMALL_BYTES]
    yield from batched(small, AT_ONCE)
    yield from ([label] for label in labels if label[2] > SMALL_BYTES)


def _read_list(list_: SplitList, rules: AnnotatedRules) -> Iterator[Keyed]:
    path, split = list_
    with storage_for(path).open(path) as file:
        lines = (line.decode("utf-8-sig", "replace").strip() for line in file)
        names = rules.source.parse_list(path, (line for line in lines if line))
        for batch in batched(map(name_key, names), FILES_AT_ONCE):
            rows = Block(file_name=ragged_texts(batch), split=np.full(len(batch), rules.index_of(split), np.int64))
            labels = list(map(rules.source.label_name, batch)) if rules.source.label_name else batch
            yield from pack_parts(rows, buckets_of(labels), is_zipped=True)


def _said(group: tuple[str, Iterable[Names]], split: str) -> Facts:
    text, found = group[0], add_names(map(Names._make, group[1]))
    shown = ", ".join(map(repr, found.first)) + " …" * (found.number > len(found.first))
    return Facts(warnings={(split, text.format(number=f"{found.number:,}", names=shown))})
