"""Several files of records as one."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, lru_cache, partial

import numpy as np

from recordmill.schemas.paths import is_remote
from recordmill.transforms.containers.container import RecordFile
from recordmill.transforms.records.example import Buffer

_FILES = 32
"""Number of files that are read concurrently."""
_BATCH_BYTES = 1 << 20
"""Minimum size of a concurrent read of local files; less is read before threads start."""


@lru_cache(maxsize=1)
def _threads(process: int) -> ThreadPoolExecutor:
    """Return threads for concurrent reads, which do not survive forks."""
    return ThreadPoolExecutor(_FILES, "records")


class RecordFiles:
    """Several files as one, with consecutive record numbers. See `RecordFile`."""

    def __init__(self, files: Sequence[RecordFile]):
        self.files = tuple(files)

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum([len(file) for file in self.files], dtype=np.int64)

    def _is_worth_threads(self, records: int) -> bool:
        """Return True if concurrent reads of several files are faster for this number of records."""
        first = self.files[0]
        return is_remote(first.path) or records * first.mean_bytes > _BATCH_BYTES

    def __len__(self) -> int:
        return int(self._ends[-1]) if self.files else 0

    def read_view(self, number: int, memory: memoryview) -> Buffer:
        """Return a record. See `RecordFile.read_view`."""
        index = int(np.searchsorted(self._ends, number, side="right"))
        return self.files[index].read_view(number - (int(self._ends[index - 1]) if index else 0), memory)

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        """Return the records with the given numbers, with concurrent reads of files. See `RecordFile.read`."""
        wanted = np.asarray(numbers, np.int64)
        outside = wanted[(wanted < 0) | (wanted >= len(self))]
        if outside.size:
            raise IndexError(f"there are {len(self):,} records, counted from 0; record {outside[0]:,} does not exist")
        file_index = np.searchsorted(self._ends, wanted, side="right")
        within = wanted - np.concatenate([[0], self._ends])[file_index]
        parts = [(self.files[index], np.flatnonzero(file_index == index)) for index in np.unique(file_index).tolist()]
        reads = [partial(file.read, within[positions]) for file, positions in parts]
        if len(parts) > 1 and self._is_worth_threads(len(wanted)):
            results = [future.result() for future in [_threads(os.getpid()).submit(read) for read in reads]]
        else:
            results = [read() for read in reads]
        records = [b""] * len(wanted)
        for (_, positions), read in zip(parts, results, strict=True):
            for position, record in zip(positions.tolist(), read, strict=True):
                records[position] = record
        return records
