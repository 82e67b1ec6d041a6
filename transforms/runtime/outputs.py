"""What the steps that write records give."""

from typing import NamedTuple

from apache_beam.pvalue import PCollection


class Written(NamedTuple):
    """Shards, and what is known of them.

    Attributes:
        shards: (split, ShardInfo), one a file.
        facts: Facts of the records.
        fingerprints: (split, Fingerprints) of shards whose records have pictures.
    """

    shards: PCollection
    facts: PCollection
    fingerprints: PCollection
