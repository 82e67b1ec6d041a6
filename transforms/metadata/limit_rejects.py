"""A job that can no longer meet --max-rejects stops, and does not read the rest of its pictures first."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import apache_beam as beam
from apache_beam.pvalue import AsIter, AsSingleton, PCollection
from apache_beam.utils.shared import Shared

from recordmill.schemas.rejects import RejectRun, RejectTally
from recordmill.transforms.metadata.check_findings import Demands
from recordmill.transforms.metadata.describe_split import Rows, check_rejects, is_over, rows_of_all
from recordmill.transforms.rejects.reject_blocks import unique_runs
from recordmill.transforms.rejects.write_rejects import SplitRuns, add_tallies, rejects_paths, write_rejects

ENOUGH = 100
"""Rejects that a job lists before it stops: with fewer, whoever mends the data would meet one fault a run."""


class LimitRejects(beam.PTransform):
    """(split, RejectRun) of the pictures that are read become nothing. A runner does this in one bundle with the step
    that reads them, so that an error ends that one, too. Each process counts its own rejects: many workers stop later
    than one.

    Args:
        checked: what CheckFindings gives.
        found: (split, RejectRun) of the steps before.

    Raises, when it runs, what `RejectLimit.add` does.
    """

    def __init__(self, checked: PCollection, found: PCollection, demands: Demands):
        super().__init__()
        self._checked = checked
        self._found = found
        self._demands = demands

    def expand(self, rejected):
        stop = beam.ParDo(_StopAtLimit(self._demands), AsSingleton(self._checked), AsIter(self._found))
        return rejected | "StopAtLimit" >> stop


class _StopAtLimit(beam.DoFn):
    def __init__(self, demands: Demands):
        self._demands = demands
        self._shared = Shared()

    def setup(self):
        self._limit = self._shared.acquire(lambda: RejectLimit(self._demands))

    def process(self, item: tuple[str, RejectRun], rows: Mapping[str, Rows], found: SplitRuns) -> None:
        self._limit.add(item, rows, found)


class RejectLimit:
    """The rejects that a process has met, each once, however often a bundle is tried."""

    def __init__(self, demands: Demands):
        self._demands = demands
        self._met: list[tuple[str, RejectRun]] = []
        self._found: RejectTally | None = None
        self._tally = add_tallies(())

    def add(self, item: tuple[str, RejectRun], rows: Mapping[str, Rows], found: SplitRuns) -> None:
        """
        Args:
            rows: of each split.
            found: rejects of the steps before.

        Raises:
            TooManyRejectsError: whatever else will be read, more are rejected than may be, and `ENOUGH` are known.
                They are written into the folders of the splits' states.
        """
        self._met.append(item)
        self._tally = add_tallies((self._tally, item[1].tally))
        if not self._is_over(rows, found):
            return
        # A bundle that was tried again has come again, perhaps in other runs.
        self._met = list(_once_each(self._demands.output, self._met))
        self._tally = add_tallies(run.tally for _, run in self._met)
        if self._is_over(rows, found):
            self._stop(rows, found)

    def _is_over(self, rows: Mapping[str, Rows], found: SplitRuns) -> bool:
        """Whether enough are known of what there is too much of."""
        totals = rows_of_all(rows)
        met = {what: sum(self._tally.reasons(what).values()) for what in totals}
        if max(met.values()) < ENOUGH:
            return False
        if self._found is None:
            self._found = add_tallies(run.tally for _, run in found)
        return any(
            met[what] >= ENOUGH
            and is_over(met[what] + sum(self._found.reasons(what).values()), total, self._demands.max_rejects)
            for what, total in totals.items()
        )

    def _stop(self, rows: Mapping[str, Rows], found: SplitRuns) -> None:
        demands = self._demands
        known = [*found, *self._met]
        write_rejects(demands.output, demands.splits, known)
        check_rejects(
            rows,
            add_tallies(run.tally for _, run in known),
            demands.max_rejects,
            demands.sources.rows,
            "The job stops before all pictures are read, as it cannot succeed any more. The rejects so far are in "
            f"{rejects_paths(demands.output, demands.splits)}. Finished shards are kept: run again with the data "
            "mended, or with a larger --max-rejects to accept this",
        )


def _once_each(output: str, met: Iterable[tuple[str, RejectRun]]) -> Iterator[tuple[str, RejectRun]]:
    """Rejects of pictures of which two are alike are rare: rows of a table that are equal and name one broken picture,
    an object and a stuff region of one image and id with one fault. They count as one here, so that the job may stop
    later, or not before its end, where all of them count."""
    of_split: dict[str, list[RejectRun]] = defaultdict(list)
    for split, run in met:
        of_split[split].append(run)
    return ((split, run) for split, runs in of_split.items() for run in unique_runs(output, split, runs))
