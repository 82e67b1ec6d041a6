"""Write the file of a shard, and find finished ones."""

import hashlib
import zlib
from array import array
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import google_crc32c
import msgspec
import numpy as np

from recordmill.schemas.containers import TFRECORD
from recordmill.schemas.dataset.dataset_files import state_folder
from recordmill.schemas.errors import JobError
from recordmill.schemas.layouts import shard_names
from recordmill.schemas.rejects import Reason
from recordmill.schemas.shards import IndexInfo, ShardInfo, ShardKey, ShardResult
from recordmill.transforms.containers.container import Contents, container_of
from recordmill.transforms.dataset.facts import Facts
from recordmill.transforms.dataset.rejects import count_rejects
from recordmill.transforms.encoders.record_maker import RecordMaker
from recordmill.transforms.records.shard_index import INDEX, index_file, index_path
from recordmill.transforms.runtime.beam_steps import library_versions
from recordmill.transforms.storage.interface import Storage, crc32c_text
from recordmill.transforms.storage.resolve import join_path, storage_for

_TRANSIENT = (Reason.IMAGE_MISSING, Reason.IMAGE_INACCESSIBLE, Reason.MASK_MISSING)
"""Reject reasons that may not recur. A shard with one is written again."""

_GZIP_LEVEL = 1  # of zlib, see docs/decisions/0003-gzip.md; higher ones are slower and no smaller on JPEGs
_GZIP_WINDOW = 31  # maximum window, with a gzip header whose time is 0


class ShardRecipe(msgspec.Struct, frozen=True, omit_defaults=True):
    """Output of shards, and everything that determines their bytes except images and labels.

    Attributes:
        output: Folder of the data set; `name` is the prefix of its files.
        layout: One of `recordmill.schemas.layouts.LAYOUTS`.
        seed: Seed of the order of records.
        maker: Maker of the records.
        format: Format of records and manifest, see `recordmill.schemas.dataset.manifest.FORMAT`.
        first_shards: Index of the first shard of each split that the data set has.
    """

    output: str
    name: str
    layout: str
    gzip: bool
    seed: int
    maker: RecordMaker
    format: int
    container: str = TFRECORD  # digests of plans have another one only
    first_shards: dict[str, int] = {}


class ShardTarget(Protocol):
    """Description of the data set that a ShardFile is part of."""

    @property
    def output(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def layout(self) -> str: ...
    @property
    def gzip(self) -> bool: ...
    @property
    def container(self) -> str: ...


class ShardFile:
    """File of a shard. Its container makes the bytes; this class has the name, the upload, the checksums and GZIP. At
    the end of the `with` block, the file appears in the split's state folder, after its index. After an exception, no
    file appears.

    Attributes:
        info: Entry of the file, after the block.
    """

    def __init__(self, recipe: ShardTarget, key: ShardKey, contents: Contents):
        self._recipe = recipe
        self._key = key
        self._names = shard_names(recipe.name, key.split, recipe.layout, recipe.container)
        self._storage = storage_for(recipe.output)
        self._upload = self._storage.create(self._path(0), recipe.output)
        self._gzip = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW) if recipe.gzip else None
        self._sha256 = hashlib.sha256()
        self._crc32c = google_crc32c.Checksum()
        self._size = 0
        self._lengths = array("q")
        self._is_dropped = False
        write = self._write_compressed if recipe.gzip else self._write
        try:
            self._writer = container_of(recipe.container).create(contents, key, write)
        except BaseException:
            self._upload.abandon()
            raise
        self.info: ShardInfo

    def _path(self, examples: int) -> str:
        return join_path(self._recipe.output, f"{state_folder(self._key.split)}/{self._name(examples)}")

    def _name(self, examples: int) -> str:
        return self._names.file(self._key, examples, self._recipe.gzip)

    @property
    def examples(self) -> int:
        """Number of appended records."""
        return len(self._lengths)

    def append(self, *record: bytes) -> None:
        """Add a serialised tf.Example, in one or several parts."""
        self._writer.append(*record)
        self._lengths.append(sum(map(len, record)))

    def drop(self) -> None:
        """Write no file. The entry has no bytes."""
        self._is_dropped = True

    def lengths(self, first: int) -> np.ndarray:
        """Return the size of each tf.Example in bytes, from record `first` on: int64."""
        return np.array(self._lengths[first:], np.int64)

    def _write(self, data: bytes) -> None:
        self._upload.write(data)
        self._sha256.update(data)
        self._crc32c.update(data)
        self._size += len(data)

    def _write_compressed(self, data: bytes) -> None:
        if self._gzip and (compressed := self._gzip.compress(data)):
            self._write(compressed)

    def __enter__(self) -> "ShardFile":
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        try:
            if self._is_dropped:
                self.info = ShardInfo(self._name(0), 0, 0, "", "")
            elif error_type is None:
                index = self._writer.close()
                if self._gzip:
                    self._write(self._gzip.flush())
                    index = None  # a compressed file has no random access
                path = self._path(self.examples)
                entry = msgspec.UNSET if index is None else write_index(path, index)
                checksums = crc32c_text(self._crc32c), self._sha256.hexdigest()
                name = self._name(self.examples)
                self.info = ShardInfo(name, self.examples, self._size, *checksums, entry)
                self._upload.commit(path)
        finally:
            self._upload.abandon()  # no-op after a commit


def write_index(path: str, index: bytes) -> IndexInfo:
    """Write the index of a shard, and return its entry for the manifest."""
    storage_for(path).write(index_path(path), index)
    return IndexInfo(len(index), crc32c_text(google_crc32c.Checksum(index)))


def shard_folders(recipe: ShardTarget, split: str) -> set[str]:
    """Return the folders with files of a split's shards."""
    state = join_path(recipe.output, state_folder(split))
    return {recipe.output, state, join_path(state, INDEX)}


class Note(msgspec.Struct, frozen=True):
    """Note of a finished shard: its ShardResult as JSON, and the digest of that."""

    sha256: str
    result: msgspec.Raw

    def decode(self) -> ShardResult:
        return msgspec.json.decode(self.result, type=ShardResult)


class WrittenShard(NamedTuple):
    """Shard of a job.

    Attributes:
        note: Hex SHA-256 of the ShardResult in its Note; empty if Beam's sink writes the file.
        facts: Facts of its records, with the lines of rejects.
    """

    key: ShardKey
    note: str
    facts: Facts


def written_shard(note: str, result: ShardResult) -> WrittenShard:
    """Return the shard of a note."""
    split = result.key.split
    facts = Facts(
        counts={(split, metric.value): number for metric, number in result.counted.items()},
        rejects=count_rejects((split, reject) for reject in result.rejected),
        classes={(split, index): number for index, number in result.class_counts.items()},
        statistics={split: result.statistics},
    )
    return WrittenShard(result.key, note, facts)


class FinishedShards:
    """Notes of finished shards, until their split's manifest is written."""

    def __init__(self, output: str, name: str, layout: str, container: str):
        self._output = output
        self._name = name
        self._layout = layout
        self._container = container
        self._storage = storage_for(output)

    def _note(self, key: ShardKey) -> str:
        names = shard_names(self._name, key.split, self._layout, self._container)
        return join_path(self._output, f"{state_folder(key.split)}/{names.stable(key)}.json")

    def note(self, result: ShardResult) -> WrittenShard:
        data = msgspec.json.encode(result)
        note = Note(hashlib.sha256(data).hexdigest(), msgspec.Raw(data))
        self._storage.write(self._note(result.key), msgspec.json.encode(note))
        return written_shard(note.sha256, result)

    def find(
        self, key: ShardKey, plan: str, made_by: Mapping[str, str] | None = None
    ) -> tuple[WrittenShard, ShardResult] | None:
        """Return a finished shard with the same plan and versions, if its file and index exist with the same checksums;
        otherwise None. A shard with rejects that may not recur is not returned.

        Args:
            made_by: Versions; None for those of this process.
        """
        note = self._read(key)
        if note is None:
            return None
        result = note.decode()
        versions = library_versions(self._layout, self._container) if made_by is None else made_by
        if (result.plan, result.made_by) != (plan, versions):
            return None
        if any(reject.reason in _TRANSIENT for reject in result.rejected):
            return None
        if not self._has_files(key.split, result.info):
            return None
        return written_shard(note.sha256, result), result

    def result(self, key: ShardKey, sha256: str) -> ShardResult:
        """Return the result in a shard's note.

        Args:
            sha256: See WrittenShard.

        Raises:
            JobError: The note is missing, or is another one.
        """
        note = self._read(key)
        if note is None or note.sha256 != sha256:
            raise JobError(
                f"{self._note(key)} is missing or has changed. Another run may have written there. Run again"
            )
        return note.decode()

    def _read(self, key: ShardKey) -> Note | None:
        """Return the note of a shard; None if there is none, or it is damaged."""
        path = self._note(key)
        try:
            if self._storage.size(path) is None:
                return None
            note = msgspec.json.decode(self._storage.read(path), type=Note)
            note.decode()
        except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):  # another run may have ended just now
            return None
        return note if hashlib.sha256(note.result).hexdigest() == note.sha256 else None

    def _has_files(self, split: str, shard: ShardInfo) -> bool:
        """Return True if shard and index are intact, in the state folder or, after an interrupted commit, in the
        output."""
        folders = join_path(self._output, state_folder(split)), self._output
        return all(
            any(is_intact(self._storage, join_path(folder, name), file) for folder in folders)
            for name, file in shard_files(shard).items()
        )


def shard_files(shard: ShardInfo) -> dict[str, ShardInfo | IndexInfo]:
    """Return the files of a shard by name, in the order of their moves: the index comes first."""
    if shard.index is msgspec.UNSET:
        return {shard.file: shard}
    return {index_file(shard.file): shard.index, shard.file: shard}


def is_intact(storage: Storage, path: str, file: ShardInfo | IndexInfo) -> bool:
    return not describe_damage(storage, path, file)


def describe_damage(storage: Storage, path: str, file: ShardInfo | IndexInfo) -> str:
    """Return the difference of a file's size or checksum; empty if both match."""
    try:
        size, crc32c = storage.checksum(path)
    except FileNotFoundError:
        return "is missing"
    if size != file.bytes:
        return f"has {size:,} bytes instead of {file.bytes:,}"
    return "" if crc32c == file.crc32c else f"has the checksum {crc32c} instead of {file.crc32c}"
