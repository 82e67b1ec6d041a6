"""Facts: what the steps before the shards learn, added up in one struct."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec
from apache_beam.pvalue import PCollection, TaggedOutput

from recordmill.schemas.manifest import InputRows, SplitRows
from recordmill.schemas.rejects import Count, Metric, Rejected
from recordmill.transforms.join.compare_names import NO_NAMES, Names, add_names
from recordmill.transforms.rejects.bounded_rejects import KindsBuilder, RejectKind, Rejects
from recordmill.transforms.runtime import progress

FACTS = "facts"


class Facts(msgspec.Struct, frozen=True):
    """What a step found.

    Attributes:
        counts: by split and metric.
        rows: image rows and annotation rows of inputs, by split, path and kind.
        rejects: by kind.
        unlisted: names of files that no image row references.
        unmatched: names of images whose file was not found.
    """

    counts: dict[tuple[str, str], int] = {}
    rows: dict[tuple[str, str, str], tuple[int, int]] = {}
    rejects: dict[RejectKind, Rejects] = {}
    unlisted: Names = NO_NAMES
    unmatched: Names = NO_NAMES


class FactsBuilder:
    """Adds up what a step finds, or Facts of several steps."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._images: Counter[tuple[str, str, str]] = Counter()
        self._annotations: Counter[tuple[str, str, str]] = Counter()
        self._rejects = KindsBuilder()
        self._unlisted: list[str] = []
        self._unmatched: list[str] = []
        self._names = NO_NAMES, NO_NAMES

    def count(self, split: str, metric: Metric, number: int = 1) -> None:
        if number:
            self._counts[split, metric.value] += number

    def add_rows(self, split: str, path: str, kind: str, images: int, annotations: int) -> None:
        self._images[split, path, kind] += images
        self._annotations[split, path, kind] += annotations

    def reject(self, split: str, reject: Rejected) -> None:
        progress.rejected(reject)
        self._rejects.add(split, reject)

    def count_rejected_rows(self, path: str, kind: str) -> None:
        """Count all rejects so far as image rows of an input."""
        for split, number in self._rejects.numbers_of_splits().items():
            self.add_rows(split, path, kind, number, 0)

    def add_unlisted(self, *names: str) -> None:
        self._unlisted += names

    def add_unmatched(self, *names: str) -> None:
        self._unmatched += names

    def merge(self, facts: Facts) -> None:
        self._counts.update(facts.counts)
        for key, (images, annotations) in facts.rows.items():
            self.add_rows(*key, images, annotations)
        for kind, rejects in facts.rejects.items():
            self._rejects.merge(kind, rejects)
        self._names = add_names([self._names[0], facts.unlisted]), add_names([self._names[1], facts.unmatched])

    def build(self) -> Facts:
        unlisted, unmatched = (
            add_names([names, Names.of(found)])
            for names, found in zip(self._names, (self._unlisted, self._unmatched), strict=True)
        )
        rows = {key: (images, self._annotations[key]) for key, images in self._images.items()}
        return Facts(dict(self._counts), rows, self._rejects.build(), unlisted, unmatched)

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


class FoundFacts(NamedTuple):
    """The parts of all Facts, as PCollections that `recordmill.transforms.metadata.write_metadata.Findings` takes.

    Attributes:
        rejected: (RejectKind, Rejects).
        counted: (split, Count).
        rows: SplitRows.
        unlisted, unmatched: Names.
    """

    rejected: PCollection
    counted: PCollection
    rows: PCollection
    unlisted: PCollection
    unmatched: PCollection


class FindFacts(beam.PTransform):
    """Convert PCollections of Facts to FoundFacts."""

    def expand(self, parts):
        facts = parts | "Parts" >> beam.Flatten() | "AddUp" >> beam.CombineGlobally(CombineFacts())
        return FoundFacts(
            facts | "Rejected" >> beam.FlatMap(_rejected).with_output_types(tuple[RejectKind, Rejects]),
            facts | "Counted" >> beam.FlatMap(_counted).with_output_types(Any),
            facts | "Rows" >> beam.FlatMap(_rows).with_output_types(Any),
            facts | "Unlisted" >> beam.Map(_unlisted),
            facts | "Unmatched" >> beam.Map(_unmatched),
        )


def tagged(builder: FactsBuilder) -> TaggedOutput:
    """The Facts of a step, for its output FACTS."""
    return TaggedOutput(FACTS, builder.build())


def _rejected(facts: Facts) -> Iterable[tuple[RejectKind, Rejects]]:
    return facts.rejects.items()


def _counted(facts: Facts) -> Iterator[tuple[str, Count]]:
    return ((split, Count(Metric(metric), number)) for (split, metric), number in facts.counts.items())


def _rows(facts: Facts) -> Iterator[SplitRows]:
    for (split, path, kind), (images, annotations) in facts.rows.items():
        yield SplitRows(split, InputRows(path, kind, images, annotations))


def _unlisted(facts: Facts) -> Names:
    return facts.unlisted


def _unmatched(facts: Facts) -> Names:
    return facts.unmatched
