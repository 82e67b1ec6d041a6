"""Time and memory of a command with all processes that it starts."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, NamedTuple

SAMPLE_S = 0.1
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class Measure(NamedTuple):
    """Measures of a command: `processor_s` of all its processes, `peak_mb` of them together (proportional set size)."""

    seconds: float
    processor_s: float
    peak_mb: float


def measured(
    command: list[str],
    servers: Iterable[int] = (),
    environment: Mapping[str, str] | None = None,
    log: IO | None = None,
) -> Measure:
    """A command that must succeed, with servers that work for it; their processor time is not counted.

    Args:
        environment: of its processes; None for that of this one.
        log: takes what it says; None for errors on the terminal, and the rest nowhere.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    began = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=log or subprocess.DEVNULL, stderr=log)
    peak, used = 0.0, {process.pid: 0.0}
    while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
        peak = max(peak, sum(map(proportional_mb, descendants({process.pid, *servers}))))
        used |= {each: processor_s(each) for each in descendants({process.pid})}
        time.sleep(SAMPLE_S)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(ended[1])
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    # The kernel's sum has those that were waited for, however short they lived; the samples have the others.
    return Measure(seconds, max(ended[2].ru_utime + ended[2].ru_stime, sum(used.values())), peak)


def descendants(roots: set[int]) -> set[int]:
    """Processes of this machine that these have started, and these."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    found: set[int] = set()
    grown = roots & parents.keys()
    while grown != found:
        found = set(grown)
        grown = found | {process for process, parent in parents.items() if parent in found}
    return found


def proportional_mb(process: int) -> float:
    """Memory of a process, what it shares with others in part."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1000
    return 0.0


def processor_s(process: int) -> float:
    """Processor time of a process until now, with its threads and without its children."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND
    return 0.0
