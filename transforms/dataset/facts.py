"""Facts: what the steps of a job learn, added up in one struct."""

from collections import Counter
from collections.abc import Iterable

import apache_beam as beam
import msgspec
from apache_beam.pvalue import TaggedOutput

from recordmill.schemas.manifest import InputRows
from recordmill.schemas.rejects import Metric, Rejected
from recordmill.schemas.statistics import Statistics
from recordmill.transforms.dataset.compare_names import NO_NAMES, Names, add_names
from recordmill.transforms.rejects.bounded_rejects import KindsBuilder, RejectKind, Rejects
from recordmill.transforms.runtime import progress
from recordmill.transforms.statistics.add_statistics import add_statistics

FACTS = "facts"


class Facts(msgspec.Struct, frozen=True):
    """What a step found.

    Attributes:
        counts: by split and metric.
        inputs: rows of inputs, by split, path and kind.
        rejects: by kind.
        unlisted: names of files that no image row references.
        unmatched: names of images whose file was not found.
        warnings: split and text.
        classes: number of objects, or of images, by split and class index.
        statistics: of records, by split.
    """

    counts: dict[tuple[str, str], int] = {}
    inputs: dict[tuple[str, str, str], InputRows] = {}
    rejects: dict[RejectKind, Rejects] = {}
    unlisted: Names = NO_NAMES
    unmatched: Names = NO_NAMES
    warnings: frozenset[tuple[str, str]] = frozenset()
    classes: dict[tuple[str, int], int] = {}
    statistics: dict[str, Statistics] = {}


class FactsBuilder:
    """Adds up what a step finds, or Facts of several steps."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._inputs: dict[tuple[str, str, str], InputRows] = {}
        self._rejects = KindsBuilder()
        self._unlisted: list[str] = []
        self._unmatched: list[str] = []
        self._names = NO_NAMES, NO_NAMES
        self._warnings: set[tuple[str, str]] = set()
        self._classes: Counter[tuple[str, int]] = Counter()
        self._statistics: dict[str, Statistics] = {}

    def count(self, split: str, metric: Metric, number: int = 1) -> None:
        if number:
            self._counts[split, metric.value] += number

    def add_rows(self, split: str, rows: InputRows) -> None:
        key = split, rows.path, rows.kind
        known = self._inputs.get(key, InputRows(rows.path, rows.kind, 0, 0))
        numbers = known.images + rows.images, known.annotations + rows.annotations
        self._inputs[key] = InputRows(rows.path, rows.kind, *numbers, known.uncarried or rows.uncarried)

    def warn(self, split: str, text: str) -> None:
        self._warnings.add((split, text))

    def reject(self, split: str, reject: Rejected) -> None:
        progress.rejected(reject)
        self._rejects.add(split, reject)

    def count_rejected_rows(self, path: str, kind: str) -> None:
        """Count all rejects so far as image rows of an input."""
        for split, number in self._rejects.numbers_of_splits().items():
            self.add_rows(split, InputRows(path, kind, number, 0))

    def add_unlisted(self, *names: str) -> None:
        self._unlisted += names

    def add_unmatched(self, *names: str) -> None:
        self._unmatched += names

    def merge(self, facts: Facts) -> None:
        self._counts.update(facts.counts)
        for (split, _, _), rows in facts.inputs.items():
            self.add_rows(split, rows)
        for kind, rejects in facts.rejects.items():
            self._rejects.merge(kind, rejects)
        self._names = add_names([self._names[0], facts.unlisted]), add_names([self._names[1], facts.unmatched])
        self._warnings |= facts.warnings
        self._classes.update(facts.classes)
        for split, found in facts.statistics.items():
            self._statistics[split] = add_statistics(self._statistics.get(split, Statistics()), found)

    def build(self) -> Facts:
        unlisted, unmatched = (
            add_names([names, Names.of(found)])
            for names, found in zip(self._names, (self._unlisted, self._unmatched), strict=True)
        )
        return Facts(
            dict(self._counts),
            self._inputs,
            self._rejects.build(),
            unlisted,
            unmatched,
            frozenset(self._warnings),
            dict(self._classes),
            self._statistics,
        )

    def __reduce__(self):  # Beam pickles accumulators
        return _builder_of, (self.build(),)


def _builder_of(facts: Facts) -> FactsBuilder:
    builder = FactsBuilder()
    builder.merge(facts)
    return builder


class CombineFacts(beam.CombineFn):
    """Add up Facts."""

    def create_accumulator(self) -> FactsBuilder:
        return FactsBuilder()

    def add_input(self, builder: FactsBuilder, facts: Facts) -> FactsBuilder:
        builder.merge(facts)
        return builder

    def merge_accumulators(self, builders: Iterable[FactsBuilder]) -> FactsBuilder:
        merged, *others = builders
        for builder in others:
            merged.merge(builder.build())
        return merged

    def extract_output(self, builder: FactsBuilder) -> Facts:
        return builder.build()


class AddFacts(beam.PTransform):
    """Convert PCollections of Facts to one element at most: none if there are no Facts."""

    def expand(self, parts):
        combine = beam.CombineGlobally(CombineFacts()).without_defaults()
        return tuple(parts) | "Parts" >> beam.Flatten() | "AddUp" >> combine


def add_facts(parts: Iterable[Facts]) -> Facts:
    builder = FactsBuilder()
    for part in parts:
        builder.merge(part)
    return builder.build()


def tagged(builder: FactsBuilder) -> TaggedOutput:
    """The Facts of a step, for its output FACTS."""
    return TaggedOutput(FACTS, builder.build())
