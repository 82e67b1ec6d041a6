"""Rejects are gathered where they are made, before they go from step to step."""

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.schemas.rejects import Rejected, RejectRun
from recordmill.transforms.rejects.reject_blocks import RunBuilder
from recordmill.transforms.rejects.tally_builder import TallyBuilder


class GatherRejects(beam.PTransform):
    """A tuple of PCollections of (split, Rejected) becomes one of (split, RejectRun). Each is gathered in the step
    that it comes from: what is flattened is kept by a runner, one element at a time.

    Args:
        output: the data set's folder; empty in a dry run, which needs no more than a tally of each bundle.
    """

    def __init__(self, output: str):
        super().__init__()
        self._output = output

    def expand(self, parts):
        gathered = [
            part | f"Gather{number}" >> beam.ParDo(_Gather(self._output)).with_input_types(Any).with_output_types(Any)
            for number, part in enumerate(parts)
        ]
        return gathered | "Runs" >> beam.Flatten()


class _Gather(beam.DoFn):
    """Holds the rejects of a bundle, until there are enough for a run, or their tally."""

    def __init__(self, output: str):
        self._output = output

    def start_bundle(self):
        self._builders: dict[str, RunBuilder | TallyBuilder] = {}

    def process(self, item: tuple[str, Rejected]) -> Iterable[tuple[str, RejectRun]]:
        split, reject = item
        if split not in self._builders:
            self._builders[split] = RunBuilder(self._output, split) if self._output else TallyBuilder(split)
        run = self._builders[split].add(reject)
        return ((split, run),) if run else ()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for split, builder in self._builders.items():
            if run := builder.run():
                yield GlobalWindows.windowed_value_at_end_of_window((split, run))
