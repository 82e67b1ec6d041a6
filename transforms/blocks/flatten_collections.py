"""Flatten PCollections."""

from collections.abc import Sequence

import apache_beam as beam
from apache_beam.pvalue import PCollection


def flatten_collections(parts: Sequence[PCollection], name: str) -> PCollection:
    """Return the elements of all parts. One part needs no step."""
    return parts[0] if len(parts) == 1 else parts | name >> beam.Flatten()
