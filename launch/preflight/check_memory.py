"""Check that the metadata of a local job fits into the memory.

The local runner keeps grouped data in memory, so its memory grows with the annotation files. Other runners use disks,
or many machines."""

import os
from contextlib import suppress
from pathlib import Path

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.options import ConvertOptions
from recordmill.transforms.coco.coco_options import CocoOptions
from recordmill.transforms.storage.resolve import storage_for

_OF_PROGRAM = 300_000_000
_PER_BYTE = {False: (0.1, 1.3), True: (0.4, 2.0)}
"""Minimum and maximum of bytes of memory per byte of an annotation file, without and with segmentations. The maximum is
measured: benchmarks/RESULTS.md, Metadata. The minimum was 0.13 with segmentations that are not read."""
_UNPACKED = 8
"""Ratio of JSON to its gzip."""
_SAID_FROM = 2_000_000_000
_GB = 10**9

_LIMITS = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Files with the memory limit of a container: control groups version 2, and 1."""


def check_memory(options: ConvertOptions, is_dry_run: bool = False) -> str:
    """Return a sentence with the memory that a local job or plan takes, and the machine's; empty if it is little.

    Raises:
        ConfigError: it takes more than this machine, or the container, has.
    """
    (least, most), there = memory_needed(options), memory_bytes()
    what = "a dry run, which is made on this machine," if is_dry_run else "a job on this machine"
    takes = f"{what} takes {least / _GB:,.1f} to {most / _GB:,.1f} GB of memory for its annotation files"
    where = "on a larger machine, or with fewer kinds of annotations"
    if not is_dry_run:
        where = f"where metadata is not held in memory, on Flink or Dataflow (docs/flink.md, docs/dataflow.md), {where}"
    cure = f"run it {where}"
    if least > there:
        raise ConfigError(f"{takes}, and there are {there / _GB:,.1f} GB: {cure}")
    if most > there:
        return f"{takes}, and there are {there / _GB:,.1f} GB: if that is not enough, {cure}"
    return f"{takes}, of {there / _GB:,.1f} GB" if most > _SAID_FROM else ""


def memory_needed(options: ConvertOptions) -> tuple[int, int]:
    """Return the minimum and maximum of bytes that the local runner holds at once, with those of the program."""
    if not isinstance(options, CocoOptions):
        return _OF_PROGRAM, _OF_PROGRAM
    size = sum(_unpacked_size(source.path) for source in options.sources)
    least, most = _PER_BYTE[options.masks != "none"]
    return _OF_PROGRAM + round(least * size), _OF_PROGRAM + round(most * size)


def _unpacked_size(path: str) -> int:
    """Return the size of the uncompressed file; 0 if there is none, which is reported elsewhere."""
    size = 0
    with suppress(OSError):
        size = storage_for(path).size(path) or 0
    return size * (_UNPACKED if path.endswith(".gz") else 1)


def memory_bytes() -> int:
    """Return the memory of the machine, or the container's share of it."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _LIMITS:
        with suppress(OSError, ValueError):  # "max" where there is none
            found.append(int(path.read_text()))
    return min(found)
