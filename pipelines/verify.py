"""`recordmill verify`: read a data set and check it."""

import logging
from collections.abc import Iterable, Sequence
from hashlib import sha256
from math import ceil
from typing import Any

import apache_beam as beam
import msgspec
from apache_beam.pvalue import AsList, PCollection

from recordmill.pipelines.dataset_options import VerifyOptions
from recordmill.schemas.dataset.checks import ShardCheck
from recordmill.schemas.dataset.recipes import Recipe
from recordmill.schemas.errors import ConfigError, FaultyDatasetError
from recordmill.schemas.inputs.models import recorded_model
from recordmill.schemas.layouts import FEATURES
from recordmill.schemas.shards import ShardInfo
from recordmill.schemas.sizes import number_text
from recordmill.transforms.dataset.dataset_folder import require_manifest
from recordmill.transforms.encoders.embed_images import EmbedImages
from recordmill.transforms.encoders.load_model import load_expected_model
from recordmill.transforms.storage.resolve import join_path, storage_for
from recordmill.transforms.verify.check_folder import all_faults
from recordmill.transforms.verify.verify_shards import Recomputing, ShardToVerify, VerifyShard

_LOGGER = logging.getLogger(__name__)
_LOGGED_FAULTS = 100
_NAMED_FAULTS = 3
"""Number of errors in the message of a failed job, which is a line in the service's log."""


def expected_shards(options: VerifyOptions) -> list[ShardToVerify]:
    """Return the shards of the manifest, or the requested sample.

    Raises:
        ConfigError: The folder has no manifest; or --recompute is given, and records have no features.
    """
    folder = options.folder
    manifest = require_manifest(folder)
    return [
        ShardToVerify(
            join_path(folder, shard.file),
            name,
            shard,
            manifest.table,
            manifest.labels,
            manifest.container,
            split.recipe.options.get("boxes") != "keep",
            manifest.encoders,
            options.chosen_check,
            _recompute_settings(split.recipe, options),
        )
        for name, split in manifest.splits.items()
        for shard in _sample_shards(split.shards, options.sample)
    ]


def _sample_shards(shards: Sequence[ShardInfo], fraction: float) -> list[ShardInfo]:
    """Return a reproducible sample of the shards, at least one."""
    number = max(1, ceil(fraction * len(shards)))
    drawn = set(sorted(shards, key=lambda shard: sha256(shard.file.encode()).digest())[:number])
    return [shard for shard in shards if shard in drawn]


def _recompute_settings(recipe: Recipe, options: VerifyOptions) -> Recomputing | None:
    if options.recompute is None:
        return None
    if recipe.layout != FEATURES.layout:
        raise ConfigError(
            f"--recompute computes features of --model again, but records of {options.folder} have layout "
            f"{recipe.layout}. Leave --recompute out"
        )
    folders = options.images or recipe.images
    if not folders:
        raise ConfigError(
            f"--recompute reads the images again, but those of {options.folder} are named in the rows of a table. "
            "Add --images with their folder, or leave --recompute out"
        )
    known: dict[str, Any] = recipe.options
    choice, model = recorded_model(known)
    maker = EmbedImages(choice, model, known["batch"], known["dtype"], known["resize"])
    tolerance = known["tolerance"] if options.tolerance is None else options.tolerance
    return Recomputing(maker, folders, options.recompute, tolerance)


def load_models(expected: Iterable[ShardToVerify]) -> None:
    """Load the models that recompute features, before any record.

    Raises:
        JobError: A model is missing, or differs from the recorded one.
    """
    for maker in {shard.recomputing.maker for shard in expected if shard.recomputing}:
        load_expected_model(maker.choice, maker.model)


def build(p: beam.Pipeline, report: str, expected: list[ShardToVerify], workers: int | None) -> None:
    """Check every shard. The list of ShardCheck is written as JSON to `report`."""
    checks = _check_shards(p, expected, workers)
    p | "Once" >> beam.Impulse() | "Report" >> beam.Map(_write_checks, report, AsList(checks))


def build_judging(p: beam.Pipeline, expected: list[ShardToVerify], folder: str, workers: int | None) -> None:
    """Check every shard in a job that fails if there are errors, for services without a report."""
    checks = _check_shards(p, expected, workers)
    p | "Once" >> beam.Impulse() | "Judge" >> beam.Map(_judge, folder, AsList(checks))


def _check_shards(p: beam.Pipeline, expected: list[ShardToVerify], workers: int | None) -> PCollection[ShardCheck]:
    verify = beam.ParDo(VerifyShard(workers, len(expected))).with_output_types(ShardCheck)
    return p | "Shards" >> beam.Create(expected) | "SpreadShards" >> beam.Reshuffle() | "VerifyShards" >> verify


def _sort_checks(checks: Iterable[ShardCheck]) -> list[ShardCheck]:
    return sorted(checks, key=lambda check: (check.split, check.file))


def _write_checks(_: bytes, path: str, checks: list[ShardCheck]) -> None:
    storage_for(path).write(path, msgspec.json.encode(_sort_checks(checks)))


def _judge(_: bytes, folder: str, checks: list[ShardCheck]) -> None:
    examples, size = sum(check.examples for check in checks), sum(check.bytes for check in checks)
    read = f"{examples:,} records in {len(checks):,} shards, {size:,} bytes"
    faults = all_faults(folder, _sort_checks(checks))
    if not faults:
        _LOGGER.info("%s: no fault in %s", folder, read)
        return
    for fault in faults.listed[:_LOGGED_FAULTS]:
        _LOGGER.error("%s: %s", folder, fault)
    named = "; ".join(map(str, faults.listed[:_NAMED_FAULTS])) + ("; …" if len(faults) > _NAMED_FAULTS else "")
    raise FaultyDatasetError(
        f"{folder} differs from what was written: {number_text(len(faults), 'fault')} in {read}: {named}. Do not "
        "train on it. Write it again with --overwrite"
    )
