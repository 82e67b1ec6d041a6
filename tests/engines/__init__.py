"""Engines that run the pipelines, and the workers they run them on: `make test-engines`."""
