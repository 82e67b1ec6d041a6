"""Progress of a job: a live line on a terminal, plain lines elsewhere."""

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Protocol, TextIO

from recordmill.launch.terminal.error_stream import error_stream
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.progress import Progress

_LIVE_SECONDS = 0.2
_PLAIN_SECONDS = 10.0
_CANNOT_ERASE = ("dumb", "unknown")
_BARS = (24, 12)
_SEPARATOR = " · "

Show = Callable[[threading.Event, TextIO], None]
"""Function that shows progress on a stream until the event is set."""

_pausing, _paused, _live = threading.Event(), threading.Event(), threading.Event()


@contextmanager
def show_progress(mode: str | Show) -> Iterator[None]:
    """Context manager: show progress on standard error: `auto` live on a terminal and plain elsewhere, `plain`,
    `none`, or by a function."""
    progress.reset()
    stream = error_stream()
    if mode == "none" or stream is None:
        yield
        return
    live = mode == "auto" and stream.isatty() and os.environ.get("TERM") not in _CANNOT_ERASE
    stop = threading.Event()
    with _duplicate_stream(stream) if live else nullcontext(stream) as stream:
        show = mode if callable(mode) else _show_live if live else _show_plain
        watcher = threading.Thread(target=show, args=(stop, stream), name="progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            stop.set()
            watcher.join()


def _duplicate_stream(stream: TextIO) -> TextIO:
    """Return a duplicate of a stream. Standard error may be hidden and shown again meanwhile."""
    return open(os.dup(stream.fileno()), "w", encoding=stream.encoding, errors="backslashreplace")


@contextmanager
def pause_progress() -> Iterator[None]:
    """Context manager: remove the live line, so that the user can be asked."""
    _paused.clear()
    _pausing.set()
    if _live.is_set():
        _paused.wait(5 * _LIVE_SECONDS)
    try:
        yield
    finally:
        _pausing.clear()


class Counted(Protocol):
    """A shard of known size."""

    @property
    def examples(self) -> int: ...


def expect_records(shards: Sequence[Counted], in_this_process: bool) -> None:
    """Set the progress total of a verb that reads shards. Other processes report their progress only at their end."""
    if in_this_process:
        progress.count_planned(sum(shard.examples for shard in shards), len(shards), "records")
    else:
        progress.set_step(f"reading {len(shards):,} shards")


def progress_line(now: Progress, seconds: float, width: float = math.inf) -> str:
    """Return a line of text.

    Args:
        seconds: Seconds since the first image could be written.
        width: Maximum number of columns; the least important parts are omitted first.
    """
    parts = _line_parts(now, seconds)
    while len(line := _SEPARATOR.join(text for _, text in parts)) > width and len(parts) > 1:
        parts.remove(min(parts))
    return line if len(line) <= width else f"{line[: max(0, int(width) - 1)]}…"


def _line_parts(now: Progress, seconds: float) -> list[tuple[int, str]]:
    """Return a line's parts in order, with priorities."""
    if not now.images_planned:
        if now.shards_done:  # workers in other processes report nothing else
            return [(0, f"{now.shards_done:,} shards finished")]
        return [(0, now.step or "starting")]
    done, planned = now.images_done, now.images_planned
    parts = [
        (6, f"{done:,} of {planned:,} {now.unit} ({math.floor(100 * done / planned)}%)"),
        (2, f"{now.shards_done:,} of {now.shards_planned:,} shards"),
    ]
    done_now = done - now.images_skipped
    if seconds > 0 and done_now:
        parts += [
            (3, f"{done_now / seconds:,.0f} {now.unit}/s"),
            (1, f"{now.bytes_done / seconds / 1e6:,.1f} MB/s"),
        ]
    if now.rejected:
        parts.append((4, f"{now.rejected:,} rejected"))
    if seconds > 0 and done_now and done < planned:  # images are in the order of a hash, so sizes are evenly spread
        parts.append((5, f"{_clock(seconds * (planned - done) / done_now)} left"))
    return parts


def bar_width(line: str, width: int) -> int:
    """Return the width of the bar in a terminal of `width` columns: one of two sizes, so that it does not change with
    every digit; 0 for no bar.

    >>> [bar_width("9 of 10 images (90%)", width) for width in (80, 40, 30)]
    [24, 12, 0]
    """
    return next((size for size in _BARS if size + 1 + len(line) <= width), 0)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def line_now(now: Progress, width: float = math.inf) -> str:
    """Return the line of a job that this process runs."""
    return progress_line(now, time.monotonic() - now.planned_at if now.planned_at else 0.0, width)


def send_lines(stop: threading.Event, columns: int, send: Callable[[str], None]) -> None:
    """Send a changed line, until the event is set.

    Args:
        columns: Width of a live line, with a bar; 0 for plain lines, which come less often.
    """
    last = ""
    while not stop.wait(_LIVE_SECONDS if columns else _PLAIN_SECONDS):
        now = progress.snapshot()
        line = line_now(now, columns or math.inf)
        if now.images_planned and (width := bar_width(line, columns)):
            full = width * now.images_done // now.images_planned
            line = f"{'█' * full}{'░' * (width - full)} {line}"
        if line != last:
            send(line)
        last = line


def _show_plain(stop: threading.Event, stream: TextIO) -> None:
    send_lines(stop, 0, partial(print, file=stream, flush=True))


def _show_live(stop: threading.Event, stream: TextIO) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    console = Console(file=stream)

    def row() -> Table:
        now = progress.snapshot()
        line = line_now(now, console.width)
        table = Table.grid(padding=(0, 1))
        planned = now.images_planned
        if width := bar_width(line, console.width):
            bar = ProgressBar(total=planned or 1, completed=now.images_done, width=width, pulse=not planned)
            table.add_row(bar, Text(line))
        else:
            table.add_row(Text(line))
        return table

    live = Live(get_renderable=row, console=console, refresh_per_second=1 / _LIVE_SECONDS, transient=True)
    live.start()
    _live.set()
    while not stop.wait(_LIVE_SECONDS / 2):
        if _pausing.is_set() and live.is_started:
            live.stop()
            _paused.set()
        elif not _pausing.is_set() and not live.is_started:
            live.start()
    _live.clear()
    live.stop()
