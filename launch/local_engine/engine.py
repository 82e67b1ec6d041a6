"""What only the process of one command may do: replace methods of Beam's local runner, and fork writers of shards.

A notebook, a test or a task of Airflow that calls `recordmill.launch.cli.main` runs Beam unchanged, in one process.
"""

from collections.abc import Iterator
from contextlib import contextmanager

_is_entered = False


@contextmanager
def local_engine() -> Iterator[None]:
    """While the block runs, jobs of this process may do both."""
    global _is_entered
    _is_entered = True
    try:
        yield
    finally:
        _is_entered = False


def is_entered() -> bool:
    return _is_entered
