"""Read finished shards, and write their records to shards of another container."""

from collections.abc import Iterator
from concurrent.futures import Executor
from hashlib import sha256

import msgspec

from recordmill.schemas.dataset.checks import Fault
from recordmill.schemas.errors import FaultyDatasetError
from recordmill.schemas.shards import ShardKey, ShardResult
from recordmill.schemas.statistics import Statistics
from recordmill.transforms.containers.container import Contents
from recordmill.transforms.containers.read_shards import ManifestShard, readable_records
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.beam_steps import pack, repacked_versions
from recordmill.transforms.runtime.processes import ShardDoFn
from recordmill.transforms.shards.shard_file import FinishedShards, ShardFile, shard_folders


class ShardToRepack(msgspec.Struct, frozen=True):
    """A finished shard, and the container and data set that its records are written to; a ShardTarget.

    Attributes:
        source: The shard. Its container is another one, or compresses otherwise.
        key: Key of the new shard, which is also that of the finished one.
        made_by: Versions that made the finished shard, see SplitManifest.
        output, name, layout, gzip, container: Of the new shard, see `recordmill.transforms.shards.shard_file`.
    """

    source: ManifestShard
    key: ShardKey
    made_by: dict[str, str]
    output: str
    name: str
    layout: str
    gzip: bool
    container: str

    @property
    def plan(self) -> str:
        """Hex digest of what the bytes of the new shard follow from, besides versions."""
        source = self.source
        data = pack((self.key, source.info.sha256, source.table, source.labels, self.layout, self.gzip, self.container))
        return sha256(data).hexdigest()


class RepackShard(ShardDoFn):
    """Convert each ShardToRepack to its key and the SHA-256 of its note, see `repack_shard`.

    Args:
        threads: 1 for no processes.
        shards: Number of all shards.
    """

    def __init__(self, threads: int | None, shards: int):
        super().__init__(threads)
        self._shards = shards

    def process(self, shard: ShardToRepack) -> Iterator[tuple[ShardKey, str]]:
        folders = shard_folders(shard, shard.key.split)
        yield from self.do(repack_shard, shard, shards=self._shards, folders=folders)


def repack_shard(shard: ShardToRepack, pool: Executor, threads: int) -> tuple[ShardKey, str]:
    """Write a shard, unless an earlier run has finished it. Its note has the sizes of its records.

    Raises:
        FaultyDatasetError: The finished shard is damaged, or is not that of the manifest.
        ConfigError: The container cannot store a record.
        OSError: A file cannot be read or written.
    """
    notes = FinishedShards(shard.output, shard.name, shard.layout, shard.container)
    made_by = repacked_versions(shard.made_by, shard.source.container, shard.container, shard.layout, shard.gzip)
    if earlier := notes.find(shard.key, shard.plan, made_by):
        progress.count_skipped_images(shard.source.info.examples)
        progress.count_finished_shard()
        return shard.key, earlier[0].note
    written, record_sizes = _write_records(shard)
    counts = Statistics(written.info.examples)
    result = ShardResult(shard.key, shard.plan, made_by, written.info, {}, (), counts, record_sizes=record_sizes)
    return shard.key, notes.note(result).note


def _write_records(shard: ShardToRepack) -> tuple[ShardFile, bytes]:
    source, damage = shard.source, list[Fault]()
    with ShardFile(shard, shard.key, Contents(source.table, source.labels)) as file:
        for record in readable_records(source, source.reader(), damage):
            file.append(record)
        if damage:
            raise FaultyDatasetError(
                f"{source.path.removesuffix(source.info.file)}{damage[0]}. Nothing was committed. recordmill "
                "verify lists all damage, and the command of the data set writes the shard again"
            )
    return file, file.lengths(0).tobytes()
