"""Statistics as TensorFlow Data Validation and Facets have them: a DatasetFeatureStatisticsList
(tensorflow_metadata/proto/v0/statistics.proto), written without a library, so that every worker can make it."""

import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import ceil, sqrt

from recordmill.schemas.example import varint
from recordmill.schemas.statistics import FRACTIONAL
from recordmill.schemas.statistics_file import Bin, Distribution, SplitStatistics
from recordmill.transforms.statistics.describe_statistics import quantiles

_INT, _FLOAT, _STRING = 0, 1, 2
_QUANTILES = 1
_PARTS = 10
"""Buckets of quantiles, and further down the most frequent values: as many as TensorFlow Data Validation makes."""
_TOP, _RANKED = 20, 1000


def encode_stats(splits: Mapping[str, SplitStatistics]) -> bytes:
    """A serialised DatasetFeatureStatisticsList: a dataset a split, whose features are its histograms, and `class`."""
    return b"".join(_message(1, _dataset(name, of)) for name, of in sorted(splits.items()))


def _dataset(name: str, of: SplitStatistics) -> bytes:
    features = [_message(3, _numbers(each, found, of)) for each, found in sorted(of.histograms.items())]
    if any(each.objects for each in of.classes):
        features.append(_message(3, _classes(of)))
    return _message(1, name.encode()) + _number(2, of.images) + b"".join(features)


def _numbers(name: str, found: Distribution, of: SplitStatistics) -> bytes:
    is_whole = name not in FRACTIONAL
    zeros = sum(each.number for each in found.bins if not each.high)
    buckets = [(max(each.low, found.least), min(each.high, found.largest), each.number) for each in found.bins]
    edges = [found.least, *quantiles(found.bins, [part / _PARTS for part in range(1, _PARTS)]), found.largest]
    parts = [(low, max(low, min(high, found.largest)), found.count / _PARTS) for low, high in pairwise(edges)]
    stats = b"".join(
        (
            _message(1, _common(found.count, of, name.startswith("box_"))),
            _double(2, found.mean),
            _double(3, _deviation(found, is_whole)),
            _number(4, zeros),
            _double(5, found.least),
            _double(6, found.median),
            _double(7, found.largest),
            _message(8, _histogram(buckets)),
            _message(8, _histogram(parts) + _number(4, _QUANTILES)),
        )
    )
    return _message(1, name.encode()) + _number(2, _INT if is_whole else _FLOAT) + _message(3, stats)


def _histogram(buckets: Sequence[tuple[float, float, float]]) -> bytes:
    return b"".join(
        _message(3, _double(1, low) + _double(2, high) + _double(4, number)) for low, high, number in buckets
    )


def _deviation(found: Distribution, is_whole: bool) -> float:
    """The standard deviation, if the numbers of each bin are evenly spread in it."""
    total = 0.0
    for each in found.bins:
        low, high = _ends(each, is_whole)
        low, high = max(low, found.least), min(high, found.largest)
        width = (high - low + 1) ** 2 - 1 if is_whole else (high - low) ** 2
        total += each.number * (((low + high) / 2 - found.mean) ** 2 + width / 12)
    return sqrt(total / found.count)


def _ends(each: Bin, is_whole: bool) -> tuple[float, float]:
    """The least and the largest number that a bin may hold."""
    return (ceil(each.low), max(ceil(each.low), ceil(each.high) - 1)) if is_whole else (each.low, each.high)


def _classes(of: SplitStatistics) -> bytes:
    counts: Counter[str] = Counter()  # several ids may share a name
    for each in of.classes:
        counts[each.name] += each.objects
    ranked = sorted(((name, number) for name, number in counts.items() if number), key=lambda each: (-each[1], each[0]))
    total = sum(number for _, number in ranked)
    stats = [
        _message(1, _common(total, of, "objects_an_image" in of.histograms)),
        _number(2, len(ranked)),
        *(_message(3, _message(2, _text(name)) + _double(3, number)) for name, number in ranked[:_TOP]),
        _single(4, sum(len(name) * number for name, number in ranked) / total),
        _message(5, b"".join(_ranks(ranked[:_RANKED]))),
    ]
    return _message(1, b"class") + _number(2, _STRING) + _message(4, b"".join(stats))


def _ranks(ranked: Sequence[tuple[str, int]]) -> Iterator[bytes]:
    for rank, (name, number) in enumerate(ranked):
        yield _message(1, _number(1, rank) + _number(2, rank) + _message(4, _text(name)) + _double(5, number))


def _common(values: int, of: SplitStatistics, is_of_objects: bool) -> bytes:
    """How many images have values, and how many; one each, unless they are of objects."""
    having, least, most = values, 1, 1
    if is_of_objects:
        objects = of.histograms["objects_an_image"]
        having = sum(each.number for each in objects.bins if each.high)
        least = min(int(max(_ends(each, True)[0], objects.least)) for each in objects.bins if each.high)
        most = int(objects.largest)
    return b"".join(
        (
            _number(1, having),
            _number(2, max(0, of.images - having)),
            _number(3, least),
            _number(4, most),
            _single(5, values / having),
            _number(8, values),
        )
    )


def _text(text: str) -> bytes:
    return text.encode(errors="backslashreplace")


def _message(field: int, data: bytes) -> bytes:
    """A field of bytes: a text, or a message."""
    return varint(field << 3 | 2) + varint(len(data)) + data


def _number(field: int, number: int) -> bytes:
    return varint(field << 3) + varint(number)


def _double(field: int, number: float) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<d", number)


def _single(field: int, number: float) -> bytes:
    return varint(field << 3 | 5) + struct.pack("<f", number)
