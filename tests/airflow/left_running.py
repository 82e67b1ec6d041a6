"""Processes that should have ended."""

import time

import psutil


def running_with(text: str) -> list[psutil.Process]:
    """Running processes whose command lines have `text` in them; those that are about to end are given a second."""
    for _ in range(10):
        found = [
            process
            for process in psutil.process_iter(["cmdline", "status"])
            if process.info["status"] != psutil.STATUS_ZOMBIE
            and any(text in word for word in process.info["cmdline"] or ())
        ]
        if not found:
            break
        time.sleep(0.1)
    return found
