"""Rejects of several steps, combined."""

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.schemas.rejects import Rejected
from recordmill.transforms.rejects.bounded_rejects import KindsBuilder, RejectKind, Rejects, RejectsBuilder


class GatherRejects(beam.PTransform):
    """Convert PCollections of (split, Rejected) to one of (RejectKind, Rejects), with one element per kind.

    Each step adds up its own first, because a runner keeps every element that is flattened.
    """

    def expand(self, parts):
        gather = beam.ParDo(_Gather()).with_input_types(Any).with_output_types(tuple[RejectKind, Rejects])
        return tuple(part | f"Gather{number}" >> gather for number, part in enumerate(parts)) | MergeRejects()


class MergeRejects(beam.PTransform):
    """Merge PCollections of (RejectKind, Rejects) to one, with one element per kind."""

    def expand(self, parts):
        return parts | "Parts" >> beam.Flatten() | "Merge" >> beam.CombinePerKey(CombineRejects())


class CombineRejects(beam.CombineFn):
    """Merge Rejects of one kind."""

    def create_accumulator(self) -> RejectsBuilder:
        return RejectsBuilder()

    def add_input(self, builder: RejectsBuilder, rejects: Rejects) -> RejectsBuilder:
        builder.merge(rejects)
        return builder

    def merge_accumulators(self, builders: Iterable[RejectsBuilder]) -> RejectsBuilder:
        merged = RejectsBuilder()
        for builder in builders:
            merged.merge(builder.build())
        return merged

    def extract_output(self, builder: RejectsBuilder) -> Rejects:
        return builder.build()


class _Gather(beam.DoFn):
    """Adds up the rejects of a bundle."""

    def start_bundle(self):
        self._kinds = KindsBuilder()

    def process(self, item: tuple[str, Rejected]) -> None:
        self._kinds.add(*item)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        kinds = self._kinds.build()
        del self._kinds  # Beam keeps the DoFn
        return map(GlobalWindows.windowed_value_at_end_of_window, kinds.items())
