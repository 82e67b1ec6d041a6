"""What a finished split leaves beside its shards; last of all the manifest, whose presence says that the split is
complete."""

import json
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import apache_beam as beam
import msgspec
from apache_beam.pvalue import AsDict, AsList, AsSingleton, PCollection

from schemas.coco import AnnotationFile
from schemas.errors import CategoryError, EmptyDatasetError, LostImagesError, TooManyRejectsError
from schemas.features import FeatureTable, RecordOf, listed
from schemas.images import UnlistedFile
from schemas.labels import LabelMap, label_map_json, label_map_pbtxt, labels_csv
from schemas.layouts import shard_names
from schemas.manifest import (
    FORMAT,
    MANIFEST,
    REJECTS,
    AnnotationCounts,
    ImageCounts,
    InputRows,
    Manifest,
    Recipe,
    RewrittenPictures,
    SplitManifest,
    Unlisted,
    encode_json,
    state_folder,
)
from schemas.rejects import FILTERS, REWRITTEN_FROM, Counted, Rejected, Tally
from schemas.shards import ShardInfo
from schemas.tfds import is_readable, shard_links, tfds_files
from transforms.manifest_file import read_manifest
from transforms.storage import storage_for

_UNLISTED_SHOWN = 5


class Findings(NamedTuple):
    """What the steps before the writing found, as PCollections.

    Attributes:
        files: AnnotationFile.
        rejected: Rejected.
        counted: Counted.
        unlisted: UnlistedFile.
    """

    files: PCollection
    rejected: PCollection
    counted: PCollection
    unlisted: PCollection


class WriteMetadata(beam.PTransform):
    """Written becomes a PCollection of one SplitManifest, when everything is in its place.

    Args:
        labels, table: PCollections of one LabelMap, and one FeatureTable.
        findings: of the steps before.
        recipe: what was asked for, for the manifest.
        output: the data set's folder.
        max_rejects: fraction of images, and of annotations, that may be rejected.
    """

    def __init__(
        self,
        labels: PCollection,
        table: PCollection,
        findings: Findings,
        recipe: Recipe,
        output: str,
        max_rejects: float,
    ):
        super().__init__()
        self._labels = labels
        self._table = table
        self._findings = findings
        self._recipe = recipe
        self._output = output
        self._max_rejects = max_rejects

    def expand(self, written):
        rejected = (written.rejected, self._findings.rejected) | "AllRejected" >> beam.Flatten()
        counted = (written.counted, self._findings.counted) | "AllCounted" >> beam.Flatten()
        return (
            written.shards.pipeline
            | "Once" >> beam.Create([self._recipe])
            | "Write"
            >> beam.Map(
                write_metadata,
                output=self._output,
                max_rejects=self._max_rejects,
                labels=AsSingleton(self._labels),
                table=AsSingleton(self._table),
                shards=AsList(written.shards),
                rejected=AsList(rejected),
                files=AsList(self._findings.files),
                counts=AsDict(counted | "ByTally" >> beam.Map(_by_tally) | "AddCounts" >> beam.CombinePerKey(sum)),
                unlisted=AsSingleton(self._findings.unlisted | "Unlisted" >> beam.CombineGlobally(UnlistedFn())),
            )
        )


def _by_tally(counted: Counted) -> tuple[str, int]:
    return counted.what.value, counted.number


class UnlistedFn(beam.CombineFn):
    """UnlistedFile become Unlisted: how many, and the first by name."""

    def create_accumulator(self):
        return 0, ()

    def add_input(self, accumulator, file: UnlistedFile):
        return self.merge_accumulators([accumulator, (1, (file.name,))])

    def merge_accumulators(self, accumulators):
        accumulators = list(accumulators)
        names = sorted(name for _, names in accumulators for name in names)
        return sum(number for number, _ in accumulators), tuple(names[:_UNLISTED_SHOWN])

    def extract_output(self, accumulator):
        return Unlisted(*accumulator)


def write_metadata(
    recipe: Recipe,
    output: str,
    max_rejects: float,
    labels: LabelMap,
    table: FeatureTable,
    shards: list[ShardInfo],
    rejected: list[Rejected],
    files: list[AnnotationFile],
    counts: dict[str, int],
    unlisted: Unlisted,
) -> SplitManifest:
    """Write rejects.jsonl and, when all is well, label maps, TFDS files and the manifest; resume state is then deleted.

    Raises:
        EmptyDatasetError: there was no image to write, or none could be.
        TooManyRejectsError: more than `max_rejects` of the images or of the annotations are rejected. The shards stay.
        LostImagesError: what came in is not what went out plus what was rejected: a fault of this program.
        CategoryError: the folder has another split, with other classes or other parts of records.
    """
    storage = storage_for(output)
    split = describe_split(recipe, shards, rejected, files, counts, unlisted)
    check_whole(split, table.record_of)
    _write_rejects(output, recipe.split, rejected)
    check_rejects(split, rejected, max_rejects, storage.join(output, REJECTS))
    manifest = _with_split(output, recipe, labels, table, split)
    _write_companions(output, manifest)
    storage.write(storage.join(output, MANIFEST), encode_json(manifest))
    storage.delete_folder(storage.join(output, state_folder(recipe.split)))
    ours = {shard.file for shard in shards} | shard_links(recipe.shard_names, split).keys()
    for name in storage.names(output):  # an earlier run that stopped may have planned another number of shards
        if recipe.shard_names.is_one(name) and name not in ours:
            storage.delete(storage.join(output, name))
    storage.delete_leftovers(output, recipe.shard_names.is_one)
    return split


def _write_companions(output: str, manifest: Manifest) -> None:
    """The label maps, and what TFDS wants; where it could not read the shards, nothing invites it to."""
    storage = storage_for(output)
    labels = manifest.labels
    companions = {
        "label_map.pbtxt": label_map_pbtxt(labels).encode(),
        "labels.csv": labels_csv(labels).encode(),
        "label_map.json": label_map_json(labels).encode(),
    }
    for_tfds = tfds_files(manifest)
    if is_readable(manifest) and _link_shards(output, manifest):
        companions |= for_tfds
    for name in for_tfds.keys() - companions.keys():
        storage.delete(storage.join(output, name))
    for name, data in companions.items():
        storage.write(storage.join(output, name), data)


def _link_shards(output: str, manifest: Manifest) -> bool:
    """Let TFDS find shards that are called otherwise; False where that cannot be done."""
    storage = storage_for(output)
    return all(
        storage.link(storage.join(output, link), target)
        for name, split in manifest.splits.items()
        for link, target in shard_links(shard_names(manifest.name, name, manifest.layout), split).items()
    )


def describe_split(
    recipe: Recipe,
    shards: list[ShardInfo],
    rejected: Iterable[Rejected],
    files: Iterable[AnnotationFile],
    counts: dict[str, int],
    unlisted: Unlisted,
) -> SplitManifest:
    """The split's entry in the manifest."""
    reasons: dict[str, Counter[str]] = {"image": Counter(), "annotation": Counter()}
    of_rejected_images = 0
    for reject in rejected:
        reasons[reject.what][reject.reason.value] += 1
        of_rejected_images += reject.annotations
    files = tuple(sorted(files, key=lambda file: file.path))
    return SplitManifest(
        recipe=recipe,
        compression="GZIP" if recipe.options["gzip"] else "",
        inputs=tuple(InputRows(file.path, file.kind, file.images, file.annotations) for file in files),
        images=ImageCounts(
            rows=sum(file.images for file in files) - counts.get(Tally.ROWS_MERGED.value, 0),
            written=counts.get(Tally.IMAGES.value, 0),
            without_record=counts.get(Tally.IMAGES_WITHOUT_RECORD.value, 0),
            rejected=dict(sorted(reasons["image"].items())),
            rewritten=_rewritten(counts),
        ),
        annotations=AnnotationCounts(
            rows=sum(file.annotations for file in files),
            objects=counts.get(Tally.OBJECTS.value, 0),
            captions=counts.get(Tally.CAPTIONS.value, 0),
            stuff=counts.get(Tally.REGIONS.value, 0),
            panoptic=counts.get(Tally.PANOPTIC.value, 0),
            joined=counts.get(Tally.ANNOTATIONS_MERGED.value, 0),
            rejected=dict(sorted(reasons["annotation"].items())),
            filtered={tally.value: counts[tally.value] for tally in FILTERS if tally.value in counts},
            of_rejected_images=of_rejected_images + counts.get(Tally.OF_REJECTED_IMAGES.value, 0),
            boxes_clipped=counts.get(Tally.BOXES_CLIPPED.value, 0),
            masks=counts.get(Tally.MASKS.value, 0),
        ),
        unlisted=unlisted,
        record_bytes=counts.get(Tally.RECORD_BYTES.value, 0),
        shards=tuple(sorted(shards, key=lambda shard: shard.file)),
    )


def _rewritten(counts: dict[str, int]) -> RewrittenPictures | None:
    formats = {**REWRITTEN_FROM, "other": Tally.FROM_OTHER}
    by_format = {name: counts[tally.value] for name, tally in formats.items() if counts.get(tally.value)}
    if not by_format:
        return None
    return RewrittenPictures(
        by_format,
        counts.get(Tally.TURNED.value, 0),
        counts.get(Tally.SHRUNK.value, 0),
        counts[Tally.REWRITTEN_BYTES_READ.value],
        counts[Tally.REWRITTEN_BYTES.value],
    )


def check_whole(split: SplitManifest, record_of: RecordOf) -> None:
    """Nothing was lost on the way.

    Raises:
        LostImagesError: see `write_metadata`.
    """
    images, annotations = split.images, split.annotations
    faults = []
    if images.rows != images.written + images.without_record + sum(images.rejected.values()):
        faults.append(
            f"{images.rows} images came in, {images.written} were written, {images.without_record} give no record and "
            f"{images.rejected} are rejected"
        )
    if annotations.rows != annotations.accounted:
        faults.append(
            f"{annotations.rows} annotations came in and {annotations.accounted} are accounted for: {annotations}"
        )
    records = annotations.objects if record_of is RecordOf.ANNOTATION else images.written
    if split.examples != records:
        faults.append(f"{records} records were made and {split.examples} are in the shards")
    if faults:
        raise LostImagesError(
            f"{'; '.join(faults)}. No manifest is written. This is a fault of Recordmill: please report this line"
        )


def check_rejects(split: SplitManifest, rejected: list[Rejected], max_rejects: float, rejects_path: str) -> None:
    """The split has examples, and not too much was rejected for it to be trusted.

    Raises:
        EmptyDatasetError, TooManyRejectsError: see `write_metadata`.
    """
    if not split.images.rows:
        files = ", ".join(file.path for file in split.inputs)
        raise EmptyDatasetError(f"{files}: no image rows, so there is nothing to write")
    for what, rows, reasons in (
        ("image", split.images.rows, split.images.rejected),
        ("annotation", split.annotations.rows, split.annotations.rejected),
    ):
        number = sum(reasons.values())
        if number <= max_rejects * rows + 1e-9:  # 0.29 * 100 is less than 29
            continue
        first = min((reject for reject in rejected if reject.what == what), key=_reject_order)
        counted = ", ".join(f"{reason} {count}" for reason, count in reasons.items())
        raise TooManyRejectsError(
            f"{number} of {rows} {what}s ({number / rows:.1%}) are rejected, more than --max-rejects {max_rejects:g} "
            f"allows: {counted}; the first: {first.detail}. All are in {rejects_path}. The shards are kept: run again "
            "with the data mended, or with a larger --max-rejects to accept this"
        )
    if not split.examples:
        what = "none has an object" if split.images.without_record else "all are rejected"
        raise EmptyDatasetError(f"of {split.images.rows} images {what}, see {rejects_path}; nothing was written")


def _reject_order(reject: Rejected) -> tuple[str, bool, int, str, str]:
    return reject.what, reject.id is None, reject.id or 0, reject.reason.value, reject.detail


def _write_rejects(output: str, split: str, rejected: list[Rejected]) -> None:
    """One JSON object a line, in a fixed order; lines of other splits stay."""
    storage = storage_for(output)
    path = storage.join(output, REJECTS)
    kept = storage.read(path).splitlines(keepends=True) if storage.size(path) else []
    lines = [line for line in kept if _split_of(line) not in (None, split)]
    for reject in sorted(rejected, key=_reject_order):
        fields = {"split": split, **msgspec.structs.asdict(reject)}
        lines.append(msgspec.json.encode(fields) + b"\n")
    storage.write(path, b"".join(lines))


def _split_of(line: bytes) -> str | None:
    """The split of a line of rejects.jsonl; None where it is no such line."""
    try:
        return json.loads(line)["split"]
    except (ValueError, KeyError, TypeError):
        return None


def _with_split(output: str, recipe: Recipe, labels: LabelMap, table: FeatureTable, split: SplitManifest) -> Manifest:
    """The folder's manifest with this split added."""
    splits: dict[str, SplitManifest] = {}
    if known := read_manifest(output):
        splits = {name: other for name, other in known.splits.items() if name != recipe.split}
        if splits and known.parts != table.parts:
            raise CategoryError(
                f"{output} holds {', '.join(sorted(splits))} with {listed(known.parts)} in its records, these files "
                f"have {listed(table.parts)}; readers could not use both. The shards are kept; write this split to a "
                "folder of its own"
            )
        if splits and known.labels != labels:
            raise CategoryError(
                f"{output} holds {', '.join(sorted(splits))} with other categories than these files have; one "
                "label map cannot serve both. The shards are kept; write this split to a folder of its own"
            )
    splits[recipe.split] = split
    return Manifest(
        FORMAT,
        recipe.name,
        recipe.layout,
        table.parts,
        labels.categories,
        labels.segments,
        dict(sorted(splits.items())),
    )
