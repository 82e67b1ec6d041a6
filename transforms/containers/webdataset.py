"""WebDataset: tar files of samples, with the image, its annotations as JSON, its class, and maps of the image."""

import hashlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.errors import ConfigError, RecordError
from recordmill.schemas.shards import ShardInfo, ShardKey
from recordmill.transforms.containers.container import (
    CURE,
    Container,
    Contents,
    ShardReader,
    ShardWriter,
    lazy_value,
)
from recordmill.transforms.containers.croissant import CROISSANT
from recordmill.transforms.containers.dataset_card import CARD, dataset_card, keep_edits
from recordmill.transforms.containers.describe_tars import (
    CLASS_KEY,
    IMAGE_ENDINGS,
    IMAGE_FILE,
    croissant_of_tars,
    detr_indexes,
    hub_features,
)
from recordmill.transforms.containers.indexed_file import IndexedFile, Place
from recordmill.transforms.containers.sample_json import SampleJson
from recordmill.transforms.containers.sample_values import SampleCodec
from recordmill.transforms.records.example import Record
from recordmill.transforms.records.shard_index import ShardIndex, locate_error, read_shard_index
from recordmill.transforms.records.tar import (
    BLOCK,
    END,
    TarMember,
    decode_tar_index,
    encode_tar_index,
    member_header,
    padding,
    parse_header,
    scan_tar,
    split_member_name,
)
from recordmill.transforms.storage.resolve import storage_for

_BATCH_RECORDS = 64
_BATCH_BYTES = 8 << 20
"""Records are converted in batches of this size at most. With 32, each takes a fifth longer; with 128, a tenth less."""
_LARGE_BYTES = 16 << 10
"""Minimum size of a file that is written alone, without a copy."""
_SHA256 = "sha256"


class _SampleFiles:
    """Converter between tf.Examples and the files of samples.

    Attributes:
        endings: Endings of the members of each sample; empty for the image, whose ending depends on its format.
    """

    def __init__(self, contents: Contents):
        self.codec = SampleCodec(*contents)
        self._has_class = any(column.key == CLASS_KEY for column in self.codec.image_columns)
        self._json = SampleJson(self.codec, (CLASS_KEY,))
        self._maps = [name for name in self.codec.files if name != IMAGE_FILE]
        self.endings = ("", "json", *(("cls",) if self._has_class else ()), *(f"{name}.png" for name in self._maps))

    def encode(self, records: Sequence[Record], first: int) -> Iterator[list[tuple[str, Any]]]:
        """Yield ending and bytes of each member of each sample.

        Args:
            first: Number of the first record.

        Raises:
            ConfigError: See `SampleCodec.samples` and `SampleJson.encode`.
        """
        samples = self.codec.samples(records, first)
        classes = [[b"%d" % label for label in samples.images[CLASS_KEY].tolist()]] if self._has_class else []
        columns = [samples.files[IMAGE_FILE], self._json.encode(samples), *classes, *map(samples.files.get, self._maps)]
        for files in zip(*columns, strict=True):
            yield list(zip((_image_ending(files[0]), *self.endings[1:]), files, strict=True))

    def decode(self, samples: Sequence[Sequence[bytes]]) -> list[bytes]:
        """Return the tf.Examples of samples, given the files of each in the order of `endings`.

        Raises:
            ValueError: A file is not that of a sample.
        """
        images, texts, *other_files = map(list, zip(*samples, strict=True))
        labels: dict[str, Any] = {}
        try:
            if self._has_class:
                labels[CLASS_KEY] = np.array([int(text) for text in other_files.pop(0)], np.int64)
            files = {IMAGE_FILE: images, **dict(zip(self._maps, other_files, strict=True))}
            decoded = self._json.decode(texts, labels, files)
            records = list(self.codec.records(decoded))
        except (ValueError, OverflowError) as fault:
            raise ValueError(f"its JSON or class is damaged: {fault}") from fault
        for image, sha256 in zip(images, decoded.images.get(_SHA256, ()), strict=False):
            if hashlib.sha256(image).hexdigest() != sha256:
                raise ValueError(f"its image does not have the SHA-256 {sha256} of its JSON")
        return records


def _image_ending(image: Any) -> str:
    return IMAGE_ENDINGS[bytes(image[:4]) == b"\x89PNG"]


class TarWriter(ShardWriter):
    """Writer of a tar. Records are converted, and compared with the result, in batches."""

    def __init__(self, contents: Contents, key: ShardKey, write: Callable[[bytes], object]):
        self._files = _SampleFiles(contents)
        self._key = key
        self._write = write
        self._pending: list[Record] = []
        self._pending_bytes = 0
        self._size = 0
        self._samples: list[list[TarMember]] = []

    def append(self, *record: bytes) -> None:
        self._pending.append(record)
        self._pending_bytes += sum(map(len, record))
        if len(self._pending) == _BATCH_RECORDS or self._pending_bytes >= _BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        if not pending:
            return
        small: list[Any] = []
        try:
            for files in self._files.encode(pending, len(self._samples)):
                name = sample_name(self._key.index, len(self._samples))
                members = []
                for ending, data in files:
                    member = f"{name}.{ending}"
                    small.append(member_header(member, len(data)))
                    members.append(TarMember(member, self._size + BLOCK, len(data)))
                    self._size += BLOCK + len(data) + padding(len(data))
                    if len(data) >= _LARGE_BYTES:
                        self._write(b"".join(small))
                        self._write(bytes(data))
                        small = [bytes(padding(len(data)))]
                    else:
                        small += data, bytes(padding(len(data)))
                self._samples.append(members)
        except ConfigError as error:
            raise ConfigError(f"shard {self._key.index} of {self._key.split}: {error}") from error
        self._write(b"".join(small))

    def close(self) -> bytes:
        self._flush()
        if not self._samples:
            raise ConfigError(
                f"shard {self._key.index} of {self._key.split} has no records, and DALI cannot read an empty tar"
            )
        self._write(END)
        return encode_tar_index(self._samples)


def sample_name(shard: int, record: int) -> str:
    """Return the part of members' names before the dot. A dot in it would end WebDataset's key."""
    return f"{shard:06d}-{record:08d}"


class _Scan:
    """Samples of a tar of ours that are read in order.

    Args:
        first: Number of the first sample in the stream.
        offset: Its first byte in the file.
        shard: Number of the shard in its members' names; empty for any.
    """

    def __init__(self, stream: BinaryIO, endings: Sequence[str], first: int = 0, offset: int = 0, shard: str = ""):
        self._stream = stream
        self._endings = endings
        self._shard = shard
        self._first = first
        self._offset = self._start = offset
        self.samples: list[list[TarMember]] = []

    def __iter__(self) -> Iterator[list[bytes]]:
        """Yield the files of each sample, in the order of endings.

        Raises:
            RecordError: A sample is damaged or truncated.
        """
        while (header := self._read(BLOCK)) != END[:BLOCK]:
            files, members = list[bytes](), list[TarMember]()
            for number, ending in enumerate(self._endings):
                member = self._parse(self._read(BLOCK) if number else header, ending)
                members.append(member)
                files.append(self._read(member.size))
                if self._read(padding(member.size)).strip(b"\0"):
                    raise self._damage("the padding of a tar member is damaged")
            self.samples.append(members)
            self._start = self._offset
            yield files
        if self._read(BLOCK) != END[BLOCK:]:
            raise self._damage("the end of the tar is damaged")
        if self._stream.read(1):
            raise self._damage("a block of zeros, the end of a tar, is in its place")

    def _parse(self, header: bytes, ending: str) -> TarMember:
        try:
            name, size = parse_header(header)
        except ValueError as fault:
            raise self._damage(str(fault)) from fault
        sample, actual = split_member_name(name)
        self._shard = self._shard or sample.partition("-")[0]
        expected = f"{self._shard}-{self._first + len(self.samples):08d}"
        if sample != expected or actual not in ([ending] if ending else IMAGE_ENDINGS):
            raise self._damage(f"it has the member {name} instead of {expected}.{ending or ' or '.join(IMAGE_ENDINGS)}")
        return TarMember(name, self._offset, size)

    def _read(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise self._damage("the tar is truncated", "truncated")
        self._offset += size
        return data

    def _damage(self, detail: str, reason: str = "header") -> RecordError:
        return RecordError(detail, self._first + len(self.samples), reason, self._start)


def decode_batches(samples: Iterator[list[bytes]], files: _SampleFiles) -> Iterator[bytes]:
    """Yield the tf.Example of each sample.

    Raises:
        RecordError: A sample is damaged. All records before it are yielded.
    """
    number, is_complete = 0, False
    while not is_complete:
        batch: list[list[bytes]] = []
        damage: RecordError | None = None
        try:
            size = 0
            while len(batch) < _BATCH_RECORDS and size < _BATCH_BYTES:
                batch.append(next(samples))
                size += sum(map(len, batch[-1]))
        except StopIteration:
            is_complete = True
        except RecordError as error:
            damage = error
        yield from _decode_each(batch, files, range(number, number + len(batch)))
        number += len(batch)
        if damage:
            raise damage


def _decode_each(batch: Sequence[list[bytes]], files: _SampleFiles, numbers: Sequence[int]) -> Iterator[bytes]:
    """Yield the tf.Examples of samples, whose numbers are for errors."""
    if not batch:
        return
    try:
        yield from files.decode(batch)
    except ValueError as fault:
        if len(batch) == 1:
            raise RecordError(str(fault), numbers[0], "data") from fault
        for sample, number in zip(batch, numbers, strict=True):
            yield from _decode_each([sample], files, [number])


class TarReader(ShardReader):
    """Reader of the records of a tar of ours."""

    def __init__(self, path: str, contents: Contents):
        super().__init__(path)
        self._files = _SampleFiles(contents)
        self._samples: list[list[TarMember]] = []

    def records(self) -> Iterator[bytes]:
        with self.open() as stream:
            scan = _Scan(stream, self._files.endings)
            self._samples = scan.samples
            yield from map(self.count, decode_batches(iter(scan), self._files))

    def index(self) -> bytes:
        return encode_tar_index(self._samples)


class TarFile(IndexedFile):
    """Tar of ours with random access to its records. See IndexedFile."""

    def __init__(self, path: str, contents: Contents, expected: ShardInfo | None = None):
        super().__init__(path, expected)
        self._contents = contents

    @lazy_value
    def _files(self) -> _SampleFiles:
        return _SampleFiles(self._contents)

    @property
    def _shard(self) -> str:
        """Number of the shard in its name, as in those of its members; empty for files without a manifest."""
        return self._expected.file.rpartition("-")[2].partition(".")[0] if self._expected else ""

    def read_index(self) -> ShardIndex:
        size = self._file.size_bytes - len(END)
        records = self._expected.examples if self._expected else None
        return read_shard_index(self.path, size, records, decode_tar_index, scan_tar)

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        spans = self._spans(numbers)
        chunks = self._read_ranges([(span[0].start, span[-1].end - span[0].start) for span in spans])
        places = [place for span in spans for place in span]
        try:
            samples = [
                self._read_sample(place, data[place.start - span[0].start : place.end - span[0].start])
                for span, data in zip(spans, chunks, strict=True)
                for place in span
            ]
            records = list(_decode_each(samples, self._files, [place.number for place in places]))
        except RecordError as error:
            raise self._damage(error) from error
        by_position = {place.position: record for place, record in zip(places, records, strict=True)}
        return [by_position[position] for position in range(len(numbers))]

    def _read_sample(self, place: Place, data: bytes) -> list[bytes]:
        return next(iter(_Scan(io.BytesIO(data), self._files.endings, place.number, place.start, self._shard)))

    def in_order(self) -> Iterator[bytes]:
        version = self._file.version
        try:
            with storage_for(self.path).open(self.path, version) as file:
                stream: Any = io.BufferedReader(file, _BATCH_BYTES) if isinstance(file, io.RawIOBase) else file
                yield from decode_batches(iter(_Scan(stream, self._files.endings, shard=self._shard)), self._files)
        except FileNotFoundError as error:
            raise self._changed() from error
        except RecordError as error:
            raise locate_error(self.path, error, CURE * (self._expected is not None)) from error


class _WebDataset(Container):
    def create(self, contents: Contents, key: ShardKey, write: Callable[[bytes], object]) -> TarWriter:
        return TarWriter(contents, key, write)

    def read(self, path: str, contents: Contents) -> TarReader:
        return TarReader(path, contents)

    def open(self, path: str, contents: Contents, expected: ShardInfo | None) -> TarFile:
        return TarFile(path, contents, expected)

    def folder_files(self, manifest: Manifest) -> Mapping[str, bytes]:
        card = dataset_card(manifest, hub_features(manifest))
        return {CARD: card, CROISSANT: croissant_of_tars(manifest), **detr_indexes(manifest)}

    def keep_edits(self, name: str, data: bytes, stored: bytes | None) -> bytes:
        return keep_edits(data, stored) if name == CARD else data


CONTAINER = _WebDataset()
