"""Repeat factors of LVIS: an index of record numbers, in which images of rare classes come several times.

The factor of a class is max(1, sqrt(threshold / f)), where f is the fraction of images with the class. The factor of an
image is the largest of its classes (Gupta, Dollár and Girshick, LVIS, 2019, appendix B.2).
"""

import operator
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from recordmill.schemas.mix_bits import mix_bits

_FRACTION_BITS = 53


class RecordClasses(NamedTuple):
    """Classes of each record of a split, each class once.

    Attributes:
        starts: int64 [N + 1], first class of each record.
        classes: int32 [K].
    """

    starts: np.ndarray
    classes: np.ndarray

    def cut(self, start: int, end: int) -> "RecordClasses":
        """Return the classes of the records from `start` up to `end`."""
        starts = self.starts[start : end + 1]
        return RecordClasses(starts - starts[0], self.classes[starts[0] : starts[-1]])


def collect_classes(records: Iterable[Iterable[int]]) -> RecordClasses:
    """Return the classes of records, which come with repetitions.

    >>> collect_classes([[7, 7, 2], [], [7]])
    RecordClasses(starts=array([0, 2, 2, 3]), classes=array([2, 7, 7], dtype=int32))
    """
    starts, classes = [0], []
    for record in records:
        classes += sorted(set(record))
        starts.append(len(classes))
    return RecordClasses(np.array(starts, np.int64), np.array(classes, np.int32))


def repeat_factors(record_classes: RecordClasses, threshold: float) -> np.ndarray:
    """Return how often each record comes in an epoch, on average: float64 [N], from 1. Records without classes have 1.

    >>> repeat_factors(collect_classes([[0], [0], [0, 1], [0], []]), 0.8).tolist()
    [1.0, 1.0, 2.0, 1.0, 1.0]
    """
    starts, classes = record_classes
    number = len(starts) - 1
    frequencies = np.bincount(classes) / max(1, number)
    factors = np.sqrt(threshold / np.maximum(frequencies, 1 / max(1, number)))
    record_factors = np.ones(number)
    np.maximum.at(record_factors, np.repeat(np.arange(number), np.diff(starts)), factors[classes])
    return record_factors


def round_factors(factors: np.ndarray, numbers: np.ndarray, seed: int) -> np.ndarray:
    """Return whole factors, int64 [N]: rounded up with a probability of the fraction, by a hash of record and seed.

    Args:
        factors: float64 [N].
        numbers: int64 [N], number of each record in the whole split.

    >>> round_factors(np.array([1.0, 2.5, 2.5, 3.0]), np.arange(4), seed=0).tolist()
    [1, 2, 2, 3]
    """
    start = blake2b(f"repeat {operator.index(seed)}".encode(), digest_size=8).digest()
    hashes = mix_bits(mix_bits(numbers.astype(np.uint64)) + np.frombuffer(start, "<u8"))
    fractions = (hashes >> np.uint64(64 - _FRACTION_BITS)) / (1 << _FRACTION_BITS)
    whole = np.floor(factors)
    return (whole + (fractions < factors - whole)).astype(np.int64)
