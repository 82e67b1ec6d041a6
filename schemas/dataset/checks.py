"""Results of verify."""

from enum import Enum

import msgspec


class Check(str, Enum):
    """Thoroughness of verify: a value of --check. Each check includes the checks above it."""

    HASHES = "hashes"  # checksums, SHA-256 of files and images, and contents of records; no pixels
    DECODE = "decode"  # also decodes every image
    TENSORFLOW = "tensorflow"  # also parses and decodes with TensorFlow


class Fault(msgspec.Struct, frozen=True):
    """Error in a shard. `record` counts from 0; it is None if the error concerns the complete file."""

    file: str
    record: int | None
    reason: str
    detail: str

    def __str__(self) -> str:
        where = self.file if self.record is None else f"{self.file} record {self.record}"
        return f"{where}: {self.reason}: {self.detail}"


class Faults(msgspec.Struct, frozen=True):
    """Faults of a data set. Only the first faults of each reason are listed."""

    listed: tuple[Fault, ...] = ()
    more: int = 0  # number of faults that are not listed

    def __len__(self) -> int:
        return len(self.listed) + self.more


class ShardCheck(msgspec.Struct, frozen=True):
    """Result of a shard, up to its first damaged record."""

    split: str
    file: str
    examples: int
    objects: int
    record_bytes: int  # uncompressed and without framing
    bytes: int  # size of the file
    faults: Faults
    features: int = 0  # number of features that were computed again
    difference: float = 0.0  # largest difference of a feature, as a fraction of the feature's largest number
