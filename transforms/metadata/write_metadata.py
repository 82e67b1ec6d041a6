"""What a finished job leaves beside its shards; last of all the manifest, whose presence says that its splits are
complete."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import apache_beam as beam
import msgspec
from apache_beam.pvalue import AsList, AsSingleton, PCollection

from recordmill.schemas.duplicates import Fingerprints
from recordmill.schemas.encoders import TextCounts, TextEncoder
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.manifest import Manifest, SplitManifest, Unlisted, encode_json, manifest_of
from recordmill.schemas.recipes import InputFile, Recipe
from recordmill.schemas.rejects import RejectTally
from recordmill.schemas.shards import ShardInfo
from recordmill.schemas.statistics import Statistics
from recordmill.transforms.dataset.facts import CombineFacts, Facts, add_facts
from recordmill.transforms.metadata.check_duplicates import check_complete_duplicates, check_duplicates
from recordmill.transforms.metadata.commit_splits import commit_splits
from recordmill.transforms.metadata.dataset_folder import forget
from recordmill.transforms.metadata.describe_split import (
    Rows,
    check_examples,
    check_rejects,
    check_whole,
    describe_split,
)
from recordmill.transforms.metadata.folder_duplicates import fingerprint_lines
from recordmill.transforms.rejects.write_rejects import RejectList, rejects_paths, tally_rejects, write_rejects
from recordmill.transforms.statistics.describe_statistics import describe_statistics
from recordmill.transforms.text.encode_captions import EncodedTexts, add_text_counts


class Findings(NamedTuple):
    """What the steps before the writing found.

    Attributes:
        facts: a PCollection of Facts, one element at most.
        warnings: a PCollection of further (split, text), of what is not likely to be meant.
    """

    facts: PCollection
    warnings: PCollection


class Target(NamedTuple):
    """What a job was asked for.

    Attributes:
        recipes: one a split.
        output: the data set's folder.
        max_rejects: fraction of images, and of annotations, that may be rejected.
        duplicates: what is done about pictures that are there more than once, see `check_duplicates`.
    """

    recipes: tuple[Recipe, ...]
    output: str
    max_rejects: float
    duplicates: str = "report"


class Outcome(NamedTuple):
    """The results of a job, to be written as metadata.

    Attributes:
        facts: of all steps.
        shards, warnings, fingerprints: of all splits, each with its split.
        texts: what was encoded, by split and column.
    """

    labels: LabelMap
    table: FeatureTable
    facts: Facts
    shards: Iterable[tuple[str, ShardInfo]]
    warnings: Iterable[tuple[str, str]] = ()
    encoders: Iterable[TextEncoder] = ()
    texts: Iterable[tuple[tuple[str, str], TextCounts]] = ()
    fingerprints: Iterable[tuple[str, Fingerprints]] = ()


@dataclass(eq=False, repr=False)
class WriteMetadata(beam.PTransform):
    """Written becomes a PCollection of one Manifest, when everything is in its place.

    Args:
        labels, table: PCollections of one LabelMap, and one FeatureTable.
        findings: of the steps before.
        texts: likewise, where texts were encoded.
        listings: InputFile of the folders that recipes name, where these have to be listed.
    """

    labels: PCollection
    table: PCollection
    findings: Findings
    target: Target
    texts: EncodedTexts | None = None
    listings: PCollection | None = None

    def expand(self, written):
        outcome = {
            "labels": AsSingleton(self.labels),
            "table": AsSingleton(self.table),
            "shards": AsList(written.shards),
            "found": AsList(self.findings.facts),
            "of_shards": AsList(written.facts | "AddFacts" >> beam.CombineGlobally(CombineFacts()).without_defaults()),
            "warnings": AsList(self.findings.warnings),
            "fingerprints": AsList(written.fingerprints),
        }
        if texts := self.texts:
            outcome["encoders"] = AsList(texts.encoders)
            outcome["texts"] = AsList(texts.counts | "AddTextCounts" >> beam.CombinePerKey(add_text_counts))
        if self.listings is not None:
            outcome["listings"] = AsList(self.listings)
        once = written.shards.pipeline | "Once" >> beam.Create([self.target])
        return once | "Write" >> beam.Map(_write, **outcome)


def _write(
    target: Target, found: list[Facts], of_shards: list[Facts], listings: Iterable[InputFile] = (), **outcome: Any
) -> Manifest:
    listed = {file.path: file for file in listings}
    recipes = tuple(recipe.with_listings(listed) for recipe in target.recipes)
    return write_metadata(target._replace(recipes=recipes), Outcome(facts=add_facts([*found, *of_shards]), **outcome))


def write_metadata(target: Target, outcome: Outcome) -> Manifest:
    """Let the splits take their place, with all their metadata, when all is well. When it is not, each split's rejects
    are in the folder of its state, and an older split of that name stays as it was.

    Raises:
        DuplicatesError: see `check_duplicates`. The shards stay; and the splits where another job has written its own
            at the same time.
        EmptyDatasetError, TooManyRejectsError: see `describe_split.check_rejects` and `check_examples`. The shards
            stay.
        LostImagesError: see `describe_split.check_whole`.
        CategoryError, JobError: see `commit_splits`.
    """
    rejects = write_rejects(target.output, [recipe.split for recipe in target.recipes], outcome.facts.rejects.items())
    files = _statistics_files(target.recipes, outcome)
    fingerprints = {split: of for split, of in _by_split(target.recipes, outcome.fingerprints).items() if of}
    prints = {split: fingerprint_lines(of_split) for split, of_split in fingerprints.items()}
    splits = _described(target.recipes, outcome, rejects, files, prints)
    for split in splits.values():
        check_whole(split, outcome.table)
    _check(target, splits, tally_rejects(outcome.facts.rejects.items()))
    compared: set[str] = set()
    if target.duplicates != "report":
        compared = check_duplicates(target.output, fingerprints, outcome.table, target.duplicates)
    encoders = sorted(outcome.encoders, key=attrgetter("column"))
    infos = tuple(encoder.info for encoder in encoders)
    splits = dict(sorted(splits.items()))
    manifest = manifest_of(target.recipes[0].name, outcome.labels, outcome.table, splits, infos)
    whole = commit_splits(target.output, manifest, files, encoders, prints)
    if compared and not whole.splits.keys() <= compared:  # another job has come with a split since we looked
        check_complete_duplicates(target.output, splits, whole.table, target.duplicates)
    return whole


def _check(target: Target, splits: Mapping[str, SplitManifest], rejected: RejectTally) -> None:
    what, paths = target.recipes[0].unit, rejects_paths(target.output, splits)
    check_rejects(
        {name: Rows(split.images.rows, split.annotations.rows, what) for name, split in splits.items()},
        rejected,
        target.max_rejects,
        [file.path for recipe in target.recipes for file in recipe.inputs],
        f"They are listed in {paths}. The shards are kept: run again with the data mended, or with a larger "
        "--max-rejects to accept this",
    )
    for name, split in splits.items():
        if not split.examples:
            forget(target.output, name)
    check_examples(splits, paths)


def _described(
    recipes: Sequence[Recipe],
    outcome: Outcome,
    rejects: Mapping[str, RejectList],
    statistics: Mapping[str, bytes],
    fingerprints: Mapping[str, bytes],
) -> dict[str, SplitManifest]:
    facts = outcome.facts
    shards = _by_split(recipes, outcome.shards)
    inputs = _by_split(recipes, ((split, rows) for (split, _, _), rows in facts.inputs.items()))
    class_counts = _class_counts(recipes, outcome)
    warnings = _by_split(recipes, {*outcome.warnings, *facts.warnings})
    unlisted = Unlisted(facts.unlisted.number, facts.unlisted.first)
    texts = _by_split(recipes, ((split, (column, counts)) for (split, column), counts in outcome.texts))
    counts = _by_split(recipes, ((split, (metric, number)) for (split, metric), number in facts.counts.items()))
    statistics_of = facts.statistics.items()
    findings = {split: {name: found.number for name, found in of.findings.items()} for split, of in statistics_of}
    return {
        recipe.split: describe_split(
            recipe,
            shards[recipe.split],
            rejects[recipe.split],
            inputs[recipe.split],
            dict(counts[recipe.split]),
            unlisted,
            sha256(statistics[recipe.split]).hexdigest(),
            class_counts[recipe.split],
            warnings[recipe.split],
            texts[recipe.split],
            findings.get(recipe.split, {}),
            sha256(fingerprints[recipe.split]).hexdigest() if recipe.split in fingerprints else msgspec.UNSET,
        )
        for recipe in recipes
    }


def _statistics_files(recipes: Sequence[Recipe], outcome: Outcome) -> dict[str, bytes]:
    """Each split's statistics-SPLIT.json."""
    statistics, class_counts = outcome.facts.statistics, _class_counts(recipes, outcome)
    return {
        split: encode_json(
            describe_statistics(statistics.get(split, Statistics()), outcome.labels, outcome.table, counts)
        )
        for split, counts in class_counts.items()
    }


def _class_counts(recipes: Sequence[Recipe], outcome: Outcome) -> dict[str, list[int]]:
    """How many objects, or images, of each split are of each class index."""
    classes = _by_split(recipes, ((split, (index, number)) for (split, index), number in outcome.facts.classes.items()))
    indices = range(len(outcome.labels.categories))
    by_index = {split: dict(counts) for split, counts in classes.items()}
    return {split: [counts.get(index, 0) for index in indices] for split, counts in by_index.items()}


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
