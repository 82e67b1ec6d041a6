"""Rejects of which only the numbers are wanted, as by a dry run: they are counted, and not kept."""

from recordmill.schemas.rejects import Reason, Rejected, RejectRun, RejectTally
from recordmill.transforms.rejects.reject_blocks import keyed_line, line_key


class TallyBuilder:
    """Counts the rejects of one split, as RunBuilder does, and keeps the first of each `what`."""

    def __init__(self, split: str):
        self._split = split
        self._annotations = 0
        self._counts: dict[tuple[str, Reason], int] = {}
        self._first: dict[str, bytes] = {}

    def add(self, reject: Rejected) -> None:
        counted = reject.what, reject.reason
        self._counts[counted] = self._counts.get(counted, 0) + 1
        self._annotations += reject.annotations
        first = self._first.get(reject.what)
        # A key is less than a line that begins with it: equal keys are in the order of their lines.
        if first is None or line_key(reject) < first:
            line = keyed_line(self._split, reject)
            self._first[reject.what] = min(line, first or line)

    def run(self) -> RejectRun | None:
        """The tally of what has been added, without lines, if anything has."""
        if not self._counts:
            return None
        counts = {(what, reason.value): number for (what, reason), number in self._counts.items()}
        return RejectRun(RejectTally(counts, self._annotations, self._first), ())
