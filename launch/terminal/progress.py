"""A job's progress on the terminal: one live line, or plain lines where nobody watches."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from recordmill.launch.terminal.error_stream import error_stream
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.progress import Progress

_LIVE_SECONDS = 0.2
_PLAIN_SECONDS = 10.0

_pausing, _paused, _live = threading.Event(), threading.Event(), threading.Event()


@contextmanager
def shown(mode: str) -> Iterator[None]:
    """Show progress on standard error while the block runs: `auto` live on a terminal and plain elsewhere, `plain`,
    or `none`."""
    progress.reset()
    if mode == "none":
        yield
        return
    stream = error_stream()
    live = mode == "auto" and stream is not None and stream.isatty()
    stop = threading.Event()
    watcher = threading.Thread(target=_show_live if live else _show_plain, args=(stop,), name="progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()


@contextmanager
def paused() -> Iterator[None]:
    """While the block runs, the live line is removed, so that a person can be asked something."""
    _paused.clear()
    _pausing.set()
    if _live.is_set():
        _paused.wait(5 * _LIVE_SECONDS)
    try:
        yield
    finally:
        _pausing.clear()


def progress_line(now: Progress, seconds: float) -> str:
    """One line of text.

    Args:
        seconds: since the first image could be written.
    """
    if not now.images_planned:
        if now.shards_done:  # all that is known of workers in other processes
            return f"{now.shards_done:,} shards finished"
        return now.step or "starting"
    done, planned = now.images_done, now.images_planned
    parts = [
        f"{done:,} of {planned:,} images ({done / planned:.0%})",
        f"{now.shards_done:,} of {now.shards_planned:,} shards",
    ]
    done_now = done - now.images_skipped
    if seconds > 0 and done_now:
        parts += [f"{done_now / seconds:,.0f} images/s", f"{now.bytes_done / seconds / 1e6:,.1f} MB/s"]
    if now.rejected:
        parts.append(f"{now.rejected:,} rejected")
    if seconds > 0 and done_now and done < planned:  # the order is that of a hash, so sizes are evenly spread
        parts.append(f"{_clock(seconds * (planned - done) / done_now)} left")
    return " · ".join(parts)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _line() -> str:
    now = progress.snapshot()
    return progress_line(now, time.monotonic() - now.planned_at if now.planned_at else 0.0)


def _show_plain(stop: threading.Event) -> None:
    last = ""
    while not stop.wait(_PLAIN_SECONDS):
        line = _line()
        if line != last:
            print(line, file=error_stream(), flush=True)
        last = line


def _show_live(stop: threading.Event) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    def row() -> Table:
        now = progress.snapshot()
        table = Table.grid(padding=(0, 1))
        bar = ProgressBar(
            total=now.images_planned or 1, completed=now.images_done, width=24, pulse=not now.images_planned
        )
        table.add_row(bar, _line())
        return table

    console = Console(file=error_stream())
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
