"""Ultralytics' NDJSON: a line of the data set, and a line per image."""
