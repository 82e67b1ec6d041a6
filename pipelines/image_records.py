"""Digests of the images of a finished data set that has none, by one read of its shards."""

from collections.abc import Sequence

import apache_beam as beam
from apache_beam.pvalue import AsIter

from recordmill.schemas.dataset.manifest import Manifest
from recordmill.transforms.insight.write_report import try_to_report
from recordmill.transforms.shards.read_image_records import DigestShard, ShardToDigest, commit_images


def build(
    p: beam.Pipeline,
    shards: Sequence[ShardToDigest],
    output: str,
    manifests: dict[str, Manifest],
    workers: int | None,
) -> None:
    """Read every shard, and commit the digests.

    Args:
        manifests: Manifest of each split.
    """
    digested = (
        p
        | "Shards" >> beam.Create(shards)
        | "SpreadShards" >> beam.Reshuffle()
        | "DigestShards" >> beam.ParDo(DigestShard(workers, len(shards)))
    )
    p | "Once" >> beam.Impulse() | "Commit" >> beam.Map(_commit, output, manifests, AsIter(digested))


def _commit(_: bytes, output: str, manifests: dict[str, Manifest], digested) -> None:
    commit_images(output, manifests, digested)
    try_to_report(output)
