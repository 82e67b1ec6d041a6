"""Files whose records lie one after the other, at the positions in an index."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from recordmill.schemas.errors import IndexMismatchError, RecordError
from recordmill.schemas.paths import is_remote
from recordmill.transforms.containers.container import RecordFile, lazy_value
from recordmill.transforms.records.shard_index import ShardIndex, locate_error
from recordmill.transforms.storage.resolve import storage_for

_GAP_BYTES = 256 << 10
"""Maximum gap between records that are fetched with one request: its transfer takes as long as a request."""
_SPAN_BYTES = 8 << 20
"""Maximum size of a read, unless a record is larger."""


class Place(NamedTuple):
    """Position of a record: first byte, end; its number, and its position in the request."""

    start: int
    end: int
    number: int
    position: int


class IndexedFile(RecordFile):
    """File with random access by its index, which is read with the first record. See RecordFile."""

    @abstractmethod
    def read_index(self) -> ShardIndex:
        """Return the index of the file.

        Raises:
            IndexMismatchError, ConfigError, RecordError, OSError: See
                `recordmill.transforms.records.shard_index.read_shard_index`.
        """

    @lazy_value
    def index(self) -> ShardIndex:
        """Index of the file. Raises the errors of `read_index`."""
        try:
            return self.read_index()
        except FileNotFoundError as error:
            raise self._changed() from error
        except IndexMismatchError as error:
            now = storage_for(self.path).stat(self.path)
            if now is None or now.version != self._file.version:  # the index may match a newer file
                raise self._changed() from error
            raise

    def count_records(self) -> int:
        return self.index.records

    def _spans(self, numbers: Sequence[int]) -> list[list[Place]]:
        """Return the places of records in the order of the file, grouped into spans for one read each. Records that are
        close are read together from a bucket.

        Raises:
            IndexError: There is no such record.
        """
        bounds = self.index.bounds
        wanted = self._checked(numbers, self.index.records)
        starts, ends = bounds[wanted].tolist(), bounds[wanted + 1].tolist()
        places = sorted(map(Place, starts, ends, wanted.tolist(), range(len(ends))))
        return list(_group_places(places, _GAP_BYTES if is_remote(self.path) else 0))

    def _damage(self, error: RecordError) -> RecordError:
        """Return the error of a record that was read by number, with its location."""
        cure = "; the file is damaged, or its index belongs to another file: recordmill verify tells which"
        return locate_error(self.path, error, cure)


def _group_places(places: Iterable[Place], gap: int) -> Iterator[list[Place]]:
    """Group places, in order, into spans for one read: at most `gap` bytes are between two places."""
    span: list[Place] = []
    for place in places:
        if span and (place.start - span[-1].end > gap or place.end - span[0].start > _SPAN_BYTES):
            yield span
            span = []
        span.append(place)
    if span:
        yield span
