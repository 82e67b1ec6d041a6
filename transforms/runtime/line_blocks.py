"""Many lines of bytes are sorted in compressed blocks of a few, and all merged: ten million pass from step to step as
some thousand blocks, and whoever merges them holds a few lines of each run."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from operator import attrgetter

import msgspec
from isal import isal_zlib

from recordmill.schemas.line_blocks import LineBlock

RUN_LINES = 1 << 17
"""That are sorted together, at the most: of some 200 B each, with what Python adds."""
BLOCK_LINES = 2048
HELD_LINES = 1 << 20
"""Of blocks that overlap, at the most, while they are merged."""

_BLOCKS_AT_ONCE = 32
_LEVEL = 1
_INT64 = 1 << 63
_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(list[bytes]).decode


def ordered_bytes(number: int) -> bytes:
    """Eight bytes in the order of numbers; those beyond 64 bits are at the ends.

    >>> ordered_bytes(-1) < ordered_bytes(0) < ordered_bytes(256) < ordered_bytes(1 << 70)
    True
    """
    return min(max(number + _INT64, 0), 2 * _INT64 - 1).to_bytes(8, "big")


def cut_blocks(lines: Sequence[bytes]) -> Iterator[LineBlock]:
    """Sorted lines in blocks."""
    for start in range(0, len(lines), BLOCK_LINES):
        part = lines[start : start + BLOCK_LINES]
        yield LineBlock(len(part), part[0], part[-1], isal_zlib.compress(_ENCODE(part), _LEVEL))


def lines_in(block: LineBlock) -> list[bytes]:
    return _DECODE(isal_zlib.decompress(block.packed))


class LineSorter:
    """Takes lines in any order; `blocks` are those of all."""

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._blocks: list[LineBlock] = []

    def add(self, line: bytes) -> None:
        self._held.append(line)
        if len(self._held) >= RUN_LINES:
            self._cut()

    def blocks(self) -> tuple[LineBlock, ...]:
        self._cut()
        return tuple(self._blocks)

    def _cut(self) -> None:
        self._blocks += cut_blocks(sorted(self._held))
        self._held = []


def merged_lines(blocks: Iterable[LineBlock]) -> Iterator[list[bytes]]:
    """The lines of all blocks in their order, in lists: with a few lines of each in memory, or `HELD_LINES`."""
    blocks = list(blocks)
    if _most_overlapping(blocks) > HELD_LINES:
        blocks = _longer_runs(blocks)
    return _sweep(blocks)


def _sweep(blocks: list[LineBlock]) -> Iterator[list[bytes]]:
    blocks.sort(key=attrgetter("first"))
    held: list[bytes] = []
    for start in range(0, len(blocks), _BLOCKS_AT_ONCE):
        following = blocks[start + _BLOCKS_AT_ONCE : start + _BLOCKS_AT_ONCE + 1]
        for block in blocks[start : start + _BLOCKS_AT_ONCE]:
            held += lines_in(block)
        held.sort()  # which merges what is sorted
        end = bisect_left(held, following[0].first) if following else len(held)
        yield held[:end]
        del held[:end]


def _most_overlapping(blocks: Sequence[LineBlock]) -> int:
    """How many lines are of blocks that overlap, at the most."""
    ends = [(block.first, 0, block.lines) for block in blocks] + [(block.last, 1, -block.lines) for block in blocks]
    return max(accumulate(lines for *_, lines in sorted(ends)), default=0)


def _longer_runs(blocks: Iterable[LineBlock]) -> list[LineBlock]:
    """The same lines in runs that are as long as they may be: many short ones, of which each has lines of everywhere,
    would all be held at once."""
    sorter = LineSorter()
    for block in blocks:
        for line in lines_in(block):
            sorter.add(line)
    return list(sorter.blocks())
