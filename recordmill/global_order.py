"""One repeatable order of all records, for any number of hosts, from any position on; numpy is all that it needs.

order = GlobalOrder(len(data["train"]), seed=1)
mine = order.of_host(host, hosts)
for number in mine:
    data["train"][number]
mine.position  # the state; of_host(host, hosts, start=position) goes on, with another number of hosts, too
"""

import operator
from collections.abc import Iterator
from hashlib import blake2b

import msgspec
import numpy as np

_ROUNDS = 10
_FEWEST, _MOST = 1 << 5, 1 << 12
"""Numbers that are made at once: more each time, as few are asked for after a short run."""


class GlobalOrder(msgspec.Struct, frozen=True):
    """Positions 0, 1, 2, … become numbers of records: each record once an epoch, in another order each. Of memory it
    takes none, however many records there are; its numbers are the same on every machine and with every version of
    numpy.

    Attributes:
        records: how many there are.
        seed: of the orders.
        shuffle: False for the order of the data set, each epoch.
    """

    records: int
    seed: int = 0
    shuffle: bool = True

    def numbers(self, positions: np.ndarray) -> np.ndarray:
        """The numbers of the records, int64 [...], at positions, int64 [...]; position p is in epoch p // records.

        Raises:
            ValueError: there are no records, or a position is negative.
        """
        positions = np.asarray(positions, np.int64)
        if positions.size and (self.records < 1 or positions.min() < 0):
            raise ValueError(f"no position {positions.min()} among {self.records} records")
        if not positions.size or not self.shuffle:
            return positions % max(1, self.records)
        epochs, within = np.divmod(positions, self.records)
        numbers = np.empty_like(within)
        for epoch in np.unique(epochs).tolist():
            numbers[epochs == epoch] = _permuted(within[epochs == epoch], self.records, self.seed, epoch)
        return numbers

    def of_host(self, host: int = 0, hosts: int = 1, *, start: int = 0, epochs: int | None = 1) -> "HostOrder":
        """The share of one of several hosts: every `hosts`-th position.

        Args:
            start: the position to go on from, as of `HostOrder.position`.
            epochs: how many there are from position 0 on; None for ever.

        Raises:
            ValueError: there is no such host, or no such position.
        """
        if not 0 <= host < hosts:
            raise ValueError(f"host {host} of {hosts}: hosts are counted from 0")
        if start < 0:
            raise ValueError(f"start {start}: positions are counted from 0")
        return HostOrder(self, host, hosts, start, None if epochs is None else epochs * self.records)


class HostOrder(Iterator[int]):
    """The numbers of the records that one host reads, in their order."""

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
        """Where all hosts go on, when each has been asked for a number as often as this one."""
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


def _permuted(positions: np.ndarray, size: int, seed: int, epoch: int) -> np.ndarray:
    """A permutation of 0 … size - 1, at those positions: a Feistel network over the smallest power of 4 that is not
    smaller, through which what falls outside goes again (Black and Rogaway, Ciphers with arbitrary finite domains,
    2002)."""
    bits = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
    keys = [
        np.frombuffer(blake2b(f"{operator.index(seed)}/{epoch}/{each}".encode(), digest_size=8).digest(), "<u8")[0]
        for each in range(_ROUNDS)
    ]
    found = positions.astype(np.uint64)
    outside = np.arange(len(found))
    while outside.size:
        found[outside] = _encrypted(found[outside], bits, keys)
        outside = outside[found[outside] >= size]
    return found.astype(np.int64)


def _encrypted(numbers: np.ndarray, bits: np.uint64, keys: list[np.uint64]) -> np.ndarray:
    mask = (np.uint64(1) << bits) - np.uint64(1)
    left, right = numbers >> bits, numbers & mask
    for key in keys:
        left, right = right, left ^ (_mixed(right + key) & mask)
    return (left << bits) | right


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """The end of SplitMix64, by which each bit of a number decides over each of the result's."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
