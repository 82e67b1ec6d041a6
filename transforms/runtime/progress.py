"""How far this process's steps are: what a progress line shows, and Beam's counters.

Beam's in-process runner does not report its metrics before it ends, so the numbers are kept here as well. For a job
that runs elsewhere, they are taken from its counters by `update_from_counters`. Processes that are forked from this one
add what they do to memory that they share with it; Beam's counters, which nobody sees there, do not have it.
"""

import multiprocessing
import threading
import time
from collections.abc import Mapping
from mmap import mmap

import msgspec
from apache_beam.metrics import Metrics

from recordmill.schemas.rejects import Rejected

NAMESPACE = "recordmill"
"""The namespace of a job's counters."""

_IMAGES_PLANNED = Metrics.counter(NAMESPACE, "images_planned")
_SHARDS_PLANNED = Metrics.counter(NAMESPACE, "shards_planned")
_IMAGES_WRITTEN = Metrics.counter(NAMESPACE, "images_written")
_IMAGES_SKIPPED = Metrics.counter(NAMESPACE, "images_skipped")
_IMAGES_REFUSED = Metrics.counter(NAMESPACE, "planned_images_rejected")
_BYTES_WRITTEN = Metrics.counter(NAMESPACE, "image_bytes_written")
_RECORDS_READ = Metrics.counter(NAMESPACE, "records_read")
_FAULTS = Metrics.counter(NAMESPACE, "faults")
_SHARDS_WRITTEN = Metrics.counter(NAMESPACE, "shards_written")
_REJECTED = "rejected/"


class Progress(msgspec.Struct):
    """Numbers since the process began or since `reset`.

    Attributes:
        step: what the job is doing, in words for a person.
        images_done: of those planned: written, rejected, or skipped. Where there is nothing left to do, all of them.
        images_skipped: those that this run did not look at: an earlier one finished their shard, or a shard is damaged.
        bytes_done: of the files that were read in this run.
        planned_at: `time.monotonic` when there was a plan, from which on images are written; 0 before.
        rejected: images and annotations, planned or not.
        unit: what is counted instead of images, `records` where a data set is read back.
    """

    step: str = ""
    images_planned: int = 0
    shards_planned: int = 0
    images_done: int = 0
    images_skipped: int = 0
    bytes_done: int = 0
    shards_done: int = 0
    rejected: int = 0
    planned_at: float = 0.0
    unit: str = "images"


class _Times:
    """How long each step has lasted.

    Attributes:
        seconds: of the steps before, in their order.
        step, since: the one that goes on, and `time.monotonic` when it began.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.step, self.since = "starting", time.monotonic()

    def enter(self, step: str) -> None:
        if step != self.step:
            self.seconds = self.until_now()
            self.step, self.since = step, time.monotonic()

    def until_now(self) -> dict[str, float]:
        lasted = time.monotonic() - self.since
        return self.seconds | {self.step: self.seconds.get(self.step, 0.0) + lasted}


_lock = threading.Lock()
_progress, _times = Progress(), _Times()

_SHARED = ("images_done", "images_skipped", "bytes_done", "shards_done", "rejected")


class _Shared:
    """Numbers, of those that _SHARED names, in memory of a process and of those that are forked from it."""

    def __init__(self) -> None:
        self._numbers = memoryview(mmap(-1, 8 * len(_SHARED))).cast("q")
        self._lock = multiprocessing.get_context("fork").Lock()

    def add(self, numbers: Mapping[str, int]) -> None:
        with self._lock:
            for name, number in numbers.items():
                self._numbers[_SHARED.index(name)] += number

    def found(self) -> dict[str, int]:
        """Not locked: a process that was killed may have left it so."""
        return dict(zip(_SHARED, self._numbers, strict=True))

    def clear(self) -> None:
        for index in range(len(_SHARED)):
            self._numbers[index] = 0


_of_forked: _Shared | None = None
_is_forked = False


def expect_forked() -> None:
    """Processes that are forked from here on, and call `is_forked`, count for this one."""
    global _of_forked
    _of_forked = _Shared()


def is_forked() -> None:
    """This process is one of those that its parent expects."""
    global _is_forked
    _is_forked = True


def snapshot() -> Progress:
    """Return the current numbers."""
    with _lock:
        now = msgspec.structs.replace(_progress)
    if _of_forked:
        for name, number in _of_forked.found().items():
            setattr(now, name, getattr(now, name) + number)
    return now


def reset() -> None:
    global _progress, _times
    with _lock:
        _progress, _times = Progress(), _Times()
    if _of_forked:
        _of_forked.clear()


def _add(**numbers: int) -> None:
    if _is_forked and _of_forked:
        _of_forked.add(numbers)
        return
    with _lock:
        for name, number in numbers.items():
            setattr(_progress, name, getattr(_progress, name) + number)


def set_step(step: str) -> None:
    with _lock:
        _progress.step = step
        _times.enter(step)


def step_seconds() -> dict[str, float]:
    """How long each step of this process has lasted since `reset`: until the next one began, or until now. Writing
    begins with the plan."""
    with _lock:
        return _times.until_now()


def planned(images: int, shards: int, unit: str = "images") -> None:
    _IMAGES_PLANNED.inc(images)
    _SHARDS_PLANNED.inc(shards)
    with _lock:
        _progress.planned_at = _progress.planned_at or time.monotonic()
        _progress.unit = unit
        _times.enter("writing")
        _progress.images_planned += images
        _progress.shards_planned += shards


def wrote_images(images: int, bytes_: int) -> None:
    """Images, or rows of a table, are in records; so many bytes of image files were read."""
    _IMAGES_WRITTEN.inc(images)
    _BYTES_WRITTEN.inc(bytes_)
    _add(images_done=images, bytes_done=bytes_)


def read_record(bytes_: int) -> None:
    """A record of a data set was read back; so many bytes of its shard were read since the one before it."""
    _RECORDS_READ.inc()
    _add(images_done=1, bytes_done=bytes_)


def found_faults(faults: int) -> None:
    """So many faults are in a shard that was read back."""
    _FAULTS.inc(faults)


def skipped_images(images: int) -> None:
    """Images, or records, that this run need not or cannot look at."""
    _IMAGES_SKIPPED.inc(images)
    _add(images_done=images, images_skipped=images)


def rejected_image(bytes_: int) -> None:
    """An image that was planned is not written after all; `rejected` counts it under its reason."""
    _IMAGES_REFUSED.inc()
    _add(images_done=1, bytes_done=bytes_)


def rejected(reject: Rejected) -> None:
    Metrics.counter(NAMESPACE, f"{_REJECTED}{reject.what}/{reject.reason.value}").inc()
    _add(rejected=1)


def finished_shard() -> None:
    _SHARDS_WRITTEN.inc()
    _add(shards_done=1)


def update_from_counters(step: str, counts: Mapping[str, int]) -> None:
    """Set the numbers from the counters, by name, of a job that runs elsewhere. They may lag, so none decreases."""

    def total(*counters: Metrics.DelegatingCounter) -> int:
        return sum(counts.get(str(counter.metric_name.name), 0) for counter in counters)

    rejects = sum(number for name, number in counts.items() if name.startswith(_REJECTED))
    numbers = {
        "images_planned": total(_IMAGES_PLANNED),
        "shards_planned": total(_SHARDS_PLANNED),
        "images_done": total(_IMAGES_WRITTEN, _IMAGES_SKIPPED, _IMAGES_REFUSED),
        "images_skipped": total(_IMAGES_SKIPPED),
        "bytes_done": total(_BYTES_WRITTEN),
        "shards_done": total(_SHARDS_WRITTEN),
        "rejected": rejects,
    }
    with _lock:
        _progress.step = step or _progress.step
        for name, number in numbers.items():
            setattr(_progress, name, max(number, getattr(_progress, name)))
        if _progress.images_planned and not _progress.planned_at:
            _progress.planned_at = time.monotonic()
