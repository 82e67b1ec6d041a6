"""`recordmill index`: write indexes of TFRecord and tar files. It imports neither Beam nor TensorFlow."""

from concurrent.futures import ThreadPoolExecutor
from threading import Lock

from recordmill.launch.terminal.console import searching, terminal
from recordmill.pipelines.dataset_options import IndexOptions
from recordmill.schemas.containers import CONTAINERS, TFRECORD
from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.sizes import number_text
from recordmill.transforms.containers.container import Contents
from recordmill.transforms.containers.index_shard import index_container_shard
from recordmill.transforms.records.shard_index import INDEX, check_indexable, index_shard, store_index
from recordmill.transforms.records.tar import build_tar_index, is_gzip_tar, is_tar
from recordmill.transforms.show.find_shards import FILE_MARKS, Shard, find_shards
from recordmill.transforms.storage.resolve import join_path, split_folder, storage_for

_FILES_AT_ONCE = 8


def run(options: IndexOptions) -> None:
    """Write the index of each file.

    Raises:
        ConfigError: There is no such file, or it is GZIP, or neither a TFRecord file nor a tar; nothing was written.
        RecordError: A file is damaged.
        OSError: A file cannot be read, or an index cannot be written.
    """
    named = [find_shards(path, "", (*FILE_MARKS, ".tar")) for path in options.paths_to_index]
    shards = list({shard.path: shard for group in named for shard in group.shards}.values())
    manifests = {shard.path: group.manifest for group in named for shard in group.shards}
    lock, passed = Lock(), 0
    with searching() as search, ThreadPoolExecutor(_FILES_AT_ONCE) as pool:

        def read(records: int) -> None:
            nonlocal passed
            with lock:
                passed += records
                search.read(passed)

        def write(shard: Shard) -> bool:
            manifest = manifests[shard.path]
            if manifest is None and is_tar(shard.path):
                data, samples = build_tar_index(shard.path, read)
                return store_index(shard.path, data, samples, None)
            if manifest is None or manifest.container == TFRECORD:
                return index_shard(shard.path, shard.records, read)[1]
            contents = Contents(manifest.table, manifest.labels)
            return index_container_shard(shard.path, shard.records, manifest.container, contents, read)

        try:
            list(pool.map(_check_indexable, manifests.keys(), manifests.values()))
            written = sum(pool.map(write, shards))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    folders = sorted({split_folder(shard.path)[0] for shard in shards})
    targets = [join_path(folder, INDEX) for folder in folders]
    for target in targets:
        storage_for(target).delete_leftovers(target)
    existing_note = f"; {len(shards) - written:,} already existed" if written < len(shards) else ""
    summary = f"{number_text(len(shards), 'file')} with {passed:,} records"
    terminal().print(f"Indexes of {summary} are in {', '.join(targets)}{existing_note}")


def _check_indexable(path: str, manifest: Manifest | None) -> None:
    """Raise ConfigError if a file cannot have an index."""
    if manifest is None or manifest.container == TFRECORD:
        if manifest or not is_tar(path):
            try:
                check_indexable(path)
            except ConfigError as error:
                if not is_gzip_tar(path):
                    raise
                raise ConfigError(
                    f"{path} is a tar file in GZIP, which can only be read from its beginning, so it cannot have an "
                    "index. Unpack it with gunzip, and index the tar file"
                ) from error
    elif not CONTAINERS[manifest.container].has_index:
        raise ConfigError(f"{path}: {manifest.container} files have no index; records are read by number without one")
