"""The list of a split's rejects, streamed into its file."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from recordmill.schemas.dataset_files import REJECTS, state_folder
from recordmill.schemas.rejects import RejectLine, RejectRun, RejectTally
from recordmill.transforms.rejects.reject_blocks import line_of, merged_runs
from recordmill.transforms.storage.resolve import storage_for

FIRST_OF_REASON = 100
"""Rejects of each reason that the manifest lists."""

SplitRuns = Iterable[tuple[str, RejectRun]]


class RejectList(NamedTuple):
    """What is known of the file of a split's rejects.

    Attributes:
        first: of each reason, in the file's order.
    """

    tally: RejectTally
    sha256: str
    first: tuple[RejectLine, ...]


def write_rejects(output: str, splits: Iterable[str], rejected: SplitRuns) -> dict[str, RejectList]:
    """Write the rejects of splits that are not complete into the folders of their states; what is known of each.

    Raises:
        KeyError: some are of another split.
        EndedElsewhereError: see `merged_runs`.
    """
    of_split: dict[str, list[RejectRun]] = {split: [] for split in splits}
    for split, run in rejected:
        of_split[split].append(run)
    return {split: _write(output, split, runs) for split, runs in of_split.items()}


def rejects_path(output: str, split: str) -> str:
    """Where the rejects of a split are that is not complete."""
    return storage_for(output).join(output, f"{state_folder(split)}/{REJECTS}")


def rejects_paths(output: str, splits: Iterable[str]) -> str:
    """Likewise of several, for a message."""
    return ", ".join(rejects_path(output, split) for split in sorted(splits))


def _write(output: str, split: str, runs: Sequence[RejectRun]) -> RejectList:
    tally = add_tallies(run.tally for run in runs)
    first = _FirstLines(tally)
    digest = hashlib.sha256()
    storage = storage_for(output)
    # Outside of the state's folder, which another run that is done deletes, with all that is being written there.
    upload = storage.create(rejects_path(output, split), output)
    try:
        for keyed in merged_runs(output, split, runs):
            lines = list(map(line_of, keyed))
            first.look(lines)
            data = b"\n".join([*lines, b""])
            digest.update(data)
            upload.write(data)
        upload.commit()
    finally:
        upload.abandon()  # nothing to do after a commit
    return RejectList(tally, digest.hexdigest(), tuple(first.found))


class _FirstLines:
    """Finds the first lines of each reason, and looks at no more lines than it must."""

    def __init__(self, tally: RejectTally):
        numbers: Counter[str] = Counter()
        for (_, reason), number in tally.counts.items():
            numbers[reason] += number
        self._wanted = {reason: min(number, FIRST_OF_REASON) for reason, number in numbers.items()}
        self._decode = msgspec.json.Decoder(RejectLine).decode
        self.found: list[RejectLine] = []

    def look(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            if not self._wanted:
                return
            reject = self._decode(line)
            if left := self._wanted.get(reject.reason):
                self.found.append(reject)
                self._wanted[reject.reason] = left - 1
                if left == 1:
                    del self._wanted[reject.reason]


def add_tallies(tallies: Iterable[RejectTally]) -> RejectTally:
    """The tally of all."""
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[str, bytes] = {}
    annotations = 0
    for tally in tallies:
        counts.update(tally.counts)
        annotations += tally.annotations
        for what, line in tally.first.items():
            first[what] = min(line, first.get(what, line))
    return RejectTally(dict(counts), annotations, first)
