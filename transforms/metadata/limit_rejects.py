"""A job that can no longer meet --max-rejects stops, and does not read the rest of its pictures first."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain

import apache_beam as beam
from apache_beam.pvalue import AsIter, AsSingleton, PCollection
from apache_beam.utils.shared import Shared

from recordmill.schemas.rejects import Rejected
from recordmill.transforms.metadata.check_findings import Demands, write_known
from recordmill.transforms.metadata.describe_split import Rows, check_rejects, is_over, rows_of_all
from recordmill.transforms.metadata.write_metadata import rejects_paths

ENOUGH = 100
"""Rejects that a job lists before it stops: with fewer, whoever mends the data would meet one fault a run."""

SplitRejects = Iterable[tuple[str, Rejected]]


class LimitRejects(beam.PTransform):
    """(split, Rejected) of the pictures that are read become nothing. A runner does this in one bundle with the step
    that reads them, so that an error ends that one, too. Each process counts its own rejects: many workers stop later
    than one.

    Args:
        checked: what CheckFindings gives.
        found: (split, Rejected) of the steps before.

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

    def process(self, item: tuple[str, Rejected], rows: Mapping[str, Rows], found: SplitRejects) -> None:
        self._limit.add(item, rows, found)


class RejectLimit:
    """The rejects that a process has met, each once, however often a bundle is tried."""

    def __init__(self, demands: Demands):
        self._demands = demands
        self._met: dict[str, set[tuple[str, Rejected]]] = defaultdict(set)
        self._found: Counter[str] | None = None

    def add(self, item: tuple[str, Rejected], rows: Mapping[str, Rows], found: SplitRejects) -> None:
        """
        Args:
            rows: of each split.
            found: rejects of the steps before.

        Raises:
            TooManyRejectsError: whatever else will be read, more are rejected than may be, and `ENOUGH` are known.
                They are written into the folders of the splits' states.
        """
        what = item[1].what
        met = self._met[what]
        met.add(item)
        if len(met) < ENOUGH:
            return
        if self._found is None:
            self._found = Counter(reject.what for _, reject in found)
        if is_over(len(met) + self._found[what], rows_of_all(rows)[what], self._demands.max_rejects):
            self._stop(rows, found)

    def _stop(self, rows: Mapping[str, Rows], found: SplitRejects) -> None:
        demands = self._demands
        known = [*found, *chain.from_iterable(map(tuple, self._met.values()))]
        write_known(demands, known)
        check_rejects(
            rows,
            [reject for _, reject in known],
            demands.max_rejects,
            demands.sources.rows,
            "The job stops before all pictures are read, as it cannot succeed any more. The rejects so far are in "
            f"{', '.join(rejects_paths(demands.output, demands.splits))}. Finished shards are kept: run again with the "
            "data mended, or with a larger --max-rejects to accept this",
        )
