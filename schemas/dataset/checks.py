"""Results of verify."""

from enum import Enum

import msgspec


class Check(str, Enum):
    """How thoroughly verify reads; each finds what those before it find.

    The values are those of --check.
    """

    HASHES = "hashes"  # checksums, SHA-256 of files and pictures, and what records say; no pixel
    DECODE = "decode"  # and every picture is decoded
    TENSORFLOW = "tensorflow"  # and TensorFlow parses and decodes


class Fault(msgspec.Struct, frozen=True):
    """Something wrong with a shard; `record` counts from 0, and is None where the whole file is meant."""

    file: str
    record: int | None
    reason: str
    detail: str

    def __str__(self) -> str:
        where = self.file if self.record is None else f"{self.file} record {self.record}"
        return f"{where}: {self.reason}: {self.detail}"


class Faults(msgspec.Struct, frozen=True):
    """Faults, of which only the first ones are listed where many have one reason."""

    listed: tuple[Fault, ...] = ()
    more: int = 0  # how many are not listed

    def __len__(self) -> int:
        return len(self.listed) + self.more


class ShardCheck(msgspec.Struct, frozen=True):
    """Result of a shard. Numbers of what was read end at the first damaged record."""

    split: str
    file: str
    examples: int
    objects: int
    record_bytes: int  # uncompressed and without framing
    bytes: int  # size of the file
    faults: Faults
    features: int = 0  # how many of its features were made again
    difference: float = 0.0  # the largest of these features: as a fraction of the feature's largest number
