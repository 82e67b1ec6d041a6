"""Data source of Grain (https://google-grain.readthedocs.io). It does not import Grain."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, SupportsIndex

from recordmill.split_records import SplitRecords


class RecordSource:
    """Grain's RandomAccessDataSource: records by number, alone or in batches (`_getitems`).

    Grain's DataLoader compares the `repr` when it resumes from a checkpoint. It depends on the records, not on the
    path.

    Args:
        raw: Return serialised tf.train.Examples in place of dicts of NumPy arrays.

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
        """Return a record. Errors as for `split[number]`."""
        return self._split.raw(number) if self._raw else self._split[number]

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Return several records, by few reads. PyTorch calls this name."""
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
