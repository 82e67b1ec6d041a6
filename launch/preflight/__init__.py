"""Checks before a job starts: inputs, output, memory, runner."""
