"""Counts and log lines of the rejects of Samples, for steps that write no list of them."""

import logging

from recordmill.schemas.rejects import Rejected
from recordmill.transforms.runtime import progress

_LOGGER = logging.getLogger("recordmill")
_LOGGED = 10


class RejectLog:
    """Counts rejects as metrics, and logs the first ten of a worker."""

    def __init__(self) -> None:
        self._logged = 0

    def add(self, reject: Rejected) -> None:
        progress.count_reject(reject)
        if self._logged < _LOGGED:
            _LOGGER.warning("rejected: %s", reject.detail)
            self._logged += 1
