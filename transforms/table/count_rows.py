"""What a file of rows gives to each split is counted up."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from recordmill.schemas.encoders import TextCounts
from recordmill.schemas.manifest import InputRows

OF_FILE = "of_file"
"""The output of steps that give OfFile."""


class OfFile(NamedTuple):
    """What a file gave to a split.

    Attributes:
        classes: records of each class index.
        texts: what was encoded, by column.
    """

    split: str
    rows: InputRows
    classes: dict[int, int]
    texts: dict[str, TextCounts]


class FileCounts:
    """Sums over the batches of a file."""

    def __init__(self, splits: Sequence[str]):
        self._splits = splits
        self._rows: Counter[str] = Counter()
        self._classes: dict[str, Counter[int]] = {split: Counter() for split in splits}
        self._texts: dict[str, Counter[tuple[str, int]]] = {split: Counter() for split in splits}

    def add(self, split: str, rows: int, classes: Mapping[int, int], texts: Mapping[str, np.ndarray]) -> None:
        """Rows of a split, the classes of their records, and of each column's texts the numbers that TextCounts has."""
        self._rows[split] += rows
        self._classes[split].update(classes)
        for column, counts in texts.items():
            self._texts[split].update({(column, place): int(count) for place, count in enumerate(counts)})

    def of(self, path: str) -> Iterator[OfFile]:
        """The sums, for each split that has rows."""
        for split in self._splits:
            if rows := self._rows[split]:
                texts = _text_counts(self._texts[split])
                yield OfFile(split, InputRows(path, "rows", rows, 0), dict(self._classes[split]), texts)


def _text_counts(counts: Counter[tuple[str, int]]) -> dict[str, TextCounts]:
    return {column: TextCounts(*(counts[column, place] for place in range(4))) for column, _ in counts}
