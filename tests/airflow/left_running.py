"""Processes that should have ended."""

import time

import psutil


def running_with(text: str, seconds: float = 0.0) -> list[psutil.Process]:
    """Running processes whose command lines have `text` in them; those that are about to end are given `seconds`."""
    last = time.monotonic() + seconds
    while True:
        found = [
            process
            for process in psutil.process_iter(["cmdline", "status"])
            if process.info["status"] != psutil.STATUS_ZOMBIE
            and any(text in word for word in process.info["cmdline"] or ())
        ]
        if not found or time.monotonic() > last:
            return found
        time.sleep(0.1)
