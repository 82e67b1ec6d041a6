"""Shared tools of steps: coders, threads, forked processes, progress."""
