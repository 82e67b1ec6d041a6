"""`recordmill verify`: a data set is read back, and all of it is checked."""

from collections.abc import Sequence

import apache_beam as beam
import msgspec
from apache_beam.pvalue import AsList

from recordmill.schemas.features import RecordOf
from recordmill.schemas.layouts import shard_names
from recordmill.schemas.manifest import MANIFEST
from recordmill.schemas.plan_report import Fault, ShardCheck
from recordmill.schemas.tfds import shard_links
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
        )
        for name, split in manifest.splits.items()
        for shard in split.shards
    ]


def folder_faults(folder: str, checks: Sequence[ShardCheck]) -> list[Fault]:
    """Faults of a data set outside of its shards: counts in the manifest that disagree, and shard files that are not in
    the manifest."""
    manifest = require_manifest(folder)
    faults = []
    listed = set()
    for name, split in manifest.splits.items():
        names = shard_names(manifest.name, name, manifest.layout)
        links = shard_links(names, split)
        listed |= {shard.file for shard in split.shards} | links.keys()
        objects = sum(check.objects for check in checks if check.split == name)
        images, annotations = split.images, split.annotations
        records = annotations.objects if manifest.table.record_of is RecordOf.ANNOTATION else images.written
        for what, stated, found in (
            ("records", records, split.examples),
            ("image rows", images.rows, images.accounted),
            ("annotation rows", annotations.rows, annotations.accounted),
            ("objects", annotations.objects, objects),
        ):
            if stated != found:
                faults.append(
                    Fault(MANIFEST, None, "count", f"split {name}: {what} {stated:,}, but {found:,} by its parts")
                )
    for file in storage_for(folder).names(folder):
        if file not in listed and any(split.recipe.shard_names.is_one(file) for split in manifest.splits.values()):
            faults.append(Fault(file, None, "unlisted", "named as a shard of this data set, but not in its manifest"))
    return faults


def build(p: beam.Pipeline, expected: list[ShardToVerify], report: str, workers: int | None) -> None:
    """Check every shard; the list of ShardCheck goes as JSON to the file `report`."""
    checks = p | "Shards" >> beam.Create(expected) | "VerifyShards" >> VerifyShards(workers)
    p | "Once" >> beam.Create([report]) | "Report" >> beam.Map(_write_report, AsList(checks))


def _write_report(path: str, checks: list[ShardCheck]) -> None:
    ordered = sorted(checks, key=lambda check: (check.split, check.file))
    storage_for(path).write(path, msgspec.json.encode(ordered))
