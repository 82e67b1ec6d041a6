"""`recordmill verify`: a data set is read back, and all of it is checked."""

import apache_beam as beam
import msgspec
from apache_beam.pvalue import AsList

from recordmill.schemas.plan_report import ShardCheck
from recordmill.transforms.metadata.dataset_folder import require_manifest
from recordmill.transforms.storage.resolve import storage_for
from recordmill.transforms.verify.verify_shards import ShardToVerify, VerifyShards


def expected_shards(folder: str) -> list[ShardToVerify]:
    """Every shard that is in the folder's manifest.

    Raises:
        ConfigError: the folder has no manifest.
    """
    manifest = require_manifest(folder)
    storage = storage_for(folder)
    return [
        ShardToVerify(
            storage.join(folder, shard.file),
            name,
            shard,
            manifest.table,
            manifest.labels,
            split.recipe.options.get("boxes") != "keep",
            manifest.encoders,
        )
        for name, split in manifest.splits.items()
        for shard in split.shards
    ]


def build(p: beam.Pipeline, expected: list[ShardToVerify], report: str, workers: int | None) -> None:
    """Check every shard; the list of ShardCheck goes as JSON to the file `report`."""
    checks = p | "Shards" >> beam.Create(expected) | "VerifyShards" >> VerifyShards(workers)
    p | "Once" >> beam.Create([report]) | "Report" >> beam.Map(_write_report, AsList(checks))


def _write_report(path: str, checks: list[ShardCheck]) -> None:
    ordered = sorted(checks, key=lambda check: (check.split, check.file))
    storage_for(path).write(path, msgspec.json.encode(ordered))
