"""Slow tables of conversions and of what they have to keep: `make test-matrix`."""
