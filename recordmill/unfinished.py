"""The splits of jobs that have not finished: the shards that are, in the order that the finished split will have."""

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import msgspec

from recordmill.schemas.dataset_files import DESCRIPTION, RECIPE, state_folder
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.manifest import Manifest, decode_manifest
from recordmill.schemas.recipes import Recipe
from recordmill.schemas.shards import ShardResult
from recordmill.transforms.metadata.dataset_folder import unfinished_splits
from recordmill.transforms.shards.shard_file import decode_note
from recordmill.transforms.storage.interface import Storage
from recordmill.transforms.storage.resolve import storage_for

_READS = 16
"""Notes that are read at once: in a bucket, each is a request."""


class Unfinished(NamedTuple):
    """What an unfinished job has of a split.

    Attributes:
        described: what is in the records, as a manifest without splits.
        results: of the finished shards, by index.
        shards: how many the finished split will have.
    """

    described: Manifest
    recipe: Recipe
    results: tuple[ShardResult, ...]
    shards: int


def read_unfinished(output: str) -> dict[str, Unfinished]:
    """What unfinished jobs have of their splits, by name; of those of which a shard is finished.

    Raises:
        ConfigError: shards of two plans are there.
        OSError: storage fails.
    """
    found = {split: _read(output, split) for split in unfinished_splits(output)}
    return {split: unfinished for split, unfinished in found.items() if unfinished is not None}


def _read(output: str, split: str) -> Unfinished | None:
    storage = storage_for(output)
    folder = storage.join(output, state_folder(split))
    try:
        described, recipe = (storage.read(storage.join(folder, name)) for name in (DESCRIPTION, RECIPE))
    except FileNotFoundError:  # no shard is finished, or the job has just ended
        return None
    notes = [name for name in storage.names(folder) if name.endswith(".json") and name not in (DESCRIPTION, RECIPE)]
    with ThreadPoolExecutor(_READS) as pool:
        read = pool.map(lambda name: _result(storage, storage.join(folder, name), described), notes)
        # As describe_split orders the shards of the finished split.
        results = sorted((result for result in read if result is not None), key=lambda result: result.info.file)
    if not results:
        return None
    if difference := _two_plans(results):
        raise ConfigError(
            f"{folder} has finished shards of two plans, {difference}, so that images would come twice: let the job "
            "finish, which keeps those that are its own"
        )
    manifest = decode_manifest(described, storage.join(folder, DESCRIPTION))
    return Unfinished(manifest, msgspec.json.decode(recipe, type=Recipe), tuple(results), results[0].key.count)


def _two_plans(results: Collection[ShardResult]) -> str:
    """What shows that the shards are not of one plan, as images have come or gone between two runs; empty where they
    are."""
    counts = sorted({result.key.count for result in results})
    if len(counts) > 1:
        return f"of {counts[0]:,} and of {counts[-1]:,} shards"
    ordered = sorted(results, key=lambda result: result.key)
    with_span = [(result.info.file, *result.span) for result in ordered if result.span]
    for (file, _, last), (other, first, _) in pairwise(with_span):
        if first <= last:
            return f"as {file} and {other} overlap"
    return ""


def _result(storage: Storage, note: str, described: bytes) -> ShardResult | None:
    """Of a shard whose records are as the description says; None of others, or where the job has just ended."""
    try:
        return decode_note(storage.read(note), described)
    except FileNotFoundError:
        return None
