"""Copy the shards of a data set without the images that a run writes again."""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from hashlib import sha256
from itertools import chain, islice
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import AsList, AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.dataset.checks import Fault
from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.errors import FaultyDatasetError
from recordmill.schemas.features import Part
from recordmill.schemas.image_records import ShardImages, split_images
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.problems import ANNOTATION_FINDINGS, Fingerprints, split_fingerprints
from recordmill.schemas.rejects import Metric
from recordmill.schemas.shards import ShardInfo, ShardKey, ShardResult
from recordmill.schemas.statistics import Example, Finding, Statistics
from recordmill.transforms.blocks.image_facts import NO_OFFSET, FieldItems, RecordPlaces, join_facts, sort_objects
from recordmill.transforms.containers.container import Contents, container_of
from recordmill.transforms.containers.read_shards import ManifestShard, readable_records
from recordmill.transforms.dataset.dataset_folder import read_statistics
from recordmill.transforms.dataset.facts import Facts, add_facts
from recordmill.transforms.dataset.rejects import strip_key
from recordmill.transforms.grow.record_facts import ImageFacts, RecordFacts
from recordmill.transforms.insight.across_splits import FingerprintFile
from recordmill.transforms.insight.count_images import ImageCounter
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.beam_steps import pack, repacked_versions
from recordmill.transforms.runtime.processes import ShardDoFn
from recordmill.transforms.shards.image_records import read_images
from recordmill.transforms.shards.moved_shard import MovedShard, record_starts
from recordmill.transforms.shards.shard_file import (
    FinishedShards,
    ShardFile,
    WrittenShard,
    shard_folders,
    written_shard,
)
from recordmill.transforms.shards.take_out import Removed, add_removed
from recordmill.transforms.storage.resolve import join_path

_COUNTED_IMAGES = 1000
"""Number of images that are counted together."""

ShardName = tuple[str, str]
"""Split and file name of a shard."""


class OldShard(msgspec.Struct, frozen=True):
    """A shard of the data set, with what its metadata say about its images.

    Attributes:
        source: The shard.
        made_by: Versions that made it, see SplitManifest.
        images: Its images.
        fingerprints: Their fingerprints; None without any.
        examples, findings: Examples in the shard, by a key of GALLERY and of FINDINGS.
    """

    source: ManifestShard
    made_by: dict[str, str]
    images: ShardImages
    fingerprints: Fingerprints | None
    examples: dict[str, tuple[Example, ...]]
    findings: dict[str, tuple[Example, ...]]


class ShardToRewrite(msgspec.Struct, frozen=True):
    """A shard of the data set, and the file that it is copied to; a ShardTarget.

    Attributes:
        old: The shard.
        removed: Names of the images that are not copied, sorted.
        key: Key of the copy.
        labels: Classes of the data set with those that the run adds.
        output, name, layout, gzip, container: Of both files, see `recordmill.transforms.shards.shard_file`.
    """

    old: OldShard
    removed: tuple[str, ...]
    key: ShardKey
    labels: LabelMap
    output: str
    name: str
    layout: str
    gzip: bool
    container: str

    @property
    def plan(self) -> str:
        """Hex digest of what the bytes of the copy follow from, besides versions."""
        source = self.old.source
        return sha256(pack((self.key, source.info.sha256, self.removed, source.table, self.labels))).hexdigest()


class RewrittenShard(NamedTuple):
    """A shard that was copied.

    Attributes:
        file: The old shard.
        key: Key of the copy.
        note: See WrittenShard; empty if no record is left, so that there is no copy.
        facts: What the removed images contributed; its examples are those of the copy.
    """

    file: str
    key: ShardKey
    note: str
    facts: Facts


def rewrite_shard(shard: ShardToRewrite, pool: Executor, threads: int) -> RewrittenShard:
    """Copy a shard without some images, unless an earlier run has done so. The note of the copy has the numbers of the
    removed images in place of those of its records.

    Raises:
        FaultyDatasetError: The shard is damaged, or is not that of the metadata.
        OSError: A file cannot be read or written.
    """
    source = shard.old.source
    notes = FinishedShards(shard.output, shard.name, shard.layout, shard.container)
    made_by = repacked_versions(shard.old.made_by, shard.container, shard.container, shard.layout, shard.gzip)
    if earlier := notes.find(shard.key, shard.plan, made_by):
        progress.count_skipped_images(source.info.examples)
        progress.count_finished_shard()
        written = earlier[0]
    else:
        result = msgspec.structs.replace(_copy_records(shard), made_by=made_by)
        written = notes.note(result) if result.info.examples else written_shard("", result)
    return RewrittenShard(source.info.file, shard.key, written.note, written.facts)


def _copy_records(shard: ShardToRewrite) -> ShardResult:
    old, removed = shard.old, frozenset(shard.removed)
    source, rows = old.source, old.images.array
    is_removed = np.array([name in removed for name in old.images.image_names()[1]], bool)
    is_copied = np.repeat(~is_removed, rows["records"])
    if len(is_copied) != source.info.examples:
        raise _damaged(shard, f": {split_images(source.split)} lists {len(is_copied):,} records")
    counter, contents = _RemovedImages(source), Contents(source.table, shard.labels)
    with ShardFile(shard, shard.key, contents) if is_copied.any() else nullcontext() as copy:
        sizes = _divide_records(shard, is_removed, counter, copy)
    info = copy.info if copy else ShardInfo("", 0, 0, "", "")
    container = container_of(shard.container)
    starts = record_starts(sizes, container), record_starts(sizes[is_copied], container)
    moved = MovedShard(source.info.file, info.file, *starts, is_copied, removed)
    return ShardResult(
        shard.key,
        shard.plan,
        {},
        info,
        dict(+counter.counted),
        (),
        _with_examples(counter.statistics(), old, moved),
        counter.class_counts(),
        moved.fingerprints(old.fingerprints) if old.fingerprints else None,
        images=moved.images(old.images),
    )


def _divide_records(
    shard: ShardToRewrite, is_removed: np.ndarray, counter: "_RemovedImages", copy: ShardFile | None
) -> np.ndarray:
    """Copy the records of a shard, or count them if their image is removed; return their sizes in bytes: int64."""
    source, rows, sizes, damage = shard.old.source, shard.old.images.array, list[int](), list[Fault]()
    records = readable_records(source, source.reader(), damage)
    for image, number in enumerate(rows["records"].tolist()):
        image_records = list(islice(records, number))
        sizes += map(len, image_records)
        if is_removed[image] and len(image_records) == number > 0:
            try:
                counter.add(image_records, bool(rows["continues"][image]))
            except ValueError as fault:
                raise _damaged(shard, f" record {len(sizes) - number}: {fault}") from fault
        elif copy:
            for record in image_records:
                copy.append(record)
    deque(records, maxlen=0)  # compares the file with the manifest
    if damage:
        raise _damaged(shard, str(damage[0]).removeprefix(source.info.file))
    return np.array(sizes, np.int64)


def _damaged(shard: ShardToRewrite, what: str) -> FaultyDatasetError:
    source = shard.old.source
    return FaultyDatasetError(
        f"{source.path}{what}. Nothing was committed. recordmill verify lists all damage, and a conversion of all data "
        "with --overwrite writes the data set again"
    )


class _RemovedImages:
    """Counter of the images that a shard loses.

    Attributes:
        counted: Counts of their records' contents.
    """

    def __init__(self, source: ManifestShard):
        self._read = RecordFacts(source.table, source.labels)
        self._has_image_class = "image.class_index" in source.table.sources
        self._counter = ImageCounter()
        self._images: list[ImageFacts] = []
        self._classes: Counter[int] = Counter()
        self.counted: Counter[Metric] = Counter()

    def add(self, records: Sequence[bytes], is_continuation: bool) -> None:
        facts = self._read(records, is_continuation)
        self.counted += facts.counted
        columns = facts.columns
        classes = columns.image_class if self._has_image_class else columns.class_index
        self._classes.update(classes.tolist())
        self._images.append(facts)
        if len(self._images) == _COUNTED_IMAGES:
            self._count()

    def _count(self) -> None:
        if not self._images:
            return
        columns = join_facts([image.columns for image in self._images])
        fields: dict[str, list[FieldItems]] = {}
        for image in self._images:
            for source, items in image.fields.items():
                fields.setdefault(source, []).extend(items)
        zeros = np.zeros(len(columns), np.int64)
        places = RecordPlaces(zeros, zeros, np.full_like(zeros, NO_OFFSET), zeros)
        self._counter.add(
            columns, places, None if columns.first_object_of_image is None else sort_objects(columns), fields
        )
        self._images = []

    def statistics(self) -> Statistics:
        self._count()
        return self._counter.statistics("")

    def class_counts(self) -> dict[int, int]:
        return dict(sorted(self._classes.items()))


def _with_examples(removed: Statistics, old: OldShard, moved: MovedShard) -> Statistics:
    """Return the statistics of removed images with the examples that the copy has. Problems of images follow from
    pixels, which are not measured again: fingerprints list them."""
    listed = old.fingerprints.problems if old.fingerprints else ()
    numbers = Counter(row.kind for row in listed if row.file_name in moved.removed)
    numbers = Counter({kind: number for kind, number in numbers.items() if kind not in ANNOTATION_FINDINGS})
    numbers.update({kind: removed.findings[kind].number for kind in ANNOTATION_FINDINGS if kind in removed.findings})

    def left(examples: Iterable[Example]) -> tuple[Example, ...]:
        return tuple(copied for example in examples if (copied := moved.example(example)))

    kinds = sorted(numbers.keys() | old.findings.keys())
    return msgspec.structs.replace(
        removed,
        examples={why: left(examples) for why, examples in old.examples.items()},
        findings={kind: Finding(numbers[kind], left(old.findings.get(kind, ()))) for kind in kinds},
    )


class RewrittenShards(NamedTuple):
    """Outputs of RewriteShards.

    Attributes:
        notes: A PCollection of (ShardKey, note) of the copies, see WrittenShard.
        removed: A PCollection of Removed, at most one.
    """

    notes: PCollection
    removed: PCollection


class RewriteShards(beam.PTransform):
    """Copy each shard of the data set that has an image which the run has written again. Convert (split, shard, name of
    the whole image), and the WrittenShards of the run, to RewrittenShards. An image that the run rejected stays.

    Args:
        output: Folder of the data set.
        base: Its manifest.
        splits: Splits of the job.
        planned: A PCollection of Facts with the plan of the new shards, at most one.
        labels: A PCollection of one LabelMap, with the classes of the run.
        threads: Number of threads; 1 for no processes.
    """

    # Long list of arguments: the data set, and what the run adds to it.
    def __init__(
        self,
        output: str,
        base: Manifest,
        splits: Sequence[str],
        planned: PCollection,
        labels: PCollection,
        threads: int | None,
    ):
        super().__init__()
        self._output, self._base, self._splits = output, base, [split for split in splits if split in base.splits]
        self._sides, self._threads = (AsList(planned), AsSingleton(labels)), threads

    def expand(self, inputs):
        replaced, written = inputs
        files = replaced | "FileOfName" >> beam.Map(lambda row: ((row[0], row[2]), row[1]))
        rejected = written | "RejectedNames" >> beam.FlatMap(_rejected_names)
        choose = beam.FlatMap(_names_to_remove).with_outputs(_IMAGES, main="names")
        chosen = {"files": files, "rejected": rejected} | "JoinRejects" >> beam.CoGroupByKey() | "Choose" >> choose
        by_shard = chosen.names | "GroupByShard" >> beam.GroupByKey()
        shards = AsList(by_shard | "Shards" >> beam.Keys())
        read = beam.FlatMap(_read_old_shards, self._output, self._base, shards)
        old = written.pipeline | "Splits" >> beam.Create(self._splits) | "ReadOldShards" >> read
        rewrite = beam.ParDo(_RewriteShard(self._output, self._base, self._threads), shards, *self._sides)
        joined = {"names": by_shard, "old": old} | "JoinShards" >> beam.CoGroupByKey()
        copies = joined | "RewriteShards" >> rewrite
        removed = [
            copies | "RemovedFacts" >> beam.Map(lambda copy: Removed(copy.facts, {copy.key.split: (copy.file,)}))
        ]
        if Part.TILES in self._base.parts:  # tiles of an image may be in several shards
            counts = chosen[_IMAGES] | "CountImages" >> beam.combiners.Count.PerElement()
            removed.append(counts | "RemovedImages" >> beam.MapTuple(_removed_images))
        notes = copies | "NotesOfCopies" >> beam.FlatMap(lambda copy: [(copy.key, copy.note)] if copy.note else [])
        add = beam.CombineGlobally(add_removed).without_defaults()
        return RewrittenShards(notes, removed | "FlattenRemoved" >> beam.Flatten() | "AddRemoved" >> add)


_IMAGES = "images"


class _RejectedName(msgspec.Struct, frozen=True):
    """Name of the image of a reject."""

    file_name: str = ""


def _rejected_names(written: WrittenShard) -> Iterator[tuple[tuple[str, str], bool]]:
    """Yield the split and name of each image that a shard rejects."""
    for (split, what, _), rejects in written.facts.rejects.items():
        if what == "image":
            for line in rejects.lines():
                yield (split, msgspec.json.decode(strip_key(line), type=_RejectedName).file_name), True


def _names_to_remove(joined: tuple[tuple[str, str], Mapping[str, Iterable[Any]]]) -> Iterator[Any]:
    """Yield the shards of an image that was written again, each with its name, and the split of the image."""
    (split, name), values = joined
    files = set(values["files"])
    if files and not any(values["rejected"]):
        yield TaggedOutput(_IMAGES, split)
        for file in files:
            yield (split, file), name


def _removed_images(split: str, number: int) -> Removed:
    return Removed(Facts(counts={(split, Metric.IMAGES.value): number}), {})


def _read_old_shards(
    split: str, output: str, base: Manifest, shards: Collection[ShardName]
) -> Iterator[tuple[ShardName, OldShard]]:
    """Yield what the metadata of a split say about some of its shards."""
    files, entry = {file for name, file in shards if name == split}, base.splits[split]
    if not files:
        return
    fingerprints: dict[str, Fingerprints] = {}
    if entry.fingerprints_sha256 is not msgspec.UNSET:
        lines = FingerprintFile(join_path(output, split_fingerprints(split)))
        fingerprints = {line.shard: line for line in lines if line.shard in files}
    statistics = read_statistics(output, [split]).get(split)
    examples = statistics.examples if statistics else {}
    findings = {kind: finding.examples for kind, finding in statistics.findings.items()} if statistics else {}
    infos = {shard.file: shard for shard in entry.shards}
    for images in read_images(join_path(output, split_images(split))):
        if images.shard not in files:
            continue
        file = images.shard
        path = join_path(output, file)
        source = ManifestShard(path, split, infos[file], base.table, base.labels, base.container)
        shown = (_examples_in(file, by_kind) for by_kind in (examples, findings))
        yield (split, file), OldShard(source, entry.made_by, images, fingerprints.get(file), *shown)


def _examples_in(file: str, examples: Mapping[str, Iterable[Example]]) -> dict[str, tuple[Example, ...]]:
    return {key: tuple(example for example in known if example.shard == file) for key, known in examples.items()}


class _RewriteShard(ShardDoFn):
    """Convert (ShardName, names and OldShard) to RewrittenShards."""

    def __init__(self, output: str, base: Manifest, threads: int | None):
        super().__init__(threads)
        self._output, self._base = output, base

    def process(
        self,
        joined: tuple[ShardName, Mapping[str, Iterable[Any]]],
        shards: list[ShardName],
        planned: list[Facts],
        labels: LabelMap,
    ) -> Iterator[RewrittenShard]:
        (split, file), values = joined
        (old,), base = values["old"], self._base
        plan = add_facts(planned).plans.get(split)
        entry, files = base.splits[split], sorted(other for name, other in shards if name == split)
        first = entry.next_shard + (plan.shards if plan else 0)
        key = ShardKey(split, first + files.index(file), first + len(files))
        names = tuple(sorted(chain.from_iterable(values["names"])))
        target = self._output, base.name, base.layout, bool(entry.compression), base.container
        shard = ShardToRewrite(old, names, key, labels, *target)
        progress.count_planned(old.source.info.examples, 1, progress.snapshot().unit)
        yield from self.do(rewrite_shard, shard, shards=len(shards), folders=shard_folders(shard, split))
