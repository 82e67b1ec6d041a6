"""Progress of this process's steps, for the progress line and for Beam's counters.

Beam's in-process runner does not report metrics before it ends, so this module counts, too. For a job that runs
elsewhere, `update_from_counters` sets the numbers from the job's counters. Forked processes add to memory that they
share with their parent. Their Beam counters are lost.
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
"""Namespace of a job's counters."""

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
    """Numbers since the start of the process or since `reset`.

    Attributes:
        step: Description of the current step, for a person.
        images_done: Planned images that are written, rejected, or skipped; all of them if there is nothing to do.
        images_skipped: Images that this run skipped: an earlier run finished their shard, or a shard is damaged.
        bytes_done: Size of the files that this run read.
        planned_at: `time.monotonic` of the plan, after which images are written; 0 before.
        rejected: Images and annotations, planned or not.
        unit: Unit of the counts: `images`, `tiles` or `rows`, or `records` when a data set is read back.
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
    """Duration of each step.

    Attributes:
        seconds: Durations of earlier steps, in order.
        step, since: Current step, and `time.monotonic` of its start.
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
    """Numbers named in _SHARED, in memory that a process shares with its forked processes."""

    def __init__(self) -> None:
        self._numbers = memoryview(mmap(-1, 8 * len(_SHARED))).cast("q")
        self._lock = multiprocessing.get_context("fork").Lock()

    def add(self, numbers: Mapping[str, int]) -> None:
        with self._lock:
            for name, number in numbers.items():
                self._numbers[_SHARED.index(name)] += number

    def read(self) -> dict[str, int]:
        """Return the numbers without a lock, because a killed process may still hold it."""
        return dict(zip(_SHARED, self._numbers, strict=True))

    def clear(self) -> None:
        for index in range(len(_SHARED)):
            self._numbers[index] = 0


_forked_numbers: _Shared | None = None
_is_forked = False


def expect_forked() -> None:
    """Share counts with processes that are forked from now on and call `count_for_parent`."""
    global _forked_numbers
    _forked_numbers = _Shared()


def count_for_parent() -> None:
    """Mark this process as forked: it counts for its parent."""
    global _is_forked
    _is_forked = True


def snapshot() -> Progress:
    """Return the current numbers."""
    with _lock:
        now = msgspec.structs.replace(_progress)
    if _forked_numbers:
        for name, number in _forked_numbers.read().items():
            setattr(now, name, getattr(now, name) + number)
    return now


def reset() -> None:
    global _progress, _times
    with _lock:
        _progress, _times = Progress(), _Times()
    if _forked_numbers:
        _forked_numbers.clear()


def _add_numbers(**numbers: int) -> None:
    if _is_forked and _forked_numbers:
        _forked_numbers.add(numbers)
        return
    with _lock:
        for name, number in numbers.items():
            setattr(_progress, name, getattr(_progress, name) + number)


def set_step(step: str) -> None:
    with _lock:
        _progress.step = step
        _times.enter(step)


def step_seconds() -> dict[str, float]:
    """Return the duration of each step of this process since `reset`: until the next step started, or until now. The
    step `writing` starts with the plan."""
    with _lock:
        return _times.until_now()


def count_planned(images: int, shards: int, unit: str = "images") -> None:
    _IMAGES_PLANNED.inc(images)
    _SHARDS_PLANNED.inc(shards)
    with _lock:
        _progress.planned_at = _progress.planned_at or time.monotonic()
        _progress.unit = unit
        _times.enter("writing")
        _progress.images_planned += images
        _progress.shards_planned += shards


def count_written_images(images: int, bytes_: int) -> None:
    """Count images, or rows of a table, in records, and the bytes read from image files."""
    _IMAGES_WRITTEN.inc(images)
    _BYTES_WRITTEN.inc(bytes_)
    _add_numbers(images_done=images, bytes_done=bytes_)


def count_read_record(bytes_: int) -> None:
    """Count a record that was read back, and the bytes of its shard since the previous record."""
    _RECORDS_READ.inc()
    _add_numbers(images_done=1, bytes_done=bytes_)


def count_faults(faults: int) -> None:
    """Count the faults of a shard that was read back."""
    _FAULTS.inc(faults)


def count_skipped_images(images: int) -> None:
    """Count images, or records, that this run skips."""
    _IMAGES_SKIPPED.inc(images)
    _add_numbers(images_done=images, images_skipped=images)


def count_rejected_image(bytes_: int) -> None:
    """Count a planned image that is not written. `count_reject` counts it by reason."""
    _IMAGES_REFUSED.inc()
    _add_numbers(images_done=1, bytes_done=bytes_)


def count_reject(reject: Rejected) -> None:
    Metrics.counter(NAMESPACE, f"{_REJECTED}{reject.what}/{reject.reason.value}").inc()
    _add_numbers(rejected=1)


def count_finished_shard() -> None:
    _SHARDS_WRITTEN.inc()
    _add_numbers(shards_done=1)


def update_from_counters(step: str, counts: Mapping[str, int]) -> None:
    """Set the numbers from a remote job's counters, by name. Counters may lag, so no number decreases."""

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
