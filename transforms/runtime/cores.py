"""How many threads there is work for on the machine that does it, which need not be the one that submits the job."""

import math
import os
from contextlib import suppress
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_QUOTA_V1 = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")
"""Where a container finds its share of the cores: with version 2 of control groups, and version 1."""


def usable_cores() -> int:
    """Cores that this process may keep busy: those it may run on, and no more than its container has a share of."""
    affinity = getattr(os, "sched_getaffinity", None)  # macOS has none
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    quota = _quota()
    return cores if quota >= cores else max(1, math.ceil(quota))


def _quota() -> float:
    """Cores' worth of time that the container has; infinite where it has no bound."""
    with suppress(OSError, ValueError):
        quota, period = _QUOTA.read_text().split()
        return math.inf if quota == "max" else int(quota) / int(period)
    with suppress(OSError, ValueError):
        quota, period = (path.read_text() for path in _QUOTA_V1)
        return int(quota) / int(period) if int(quota) > 0 else math.inf
    return math.inf
