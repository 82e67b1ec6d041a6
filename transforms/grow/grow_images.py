"""Compare the images of a job with those of the data set that it adds to, and leave those to write.

Images meet by split and name in buckets, so that no worker has all images of the data set. Those that it has are
encoded as they would be written, and compared by digests of their records."""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from itertools import islice
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.block import Block, are_among
from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.image_records import ShardImages, split_images
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.rejects import MOST_LISTED, Metric, Reason, Rejected
from recordmill.schemas.shards import ShardNames
from recordmill.transforms.blocks.cut_range import BlockKey
from recordmill.transforms.blocks.image_tasks import labels_of
from recordmill.transforms.blocks.pack_block import pack_block, unpack_block
from recordmill.transforms.blocks.run_step import run_step
from recordmill.transforms.dataset.collect_facts import WithFacts
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.encoders.record_maker import RecordContext
from recordmill.transforms.grow.compare_rows import (
    COMPARED_ROW,
    IMAGE_SUM,
    OUTCOME_ROW,
    Outcome,
    compare_images,
    compared_rows,
    cut_to_buckets,
    digest_names,
    known_images,
    sum_rows,
)
from recordmill.transforms.insight.list_problems import copy_order
from recordmill.transforms.join.drop_images import reject_images
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.processes import ShardDoFn
from recordmill.transforms.shape.tile_images import TileJob, list_places
from recordmill.transforms.shards.encode_images import EncodeImages
from recordmill.transforms.shards.image_records import ImageRecords, read_images, whole_names
from recordmill.transforms.storage.resolve import join_path

_LINES = 32
"""Shards whose images are cut to buckets at the same time. A bucket would have one or two images of a small one."""
_MANY = 1 << 20
"""Number of Blocks, for processes that share them. It is unknown."""
_REFERENCE, _REJECTS, _CHANGES, _REPLACED, _STORED = "reference", "rejects", "changes", "replaced", "stored"
_COPIES_WARNING = (
    "--duplicates drop: new images with the bytes of an image of the data set are dropped, and rejects-SPLIT.jsonl "
    "names both. A conversion of all data may keep the new image instead"
)

Change = tuple[str, str]
"""Kind of a change, and file name of the image."""


class MadeRecords(NamedTuple):
    """Arguments that determine the records of an image.

    Attributes:
        splits: Splits of the job.
        maker: Maker of the records.
        tiles: Tiles of images; None for whole images.
    """

    splits: tuple[str, ...]
    maker: EncodeImages
    tiles: TileJob | None


class GrowJob(NamedTuple):
    """Arguments of a job that adds to a data set.

    Attributes:
        output: Folder of the data set.
        base: Manifest of the data set.
        splits: Splits of the job.
        sync: True to write images again that differ.
        drops_copies: True to reject new images whose stored bytes an image of the data set has.
        prefixes: Beginnings of the names of the images that DATA may have: its sets.
    """

    output: str
    base: Manifest
    splits: tuple[str, ...]
    sync: bool = False
    drops_copies: bool = False
    prefixes: tuple[str, ...] = ("",)

    @property
    def all_splits(self) -> tuple[str, ...]:
        """Splits of the job, and further ones of the data set."""
        return (*self.splits, *sorted(self.base.splits.keys() - set(self.splits)))

    @property
    def needs_names(self) -> bool:
        """True if the names of the data set's images are needed besides their digests."""
        return self.sync or self.drops_copies

    def shard_files(self, split: str) -> dict[int, str]:
        """Return the names of the shards of a split of the data set by their indices."""
        names = self.base.shard_names(split)
        return {names.key(shard.file, 0).index: shard.file for shard in self.base.splits[split].shards}


class Grown(NamedTuple):
    """Outputs of GrowImages.

    Attributes:
        blocks: (BlockKey, packed Block) of the images to write.
        changes: (split, contents of changes-SPLIT.jsonl) of splits that have changes to list.
        replaced: (split, shard, file name) of images that are written again: each shard with records of one.
    """

    blocks: PCollection
    changes: PCollection
    replaced: PCollection


class GrowImages(beam.PTransform):
    """Convert (BlockKey, packed Block) of whole images to Grown.

    Facts have the numbers of images that are present and changed, and the names of images with other bytes.

    Args:
        labels, table: PCollections of one LabelMap, and of the FeatureTable of the records.
    """

    def __init__(
        self, job: GrowJob, records: MadeRecords, labels: PCollection, table: PCollection, threads: int | None
    ):
        super().__init__()
        self._job, self._records, self._threads = job, records, threads
        self._sides = AsSingleton(labels), AsSingleton(table)

    def expand(self, blocks: PCollection[tuple[BlockKey, bytes]]):
        job, files = self._job, list_files(self._job)
        rows = (
            blocks.pipeline
            | "ImageFiles" >> beam.Create(files, reshuffle=len(files) > 1)
            | "ReadImages" >> beam.FlatMap(_read_images).with_output_types(tuple[int, tuple[bytes, bytes]])
        )
        names = blocks | "ListNames" >> beam.FlatMap(_list_names, job.splits).with_output_types(
            tuple[int, tuple[BlockKey, bytes]]
        )
        known = (
            (rows, names)
            | "ByName" >> beam.CoGroupByKey()
            | "FindKnown" >> beam.FlatMap(_find_known, job).with_outputs(_REFERENCE, _CHANGES, _STORED, main="known")
        )
        measured = (
            (blocks, known.known)
            | "KnownOfBlocks" >> beam.CoGroupByKey()
            | "TakeKnown" >> beam.FlatMap(_take_known, job).with_output_types(tuple[BlockKey, bytes])
            | "Measure" >> beam.ParDo(_MeasureImages(self._records, self._threads), *self._sides)
            | "CutToBuckets" >> beam.FlatMap(_cut_measured, job.splits).with_outputs(_REJECTS, main="made")
        )
        compared = (
            (known[_REFERENCE], measured.made)
            | "ByNameAgain" >> beam.CoGroupByKey()
            | "Compare" >> beam.FlatMap(_compare).with_outputs(_STORED, main="outcomes")
        )
        inputs: tuple[PCollection, ...] = (blocks, compared.outcomes, measured[_REJECTS])
        if job.drops_copies:
            stored = known[_STORED], compared[_STORED]
            inputs += (stored | "ByImage" >> beam.CoGroupByKey() | "FindCopies" >> beam.FlatMap(_find_copies),)
        grow = WithFacts(_grow_block, job, types=tuple[BlockKey, bytes], tags=(_CHANGES, _REPLACED))
        grown, changes, replaced = inputs | "OutcomesOfBlocks" >> beam.CoGroupByKey() | "Grow" >> grow
        listed = (
            (changes, known[_CHANGES])
            | "AllChanges" >> beam.Flatten()
            | "BySplit" >> beam.GroupByKey()
            | "ListChanges" >> WithFacts(list_changes)
        )
        return Grown(grown, listed, replaced)


class ImagesFile(NamedTuple):
    """File of the images of a split of the data set.

    Attributes:
        shard_names: Names of the split's shards.
        split: Index of the split in GrowJob.all_splits.
        has_names: See GrowJob.needs_names.
    """

    path: str
    shard_names: ShardNames
    split: int
    has_names: bool = False


def list_files(job: GrowJob) -> list[ImagesFile]:
    """Return the files of images that the images of a job are compared with."""
    return [
        ImagesFile(join_path(job.output, split_images(split)), job.base.shard_names(split), index, job.needs_names)
        for index, split in enumerate(job.all_splits if job.drops_copies else job.splits)
        if split in job.base.splits and job.base.splits[split].images_sha256 is not msgspec.UNSET
    ]


def _read_images(file: ImagesFile) -> Iterator[tuple[int, tuple[bytes, bytes]]]:
    progress.set_step("comparing images")
    shards = read_images(file.path)
    while run := list(islice(shards, _LINES)):
        yield from cut_shards(run, file)


def list_tile_places(file: ImagesFile) -> Iterator[tuple[int, tuple]]:
    """Yield the names of images of the data set that look like tiles' names, see `list_places`."""
    for images in read_images(file.path):
        wholes, records = images.image_names()[1], images.array["records"].tolist()
        yield from list_places(file.split, {name for name, number in zip(wholes, records, strict=True) if number})


def cut_shards(shards: Iterable[ShardImages], file: ImagesFile) -> Iterator[tuple[int, tuple[bytes, bytes]]]:
    """Yield the COMPARED_ROWs of shards in each bucket, and the JSON list of the names of whole images, or nothing."""
    parts, texts, has_names = [], list[str](), file.has_names
    for images in shards:
        names, wholes = images.image_names()
        shard = file.shard_names.key(images.shard, 0).index
        parts.append(compared_rows(file.shard_names.split, file.split, names, wholes, images.array, shard))
        texts += wholes if has_names else ()
    rows = np.concatenate(parts)
    for bucket, places in cut_to_buckets(rows["whole"]):
        packed = msgspec.json.encode([texts[place] for place in places.tolist()]) if has_names else b""
        yield bucket, (rows[places].tobytes(), packed)


def _digest_block(block: Block, splits: Sequence[str]) -> np.ndarray:
    """Return the digests of the names of a Block's images: S16 [N]."""
    wholes, names = np.zeros(len(block), "S16"), block.file_name.texts()
    for split in np.unique(block.split).tolist():
        images = np.flatnonzero(block.split == split)
        wholes[images] = digest_names(splits[split], [names[image] for image in images.tolist()])
    return wholes


def _list_names(keyed: tuple[BlockKey, bytes], splits: Sequence[str]) -> Iterator[tuple[int, tuple[BlockKey, bytes]]]:
    wholes = _digest_block(unpack_block(keyed[1]), splits)
    for bucket, images in cut_to_buckets(wholes):
        yield bucket, (keyed[0], wholes[images].tobytes())


def _join_rows(packed: Iterable[bytes], dtype: Any) -> np.ndarray:
    return np.frombuffer(b"".join(packed), dtype)


def _find_known(group: tuple[int, tuple[Iterable, Iterable]], job: GrowJob) -> Iterator[Any]:
    """Yield the images of each Block that the data set has; with tags their rows, and images that are gone."""
    bucket, (pieces, images) = group
    pieces = list(pieces)
    rows = _join_rows((packed for packed, _ in pieces), COMPARED_ROW)
    listed, wanted = np.unique(rows["whole"]), [np.zeros(0, "S16")]
    for key, packed in images:
        wholes = np.frombuffer(packed, "S16")
        wanted.append(wholes[are_among(wholes, listed)])
        if len(wanted[-1]):
            yield key, wanted[-1].tobytes()
    job_wholes = np.unique(np.concatenate(wanted))
    is_wanted = are_among(rows["whole"], job_wholes)
    if is_wanted.any():
        yield TaggedOutput(_REFERENCE, (bucket, rows[is_wanted].tobytes()))
    if not job.needs_names:
        return
    texts = [name for _, packed in pieces for name in msgspec.json.decode(packed)]
    splits = [job.all_splits[split] for split in rows["split"].tolist()]
    names = dict(zip(rows["whole"].tolist(), zip(splits, texts, strict=True), strict=True))
    if job.sync:
        known = known_images(rows)
        for whole in known[~are_among(known, job_wholes)].tolist():
            split, name = names[whole]
            if split in job.splits and name.startswith(job.prefixes):
                yield TaggedOutput(_CHANGES, (split, ("gone", name)))
    if job.drops_copies:
        sums = sum_rows(rows)
        for bucket, images in cut_stored(sums):
            own = [names[whole] for whole in sums["whole"][images].tolist()]
            yield TaggedOutput(_STORED, (bucket, (sums["image"][images].tobytes(), own)))


def cut_stored(sums: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each bucket of stored bytes with the indices of its images: int64. Images without a record are in none.

    Args:
        sums: IMAGE_SUM.
    """
    has_image = np.flatnonzero(sums["image"].any(axis=1))
    for bucket, images in cut_to_buckets(np.ascontiguousarray(sums["image"][has_image]).view("S16")[:, 0]):
        yield bucket, has_image[images]


def _take_known(
    keyed: tuple[BlockKey, tuple[Iterable[bytes], Iterable[bytes]]], job: GrowJob
) -> Iterator[tuple[BlockKey, bytes]]:
    """Yield the images of a Block that the data set has, or all images, if copies are dropped."""
    key, (blocks, known) = keyed
    if job.drops_copies:
        yield from ((key, packed) for packed in blocks)
        return
    wholes = np.unique(_join_rows(known, "S16"))
    for block in map(unpack_block, blocks if len(wholes) else ()):
        yield key, pack_block(block.take(are_among(_digest_block(block, job.splits), wholes)))


class Measured(NamedTuple):
    """Images of a Block as they would be written.

    Attributes:
        rows: COMPARED_ROWs.
        rejects: Index of the split, and reject, of images that cannot be written.
    """

    key: BlockKey
    rows: bytes
    rejects: tuple[tuple[int, Rejected], ...]


class _MeasureImages(ShardDoFn):
    def __init__(self, made: MadeRecords, threads: int | None):
        super().__init__(threads)
        self._made = made

    def process(self, keyed: tuple[BlockKey, bytes], labels: LabelMap, table: FeatureTable) -> Iterator[Measured]:
        progress.set_step("comparing images")
        yield from self.do(measure_images, self._made, labels, table, *keyed, shards=_MANY)


# Long list of arguments: the last two are those of every function of a shard.
def measure_images(
    made: MadeRecords, labels: LabelMap, table: FeatureTable, key: BlockKey, packed: bytes, pool: Executor, threads: int
) -> Measured:
    """Encode the images of a Block, and return digests of their records.

    Args:
        pool: Threads that fetch and check images; there are `threads` of them.

    Raises:
        OSError: Images cannot be read, for a reason other than missing files.
    """
    encode = made.maker.start(RecordContext(labels, table, pool, threads))
    estimate, rows, rejects = made.maker.estimate(table), [np.zeros(0, COMPARED_ROW)], list[tuple[int, Rejected]]()
    block = unpack_block(packed)
    parts: Iterable[Block] = [block]
    if made.tiles:
        names = block.file_name.texts()
        for split in np.unique(block.split).tolist():  # an image may have no tile
            own = [name for name, number in zip(names, block.split.tolist(), strict=True) if number == split]
            rows.append(compared_rows(made.splits[split], split, own, own, np.zeros(len(own), COMPARED_ROW)))
        parts = made.tiles.divide(made.tiles.measure(block, labels, table, pool.map), labels, table, FactsBuilder())
    for part in parts:
        for split in np.unique(part.split).tolist():
            images = part.take(part.split == split)
            records = ImageRecords(table)
            for run in encode(images.replace(split=np.zeros(len(images), np.int64)), made.splits[split]):
                for record in run.records:
                    records.add_record(*record)
                if run.facts:
                    records.add_images(run.facts, run.records_per_image)
                rejects += [(split, reject) for reject in run.rejected if reject.what == "image"]
            names, wholes = images.file_name.texts(), whole_names(images)
            numbers, _ = records.rows(images, estimate)
            rows.append(compared_rows(made.splits[split], split, names, wholes, numbers))
    return Measured(key, np.concatenate(rows).tobytes(), tuple(rejects))


def _cut_measured(measured: Measured, splits: Sequence[str]) -> Iterator[Any]:
    """Yield the rows of images that can be written, in each bucket; with a tag the rejects of the others."""
    key, packed, rejects = measured
    if rejects:
        yield TaggedOutput(_REJECTS, (key, rejects))
    rows = np.frombuffer(packed, COMPARED_ROW)
    rejected = [digest_names(splits[split], [reject.file_name]) for split, reject in rejects]
    rows = rows[~are_among(rows["whole"], np.unique(np.concatenate([*rejected, np.zeros(0, "S16")])))]
    for bucket, images in cut_to_buckets(rows["whole"]):
        yield bucket, (key, rows[images].tobytes())


def _compare(group: tuple[int, tuple[Iterable[bytes], Iterable]]) -> Iterator[Any]:
    """Yield the OUTCOME_ROWs of each Block in a bucket; with a tag the stored bytes of new images."""
    reference, made = group[1]
    pieces = [(key, np.frombuffer(packed, COMPARED_ROW)) for key, packed in made]
    if not pieces:
        return
    rows = np.concatenate([rows for _, rows in pieces])
    outcomes = compare_images(_join_rows(reference, COMPARED_ROW), rows)
    sums = sum_rows(rows)
    new = sums[~are_among(sums["whole"], outcomes["whole"])]
    for key, own in pieces:
        wholes = np.unique(own["whole"])
        yield key, outcomes[are_among(outcomes["whole"], wholes)].tobytes()
        images = new[are_among(new["whole"], wholes)]
        for bucket, places in cut_stored(images):
            yield TaggedOutput(_STORED, (bucket, (key, images[places].tobytes())))


def _find_copies(group: tuple[int, tuple[Iterable, Iterable]]) -> Iterator[tuple[BlockKey, dict[bytes, str]]]:
    """Yield the new images of each Block whose stored bytes an image of the data set has, by the digest of the name,
    with the detail of their rejects."""
    stored, new = group[1]
    first: dict[bytes, tuple[str, str]] = {}
    for packed, names in stored:
        for image, name in zip(np.frombuffer(packed, "S16").tolist(), names, strict=True):
            first[image] = min(first.get(image, name), name, key=lambda pair: copy_order(*pair))
    for key, packed in new:
        sums = np.frombuffer(packed, IMAGE_SUM)
        images = np.ascontiguousarray(sums["image"]).view("S16")[:, 0].tolist()
        pairs = zip(sums["whole"].tolist(), images, strict=True)
        copies = {whole: first[image] for whole, image in pairs if image in first}
        if copies:
            details = {
                whole: f"the same bytes as {name!r} of {split}, which the data set has"
                for whole, (split, name) in copies.items()
            }
            yield key, details


def _grow_block(keyed: tuple[BlockKey, tuple], facts: FactsBuilder, job: GrowJob) -> Iterator[Any]:
    """Yield the images of a Block to write; with tags changes and replaced images."""
    key, (blocks, outcomes, rejects, *copies) = keyed
    (packed,) = blocks
    rows = np.unique(_join_rows(outcomes, OUTCOME_ROW))
    rejected = {(split, reject.file_name): reject for part in rejects for split, reject in part}

    def grow(parts: list[Block]) -> tuple[Block, list[TaggedOutput]]:
        return grow_block(parts[0], rows, rejected, job, facts)

    block, outputs = run_step("compare images with the data set", grow, [unpack_block(packed)])
    yield from outputs
    details = {whole: text for parts in copies for part in parts for whole, text in part.items()}
    if details:
        wholes = _digest_block(block, job.splits).tolist()
        texts = {row: details[whole] for row, whole in enumerate(wholes) if whole in details}
        block = reject_images(block, job.splits, Reason.DUPLICATE, texts, facts)
        facts.warn_all(job.splits[:1], [_COPIES_WARNING])
    if len(block):
        yield key, pack_block(block)


def grow_block(
    block: Block, outcomes: np.ndarray, rejected: Mapping[tuple[int, str], Rejected], job: GrowJob, facts: FactsBuilder
) -> tuple[Block, list[TaggedOutput]]:
    """Return a Block of the images to write, and the changes and replaced images, tagged. Facts count the others.

    Args:
        outcomes: OUTCOME_ROW, ascending.
        rejected: Rejects of images that the data set has, by split and name.
    """
    wholes, names, splits = _digest_block(block, job.splits), block.file_name.texts(), block.split.tolist()
    annotations = (block.objects_per_image + np.array([labels.rows for labels in labels_of(block)], np.int64)).tolist()
    joined = block.list_rows("joined_rows")
    firsts = np.searchsorted(outcomes["whole"], wholes)
    ends = np.searchsorted(outcomes["whole"], wholes, "right").tolist()
    is_written, outputs = np.ones(len(block), bool), list[TaggedOutput]()
    shard_files: dict[str, dict[int, str]] = {}
    for row, (first, end) in enumerate(zip(firsts.tolist(), ends, strict=True)):
        index, name = splits[row], names[row]
        split = job.splits[index]
        if reject := rejected.get((index, name)):
            facts.reject(split, msgspec.structs.replace(reject, annotations=annotations[row]))
            is_written[row] = False
            continue
        if first == end:
            continue
        outcome = Outcome(outcomes["outcome"][first])
        if outcome is not Outcome.PRESENT and (job.sync or outcome is Outcome.LABELS):
            outputs.append(TaggedOutput(_CHANGES, (split, (outcome.name.lower(), name))))
        if outcome is not Outcome.PRESENT and job.sync:
            shard_files[split] = shard_files.get(split) or job.shard_files(split)
            files = [shard_files[split][shard] for shard in outcomes["shard"][first:end].tolist()]
            outputs += [TaggedOutput(_REPLACED, (split, file, name)) for file in files]
            continue
        is_written[row] = False
        if outcome is Outcome.IMAGE:
            facts.add_other_images(name)
        facts.count(split, Metric.PRESENT)
        facts.count(split, Metric.CHANGED, int(outcome is Outcome.LABELS))
        facts.count(split, Metric.OF_PRESENT_IMAGES, annotations[row] + joined[row])
        facts.count(split, Metric.ANNOTATIONS_MERGED, -joined[row])  # which the join has counted
    return block.take(is_written), outputs


def list_changes(group: tuple[str, Iterable[Change]], facts: FactsBuilder) -> Iterator[tuple[str, bytes]]:
    """Yield the split and the contents of its file of changes."""
    split, changes = group
    numbers = Counter(change for change, _ in changes)
    lines = []
    for kind in sorted(numbers):
        names = heapq.nsmallest(MOST_LISTED, (name for change, name in changes if change == kind))
        lines += [{"split": split, "file_name": name, "change": kind} for name in names]
    yield split, msgspec.json.Encoder().encode_lines(lines)
    facts.count(split, Metric.GONE, numbers["gone"])
