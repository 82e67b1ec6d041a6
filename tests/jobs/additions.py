"""A run of --add up to its commit, made of a data set in another folder: its shards with other numbers, and lists that
follow those of the data set that grows."""

import shutil
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

from recordmill.schemas.dataset.manifest import Manifest, SplitManifest, encode_json
from recordmill.schemas.statistics import SplitStatistics
from recordmill.transforms.dataset.dataset_folder import read_manifest, read_split_manifests
from recordmill.transforms.dataset.facts import add_statistics
from recordmill.transforms.insight.count_images import describe_statistics
from recordmill.transforms.insight.invert_statistics import invert_statistics
from recordmill.transforms.shards.commit_splits import commit_splits
from recordmill.transforms.shards.grow_split import grow_split
from recordmill.transforms.shards.shard_file import shard_files


class Staged(NamedTuple):
    """Arguments of `commit_splits`, whose files are in the state folders of `output`."""

    output: str
    manifest: Manifest
    statistics: dict[str, bytes]
    base: dict[str, str]

    def commit(self) -> Manifest:
        return commit_splits(self.output, self.manifest, self.statistics, (), self.base)


def stage(output: Path, more: Path) -> Staged:
    """Stage the splits of the data set in `more`, which has at least the classes of that in `output`."""
    before, added = read_split_manifests(str(output)), read_manifest(str(more))
    entries, statistics = {}, {}
    for split, entry in added.splits.items():
        base = before[split].splits[split] if split in before else None
        entries[split], statistics[split] = _stage_split(output, more, added, base, entry)
    manifest = msgspec.structs.replace(added, splits=entries, duplicates=msgspec.UNSET, problems=msgspec.UNSET)
    return Staged(
        str(output), manifest, statistics, {split: before[split].sha256 for split in before.keys() & entries.keys()}
    )


def _stage_split(
    output: Path, more: Path, added: Manifest, base: SplitManifest | None, entry: SplitManifest
) -> tuple[SplitManifest, bytes]:
    split, state = entry.recipe.split, output / f".recordmill-{entry.recipe.split}"
    names = _new_names(added, base, entry)
    for shard in entry.shards:
        new = msgspec.structs.replace(shard, file=names[shard.file])
        for file, target in zip(shard_files(shard), shard_files(new), strict=True):
            (state / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(more / file, state / target)
    digests = {}
    for kind in ("rejects", "fingerprints", "images"):
        data = b"".join(
            (folder / f"{kind}-{split}.jsonl").read_bytes() for folder in (output, more) if base or folder is more
        )
        data = _with_names(data, names)
        (state / f"{kind}.jsonl").write_bytes(data)
        digests[f"{kind}_sha256"] = sha256(data).hexdigest()
    statistics = _with_names((more / f"statistics-{split}.json").read_bytes(), names)
    shards = tuple(msgspec.structs.replace(shard, file=names[shard.file]) for shard in entry.shards)
    entry = msgspec.structs.replace(entry, shards=shards, **digests)
    if base:
        parts = (output / f"statistics-{split}.json").read_bytes(), statistics
        files = (msgspec.json.decode(part, type=SplitStatistics) for part in parts)
        entry, sum_ = grow_split(base, entry), add_statistics(*(invert_statistics(file, added.table) for file in files))
        statistics = encode_json(describe_statistics(sum_, added.labels, added.table, entry.class_counts))
    return msgspec.structs.replace(entry, statistics_sha256=sha256(statistics).hexdigest()), statistics


def _new_names(added: Manifest, base: SplitManifest | None, entry: SplitManifest) -> dict[str, str]:
    names = added.shard_names(entry.recipe.split)
    keys = [names.key(shard.file, len(entry.shards)) for shard in entry.shards]
    first = len(base.shards) if base else 0
    return {
        shard.file: names.file(
            msgspec.structs.replace(key, index=key.index + first, count=key.count + first),
            shard.examples,
            bool(entry.compression),
        )
        for shard, key in zip(entry.shards, keys, strict=True)
    }


def _with_names(data: bytes, names: dict[str, str]) -> bytes:
    for old, new in names.items():
        data = data.replace(f'"{old}"'.encode(), f'"{new}"'.encode())
    return data
