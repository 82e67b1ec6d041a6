"""Changes that only the process of one command makes: it replaces methods of Beam's local runner, and forks writers of
shards.

A notebook, a test or an Airflow task that calls `recordmill.launch.cli.main` runs Beam unchanged, in one process."""

from collections.abc import Iterator
from contextlib import contextmanager

_is_entered = False


@contextmanager
def local_engine() -> Iterator[None]:
    """Context manager: allow both to the jobs of this process."""
    global _is_entered
    _is_entered = True
    try:
        yield
    finally:
        _is_entered = False


def is_entered() -> bool:
    return _is_entered
