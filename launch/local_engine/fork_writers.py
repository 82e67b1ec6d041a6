"""May shards be written, or verified, by processes that are forked from this one, and by how many?"""

import logging
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice

from recordmill.launch.local_engine.engine import is_entered
from recordmill.transforms.runtime.processes import forking
from recordmill.transforms.runtime.threads import usable_cores
from recordmill.transforms.storage.interface import is_remote
from recordmill.transforms.storage.resolve import archive_of, storage_for

_LOGGER = logging.getLogger(__name__)

_MOST = 8
"""More processes would take memory, and time to be forked, for what a disk can no longer keep up with."""
WORTH_IT = 1000
"""Images, from which on a job is faster by more than the forking takes."""


@contextmanager
def processes_forked(are_many: Callable[[], bool], threads: int | None, mode: str) -> Iterator[None]:
    """While the block runs, forked processes write or verify a job's shards: where it runs in this process, has many
    images, and that may be. It may not in a notebook, whose threads would be missing, where TensorFlow has been loaded,
    nor on macOS, whose own libraries do not outlive a fork.

    Args:
        are_many: whether there are many images; asked only where the rest holds.
        threads: that fetch and check images at once; None for as many as there are cores.
        mode: of Beam's local runner, `in_memory` or another; empty for another runner.
    """
    number = min(usable_cores(), threads or _MOST, _MOST)
    with ExitStack() as stack:
        if number > 1 and _may_fork() and mode == "in_memory":
            try:
                if are_many():
                    stack.enter_context(forking(number))
            except OSError as error:  # no more processes, no shared memory; or a folder, of which the job tells
                _LOGGER.debug("No processes are forked: %r", error)
        yield


def slower_processes(mode: str) -> str:
    """What is to be said where a job of images is given Beam's processes, and its own could be forked; or nothing."""
    if not _may_fork() or mode != "multi_processing":
        return ""
    return (
        "--direct_running_mode=multi_processing starts Beam anew in each process, seconds before an image is read, and "
        "passes all that is known of images between them; without it this command writes shards in processes of its "
        f"own from {WORTH_IT:,} images on, in less time"
    )


def _may_fork() -> bool:
    return (
        is_entered() and sys.platform == "linux" and threading.active_count() == 1 and "tensorflow" not in sys.modules
    )


def are_many(images: Sequence[str]) -> bool:
    """Whether folders and archives have many images. A bucket's objects are not counted. The directory of an archive is
    read for it, and so is there in all processes that are forked."""
    counted = [storage_for(path).walk(path) for path in images if archive_of(path) or not is_remote(path)]
    number = sum(len(list(islice(files, WORTH_IT))) for files in counted)
    return number >= WORTH_IT or len(counted) < len(images)
