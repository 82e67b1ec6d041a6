"""Many lines of bytes are sorted in compressed blocks of a few, and all merged: ten million pass from step to step as
some thousand blocks, and whoever merges them holds a few lines of each run. Blocks are in memory, or in files."""

import os
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import accumulate
from operator import attrgetter
from typing import BinaryIO

import msgspec
from isal import isal_zlib

from recordmill.transforms.runtime.look_ahead import look_ahead
from recordmill.transforms.storage.resolve import storage_for

RUN_BYTES = 1 << 25
"""In memory, of lines that are sorted together, at the most."""
BLOCK_BYTES = 1 << 18
HELD_BYTES = 1 << 27
"""In memory, of blocks that overlap, at the most, while they are merged."""

_LINE_BYTES = 48
"""That a line takes besides its own."""
_KEY_BYTES = 64
"""Of a line, that say of a block where it begins."""
_BLOCKS_AT_ONCE = 32
_LEVEL = 1
_INT64 = 1 << 63
_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(list[bytes]).decode


class BlockPlace(msgspec.Struct, frozen=True, array_like=True):
    """Where a block is in a file."""

    path: str
    start: int
    length: int


class LineBlock(msgspec.Struct, frozen=True, array_like=True):
    """Lines, in the order of their bytes.

    Attributes:
        size: bytes that they take in memory, about.
        first, last: how the first and the last of them begin.
        packed: all, compressed; or where that is.
    """

    lines: int
    size: int
    first: bytes
    last: bytes
    packed: bytes | BlockPlace


Store = Callable[[bytes], bytes | BlockPlace]
"""Keeps a packed block; where it is."""


def ordered_bytes(number: int) -> bytes:
    """Eight bytes in the order of numbers; those beyond 64 bits are at the ends.

    >>> ordered_bytes(-1) < ordered_bytes(0) < ordered_bytes(256) < ordered_bytes(1 << 70)
    True
    """
    try:
        return (number + _INT64).to_bytes(8, "big")
    except OverflowError:
        return (b"\0" if number < 0 else b"\xff") * 8


def line_bytes(line: bytes) -> int:
    """That a line takes in memory."""
    return len(line) + _LINE_BYTES


def cut_blocks(lines: Sequence[bytes], store: Store = bytes) -> Iterator[LineBlock]:
    """Sorted lines in blocks."""
    start = size = 0
    for end, line in enumerate(lines, 1):
        size += line_bytes(line)
        if size >= BLOCK_BYTES or end == len(lines):
            part = lines[start:end]
            packed = store(isal_zlib.compress(_ENCODE(part), _LEVEL))
            yield LineBlock(len(part), size, part[0][:_KEY_BYTES], part[-1][:_KEY_BYTES], packed)
            start, size = end, 0


def lines_in(block: LineBlock) -> list[bytes]:
    packed = block.packed
    if isinstance(packed, BlockPlace):
        packed = storage_for(packed.path).read_range(packed.path, packed.start, packed.length)
    return _DECODE(isal_zlib.decompress(packed))


class LineSorter:
    """Takes lines in any order; `blocks` are those of all, in memory unless `store` keeps them elsewhere."""

    def __init__(self, store: Store = bytes) -> None:
        self._store = store
        self._held: list[bytes] = []
        self._bytes = 0
        self._blocks: list[LineBlock] = []

    def add(self, line: bytes) -> None:
        self._held.append(line)
        self._bytes += line_bytes(line)
        if self._bytes >= RUN_BYTES:
            self._cut()

    def blocks(self) -> tuple[LineBlock, ...]:
        self._cut()
        return tuple(self._blocks)

    def _cut(self) -> None:
        self._held.sort()
        self._blocks += cut_blocks(self._held, self._store)
        self._held, self._bytes = [], 0


def merged_lines(blocks: Iterable[LineBlock]) -> Iterator[list[bytes]]:
    """The lines of all blocks in their order, in lists: with a few lines of each in memory, or `HELD_BYTES`. Blocks of
    a run follow each other."""
    blocks = list(blocks)
    if _most_overlapping(blocks) <= HELD_BYTES:
        yield from _sweep(blocks)
        return
    with tempfile.TemporaryDirectory(prefix="recordmill-") as folder:
        yield from _sweep(_longer_runs(blocks, os.path.join(folder, "runs")))


def _sweep(blocks: list[LineBlock]) -> Iterator[list[bytes]]:
    blocks = sorted(blocks, key=attrgetter("first"))
    held: list[bytes] = []
    with ThreadPoolExecutor(_BLOCKS_AT_ONCE) as pool:  # for those that are in a bucket
        ahead = pool if any(isinstance(block.packed, BlockPlace) for block in blocks) else None
        unpacked = look_ahead(lines_in, blocks, ahead, _BLOCKS_AT_ONCE // 2) if ahead else map(lines_in, blocks)
        for start in range(0, len(blocks), _BLOCKS_AT_ONCE):
            following = blocks[start + _BLOCKS_AT_ONCE : start + _BLOCKS_AT_ONCE + 1]
            for _ in blocks[start : start + _BLOCKS_AT_ONCE]:
                held += next(unpacked)
            held.sort()  # which merges what is sorted
            end = bisect_left(held, following[0].first) if following else len(held)
            yield held[:end]
            del held[:end]


def _most_overlapping(blocks: Sequence[LineBlock]) -> int:
    """How many bytes are of blocks that overlap, at the most."""
    ends = [(block.first, 0, block.size) for block in blocks] + [(block.last, 1, -block.size) for block in blocks]
    return max(accumulate(size for *_, size in sorted(ends)), default=0)


def _longer_runs(blocks: Iterable[LineBlock], path: str) -> list[LineBlock]:
    """The same lines in runs that are as long as they may be, in a file: many short ones, of which each has lines of
    everywhere, would all be held at once."""
    longer: list[LineBlock] = []
    with open(path, "wb") as file:
        for group in _groups(blocks):
            for lines in _sweep(group):
                longer += cut_blocks(lines, partial(_append, file))
    return longer


def _groups(blocks: Iterable[LineBlock]) -> Iterator[list[LineBlock]]:
    """Runs that are merged together: with HELD_BYTES at the most, where a block of each is."""
    group: list[LineBlock] = []
    size = largest = 0
    for block in blocks:
        if group and block.first >= group[-1].last:  # of the same run
            size, largest = size + max(0, block.size - largest), max(largest, block.size)
        else:
            size, largest = size + block.size, block.size
            if size > HELD_BYTES and group:
                yield group
                group, size = [], block.size
        group.append(block)
    if group:
        yield group


def _append(file: BinaryIO, packed: bytes) -> BlockPlace:
    start = file.tell()
    file.write(packed)
    return BlockPlace(file.name, start, len(packed))
