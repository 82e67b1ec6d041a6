"""The index of a shard: where each of its records is, so that any of them can be read.

A line a record, `offset length`, in bytes of the file and with the record's frame: the form of DALI's and PyPI's
tfrecord2idx. It stands in a folder of its own, so that no pattern for shards, such as `coco-train.tfrecord-*`, finds
it.
"""

from collections.abc import Iterable
from itertools import accumulate, pairwise

import msgspec
import numpy as np

from recordmill.transforms.records.tfrecord import FRAME_BYTES

INDEX = ".index"
"""Folder of the indexes, beside the shards."""
ENDING = ".idx"


def index_file(shard: str) -> str:
    """Name of a shard's index, from the folder that the shard is in.

    >>> index_file("coco-train.tfrecord-00000-of-00008")
    '.index/coco-train.tfrecord-00000-of-00008.idx'
    """
    return f"{INDEX}/{shard}{ENDING}"


class ShardIndex(msgspec.Struct, frozen=True):
    """Where the records of a shard are.

    Attributes:
        bounds: int64 [N + 1]; record i is the bytes of the file from bounds[i] to bounds[i + 1], with its frame.
    """

    bounds: np.ndarray

    @property
    def records(self) -> int:
        return len(self.bounds) - 1

    @property
    def offsets(self) -> np.ndarray:
        """int64 [N], in bytes."""
        return self.bounds[:-1]

    @property
    def lengths(self) -> np.ndarray:
        """int64 [N], in bytes, with the frame."""
        return np.diff(self.bounds)

    @property
    def size(self) -> int:
        """Of the shard, in bytes."""
        return int(self.bounds[-1])


def index_of(lengths: Iterable[int]) -> ShardIndex:
    """The index of records of so many bytes, with their frames, one after the other."""
    return ShardIndex(np.fromiter(accumulate(lengths, initial=0), np.int64))


def encode_index(index: ShardIndex) -> bytes:
    """
    >>> encode_index(index_of([20, 17]))
    b'0 20\\n20 17\\n'
    """
    return "".join([f"{start} {end - start}\n" for start, end in pairwise(index.bounds.tolist())]).encode()


def decode_index(data: bytes) -> ShardIndex:
    """
    Raises:
        ValueError: it is no index of a TFRecord file, whose records follow one another; the message says why.
    """
    lines = data.count(b"\n")
    if data.translate(None, b"0123456789") != b" \n" * lines:
        raise ValueError("it is not lines of two numbers each, or its last line was cut")
    numbers = np.fromstring(data.decode(), np.int64, sep=" ")
    if len(numbers) != 2 * lines:
        raise ValueError("a line has not two numbers")
    offsets, lengths = numbers.reshape(-1, 2).T
    if wrong := np.flatnonzero(lengths < FRAME_BYTES).tolist():
        raise ValueError(f"record {wrong[0]} has {lengths[wrong[0]]} bytes, where a frame alone has {FRAME_BYTES}")
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    if wrong := np.flatnonzero(offsets != bounds[:-1]).tolist():
        first = wrong[0]
        raise ValueError(
            f"record {first} begins at byte {offsets[first]:,}, where the one before ends at {bounds[first]:,}"
        )
    if bounds[-1] < 0:  # the sum has run over
        raise ValueError(f"record {lines - 1} ends where no file does")
    return ShardIndex(bounds)
