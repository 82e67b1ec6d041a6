"""A split as a data source of Grain: https://google-grain.readthedocs.io, which need not be installed for it."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, SupportsIndex

from recordmill.split_records import SplitRecords


class RecordSource:
    """Records by number, one at a time or a batch's at once: Grain's RandomAccessDataSource, which reads batches by
    `_getitems`.

    Its `repr`, which Grain's DataLoader compares when it goes on from a checkpoint, says which records these are, and
    not where.

    Args:
        raw: give serialised tf.train.Examples instead of dicts of numpy arrays.

    Raises:
        ConfigError: the shards are compressed.
    """

    def __init__(self, split: SplitRecords, raw: bool = False):
        split.check_random_access()
        self._split = split
        self._raw = raw

    def __len__(self) -> int:
        return len(self._split)

    def __getitem__(self, number: SupportsIndex) -> Any:
        """See `Split.__getitem__`, also for what it raises."""
        return self._split.raw(number) if self._raw else self._split[number]

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Several at once, by as few reads as can be; of PyTorch's name."""
        records: list[Any] = self._split.read(numbers)
        if self._raw:
            return records
        return [self._split.decode(record, number) for record, number in zip(records, numbers, strict=True)]

    _getitems = __getitems__

    def __repr__(self) -> str:
        split = self._split
        pieces = "".join(f"{piece.shard.info.crc32c}{piece.first}-{piece.end};" for piece in split.pieces())
        digest = sha256(pieces.encode()).hexdigest()[:12]
        return f"RecordSource({split.name!r}, {len(split):,} records{', raw' if self._raw else ''}, {digest})"
