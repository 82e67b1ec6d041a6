"""A TFRecord file being written, record by record, and what decides its bytes."""

import hashlib
import zlib

import google_crc32c
import msgspec

from recordmill.schemas.layouts import shard_names
from recordmill.schemas.manifest import state_folder
from recordmill.schemas.shards import ShardInfo, ShardKey
from recordmill.schemas.tfrecord import frame
from recordmill.transforms.shards.record_maker import RecordMaker
from recordmill.transforms.storage.interface import Storage, crc32c_text
from recordmill.transforms.storage.resolve import storage_for

_WRITE_BYTES = 1 << 20
"""Records are written and hashed in pieces of about this size: fewer turns at the interpreter's lock."""

_GZIP_LEVEL = 1  # of zlib, see docs/decisions/0003-gzip.md; higher ones are slower and no smaller on JPEGs
_GZIP_WINDOW = 31  # a gzip header, whose time is left at 0, around the largest window


class ShardRecipe(msgspec.Struct, frozen=True):
    """All that decides a shard's bytes, besides its images and labels; and where it goes.

    Attributes:
        output: folder of the data set; `name` begins its files' names.
        seed: orders the records.
        layout: one of `recordmill.schemas.layouts.LAYOUTS`.
        maker: of the records.
        format: of records and manifest, see `recordmill.schemas.manifest.FORMAT`.
    """

    output: str
    name: str
    seed: int
    layout: str
    gzip: bool
    maker: RecordMaker
    format: int


class ShardFile:
    """A TFRecord file being written. It appears, in the folder of its split's state, when the `with` block ends well,
    and not at all when it does not.

    Attributes:
        examples: records that were appended.
        info: what is known of the file; once the block has ended.
    """

    def __init__(self, recipe: ShardRecipe, key: ShardKey):
        self._recipe = recipe
        self._key = key
        self._names = shard_names(recipe.name, key.split, recipe.layout)
        self._storage = storage_for(recipe.output)
        self._upload = self._storage.create(self._storage.join(recipe.output, self._names.stable(key)))
        self._gzip = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW) if recipe.gzip else None
        self._sha256 = hashlib.sha256()
        self._crc32c = google_crc32c.Checksum()
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._size = 0
        self.examples = 0
        self.info: ShardInfo

    def append(self, record: bytes) -> None:
        self.examples += 1
        before, after = frame(record)
        self._pending += (before, record, after)
        self._pending_bytes += len(before) + len(record) + len(after)
        if self._pending_bytes >= _WRITE_BYTES:
            self._flush()

    def _flush(self) -> None:
        data = b"".join(self._pending)
        self._pending, self._pending_bytes = [], 0
        self._write(self._gzip.compress(data) if self._gzip else data)

    def _write(self, data: bytes) -> None:
        self._upload.write(data)
        self._sha256.update(data)
        self._crc32c.update(data)
        self._size += len(data)

    def __enter__(self) -> "ShardFile":
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        try:
            if error_type is None:
                self._flush()
                if self._gzip:
                    self._write(self._gzip.flush())
                name = self._names.file(self._key, self.examples, self._recipe.gzip)
                checksums = crc32c_text(self._crc32c), self._sha256.hexdigest()
                self.info = ShardInfo(name, self.examples, self._size, *checksums)
                folder = state_folder(self._key.split)
                self._upload.commit(self._storage.join(self._recipe.output, f"{folder}/{name}"))
        finally:
            self._upload.abandon()  # nothing to do after a commit


def is_whole(storage: Storage, path: str, shard: ShardInfo) -> bool:
    """Whether a file is there and has the shard's size and checksum."""
    try:
        return storage.checksum(path) == (shard.bytes, shard.crc32c)
    except FileNotFoundError:
        return False
