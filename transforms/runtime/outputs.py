"""Steps with several outputs: what is not a step's main result leaves by an output of its own, chosen by its type."""

from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import PCollection


def of_split(split: str) -> beam.PTransform:
    """Items become (split, item). Of no type that Beam could tell from others, so that what is flattened has one coder:
    Flink refuses to unite others."""
    return beam.Map(_of_split, split).with_output_types(Any)


def _of_split(item: Any, split: str) -> tuple[str, Any]:
    return split, item


class Written(NamedTuple):
    """What the steps that write records give.

    Attributes:
        shards: (split, ShardInfo), one a file.
        counted: (split, Count), of what is in the records.
        rejected: (RejectKind, Rejects), perhaps several of a kind.
        classes: ((split, class index), number) of objects, or of images.
        statistics: (split, Statistics) of shards.
        fingerprints: (split, Fingerprints) of shards; of those alone whose records have pictures.
    """

    shards: PCollection
    counted: PCollection
    rejected: PCollection
    classes: PCollection
    statistics: PCollection
    fingerprints: PCollection
