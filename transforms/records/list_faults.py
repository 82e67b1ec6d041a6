"""Faults are listed, and counted where a reason has too many: a data set of millions may be wrong in every record."""

from collections import Counter
from collections.abc import Iterable

from recordmill.schemas.plan_report import Fault, Faults

LISTED_OF_REASON = 100


class FaultList:
    """Lists the first faults of each reason."""

    def __init__(self) -> None:
        self._listed: list[Fault] = []
        self._of_reason: Counter[str] = Counter()
        self._more = 0

    def add(self, faults: Iterable[Fault]) -> None:
        for fault in faults:
            self._of_reason[fault.reason] += 1
            if self._of_reason[fault.reason] <= LISTED_OF_REASON:
                self._listed.append(fault)
            else:
                self._more += 1

    def add_listed(self, faults: Faults) -> None:
        """Those of another list."""
        self.add(faults.listed)
        self._more += faults.more

    def faults(self) -> Faults:
        return Faults(tuple(self._listed), self._more)
