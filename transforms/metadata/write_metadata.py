"""What a finished job leaves beside its shards; last of all the manifest, whose presence says that its splits are
complete."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import apache_beam as beam
import msgspec
from apache_beam.pvalue import AsList, AsSingleton, PCollection

from recordmill.schemas.errors import CategoryError
from recordmill.schemas.features import FeatureTable, listed
from recordmill.schemas.images import UnreferencedFile
from recordmill.schemas.labels import LABEL_FILES, LabelMap, label_files
from recordmill.schemas.layouts import shard_names
from recordmill.schemas.manifest import (
    FORMAT,
    MANIFEST,
    REJECTS,
    InputRows,
    Manifest,
    Recipe,
    SplitManifest,
    Unlisted,
    encode_json,
)
from recordmill.schemas.rejects import Count, Rejected
from recordmill.schemas.shards import ShardInfo
from recordmill.schemas.tfds import is_readable, shard_links, tfds_files
from recordmill.transforms.metadata.dataset_folder import read_manifest, tidy
from recordmill.transforms.metadata.describe_split import check_rejects, check_whole, describe_split, reject_order
from recordmill.transforms.storage.resolve import storage_for

_UNLISTED_SHOWN = 5


class Findings(NamedTuple):
    """What the steps before the writing found, as PCollections.

    Attributes:
        inputs: (split, InputRows).
        rejected: (split, Rejected).
        counted: (split, Count).
        unlisted: UnreferencedFile.
    """

    inputs: PCollection
    rejected: PCollection
    counted: PCollection
    unlisted: PCollection


class Target(NamedTuple):
    """What a job was asked for.

    Attributes:
        recipes: one a split.
        output: the data set's folder.
        max_rejects: fraction of images, and of annotations, that may be rejected.
    """

    recipes: tuple[Recipe, ...]
    output: str
    max_rejects: float


class Outcome(NamedTuple):
    """The results of a job, to be written as metadata.

    Attributes:
        shards, rejected, inputs: of all splits, each with its split.
        counts: likewise: how many of each metric.
    """

    labels: LabelMap
    table: FeatureTable
    shards: Iterable[tuple[str, ShardInfo]]
    rejected: Iterable[tuple[str, Rejected]]
    inputs: Iterable[tuple[str, InputRows]]
    counts: Iterable[tuple[tuple[str, str], int]]
    unlisted: Unlisted


class WriteMetadata(beam.PTransform):
    """Written becomes a PCollection of one Manifest, when everything is in its place.

    Args:
        labels, table: PCollections of one LabelMap, and one FeatureTable.
        findings: of the steps before.
    """

    def __init__(self, labels: PCollection, table: PCollection, findings: Findings, target: Target):
        super().__init__()
        self._labels = labels
        self._table = table
        self._findings = findings
        self._target = target

    def expand(self, written):
        rejected = (written.rejected, self._findings.rejected) | "AllRejected" >> beam.Flatten()
        counted = (written.counted, self._findings.counted) | "AllCounted" >> beam.Flatten()
        counts = counted | "ByMetric" >> beam.Map(_by_metric) | "AddCounts" >> beam.CombinePerKey(sum)
        outcome = {
            "labels": AsSingleton(self._labels),
            "table": AsSingleton(self._table),
            "shards": AsList(written.shards),
            "rejected": AsList(rejected),
            "inputs": AsList(self._findings.inputs),
            "counts": AsList(counts),
            "unlisted": AsSingleton(self._findings.unlisted | "Unlisted" >> beam.CombineGlobally(UnlistedFn())),
        }
        once = written.shards.pipeline | "Once" >> beam.Create([self._target])
        return once | "Write" >> beam.Map(_write, **outcome)


def _write(target: Target, **outcome: Any) -> Manifest:
    return write_metadata(target, Outcome(**outcome))


def _by_metric(of_split: tuple[str, Count]) -> tuple[tuple[str, str], int]:
    split, counted = of_split
    return (split, counted.what.value), counted.number


class UnlistedFn(beam.CombineFn):
    """UnreferencedFile become Unlisted: how many, and the first by name."""

    def create_accumulator(self):
        return 0, ()

    def add_input(self, accumulator, file: UnreferencedFile):
        return self.merge_accumulators([accumulator, (1, (file.name,))])

    def merge_accumulators(self, accumulators):
        accumulators = list(accumulators)
        names = sorted(name for _, names in accumulators for name in names)
        return sum(number for number, _ in accumulators), tuple(names[:_UNLISTED_SHOWN])

    def extract_output(self, accumulator):
        return Unlisted(*accumulator)


def write_metadata(target: Target, outcome: Outcome) -> Manifest:
    """Write rejects.jsonl and, when all is well, label maps, TFDS files and the manifest; resume state is then deleted.

    Raises:
        EmptyDatasetError, TooManyRejectsError: see `describe_split.check_rejects`. The shards stay.
        LostImagesError: see `describe_split.check_whole`.
        CategoryError: the folder has another split, with other classes or other parts of records.
    """
    storage, output = storage_for(target.output), target.output
    rejects = _by_split(target.recipes, outcome.rejected)
    splits = _described(target.recipes, outcome, rejects)
    for split in splits.values():
        check_whole(split, outcome.table.record_of)
    _write_rejects(output, rejects)
    every_reject = [reject for of_split in rejects.values() for reject in of_split]
    check_rejects(splits, every_reject, target.max_rejects, storage.join(output, REJECTS))
    manifest = _with_splits(output, target.recipes[0], outcome, splits)
    _write_companions(output, manifest)
    storage.write(storage.join(output, MANIFEST), encode_json(manifest))
    for split in splits.values():
        tidy(output, split)
    return manifest


def _described(
    recipes: Sequence[Recipe], outcome: Outcome, rejects: dict[str, list[Rejected]]
) -> dict[str, SplitManifest]:
    shards, inputs = _by_split(recipes, outcome.shards), _by_split(recipes, outcome.inputs)
    counts = _by_split(recipes, ((split, (metric, number)) for (split, metric), number in outcome.counts))
    return {
        recipe.split: describe_split(
            recipe,
            shards[recipe.split],
            rejects[recipe.split],
            inputs[recipe.split],
            dict(counts[recipe.split]),
            outcome.unlisted,
        )
        for recipe in recipes
    }


Item = TypeVar("Item")


def _by_split(recipes: Sequence[Recipe], items: Iterable[tuple[str, Item]]) -> dict[str, list[Item]]:
    """The items of each split.

    Raises:
        KeyError: one is of a split that is not written.
    """
    of_split: dict[str, list[Item]] = {recipe.split: [] for recipe in recipes}
    for split, item in items:
        of_split[split].append(item)
    return of_split


def _write_companions(output: str, manifest: Manifest) -> None:
    """Write the label maps and TFDS's files. The latter are deleted instead where TFDS could not read the shards."""
    storage = storage_for(output)
    maps = label_files(manifest.labels, manifest.label_by_id)
    companions = {name: text.encode() for name, text in maps.items()}
    for_tfds = tfds_files(manifest)
    if is_readable(manifest) and _link_shards(output, manifest):
        companions |= for_tfds
    for name in {*LABEL_FILES, *for_tfds} - companions.keys():
        storage.delete(storage.join(output, name))
    for name, data in companions.items():
        storage.write(storage.join(output, name), data)


def _link_shards(output: str, manifest: Manifest) -> bool:
    """Link TFDS's names of shards to files that have other names; False where the storage has no links."""
    storage = storage_for(output)
    return all(
        storage.link(storage.join(output, link), target)
        for name, split in manifest.splits.items()
        for link, target in shard_links(shard_names(manifest.name, name, manifest.layout), split).items()
    )


def _write_rejects(output: str, rejected: dict[str, list[Rejected]]) -> None:
    """One JSON object a line, in a fixed order; lines of other splits than those given stay."""
    storage = storage_for(output)
    path = storage.join(output, REJECTS)
    kept = storage.read(path).splitlines(keepends=True) if storage.size(path) else []
    lines = [line for line in kept if _split_of(line) not in (None, *rejected)]
    for split, of_split in rejected.items():
        for reject in sorted(of_split, key=reject_order):
            fields = {"split": split, **msgspec.structs.asdict(reject)}
            lines.append(msgspec.json.encode(fields) + b"\n")
    storage.write(path, b"".join(lines))


def _split_of(line: bytes) -> str | None:
    """The split of a line of rejects.jsonl; None where it is no such line."""
    try:
        return json.loads(line)["split"]
    except (ValueError, KeyError, TypeError):
        return None


def _with_splits(output: str, recipe: Recipe, outcome: Outcome, written: dict[str, SplitManifest]) -> Manifest:
    """The folder's manifest with these splits added; `recipe` is that of any of them."""
    labels, table = outcome.labels, outcome.table
    splits: dict[str, SplitManifest] = {}
    if known := read_manifest(output):
        splits = {name: other for name, other in known.splits.items() if name not in written}
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
    return Manifest(
        FORMAT,
        recipe.name,
        recipe.layout,
        table.parts,
        labels.categories,
        labels.segments,
        dict(sorted((splits | written).items())),
    )
