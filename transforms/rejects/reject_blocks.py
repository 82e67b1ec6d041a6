"""Rejects as the compressed lines of their list, in runs that are sorted; and all runs merged."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter

import msgspec

from recordmill.schemas.dataset_files import state_folder
from recordmill.schemas.rejects import Reason, Rejected, RejectRun, RejectTally
from recordmill.transforms.rejects.run_files import ended_elsewhere, in_a_file
from recordmill.transforms.runtime.line_blocks import RUN_BYTES, cut_blocks, line_bytes, merged_lines, ordered_bytes
from recordmill.transforms.storage.resolve import storage_for

FIRST_RUN = 100
"""Lines of a bundle's first run, after which each is as long as all before: whoever stops at too many rejects hears of
them early, and is given few runs."""

_KEY_BYTES = 10
_ENCODE_LINE = msgspec.json.Encoder().encode


class _Line(msgspec.Struct):
    """A line of rejects-SPLIT.jsonl."""

    split: str
    what: str
    id: int | None
    reason: Reason
    detail: str
    image_id: int | None
    annotations: int


def line_key(reject: Rejected) -> bytes:
    """Bytes in the order of the list: what a reject is, then its id, those without one last."""
    id_ = reject.id
    return reject.what[:1].encode() + (b"\1" + bytes(8) if id_ is None else b"\0" + ordered_bytes(id_))


def keyed_line(split: str, reject: Rejected) -> bytes:
    """A reject's line after its key."""
    line = _Line(split, reject.what, reject.id, reject.reason, reject.detail, reject.image_id, reject.annotations)
    return line_key(reject) + _ENCODE_LINE(line)


def reject_of(keyed: bytes) -> Rejected:
    """The reject of a keyed line."""
    line = _DECODE_LINE(line_of(keyed))
    return Rejected(line.what, line.id, line.reason, line.detail, line.image_id, line.annotations)


_DECODE_LINE = msgspec.json.Decoder(_Line).decode


line_of: Callable[[bytes], bytes] = itemgetter(slice(_KEY_BYTES, None))
"""The line of a keyed one."""


class RunBuilder:
    """Gathers the rejects of one split.

    Args:
        output: the data set's folder, where runs may be kept.
    """

    def __init__(self, output: str, split: str):
        self._output = output
        self._split = split
        self._lines: list[bytes] = []
        self._bytes = self._before = self._annotations = 0
        self._enough = FIRST_RUN
        self._counts: dict[tuple[str, Reason], int] = {}

    def add(self, reject: Rejected) -> RejectRun | None:
        """A run, when there are enough for one."""
        line = keyed_line(self._split, reject)
        self._lines.append(line)
        self._bytes += line_bytes(line)
        counted = reject.what, reject.reason
        self._counts[counted] = self._counts.get(counted, 0) + 1
        self._annotations += reject.annotations
        if len(self._lines) >= self._enough or self._bytes >= RUN_BYTES:
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
        self._enough = max(FIRST_RUN, self._before)
        self._lines, self._bytes, self._annotations, self._counts = [], 0, 0, {}
        return RejectRun(tally, tuple(in_a_file(self._output, self._split, list(cut_blocks(lines)))))


def reject_runs(output: str, split: str, rejects: Iterable[Rejected]) -> Iterator[RejectRun]:
    """The rejects of a split, in runs; `output` as of RunBuilder."""
    builder = RunBuilder(output, split)
    for reject in rejects:
        if run := builder.add(reject):
            yield run
    if run := builder.run():
        yield run


def merged_runs(output: str, split: str, runs: Iterable[RejectRun]) -> Iterator[list[bytes]]:
    """The keyed lines of all runs of a split in the order of their list.

    Raises:
        EndedElsewhereError: another run of the job is done, and has deleted the split's state, with some of them.
    """
    try:
        yield from merged_lines(block for run in runs for block in run.blocks)
    except FileNotFoundError as error:
        folder = storage_for(output).join(output, state_folder(split))
        raise ended_elsewhere(folder, "rejects that were to be listed", error) from error


def unique_runs(output: str, split: str, runs: Iterable[RejectRun]) -> Iterator[RejectRun]:
    """The same rejects, each once; `output` as of RunBuilder."""
    lines = chain.from_iterable(merged_runs(output, split, runs))
    return reject_runs(output, split, (reject_of(keyed) for keyed, _ in groupby(lines)))


def _from(lines: Sequence[bytes], what: str) -> Iterator[bytes]:
    return iter(lines[bisect_left(lines, what[:1].encode()) :])
