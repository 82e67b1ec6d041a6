"""Rejects: exact numbers, and a bounded list."""

import hashlib
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import chain, islice, takewhile
from operator import itemgetter
from types import MappingProxyType
from typing import NamedTuple
from zlib import crc32

import msgspec
from isal import isal_zlib

from recordmill.schemas.dataset.dataset_files import REJECTS, state_folder
from recordmill.schemas.names import is_absolute
from recordmill.schemas.rejects import MOST_LISTED, NO_REJECTS, REQUESTED_REASONS, Rejected, RejectLine, RejectTally
from recordmill.transforms.storage.resolve import join_path, storage_for

RejectKind = tuple[str, str, str]
"""Split, `what` and reason of rejects that are counted together: a plain tuple, for which Beam has a coder."""

_KEY_BYTES = 10
_INT64 = 1 << 63
_ENCODE_LINES = msgspec.msgpack.Encoder().encode
_DECODE_LINES = msgspec.msgpack.Decoder(list[bytes]).decode


def _line_key(what: str, id_: int | None) -> bytes:
    """Return the key of a line of rejects-SPLIT.jsonl. It sorts as the list: by `what`, then by id, None last. Ids
    beyond 64 bits are clipped."""
    place = bytes(8) if id_ is None else min(max(id_ + _INT64, 0), 2 * _INT64 - 1).to_bytes(8, "big")
    return what[:1].encode() + (b"\1" if id_ is None else b"\0") + place


def _encode_keyed_line(split: str, reject: Rejected) -> bytes:
    """Return a reject's line of rejects-SPLIT.jsonl, after its key."""
    return _line_key(reject.what, reject.id) + msgspec.json.encode({"split": split} | msgspec.structs.asdict(reject))


def _with_set(line: bytes, name: str) -> bytes:
    """Return a line with its key, and with `SET/` before its file name. Paths of label files stay."""
    values = msgspec.json.decode(strip_key(line))
    own_name = values["file_name"]
    if own_name and not is_absolute(own_name):
        values["file_name"] = f"{name}/{own_name}"
    return line[:_KEY_BYTES] + msgspec.json.encode(values)


def _pack_lines(lines: list[bytes]) -> bytes:
    """Return sorted lines, compressed."""
    lines.sort()
    return isal_zlib.compress(_ENCODE_LINES(lines), 1)


strip_key: Callable[[bytes], bytes] = itemgetter(slice(_KEY_BYTES, None))
"""Return the line without its key."""


class Rejects(msgspec.Struct, frozen=True, array_like=True):
    """Rejects of one kind: all are counted, and at most MOST_LISTED are listed.

    Attributes:
        number: Number of rejects.
        annotations: Sum of their `Rejected.annotations`.
        first: First of the listed lines, each of which follows its key.
        packed: All listed lines in order, compressed to about 30 bytes each, because Beam repeatedly measures and
            encodes lists of lines. Empty if the lines are listed elsewhere.
    """

    number: int
    annotations: int
    first: bytes
    packed: bytes

    def lines(self) -> list[bytes]:
        return _DECODE_LINES(isal_zlib.decompress(self.packed)) if self.packed else []

    def plus(self, other: "Rejects") -> "Rejects":
        """Return the sums of both, without lines."""
        sums = self.number + other.number, self.annotations + other.annotations
        return Rejects(*sums, min(self.first, other.first), b"")

    def with_set_name(self, name: str) -> "Rejects":
        """Return the rejects of one step of a set, with the set in the names of their images."""
        packed = _pack_lines(lines := [_with_set(line, name) for line in self.lines()])
        return msgspec.structs.replace(self, first=lines[0], packed=packed) if lines else self


class RejectsBuilder:
    """Counter of rejects of one kind. It lists all lines, or the MOST_LISTED lines with the smallest checksums, so that
    the list depends neither on the order nor on the bundles.

    Attributes:
        number: Number of rejects so far.
    """

    def __init__(self, *parts: Rejects) -> None:
        self.number = self._annotations = 0
        self._lines: list[bytes] = []
        self._largest = 1 << 32  # checksum of the last line after a cut
        for rejects in parts:
            self.merge(rejects)

    def add(self, split: str, reject: Rejected) -> None:
        self.number += 1
        self._annotations += reject.annotations
        line = _encode_keyed_line(split, reject)
        if crc32(line) <= self._largest:
            self._lines.append(line)
            self._cut(MOST_LISTED // 4)

    def merge(self, rejects: Rejects) -> None:
        self.number += rejects.number
        self._annotations += rejects.annotations
        self._lines += rejects.lines()
        self._cut(MOST_LISTED // 4)

    def build(self) -> Rejects:
        self._cut()
        packed = _pack_lines(self._lines)
        return Rejects(self.number, self._annotations, self._lines[0], packed)

    def __reduce__(self):  # Beam pickles accumulators
        return RejectsBuilder, (self.build(),)

    def _cut(self, spare: int = 0) -> None:
        """Cut the list if it has more than `spare` lines too many. Cutting at every line would take too long."""
        if len(self._lines) > MOST_LISTED + spare:
            self._lines.sort(key=crc32)
            self._largest = crc32(self._lines[MOST_LISTED - 1])
            within = bisect_left(self._lines, self._largest, key=crc32)
            ties = takewhile(lambda line: crc32(line) == self._largest, islice(self._lines, within, None))
            self._lines[within:] = sorted(ties)[: MOST_LISTED - within]


class KindsBuilder:
    """Counter of rejects of all kinds."""

    def __init__(self) -> None:
        self._builders: dict[RejectKind, RejectsBuilder] = defaultdict(RejectsBuilder)

    def add(self, split: str, reject: Rejected) -> None:
        self._builders[split, reject.what, reject.reason.value].add(split, reject)

    def merge(self, kind: RejectKind, rejects: Rejects) -> None:
        self._builders[kind].merge(rejects)

    def numbers_of_splits(self) -> Counter[str]:
        """Return the number of rejects of each split."""
        numbers: Counter[str] = Counter()
        for (split, _, _), builder in self._builders.items():
            numbers[split] += builder.number
        return numbers

    def build(self) -> dict[RejectKind, Rejects]:
        return {kind: builder.build() for kind, builder in self._builders.items()}


def add_rejects(parts: Iterable[Rejects]) -> Rejects:
    return RejectsBuilder(*parts).build()


def count_rejects(rejected: Iterable[tuple[str, Rejected]]) -> dict[RejectKind, Rejects]:
    """Add up (split, Rejected)."""
    kinds = KindsBuilder()
    for split, reject in rejected:
        kinds.add(split, reject)
    return kinds.build()


FIRST_OF_REASON = 100
"""Number of rejects of each reason in the manifest."""

_LINES_AT_ONCE = 10_000

KindRejects = Iterable[tuple[RejectKind, Rejects]]


class _ListedReject(msgspec.Struct, frozen=True):
    """Fields of a line of rejects."""

    annotations: int
    file_name: str = ""


class RejectList(NamedTuple):
    """File of a split's rejects.

    Attributes:
        first: First rejects of each reason, in the file's order.
        repeated: Those rejects of earlier runs that this run has again, and those of images that it has written.
    """

    tally: RejectTally
    sha256: str
    first: tuple[RejectLine, ...]
    repeated: RejectTally = NO_REJECTS


def write_rejects(
    output: str,
    splits: Iterable[str],
    rejected: KindRejects,
    earlier: Mapping[str, bytes] = MappingProxyType({}),
    written: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> dict[str, RejectList]:
    """Write the rejects of incomplete splits to their state folders.

    Args:
        earlier: Files of rejects of splits that grow. Their lines are listed, but not counted. A line that this run
            has again is listed once, and that of an image that it has written is left out. More than MOST_LISTED
            rejects of a reason cannot all be compared.
        written: File names of the images that the run has written, by split.

    Raises:
        KeyError: Some rejects are of another split.
    """
    kinds = KindsBuilder()
    for kind, rejects in rejected:
        kinds.merge(kind, rejects)
    kinds_by_split: dict[str, dict[RejectKind, Rejects]] = {split: {} for split in splits}
    for kind, rejects in kinds.build().items():
        kinds_by_split[kind[0]][kind] = rejects
    return {
        split: _write_split_rejects(output, split, kinds, earlier.get(split, b""), written.get(split, ()))
        for split, kinds in kinds_by_split.items()
    }


def rejects_path(output: str, split: str) -> str:
    """Return the path of the rejects of an incomplete split."""
    return join_path(output, f"{state_folder(split)}/{REJECTS}")


def rejects_paths(output: str, splits: Iterable[str]) -> str:
    """Return the reject files of incomplete splits, for a message."""
    return ", ".join(rejects_path(output, split) for split in sorted(splits))


def _read_listed(split: str, data: bytes) -> dict[RejectKind, list[bytes]]:
    """Return the lines of a file of rejects, each of which follows its key."""
    lines_by_kind: dict[RejectKind, list[bytes]] = defaultdict(list)
    for line in data.splitlines():
        reject = msgspec.json.decode(line, type=RejectLine)
        lines_by_kind[split, reject.what, reject.reason].append(_line_key(reject.what, reject.id) + line)
    return lines_by_kind


def _merge_listed(
    kinds: Mapping[RejectKind, Rejects], earlier: Mapping[RejectKind, list[bytes]], written: Collection[str]
) -> tuple[dict[RejectKind, Rejects], RejectTally]:
    """Merge the lines of a run and of earlier ones. A line in both counts as often as in the one with more of it.
    Drop earlier lines of images that the run has written. Return also the tally of repeated and dropped lines."""
    listed, repeated = KindsBuilder(), dict[RejectKind, Rejects]()
    for kind, rejects in kinds.items():
        listed.merge(kind, rejects)
    for kind, lines in earlier.items():
        again = Counter(lines) & Counter(kinds[kind].lines() if kind in kinds else ())
        if kind[1] == "image" and written:
            again |= Counter(line for line in lines if _decode_listed(line).file_name in written)
        earlier_only = list((Counter(lines) - again).elements())
        if earlier_only:
            listed.merge(kind, Rejects(0, 0, b"", _pack_lines(earlier_only)))
        if again:
            annotations = sum(_decode_listed(line).annotations for line in again.elements())
            repeated[kind] = Rejects(again.total(), annotations, min(again), b"")
    return listed.build(), tally_rejects(repeated.items())


def _decode_listed(line: bytes) -> _ListedReject:
    return msgspec.json.decode(strip_key(line), type=_ListedReject)


def _write_split_rejects(
    output: str, split: str, kinds: Mapping[RejectKind, Rejects], earlier: bytes, written: Collection[str]
) -> RejectList:
    listed, repeated = kinds, NO_REJECTS
    if earlier:
        listed, repeated = _merge_listed(kinds, _read_listed(split, earlier), written)
    lines_by_reason: dict[str, list[bytes]] = defaultdict(list)
    for (_, _, reason), rejects in listed.items():
        lines_by_reason[reason] += rejects.lines()
    first = sorted(chain.from_iterable(sorted(lines)[:FIRST_OF_REASON] for lines in lines_by_reason.values()))
    lines = sorted(chain.from_iterable(lines_by_reason.values()))
    digest = hashlib.sha256()
    # The temporary file is outside the state folder, because another run that ends deletes that folder.
    with storage_for(output).writing(rejects_path(output, split), output) as upload:
        for start in range(0, len(lines), _LINES_AT_ONCE):
            data = b"".join(strip_key(line) + b"\n" for line in lines[start : start + _LINES_AT_ONCE])
            digest.update(data)
            upload.write(data)
    decoded = tuple(msgspec.json.decode(strip_key(line), type=RejectLine) for line in first)
    return RejectList(tally_rejects(kinds.items()), digest.hexdigest(), decoded, repeated)


def tally_rejects(rejected: KindRejects) -> RejectTally:
    """Add up rejects of any splits."""
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[str, bytes] = {}
    annotations = 0
    for (_, what, reason), rejects in rejected:
        counts[what, reason] += rejects.number
        annotations += rejects.annotations
        if reason not in REQUESTED_REASONS:  # --max-rejects does not limit the others
            first[what] = min(rejects.first, first.get(what, rejects.first))
    return RejectTally(dict(counts), annotations, {what: strip_key(line) for what, line in first.items()})
