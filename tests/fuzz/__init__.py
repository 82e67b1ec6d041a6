"""Seeded mutants of small valid files, for every parser: see `tests.fuzz.__main__`."""
