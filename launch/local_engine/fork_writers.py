"""Number of processes to fork for writing, verifying or extracting shards."""

import logging
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice

from recordmill.launch.local_engine.engine import is_entered
from recordmill.schemas.paths import is_remote
from recordmill.transforms.runtime.processes import fork_processes
from recordmill.transforms.runtime.threads import usable_cores
from recordmill.transforms.storage.resolve import find_archive, storage_for

_LOGGER = logging.getLogger(__name__)

_MOST = 8
"""Maximum number of processes. A disk cannot keep up with more. Each process takes memory, and time to fork."""
WORTH_IT = 1000
"""Minimum number of images for which forks save more time than they take."""


@contextmanager
def fork_if_many(are_many: Callable[[], bool], threads: int | None, mode: str) -> Iterator[None]:
    """Context manager: fork processes that write or read shards, if the job runs in this process and has many images.
    A notebook (its threads would be missing), a process with TensorFlow, and macOS do not fork.

    Args:
        are_many: Function that returns True if there are many images; called only if everything else allows a fork.
        threads: Number of threads that fetch and check images; None for the number of cores.
        mode: Mode of Beam's local runner, `in_memory` or another; empty for another runner.
    """
    number = min(usable_cores(), threads or _MOST, _MOST)
    with ExitStack() as stack:
        if number > 1 and _may_fork() and mode == "in_memory":
            try:
                if are_many():
                    stack.enter_context(fork_processes(number))
            except OSError as error:  # too many processes, no shared memory; the job reports errors of folders
                _LOGGER.debug("No processes are forked: %r", error)
        yield


def slower_processes(mode: str) -> str:
    """Return a note if Beam's processes are slower than forked ones would be; otherwise an empty string."""
    if not _may_fork() or mode != "multi_processing":
        return ""
    return (
        "--direct_running_mode=multi_processing starts Beam again in each process, which takes seconds, and sends all "
        f"metadata between them; without it this command writes shards in separate processes from {WORTH_IT:,} images "
        "on, in less time"
    )


def _may_fork() -> bool:
    return (
        is_entered() and sys.platform == "linux" and threading.active_count() == 1 and "tensorflow" not in sys.modules
    )


def are_many(images: Sequence[str]) -> bool:
    """Return True if folders and archives have many images. Objects of a bucket are not counted. The directory of an
    archive is read before the fork, so that all processes share it."""
    counted = [storage_for(path).walk(path) for path in images if find_archive(path) or not is_remote(path)]
    number = sum(len(list(islice(files, WORTH_IT))) for files in counted)
    return number >= WORTH_IT or len(counted) < len(images)
