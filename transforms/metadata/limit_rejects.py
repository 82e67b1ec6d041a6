"""A job that can no longer meet --max-rejects stops, and does not read the rest of its pictures first."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

import apache_beam as beam
from apache_beam.pvalue import AsIter, AsSingleton, PCollection
from apache_beam.utils.shared import Shared

from recordmill.transforms.dataset.facts import Findings
from recordmill.transforms.metadata.check_findings import Demands
from recordmill.transforms.metadata.describe_split import Rows, check_rejects, is_over, rows_of_all
from recordmill.transforms.rejects.bounded_rejects import KindsBuilder, RejectKind, Rejects
from recordmill.transforms.rejects.write_rejects import KindRejects, rejects_paths, tally_rejects, write_rejects
from recordmill.transforms.shards.shard_file import WrittenShard

ENOUGH = 100
"""Rejects that a job lists before it stops: with fewer, whoever mends the data would meet one fault a run."""


@dataclass(eq=False, repr=False)
class LimitRejects(beam.PTransform):
    """Consume WrittenShard, and emit nothing. A runner does this in one bundle
    with the step that reads them, so that an error ends that one, too. Each process counts its own rejects: many
    workers stop later than one.

    Args:
        checked: what CheckFindings gives.
        found: of the steps before.

    Raises, when it runs, what `RejectLimit.add` does.
    """

    checked: PCollection
    found: Findings
    demands: Demands

    def expand(self, written: PCollection[WrittenShard]):
        stop = beam.ParDo(_StopAtLimit(self.demands), AsSingleton(self.checked), AsIter(self.found.lists))
        return written | "StopAtLimit" >> stop


class _StopAtLimit(beam.DoFn):
    def __init__(self, demands: Demands):
        self._demands = demands
        self._shared = Shared()

    def setup(self):
        self._limit = self._shared.acquire(lambda: RejectLimit(self._demands))

    def process(self, written: WrittenShard, rows: Mapping[str, Rows], found: KindRejects) -> None:
        for item in written.facts.rejects.items():
            self._limit.add(item, rows, found)


class RejectLimit:
    """The rejects that a process has met. Those of a shard that is written again count once."""

    def __init__(self, demands: Demands):
        self._demands = demands
        self._seen: set[bytes] = set()
        self._met = KindsBuilder()
        self._numbers: Counter[str] = Counter()
        self._found: Counter[str] | None = None

    def add(self, item: tuple[RejectKind, Rejects], rows: Mapping[str, Rows], found: KindRejects) -> None:
        """
        Args:
            item: one kind of a shard's rejects.
            rows: of each split.
            found: rejects of the steps before.

        Raises:
            TooManyRejectsError: whatever else will be read, more are rejected than may be, and `ENOUGH` are known.
                They are written into the folders of the splits' states.
        """
        kind, rejects = item
        digest = blake2b(rejects.packed, digest_size=16).digest()
        if digest in self._seen:
            return
        self._seen.add(digest)
        self._met.merge(kind, rejects)
        self._numbers[kind[1]] += rejects.number
        if self._is_over(rows, found):
            self._stop(rows, found)

    def _is_over(self, rows: Mapping[str, Rows], found: KindRejects) -> bool:
        """Whether enough are known of what there is too much of."""
        if max(self._numbers.values()) < ENOUGH:
            return False
        if self._found is None:
            self._found = Counter()
            for (_, what, _), rejects in found:
                self._found[what] += rejects.number
        return any(
            self._numbers[what] >= ENOUGH
            and is_over(self._numbers[what] + self._found[what], total, self._demands.max_rejects)
            for what, total in rows_of_all(rows).items()
        )

    def _stop(self, rows: Mapping[str, Rows], found: KindRejects) -> None:
        demands = self._demands
        for kind, rejects in found:
            self._met.merge(kind, rejects)
        known = self._met.build().items()
        write_rejects(demands.output, demands.splits, known)
        check_rejects(
            rows,
            tally_rejects(known),
            demands.max_rejects,
            demands.sources.rows,
            "The job stops before all pictures are read, as it cannot succeed any more. The rejects so far are in "
            f"{rejects_paths(demands.output, demands.splits)}. Finished shards are kept: run again with the data "
            "mended, or with a larger --max-rejects to accept this",
        )
