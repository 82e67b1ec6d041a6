"""Reproducible order of all records, for any number of hosts and from any position.

order = GlobalOrder(len(data["train"]), seed=1)
mine = order.of_host(host, hosts)
for number in mine:
    data["train"][number]
mine.position  # the state; of_host(host, hosts, start=position) continues, also with another number of hosts
"""

import operator
from collections.abc import Iterator
from hashlib import blake2b

import msgspec
import numpy as np

from recordmill.schemas.mix_bits import mix_bits

_ROUNDS = 10
_FEWEST, _MOST = 1 << 5, 1 << 12
"""Minimum and maximum size of a batch of numbers. The size doubles, because a short run needs few."""


class GlobalOrder(msgspec.Struct, frozen=True):
    """Permutation of record numbers for each epoch, by position 0, 1, 2, …

    It takes no memory per record, and is the same on every machine and with every version of NumPy.

    Attributes:
        records: Number of records.
        seed: Seed of the permutations.
        shuffle: False for the order of the data set in each epoch.
    """

    records: int
    seed: int = 0
    shuffle: bool = True

    def numbers(self, positions: np.ndarray) -> np.ndarray:
        """Return the record numbers, int64 [...], at positions, int64 [...]. Position p is in epoch p // records.

        Raises:
            ValueError: There are no records, or a position is negative.
        """
        positions = np.asarray(positions, np.int64)
        if positions.size and (self.records < 1 or positions.min() < 0):
            raise ValueError(f"position {positions.min()} is out of range for {self.records} records")
        if not positions.size or not self.shuffle:
            return positions % max(1, self.records)
        epochs, within = np.divmod(positions, self.records)
        numbers = np.empty_like(within)
        for epoch in np.unique(epochs).tolist():
            numbers[epochs == epoch] = _permute(within[epochs == epoch], self.records, self.seed, epoch)
        return numbers

    def of_host(self, host: int = 0, hosts: int = 1, *, start: int = 0, epochs: int | None = 1) -> "HostOrder":
        """Return the share of a host: every `hosts`-th position.

        Args:
            start: Position to continue from, see `HostOrder.position`.
            epochs: Number of epochs from position 0; None for no end.

        Raises:
            ValueError: `host`, `start` or `epochs` is out of range.
        """
        if not 0 <= host < hosts:
            raise ValueError(f"host {host} of {hosts}: hosts are counted from 0")
        if start < 0:
            raise ValueError(f"start {start}: positions are counted from 0")
        if epochs is not None and epochs < 0:
            raise ValueError(f"epochs {epochs}: epochs are counted from 0")
        return HostOrder(self, host, hosts, start, None if epochs is None else epochs * self.records)


class HostOrder(Iterator[int]):
    """Iterator over the record numbers of one host."""

    def __init__(self, order: GlobalOrder, host: int, hosts: int, start: int, end: int | None):
        self._order = order
        self._host = host
        self._hosts = hosts
        self._start = start
        self._end = end
        self._asked = 0
        self._at_once = _FEWEST
        self._ahead: list[int] = []  # last first

    @property
    def position(self) -> int:
        """Position from which all hosts continue, if each has returned as many numbers as this one."""
        position = self._start + self._asked * self._hosts
        return position if self._end is None else max(self._start, min(position, self._end))

    def __next__(self) -> int:
        if not self._ahead:
            self._ahead = self._next_numbers()
        self._asked += 1
        if not self._ahead:
            raise StopIteration
        return self._ahead.pop()

    def _next_numbers(self) -> list[int]:
        if not self._order.records:
            return []
        first = self._start + self._host + self._asked * self._hosts
        positions = first + self._hosts * np.arange(self._at_once, dtype=np.int64)
        self._at_once = min(2 * self._at_once, _MOST)
        if self._end is not None:
            positions = positions[positions < self._end]
        return self._order.numbers(positions)[::-1].tolist()


def _permute(positions: np.ndarray, size: int, seed: int, epoch: int) -> np.ndarray:
    """Return a permutation of 0 … size - 1 at `positions`: a Feistel network over the next power of 4, applied again to
    results outside (Black and Rogaway, Ciphers with arbitrary finite domains, 2002)."""
    bits = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
    keys = [
        np.frombuffer(blake2b(f"{operator.index(seed)}/{epoch}/{round_}".encode(), digest_size=8).digest(), "<u8")[0]
        for round_ in range(_ROUNDS)
    ]
    permuted = positions.astype(np.uint64)
    outside = np.arange(len(permuted))
    while outside.size:
        permuted[outside] = _encrypt(permuted[outside], bits, keys)
        outside = outside[permuted[outside] >= size]
    return permuted.astype(np.int64)


def _encrypt(numbers: np.ndarray, bits: np.uint64, keys: list[np.uint64]) -> np.ndarray:
    mask = (np.uint64(1) << bits) - np.uint64(1)
    left, right = numbers >> bits, numbers & mask
    for key in keys:
        left, right = right, left ^ (mix_bits(right + key) & mask)
    return (left << bits) | right
