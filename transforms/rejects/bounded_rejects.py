"""Rejects of one reason: their exact number, and a bounded list of them; combined over the steps of a job."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, takewhile
from operator import itemgetter
from typing import Any
from zlib import crc32

import apache_beam as beam
import msgspec
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue
from isal import isal_zlib

from recordmill.schemas.rejects import MOST_LISTED, Reason, Rejected
from recordmill.transforms.runtime.line_blocks import ordered_bytes

RejectKind = tuple[str, str, str]
"""Split, `what` and reason of rejects that are counted together: a plain tuple, for which Beam has a coder."""

_KEY_BYTES = 10
_ENCODE_LINE = msgspec.json.Encoder().encode
_ENCODE_LINES = msgspec.msgpack.Encoder().encode
_DECODE_LINES = msgspec.msgpack.Decoder(list[bytes]).decode


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
    """Return a reject's line after its key, whose bytes are in the order of the list: `what`, then ids, None last."""
    id_ = reject.id
    key = reject.what[:1].encode() + (b"\1" + bytes(8) if id_ is None else b"\0" + ordered_bytes(id_))
    line = _Line(split, reject.what, id_, reject.reason, reject.detail, reject.image_id, reject.annotations)
    return key + _ENCODE_LINE(line)


line_of: Callable[[bytes], bytes] = itemgetter(slice(_KEY_BYTES, None))
"""Return the line of a keyed one."""


class Rejects(msgspec.Struct, frozen=True, array_like=True):
    """Rejects of one kind: all are counted, and at most MOST_LISTED are listed.

    Attributes:
        number: Number of rejects.
        annotations: Sum of their `Rejected.annotations`.
        first: First of the listed lines, each of which follows its key.
        packed: All listed lines in their order, compressed to some 30 bytes each. Beam would weigh and encode a list of
            lines again and again.
    """

    number: int
    annotations: int
    first: bytes
    packed: bytes

    def lines(self) -> list[bytes]:
        return _DECODE_LINES(isal_zlib.decompress(self.packed))


class RejectsBuilder:
    """Adds up rejects of one kind. Lists all lines, or the MOST_LISTED lines with the smallest checksums.

    Neither the order of arrival nor the bundles decide which lines are listed.
    """

    def __init__(self, *parts: Rejects) -> None:
        self._number = self._annotations = 0
        self._lines: list[bytes] = []
        self._largest = 1 << 32  # checksum of the last line that a cut has left
        for rejects in parts:
            self.merge(rejects)

    def add(self, split: str, reject: Rejected) -> None:
        self._number += 1
        self._annotations += reject.annotations
        line = keyed_line(split, reject)
        if crc32(line) <= self._largest:
            self._lines.append(line)
            self._cut(MOST_LISTED // 4)

    def merge(self, rejects: Rejects) -> None:
        self._number += rejects.number
        self._annotations += rejects.annotations
        self._lines += rejects.lines()
        self._cut(MOST_LISTED // 4)

    def build(self) -> Rejects:
        self._cut()
        self._lines.sort()
        packed = isal_zlib.compress(_ENCODE_LINES(self._lines), 1)
        return Rejects(self._number, self._annotations, self._lines[0], packed)

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
    """Adds up rejects of any kinds."""

    def __init__(self) -> None:
        self._builders: dict[RejectKind, RejectsBuilder] = defaultdict(RejectsBuilder)

    def add(self, split: str, reject: Rejected) -> None:
        self._builders[split, reject.what, reject.reason.value].add(split, reject)

    def merge(self, kind: RejectKind, rejects: Rejects) -> None:
        self._builders[kind].merge(rejects)

    def build(self) -> dict[RejectKind, Rejects]:
        return {kind: builder.build() for kind, builder in self._builders.items()}


def count_rejects(rejected: Iterable[tuple[str, Rejected]]) -> dict[RejectKind, Rejects]:
    """Add up (split, Rejected)."""
    kinds = KindsBuilder()
    for split, reject in rejected:
        kinds.add(split, reject)
    return kinds.build()


class GatherRejects(beam.PTransform):
    """Convert PCollections of (split, Rejected) to one of (RejectKind, Rejects), with one element per kind.

    Each step adds up its own first, because a runner keeps every element that is flattened.
    """

    def expand(self, parts):
        gather = beam.ParDo(_Gather()).with_input_types(Any).with_output_types(tuple[RejectKind, Rejects])
        return tuple(part | f"Gather{number}" >> gather for number, part in enumerate(parts)) | MergeRejects()


class MergeRejects(beam.PTransform):
    """Merge PCollections of (RejectKind, Rejects) to one, with one element per kind."""

    def expand(self, parts):
        return parts | "Parts" >> beam.Flatten() | "Merge" >> beam.CombinePerKey(CombineRejects())


class CombineRejects(beam.CombineFn):
    """Merge Rejects of one kind."""

    def create_accumulator(self) -> RejectsBuilder:
        return RejectsBuilder()

    def add_input(self, builder: RejectsBuilder, rejects: Rejects) -> RejectsBuilder:
        builder.merge(rejects)
        return builder

    def merge_accumulators(self, builders: Iterable[RejectsBuilder]) -> RejectsBuilder:
        return RejectsBuilder(*(builder.build() for builder in builders))

    def extract_output(self, builder: RejectsBuilder) -> Rejects:
        return builder.build()


class _Gather(beam.DoFn):
    """Adds up the rejects of a bundle."""

    def start_bundle(self):
        self._kinds = KindsBuilder()

    def process(self, item: tuple[str, Rejected]) -> None:
        self._kinds.add(*item)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        kinds = self._kinds.build()
        del self._kinds  # Beam keeps the DoFn
        return map(GlobalWindows.windowed_value_at_end_of_window, kinds.items())
