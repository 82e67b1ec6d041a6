"""The statistics of a split, of those of its shards."""

from collections.abc import Iterable
from functools import reduce

import apache_beam as beam

from recordmill.schemas.statistics import Statistics
from recordmill.transforms.statistics.add_statistics import add_statistics


class CombineStatistics(beam.CombineFn):
    """Statistics become their sum."""

    def create_accumulator(self) -> Statistics:
        return Statistics()

    def add_input(self, accumulator: Statistics, statistics: Statistics) -> Statistics:
        return add_statistics(accumulator, statistics)

    def merge_accumulators(self, accumulators: Iterable[Statistics]) -> Statistics:
        return reduce(add_statistics, accumulators)

    def extract_output(self, accumulator: Statistics) -> Statistics:
        return accumulator
