"""What the stand-in keeps."""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import google_crc32c


@dataclass(frozen=True)
class StoredObject:
    bucket: str
    name: str
    data: bytes
    generation: int
    content_type: str = "application/octet-stream"
    content_encoding: str = ""
    is_composite: bool = False
    kept_until: str = ""
    held: bool = False

    def resource(self) -> dict:
        """As the JSON API tells of it: numbers are strings."""
        resource = {
            "kind": "storage#object",
            "id": f"{self.bucket}/{self.name}/{self.generation}",
            "bucket": self.bucket,
            "name": self.name,
            "size": str(len(self.data)),
            "generation": str(self.generation),
            "metageneration": "1",
            "contentType": self.content_type,
            "crc32c": self.crc32c,
            "etag": f"e{self.generation}",
            "storageClass": "STANDARD",
            "timeCreated": "2026-01-01T00:00:00.000Z",
            "updated": "2026-01-01T00:00:00.000Z",
        }
        if self.content_encoding:
            resource["contentEncoding"] = self.content_encoding
        if self.kept_until:
            resource["retentionExpirationTime"] = self.kept_until
        if self.held:
            resource["eventBasedHold"] = True
        if not self.is_composite:
            resource["md5Hash"] = self.md5
        return resource

    @cached_property
    def crc32c(self) -> str:
        return crc32c(self.data)

    @cached_property
    def md5(self) -> str:
        return md5(self.data)


@dataclass
class Session:
    """An upload in chunks."""

    bucket: str
    metadata: dict
    query: Mapping[str, str]
    data: bytearray = field(default_factory=bytearray)
    done: StoredObject | None = None


def damaged(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def crc32c(data: bytes) -> str:
    return base64.b64encode(google_crc32c.Checksum(data).digest()).decode()


def md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data).digest()).decode()
