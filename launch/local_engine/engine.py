"""Changes that only the process of one command makes: it replaces methods of Beam's local runner, forks writers of
shards, imports without garbage collection and collects rarely, and has no threads of OpenBLAS.

A notebook, a test or an Airflow task that calls `recordmill.launch.cli.main` runs Beam unchanged, in one process."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

_is_entered = False
_GC_OBJECTS = 500_000
"""New objects between two garbage collections; Python's default is 700. A bucket of label files has 100,000 objects
without cycles, which collections would scan again and again: decision 52."""


@contextmanager
def local_engine() -> Iterator[None]:
    """Context manager: allow these changes in this process."""
    global _is_entered
    _is_entered = True
    # NumPy's OpenBLAS starts a thread per core, which spins for 0.1 s; small matrices need none.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _, *older = thresholds = gc.get_threshold()
    gc.set_threshold(_GC_OBJECTS, *older)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        _is_entered = False


def is_entered() -> bool:
    return _is_entered


@contextmanager
def importing() -> Iterator[None]:
    """Context manager: import modules without garbage collection, and exempt them from it. Collections would scan all
    of Beam's objects many times for nothing."""
    if not _is_entered:
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
