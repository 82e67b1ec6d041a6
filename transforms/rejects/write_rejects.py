"""The list of a split's rejects, written into its file."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import NamedTuple

import msgspec

from recordmill.schemas.dataset_files import REJECTS, state_folder
from recordmill.schemas.rejects import RejectLine, RejectTally
from recordmill.transforms.rejects.bounded_rejects import KindsBuilder, RejectKind, Rejects, line_of
from recordmill.transforms.storage.resolve import join_path, storage_for

FIRST_OF_REASON = 100
"""Rejects of each reason that the manifest lists."""

_LINES_AT_ONCE = 10_000

KindRejects = Iterable[tuple[RejectKind, Rejects]]


class RejectList(NamedTuple):
    """What is known of the file of a split's rejects.

    Attributes:
        first: of each reason, in the file's order.
    """

    tally: RejectTally
    sha256: str
    first: tuple[RejectLine, ...]


def write_rejects(output: str, splits: Iterable[str], rejected: KindRejects) -> dict[str, RejectList]:
    """Write the rejects of splits that are not complete into the folders of their states; return what is known of each.

    Raises:
        KeyError: some are of another split.
    """
    kinds = KindsBuilder()
    for kind, rejects in rejected:
        kinds.merge(kind, rejects)
    of_split: dict[str, dict[RejectKind, Rejects]] = {split: {} for split in splits}
    for kind, rejects in kinds.build().items():
        of_split[kind[0]][kind] = rejects
    return {split: _write(output, split, kinds) for split, kinds in of_split.items()}


def rejects_path(output: str, split: str) -> str:
    """Where the rejects of a split are that is not complete."""
    return join_path(output, f"{state_folder(split)}/{REJECTS}")


def rejects_paths(output: str, splits: Iterable[str]) -> str:
    """Likewise of several, for a message."""
    return ", ".join(rejects_path(output, split) for split in sorted(splits))


def _write(output: str, split: str, kinds: Mapping[RejectKind, Rejects]) -> RejectList:
    of_reason: dict[str, list[bytes]] = defaultdict(list)
    for (_, _, reason), rejects in kinds.items():
        of_reason[reason] += rejects.lines()
    first = sorted(chain.from_iterable(sorted(lines)[:FIRST_OF_REASON] for lines in of_reason.values()))
    lines = sorted(chain.from_iterable(of_reason.values()))
    digest = hashlib.sha256()
    # Outside of the state's folder, which another run that is done deletes, with all that is being written there.
    upload = storage_for(output).create(rejects_path(output, split), output)
    try:
        for start in range(0, len(lines), _LINES_AT_ONCE):
            data = b"".join(line_of(line) + b"\n" for line in lines[start : start + _LINES_AT_ONCE])
            digest.update(data)
            upload.write(data)
        upload.commit()
    finally:
        upload.abandon()  # nothing to do after a commit
    decoded = tuple(msgspec.json.decode(line_of(line), type=RejectLine) for line in first)
    return RejectList(tally_rejects(kinds.items()), digest.hexdigest(), decoded)


def tally_rejects(rejected: KindRejects) -> RejectTally:
    """Add up rejects of any splits."""
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[str, bytes] = {}
    annotations = 0
    for (_, what, reason), rejects in rejected:
        counts[what, reason] += rejects.number
        annotations += rejects.annotations
        first[what] = min(rejects.first, first.get(what, rejects.first))
    return RejectTally(dict(counts), annotations, {what: line_of(line) for what, line in first.items()})
