"""Tar files of samples: members written as plain ustar, and their index.

The members of a sample follow each other, and share the part of their names before the first dot, as WebDataset has it.
The index is that of DALI's wds2idx: a line per sample, with the ending, offset, size and name of each member.
"""

import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from recordmill.schemas.errors import ConfigError, RecordError
from recordmill.schemas.paths import is_remote
from recordmill.transforms.records.shard_index import ShardIndex
from recordmill.transforms.storage.resolve import storage_for

BLOCK = 512
"""Size of a header. Members are padded to multiples of it."""
END = bytes(2 * BLOCK)
"""End of an archive."""
_NAME_BYTES, _SIZE, _CHECKSUM = 100, slice(124, 135), slice(148, 156)
_MOST_BYTES = 8 << 30
"""The size of a member is less: ustar has eleven octal digits for it."""
_VERSION = b"v1.2"
_MAGIC = slice(257, 262)
_USTAR = b"ustar"
_GZIP_START = 4096
"""Number of bytes of a GZIP file that have the first header of a tar: names of files, and one block of data."""
_SPACES = bytes(range(9, 14)) + b" "


class TarMember(NamedTuple):
    """A file in a tar. `offset` is that of its first byte."""

    name: str
    offset: int
    size: int


def padding(size: int) -> int:
    """Return the number of bytes from the end of a member to the next header."""
    return -size % BLOCK


def _template() -> bytes:
    info = tarfile.TarInfo("")
    info.mode = 0o644
    return info.tobuf(tarfile.USTAR_FORMAT)


_TEMPLATE = _template()
_TEMPLATE_SUM = sum(_TEMPLATE[: _CHECKSUM.start]) + sum(_TEMPLATE[_CHECKSUM.stop :]) + 8 * ord(" ")


def member_header(name: str, size: int) -> bytes:
    """Return the header of a file: mode 0644, and 0 as time, user and group.

    Raises:
        ConfigError: The name or the size is beyond the limits of ustar.
    """
    encoded = name.encode()
    if len(encoded) > _NAME_BYTES or size >= _MOST_BYTES:
        raise ConfigError(
            f"a tar member {name!r} of {size:,} bytes is beyond the limits of ustar: names have at most {_NAME_BYTES} "
            f"bytes, and files less than 8 GiB. Add --container arrayrecord, or use smaller images"
        )
    digits = b"%011o" % size
    checksum = _TEMPLATE_SUM + sum(encoded) + sum(digits) - sum(_TEMPLATE[_SIZE])
    return b"".join(
        (
            encoded.ljust(_NAME_BYTES, b"\0"),
            _TEMPLATE[_NAME_BYTES : _SIZE.start],
            digits,
            _TEMPLATE[_SIZE.stop : _CHECKSUM.start],
            b"%06o\0 " % checksum,
            _TEMPLATE[_CHECKSUM.stop :],
        )
    )


def parse_header(header: bytes) -> tuple[str, int]:
    """Return name and size of a member of ours.

    Raises:
        ValueError: The header is not one that `member_header` writes.
    """
    digits = header[_SIZE]
    name = header[:_NAME_BYTES].rstrip(b"\0")
    try:
        size = int(digits, 8)
        is_ours = member_header(name.decode(), size) == header
    except (ValueError, ConfigError) as fault:
        raise ValueError("its tar header is damaged") from fault
    if not is_ours:
        raise ValueError("its tar header is damaged")
    return name.decode(), size


def split_member_name(name: str) -> tuple[str, str]:
    """Return the name of the sample, and the ending of a member.

    >>> split_member_name("train.d/000000-00000007.semantic.png")
    ('train.d/000000-00000007', 'semantic.png')
    """
    dot = name.find(".", name.rfind("/") + 1)
    return (name[:dot], name[dot + 1 :]) if dot >= 0 else (name, "")


def group_members(members: Iterable[TarMember]) -> Iterator[list[TarMember]]:
    """Yield the members of each sample, without hidden files."""
    for sample, group in groupby(members, key=lambda member: split_member_name(member.name)[0]):
        if sample and not sample.endswith("/"):
            yield list(group)


def encode_tar_index(samples: Iterable[list[TarMember]]) -> bytes:
    """Return the index of samples, as wds2idx writes it.

    >>> encode_tar_index([[TarMember("0.jpg", 512, 9), TarMember("0.json", 1536, 2)]])
    b'v1.2 1\\njpg 512 9 0.jpg json 1536 2 0.json\\n'
    """
    lines = [
        " ".join(f"{split_member_name(name)[1]} {offset} {size} {name}" for name, offset, size in members)
        for members in samples
    ]
    return "".join([f"{_VERSION.decode()} {len(lines)}\n", *(f"{line}\n" for line in lines)]).encode()


def decode_tar_index(data: bytes) -> ShardIndex:
    """Return the positions of samples that follow each other.

    Raises:
        ValueError: `data` is not an index of such samples. The message says why.
    """
    first, *lines = data.split(b"\n")
    if first.split() != [_VERSION, b"%d" % (len(lines) - 1)] or lines[-1:] != [b""]:
        raise ValueError(f"it is not an index {_VERSION.decode()} with the number of its lines")
    bounds = [0]
    for number, line in enumerate(lines[:-1]):
        fields = line.split()
        if not fields or len(fields) % 4 or not all(map(bytes.isdigit, fields[1::4] + fields[2::4])):
            raise ValueError(f"sample {number} does not have ending, offset, size and name of each member")
        for offset, size in zip(map(int, fields[1::4]), map(int, fields[2::4]), strict=True):
            if offset != bounds[-1] + BLOCK and len(bounds) == number + 1:
                raise ValueError(f"sample {number} begins at byte {offset - BLOCK:,} instead of {bounds[-1]:,}")
            end = offset + size + padding(size)
            if len(bounds) == number + 1:
                bounds.append(end)
            elif offset == bounds[-1] + BLOCK:
                bounds[-1] = end
            else:
                raise ValueError(f"a member of sample {number} does not follow the previous one")
    if bounds[-1] > np.iinfo(np.int64).max:
        raise ValueError(f"its last sample ends at byte {bounds[-1]:,}, beyond the size of any file")
    return ShardIndex(np.array(bounds, np.int64))


def is_tar(path: str) -> bool:
    """Return True if a file begins as a tar, which may be empty."""
    start = storage_for(path).read_range(path, 0, BLOCK)
    return start[_MAGIC] == _USTAR or start == END[:BLOCK]


def is_gzip_tar(path: str) -> bool:
    """Return True if a file is GZIP, and begins as a tar that is not empty."""
    start = storage_for(path).read_range(path, 0, _GZIP_START)
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(start, BLOCK)[_MAGIC] == _USTAR
    except zlib.error:
        return False


def build_tar_index(path: str, read: Callable[[int], object]) -> tuple[bytes, int]:
    """Return the index of any tar file, and its number of samples. The headers of a local file are read; a file in a
    bucket is read completely.

    Args:
        read: Progress callback; its argument is the number of samples since the last call.

    Raises:
        ConfigError: The file is not a tar, or has no samples, or a name that the index cannot hold.
        RecordError: The file is truncated.
        OSError: The file cannot be read.
    """
    samples = []
    try:
        with storage_for(path).open(path) as file:
            mode: Any = "r|" if is_remote(path) else "r:"
            with tarfile.open(fileobj=file, mode=mode) as archive:
                for members in group_members(_files(archive)):
                    samples.append(members)
                    read(1)
    except tarfile.TarError as error:
        fault = f"after {len(samples):,} samples the tar is damaged or truncated ({error})"
        raise RecordError(f"{path}: {fault}") from error
    if not samples:
        raise ConfigError(f"{path} has no samples: DALI cannot read an empty tar")
    names = (member.name for members in samples for member in members)
    for name in names:
        if fault := _index_fault(name):
            raise ConfigError(f"{path}: the name {name!r} {fault}. Rename it")
    return encode_tar_index(samples), len(samples)


def _index_fault(name: str) -> str:
    """Return why the index cannot hold a member's name; empty if it can."""
    if any(chr(space) in name for space in _SPACES):
        return "has a space, and the index separates names by spaces"
    if not split_member_name(name)[1]:
        return "has no ending, which the index names"
    return "" if name.isascii() or name.encode(errors="replace").decode() == name else "is not UTF-8, as the index is"


def scan_tar(path: str) -> ShardIndex:
    """Return the positions of the samples of a tar of ours. Raises the errors of `build_tar_index`."""
    index, _ = build_tar_index(path, lambda _: None)
    return decode_tar_index(index)


def _files(archive: tarfile.TarFile) -> Iterator[TarMember]:
    for member in archive:
        if member.type in (tarfile.REGTYPE, tarfile.AREGTYPE):
            yield TarMember(member.name, member.offset_data, member.size)
