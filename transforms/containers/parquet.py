"""Parquet files with the columns of Hugging Face's datasets: written, read in order, or by number."""

import io
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.errors import RecordError
from recordmill.schemas.shards import ShardInfo, ShardKey
from recordmill.transforms.containers.arrow_values import ArrowCodec, arrow_codec
from recordmill.transforms.containers.container import (
    Container,
    Contents,
    RecordFile,
    ShardReader,
    ShardWriter,
    lazy_value,
)
from recordmill.transforms.containers.croissant import CROISSANT, croissant
from recordmill.transforms.containers.dataset_card import CARD, dataset_card, keep_edits
from recordmill.transforms.containers.parquet_pages import (
    FileIndex,
    PageRange,
    ReadRanges,
    page_values,
    read_file_index,
)
from recordmill.transforms.records.example import Record
from recordmill.transforms.records.parse_record import first_line
from recordmill.transforms.storage.resolve import storage_for

_GROUP_ROWS = 100
"""Maximum number of rows in a row group: the Hub's viewer reads whole row groups."""
_GROUP_BYTES = 32 << 20
"""Size of the records of a row group above which it ends. A writer and a reader in order hold one row group."""
_PAGE_BYTES = 1 << 16
"""A page ends when its values have this size, so a large image has its own page."""
_GAP_BYTES = 1 << 16
"""Maximum gap between ranges that are read together."""
_CACHED_GROUPS = 8
"""Row groups of a file whose values, except images, are cached."""
_DAMAGE = (pa.ArrowException, ValueError, LookupError, TypeError, OverflowError)
"""Exceptions of damaged row groups."""


class _Sink(io.RawIOBase):
    """File for pyarrow, which passes what is written to a function."""

    def __init__(self, write: Callable[[bytes], object]):
        self._write = write
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._write(bytes(data))
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def abandon(self) -> None:
        """Drop what is written from now on."""
        self._write = len


class ParquetWriter(ShardWriter):
    """Writer of row groups, each from a batch of records."""

    def __init__(self, codec: ArrowCodec, write: Callable[[bytes], object]):
        self._codec = codec
        self._sink = _Sink(write)
        values = [path for path in codec.leaf_types if path not in codec.image_leaves]
        self._file = pq.ParquetWriter(
            self._sink,
            codec.schema,
            compression=dict.fromkeys(codec.image_leaves, "none") | dict.fromkeys(values, "snappy"),
            # A dictionary of floats merges NaNs.
            use_dictionary=[path for path in values if codec.leaf_types[path] not in ("FLOAT", "DOUBLE")],
            write_statistics=values,
            data_page_size=_PAGE_BYTES,
            write_batch_size=1,  # pages end between values of a batch
            write_page_index=True,
            write_page_checksum=True,
        )
        self._pending: list[Record] = []
        self._pending_bytes = 0
        self._written = 0

    def append(self, *record: bytes) -> None:
        self._pending.append(record)
        self._pending_bytes += sum(map(len, record))
        if len(self._pending) == _GROUP_ROWS or self._pending_bytes >= _GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        if pending:
            arrays = self._codec.arrays(pending, self._written)
            self._file.write_table(pa.Table.from_arrays(arrays, schema=self._codec.schema))
            self._written += len(pending)

    def close(self) -> None:
        self._flush()
        self._file.close()

    def __del__(self) -> None:
        self._sink.abandon()  # pyarrow completes an unfinished file when it is deleted


class _Fetched:
    """Ranges of a file (offset, length), read with one call."""

    def __init__(self, read: ReadRanges, ranges: Sequence[tuple[int, int]]):
        spans: list[tuple[int, int]] = []
        for offset, length in sorted(set(ranges)):
            if spans and offset - sum(spans[-1]) <= _GAP_BYTES:
                start = spans[-1][0]
                spans[-1] = start, max(sum(spans[-1]), offset + length) - start
            else:
                spans.append((offset, length))
        self._starts = [start for start, _ in spans]
        self._data = [memoryview(data) for data in read(spans)] if spans else []

    def range(self, offset: int, length: int) -> memoryview:
        place = bisect_right(self._starts, offset) - 1
        start = offset - self._starts[place]
        return self._data[place][start : start + length]


class _Window(io.RawIOBase):
    """File for pyarrow of which some ranges were read."""

    def __init__(self, fetched: _Fetched, size: int):
        self._fetched, self._size, self._place = fetched, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        return self._place

    def tell(self) -> int:
        return self._place

    def read(self, size: int = -1, /) -> bytes:
        data = bytes(self._fetched.range(self._place, size))
        self._place += len(data)
        return data


class _Groups:
    """Decoder of the row groups of a file.

    Args:
        index: Index of the file.
        size: Size of the file in bytes.

    Raises:
        RecordError: The file does not have the columns of the data set.
    """

    def __init__(self, codec: ArrowCodec, index: FileIndex, size: int):
        self._codec, self._size = codec, size
        self.groups = index.groups
        self.firsts = [group.first for group in index.groups]
        self.rows = index.rows
        try:
            self._metadata = pq.read_metadata(pa.BufferReader(b"PAR1" + index.footer))
            schema = self._metadata.schema.to_arrow_schema()
        except (*_DAMAGE, OSError) as error:
            raise _damaged(error, "its footer is damaged") from error
        if not schema.equals(codec.schema):
            raise RecordError("its columns are not those of the data set", None, "unreadable")
        self._image_leaves = [2 * number for number in range(len(codec.files))]  # they come first: bytes, path
        self._leaves = [leaf for leaf in range(self._metadata.num_columns) if leaf not in self._image_leaves]

    def span(self, group: int) -> tuple[int, int]:
        """Return where a row group starts and ends in the file."""
        chunks = self.groups[group].chunks
        return min(offset for offset, _ in chunks), max(map(sum, chunks))

    def value_ranges(self, group: int) -> list[tuple[int, int]]:
        """Return the ranges of the columns of a row group, without those of images."""
        return [self.groups[group].chunks[leaf] for leaf in self._leaves]

    def pages(self, group: int, leaf: int, rows: Iterable[int]) -> list[PageRange]:
        """Return the pages with rows of a row group."""
        pages = self.groups[group].pages[leaf]
        firsts = [page.first_row for page in pages]
        return [pages[number] for number in dict.fromkeys(bisect_right(firsts, row) - 1 for row in rows)]

    def page_ranges(self, group: int, rows: Sequence[int]) -> list[tuple[int, int]]:
        """Return the ranges of the pages with the images of rows of a row group."""
        return [(page.offset, page.size) for leaf in self._image_leaves for page in self.pages(group, leaf, rows)]

    def values(self, group: int, fetched: _Fetched) -> pa.Table:
        """Return the columns of a row group, images without their bytes."""
        window = pa.PythonFile(_Window(fetched, self._size), "r")
        file = pq.ParquetFile(window, metadata=self._metadata, page_checksum_verification=True, pre_buffer=False)
        try:
            return file.reader.read_row_group(group, column_indices=self._leaves, use_threads=False)
        except OSError as error:  # pyarrow's error of a wrong checksum
            raise _damaged(error, "its values are damaged", self.firsts[group]) from error

    def records(self, group: int, rows: Sequence[int], values: pa.Table, fetched: _Fetched) -> Iterator[bytes]:
        """Yield the records of rows of a row group.

        Raises:
            RecordError: A page or a value is damaged.
        """
        files = {}
        for column, leaf in zip(self._codec.files, self._image_leaves, strict=True):
            images = self._images(group, leaf, rows, values[column].is_valid().to_pylist(), fetched)
            files[column] = [images[row] for row in rows]
        columns = values if len(rows) == len(values) else values.take(pa.array(rows, pa.int64()))
        arrays = {name: columns[name].combine_chunks() for name in columns.column_names}
        yield from self._codec.records(arrays, files)

    def _images(
        self, group: int, leaf: int, rows: Sequence[int], is_present: list[bool], fetched: _Fetched
    ) -> dict[int, bytes]:
        """Return the images of the pages with `rows`, by row; b"" where a row has none."""
        firsts = [page.first_row for page in self.groups[group].pages[leaf]]
        ends = dict(pairwise([*firsts, len(is_present)]))
        images: dict[int, bytes] = {}
        for page in self.pages(group, leaf, rows):
            page_rows = range(page.first_row, ends[page.first_row])
            images |= dict.fromkeys(page_rows, b"")
            present = [row for row in page_rows if is_present[row]]
            try:
                images |= zip(present, page_values(fetched.range(page.offset, page.size)), strict=True)
            except RecordError as error:
                raise RecordError(error.detail, self.firsts[group] + page.first_row, error.reason) from error
        return images

    def in_order(self, group: int, read: ReadRanges) -> Iterator[bytes]:
        """Yield all records of a row group.

        Raises:
            RecordError: A record is damaged, with the number of the first that could be.
        """
        rows = range(self.groups[group].rows)
        number = self.firsts[group]
        fetched = _Fetched(read, [*self.value_ranges(group), *self.page_ranges(group, rows)])
        try:
            for record in self.records(group, rows, self.values(group, fetched), fetched):
                yield record
                number += 1
        except _DAMAGE as error:
            raise _damaged(error, f"row group {group} is damaged", number) from error


def _damaged(error: Exception, what: str, number: int | None = None) -> RecordError:
    """Return the error of a damaged row group or footer."""
    if isinstance(error, RecordError):
        return error
    return RecordError(f"{what} ({first_line(error)})", number, "unreadable")


class ParquetReader(ShardReader):
    """Reader of a Parquet file: its footer first, then the file in order."""

    def __init__(self, path: str, codec: ArrowCodec):
        super().__init__(path)
        self._codec = codec

    def records(self) -> Iterator[bytes]:
        storage, place = storage_for(self._path), 0
        size = storage.size(self._path) or 0
        index = read_file_index(lambda ranges: [storage.read_range(self._path, *span) for span in ranges], size)
        groups = _Groups(self._codec, index, size)
        with self.open() as stream:
            for group in range(len(groups.groups)):
                start, end = groups.span(group)
                if not place <= start <= end <= size:
                    raise RecordError(
                        f"its footer is damaged: row group {group} is not in the file", None, "unreadable"
                    )
                stream.read(start - place)
                data, place = memoryview(stream.read(end - start)), end
                for record in groups.in_order(group, _ranges_of(data, start)):
                    yield self.count(record)

    def index(self) -> None:
        return None


def _ranges_of(data: memoryview, start: int) -> ReadRanges:
    """Return a function that reads ranges of a file, of which the bytes from `start` on are `data`."""
    return lambda ranges: [data[offset - start : offset - start + length] for offset, length in ranges]


class ParquetFile(RecordFile):
    """Parquet file with random access to its records: images are read page by page. The footer is read with the first
    record. See RecordFile."""

    def __init__(self, path: str, contents: Contents, expected: ShardInfo | None = None):
        super().__init__(path, expected)
        self._contents = contents

    def count_records(self) -> int:
        return self._groups.rows

    @lazy_value
    def _groups(self) -> _Groups:
        size = self._file.size_bytes
        try:
            return _Groups(arrow_codec(*self._contents), read_file_index(self._read_ranges, size), size)
        except RecordError as error:
            raise self._located(error) from error

    @lazy_value
    def _values(self) -> dict[int, pa.Table]:
        """Columns of the row groups read last, images without their bytes."""
        return {}

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        groups = self._groups
        wanted = self._checked(numbers, groups.rows).tolist()
        rows_of: dict[int, list[int]] = {}
        for number in sorted(set(wanted)):
            group = bisect_right(groups.firsts, number) - 1
            rows_of.setdefault(group, []).append(number - groups.firsts[group])
        values = {group: self._values.get(group) for group in rows_of}
        records: dict[int, bytes] = {}
        try:
            ranges = [span for group, rows in rows_of.items() for span in groups.page_ranges(group, rows)]
            ranges += [span for group in rows_of if values[group] is None for span in groups.value_ranges(group)]
            fetched = _Fetched(self._read_ranges, ranges)
            for group, rows in rows_of.items():
                table = values[group] or groups.values(group, fetched)
                self._values.pop(group, None)
                self._values[group] = table
                first = groups.firsts[group]
                records |= zip((first + row for row in rows), groups.records(group, rows, table, fetched), strict=True)
        except RecordError as error:
            raise self._located(error) from error
        except _DAMAGE as error:
            raise self._located(
                _damaged(error, f"a value of the records {min(wanted)} to {max(wanted)} is damaged")
            ) from error
        for group in list(self._values)[:-_CACHED_GROUPS]:
            self._values.pop(group, None)
        return [records[number] for number in wanted]

    def in_order(self) -> Iterator[bytes]:
        groups = self._groups
        try:
            for group in range(len(groups.groups)):
                yield from groups.in_order(group, self._read_ranges)
        except RecordError as error:
            raise self._located(error) from error


class _Parquet(Container):
    def create(self, contents: Contents, key: ShardKey, write: Callable[[bytes], object]) -> ParquetWriter:
        return ParquetWriter(arrow_codec(*contents), write)

    def read(self, path: str, contents: Contents) -> ParquetReader:
        return ParquetReader(path, arrow_codec(*contents))

    def open(self, path: str, contents: Contents, expected: ShardInfo | None) -> ParquetFile:
        return ParquetFile(path, contents, expected)

    def folder_files(self, manifest: Manifest) -> Mapping[str, bytes]:
        features = arrow_codec(manifest.table, manifest.labels).features
        return {CARD: dataset_card(manifest, features), CROISSANT: croissant(manifest, features, _MEDIA_TYPE)}

    def keep_edits(self, name: str, data: bytes, stored: bytes | None) -> bytes:
        return keep_edits(data, stored) if name == CARD else data


_MEDIA_TYPE = "application/x-parquet"
CONTAINER = _Parquet()
