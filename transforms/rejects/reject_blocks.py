"""Rejects as the compressed lines of their list, in runs that are sorted; and all runs merged.

Ten million rejects pass from step to step as some hundred runs, and whoever merges them holds a few lines of each."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, groupby
from operator import attrgetter

import msgspec
from isal import isal_zlib

from recordmill.schemas.rejects import Reason, RejectBlock, Rejected, RejectRun, RejectTally

RUN_LINES = 1 << 17
"""Of a run, at the most: of some 200 B each, with what Python adds."""
RUN_BYTES = 1 << 25
FIRST_RUN = 100
"""Lines of a bundle's first run, after which each is as long as all before: whoever stops at too many rejects hears of
them early, and is given few runs."""
BLOCK_LINES = 2048
HELD_LINES = 1 << 20
"""Of blocks that overlap, at the most, while runs are merged."""

_LEVEL = 1
_KEY_BYTES = 10
_INT64 = 1 << 63
_ENCODE_LINE = msgspec.json.Encoder().encode
_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(list[bytes]).decode


class _Line(msgspec.Struct):
    """A line of rejects-SPLIT.jsonl."""

    split: str
    what: str
    id: int | None
    reason: Reason
    detail: str
    image_id: int | None
    annotations: int


def keyed_line(split: str, reject: Rejected) -> bytes:
    """A reject's line, after a key by which bytes are in the order of the list: what it is, then its id, those without
    one last."""
    id_ = reject.id
    key = b"\1" + bytes(8) if id_ is None else b"\0" + min(max(id_ + _INT64, 0), 2 * _INT64 - 1).to_bytes(8, "big")
    line = _Line(split, reject.what, id_, reject.reason, reject.detail, reject.image_id, reject.annotations)
    return b"%b%b%b" % (reject.what[:1].encode(), key, _ENCODE_LINE(line))


def reject_of(keyed: bytes) -> Rejected:
    """The reject of a keyed line."""
    line = _DECODE_LINE(line_of(keyed))
    return Rejected(line.what, line.id, line.reason, line.detail, line.image_id, line.annotations)


_DECODE_LINE = msgspec.json.Decoder(_Line).decode


def line_of(keyed: bytes) -> bytes:
    return keyed[_KEY_BYTES:]


class RunBuilder:
    """Gathers the rejects of one split."""

    def __init__(self, split: str):
        self._split = split
        self._lines: list[bytes] = []
        self._bytes = self._before = self._annotations = 0
        self._counts: Counter[tuple[str, Reason]] = Counter()

    def add(self, reject: Rejected) -> RejectRun | None:
        """A run, when there are enough for one."""
        line = keyed_line(self._split, reject)
        self._lines.append(line)
        self._bytes += len(line)
        self._counts[reject.what, reject.reason] += 1
        self._annotations += reject.annotations
        if len(self._lines) >= min(max(FIRST_RUN, self._before), RUN_LINES) or self._bytes >= RUN_BYTES:
            return self.run()
        return None

    def run(self) -> RejectRun | None:
        """What has been added since the last run, if anything has."""
        if not self._lines:
            return None
        lines, counts = sorted(self._lines), self._counts
        tally = RejectTally(
            {(what, reason.value): number for (what, reason), number in counts.items()},
            self._annotations,
            {what: next(_from(lines, what)) for what, _ in counts},
        )
        self._before += len(lines)
        self._lines, self._bytes, self._annotations, self._counts = [], 0, 0, Counter()
        return RejectRun(tally, tuple(_cut(lines)))


def reject_runs(split: str, rejects: Iterable[Rejected]) -> Iterator[RejectRun]:
    """The rejects of a split, in runs."""
    builder = RunBuilder(split)
    for reject in rejects:
        if run := builder.add(reject):
            yield run
    if run := builder.run():
        yield run


def unique_runs(split: str, runs: Iterable[RejectRun]) -> Iterator[RejectRun]:
    """The same rejects, each once."""
    lines = chain.from_iterable(merged_lines(runs))
    return reject_runs(split, (reject_of(keyed) for keyed, _ in groupby(lines)))


def _from(lines: Sequence[bytes], what: str) -> Iterator[bytes]:
    return iter(lines[bisect_left(lines, what[:1].encode()) :])


def _cut(lines: Sequence[bytes]) -> Iterator[RejectBlock]:
    """Sorted lines in blocks."""
    for start in range(0, len(lines), BLOCK_LINES):
        part = lines[start : start + BLOCK_LINES]
        yield RejectBlock(len(part), part[0], part[-1], isal_zlib.compress(_ENCODE(part), _LEVEL))


def lines_in(block: RejectBlock) -> list[bytes]:
    """The keyed lines of a block."""
    return _DECODE(isal_zlib.decompress(block.packed))


def merged_lines(runs: Iterable[RejectRun]) -> Iterator[list[bytes]]:
    """The keyed lines of all runs in their order, in lists: with a few lines of each run in memory, or `HELD_LINES`."""
    blocks = [block for run in runs for block in run.blocks]
    if _most_overlapping(blocks) > HELD_LINES:
        blocks = list(_longer_runs(blocks))
    return _sweep(blocks)


def _sweep(blocks: list[RejectBlock]) -> Iterator[list[bytes]]:
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


_BLOCKS_AT_ONCE = 32


def _most_overlapping(blocks: Sequence[RejectBlock]) -> int:
    """How many lines are of blocks that overlap, at the most."""
    ends = [(block.first, 0, block.lines) for block in blocks] + [(block.last, 1, -block.lines) for block in blocks]
    return max(accumulate(lines for *_, lines in sorted(ends)), default=0)


def _longer_runs(blocks: Iterable[RejectBlock]) -> Iterator[RejectBlock]:
    """The same lines in runs that are as long as they may be: many short ones, of which each has lines of everywhere,
    would all be held at once."""
    held: list[bytes] = []
    for block in blocks:
        held += lines_in(block)
        if len(held) >= RUN_LINES:
            yield from _cut(sorted(held))
            held = []
    yield from _cut(sorted(held))
