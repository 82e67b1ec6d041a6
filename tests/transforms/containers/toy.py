"""A fifth container: JSON Lines. A line is a record in base64 as a JSON string."""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import numpy as np

from recordmill.schemas.containers import ContainerRow
from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.errors import RecordError
from recordmill.schemas.shards import ShardInfo, ShardKey
from recordmill.transforms.containers.container import (
    Container,
    Contents,
    RecordFile,
    ShardReader,
    ShardWriter,
)
from recordmill.transforms.records.shard_index import index_path
from recordmill.transforms.storage.resolve import storage_for

ROW = ContainerRow("toy", __name__, "{prefix}-{index:05d}-of-{count:05d}.jsonl", layouts=("detection",))


def decode_line(line: bytes, number: int) -> bytes:
    try:
        return b64decode(json.loads(line), validate=True)
    except ValueError as error:
        raise RecordError(f"its line is not base64 ({error})", number, "base64") from error


class _Writer(ShardWriter):
    def __init__(self, write: Callable[[bytes], object]):
        self._write = write
        self._ends = [0]

    def append(self, *record: bytes) -> None:
        line = json.dumps(b64encode(b"".join(record)).decode()).encode() + b"\n"
        self._write(line)
        self._ends.append(self._ends[-1] + len(line))

    def close(self) -> bytes:
        return json.dumps(self._ends).encode()


class _Reader(ShardReader):
    def records(self) -> Iterator[bytes]:
        self._ends = [0]
        with self.open() as file:
            for number, line in enumerate(file):
                self._ends.append(self._ends[-1] + len(line))
                yield self.count(decode_line(line, number))

    def index(self) -> bytes:
        return json.dumps(self._ends).encode()


class _File(RecordFile):
    @cached_property
    def _ends(self) -> list[int]:
        return json.loads(storage_for(self.path).read(index_path(self.path)))

    def count_records(self) -> int:
        return len(self._ends) - 1

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        wanted, ends = self._checked(numbers, self.count_records()), np.array(self._ends)
        ranges = list(zip(ends[wanted].tolist(), (ends[wanted + 1] - ends[wanted]).tolist(), strict=True))
        lines = storage_for(self.path).read_ranges(self.path, ranges, self._file.version)
        return [decode_line(line, number) for line, number in zip(lines, wanted.tolist(), strict=True)]

    def in_order(self) -> Iterator[bytes]:
        with storage_for(self.path).open(self.path, self._file.version) as file:
            for number, line in enumerate(file):
                yield decode_line(line, number)


class _Toy(Container):
    def create(self, contents: Contents, key: ShardKey, write: Callable[[bytes], object]) -> _Writer:
        return _Writer(write)

    def read(self, path: str, contents: Contents) -> _Reader:
        return _Reader(path)

    def open(self, path: str, contents: Contents, expected: ShardInfo | None) -> _File:
        return _File(path, expected)

    def folder_files(self, manifest: Manifest) -> dict[str, bytes]:
        lines = (f"{shard.file}\n" for split in manifest.splits.values() for shard in split.shards)
        return {"toy.txt": "".join(lines).encode()}


CONTAINER = _Toy()
