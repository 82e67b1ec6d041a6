"""Convert the folders and label files of a Source to Blocks of image rows with their objects."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsList, AsSingleton, TaggedOutput

from recordmill.schemas.block import Block, join_blocks, ragged_texts
from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.images import is_image_name
from recordmill.schemas.inputs.splits import Division
from recordmill.schemas.names import name_key
from recordmill.schemas.paths import is_remote
from recordmill.transforms.annotated.format_options import FormatOptions
from recordmill.transforms.annotated.read_labels import (
    ALONE,
    BARE,
    MAX_BATCH_IMAGES,
    NOTICES,
    SMALL_FILE_BYTES,
    TRAITS,
    Keyed,
    LabelFile,
    ReadBeside,
    ReadNaming,
    ReadStated,
    bucket_bits,
    unpack_label_files,
)
from recordmill.transforms.annotated.source import Source, SourceFolder, SplitList
from recordmill.transforms.blocks.pack_block import pack_block, pack_parts, unpack_block
from recordmill.transforms.dataset.collect_facts import WithFacts
from recordmill.transforms.dataset.compare_names import Names, add_names
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.join.drop_images import read_exclusions
from recordmill.transforms.join.list_images import FILES_AT_ONCE, file_block, list_outside, split_batches
from recordmill.transforms.join.match_blocks import MatchRows, assign_buckets
from recordmill.transforms.runtime.beam_steps import pack
from recordmill.transforms.storage.interface import NameRange
from recordmill.transforms.storage.resolve import storage_for

_LABELS, _ROWS, _SIZES = "labels", "rows", "sizes"
_IN_FLIGHT = 64
_CHUNK = 4096
"""Number of files that are Python objects at the same time. Columns take a tenth of the memory."""


class ReadAnnotated(beam.PTransform):
    """Read the label files of a data set. Apply to a pipeline.

    Args:
        splits: Splits of the job.
        division: Assignment of images to splits; used if the source does not have the split of each image.

    Returns:
        (range, packed Block of image rows with objects); ObservedLabels as tuples.
    """

    def __init__(
        self, options: FormatOptions, source: Source, splits: tuple[str, ...], division: Division | AsSingleton
    ):
        super().__init__()
        self._options, self._source, self._splits = options, source, splits
        self._division = None if splits == source.splits else division

    def expand(self, p):
        options, source = self._options, self._source
        job = options, source, self._splits
        listed = (
            p
            | "Folders" >> beam.Create(source.folders)
            | "CutNames" >> beam.FlatMap(_name_ranges)
            | "SpreadParts" >> beam.Reshuffle()
            | "ListFolder"
            >> beam.FlatMap(_list_part, *job)
            .with_output_types(bytes)
            .with_outputs(_LABELS, _ROWS, _SIZES, main="images")
        )
        once = p | "Once" >> beam.Impulse()
        bits = AsSingleton(once | "CountBits" >> beam.Map(_count_bits, AsList(listed[_SIZES])))
        key_images = beam.FlatMap(_key_by_name, bits, source.label_name, options.matching).with_output_types(Keyed)
        images, labels = listed.images | "KeyImages" >> key_images, listed[_LABELS]
        threads = _IN_FLIGHT if any(is_remote(folder.path) for folder in source.folders) else 1
        if source.label_name:
            lists = p | "Lists" >> beam.Create(source.lists)
            listed_rows = lists | "ReadList" >> beam.FlatMap(_read_list, source, self._splits).with_output_types(bytes)
            rows = (listed_rows, listed[_ROWS]) | "Rows" >> beam.Flatten() | "KeyRows" >> key_images
            labels |= "KeyLabels" >> beam.FlatMap(_key_by_name, bits).with_output_types(Keyed)
            sides = (images, labels, rows) | "ImagesAndLabels" >> beam.CoGroupByKey()
            read, excluded = ReadBeside(*job, threads), _excluded_labels(p, options, source)
            rows, traits, notices, bare, alone = sides | "ReadLabels" >> WithFacts(
                read, self._division, bits, excluded, types=Keyed, tags=(TRAITS, NOTICES, BARE, ALONE)
            )
            if source.stated_label:
                stated_rows, stated_traits, stated_notices = (
                    (bare, alone)
                    | "ImagesAndStated" >> beam.CoGroupByKey()
                    | "ReadStated"
                    >> WithFacts(ReadStated(*job, threads), bits, excluded, types=Keyed, tags=(TRAITS, NOTICES))
                )
                rows = (rows, stated_rows) | "AllRows" >> beam.Flatten()
                traits = (traits, stated_traits) | "AllTraits" >> beam.Flatten()
                notices = (notices, stated_notices) | "AllNotices" >> beam.Flatten()
        else:
            rows, traits, notices = (
                labels
                | "SpreadLabels" >> beam.Reshuffle()
                | "ReadLabels" >> WithFacts(ReadNaming(*job, threads), bits, types=Keyed, tags=(TRAITS, NOTICES))
            )
            # Rows are matched even without image files, so that rows of one image meet.
            has_sides = source.holds_images or any(folder.has_images for folder in source.folders)
            sides = (rows, images) if has_sides else (rows,)
            rows = sides | "MatchRows" >> MatchRows(options.matching, self._division, options.seed, bits)
        notices | "GroupNotices" >> beam.GroupByKey() | "Warn" >> WithFacts(_warn_notice, self._splits[0])
        return rows, traits | "Distinct" >> beam.Distinct()


def _excluded_labels(p: beam.Pipeline, options: FormatOptions, source: Source) -> frozenset[str] | AsSingleton:
    """Return the names of the label files of images that `--exclude` names."""
    if not options.exclude:
        return frozenset()
    paths = p | "ExcludedLabels" >> beam.Create([tuple(options.exclude)])
    return AsSingleton(paths | "ReadExcluded" >> beam.Map(_read_excluded, options.exclude_kinds, source.label_name))


def _read_excluded(paths: Sequence[str], kinds: Sequence[str], label_name: Callable[[str], str]) -> frozenset[str]:
    lines = read_exclusions(paths, kinds).lines
    return frozenset(label_name(name_key(line.file_name)) for line in lines if line.id is None)


def _name_ranges(folder: SourceFolder) -> Iterator[tuple[SourceFolder, tuple[str, str]]]:
    for part in storage_for(folder.path).parts(folder.path):
        yield folder, (part.start, part.end)


def _list_part(
    listed: tuple[SourceFolder, tuple[str, str]], options: FormatOptions, source: Source, splits: tuple[str, ...]
) -> Iterator[Any]:
    folder, bounds = SourceFolder(*listed[0]), listed[1]
    split = source.split_index(folder.split, splits) if folder.split and folder.has_images else -1
    files = list_outside(folder.path, NameRange(*bounds), options.output, None)
    chunks = (_sort_files(chunk, folder, source) for chunk in split_batches(files, _CHUNK))
    for chunk_files in split_batches(chunks, FILES_AT_ONCE // _CHUNK):
        images, labels = map(join_blocks, zip(*chunk_files, strict=True))
        yield TaggedOutput(_SIZES, (len(images), int(labels.file_bytes.sum())))
        if not source.label_name:
            runs = _label_file_runs(unpack_label_files(labels))
            yield from (TaggedOutput(_LABELS, pack(run)) for run in runs)  # Beam would pickle each file
        elif len(labels):
            yield TaggedOutput(_LABELS, pack_block(labels, is_zipped=True))
        if source.label_name:
            images = images.replace(split=np.full(len(images), split, np.int64))
        if source.lists and folder.split and len(images):
            rows = Block(file_name=images.file_name, split=images.split)
            yield TaggedOutput(_ROWS, pack_block(rows, is_zipped=True))
        if len(images):
            yield pack_block(images, is_zipped=True)


def _count_bits(_: bytes, sizes: list[tuple[int, int]]) -> int:
    return bucket_bits(sizes)


def _key_by_name(
    packed: bytes, bits: int, label_name: Callable[[str], str] | None = None, match: str = "path"
) -> Iterator[Keyed]:
    """Yield the bucket of names and the packed Block of files or image rows.

    Args:
        label_name: `Source.label_name` of images; None for buckets of the names themselves.
    """
    block = unpack_block(packed)
    names = block.file_name.texts()
    buckets = assign_buckets(list(map(label_name, names)) if label_name else names, match, 1 << bits)
    yield from pack_parts(block, buckets, is_zipped=True)


def _sort_files(files: Sequence[tuple[str, ImageFile]], folder: SourceFolder, source: Source) -> tuple[Block, Block]:
    """Return the images of a folder, and its label files."""
    named = [(folder.prefix + name, file) for name, file in files]
    images = file_block(
        (name, file) for name, file in named if folder.has_images and is_image_name(name) and not source.is_map(name)
    )
    labels = file_block((name, file) for name, file in named if folder.has_labels and source.is_label(name))
    return images, labels.replace(class_name=ragged_texts([folder.split] * len(labels)))


def _label_file_runs(labels: list[LabelFile]) -> Iterator[list[LabelFile]]:
    """Yield runs of small label files; large ones stay alone."""
    small = [label for label in labels if label.size_bytes <= SMALL_FILE_BYTES]
    yield from split_batches(small, MAX_BATCH_IMAGES)
    yield from ([label] for label in labels if label.size_bytes > SMALL_FILE_BYTES)


def _read_list(list_: SplitList, source: Source, splits: tuple[str, ...]) -> Iterator[bytes]:
    path, split = list_
    with storage_for(path).open(path) as file:
        lines = (line.decode("utf-8-sig", "replace").strip() for line in file)
        names = source.parse_list(path, (line for line in lines if line))
        for batch in split_batches(map(name_key, names), FILES_AT_ONCE):
            index = source.split_index(split, splits)
            rows = Block(file_name=ragged_texts(batch), split=np.full(len(batch), index, np.int64))
            yield pack_block(rows, is_zipped=True)


def _warn_notice(group: tuple[str, Iterable[Names]], facts: FactsBuilder, split: str) -> None:
    text, names = group[0], add_names(map(Names._make, group[1]))
    shown = ", ".join(map(repr, names.first)) + " …" * (names.number > len(names.first))
    facts.warn(split, text.format(number=f"{names.number:,}", names=shown))
