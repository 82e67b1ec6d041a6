"""Rejects of several steps, combined."""

from collections.abc import Iterable

import apache_beam as beam

from recordmill.transforms.rejects.bounded_rejects import Rejects, RejectsBuilder


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
