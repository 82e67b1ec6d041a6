"""Data sets: folder, facts, rejects, views of records."""
