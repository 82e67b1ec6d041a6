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
    """Result of a shard.

    Attributes:
        examples, objects: how many were read, up to the first damaged record.
        record_bytes: of those records, uncompressed and without framing.
        bytes: size of the file.
        features: how many of its features were made again.
        difference: the largest, of how much of a feature's largest number its numbers differ by then.
    """

    split: str
    file: str
    examples: int
    objects: int
    record_bytes: int
    bytes: int
    faults: Faults
    features: int = 0
    difference: float = 0.0
