"""The statistics of a data set's folder: of each split a file, written with the split, and one of all."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from hashlib import sha256

import msgspec

from recordmill.schemas.manifest import encode_json
from recordmill.schemas.statistics_file import SplitStatistics, split_statistics
from recordmill.transforms.statistics.compare_splits import compare_splits
from recordmill.transforms.storage.interface import UnreadableFileError
from recordmill.transforms.storage.resolve import storage_for


def folder_statistics(output: str, splits: Iterable[str]) -> bytes | None:
    """Return the content of statistics.json, made of the statistics of each split; None if no split has any."""
    found = dict(_files(output, sorted(splits)))
    comparison = compare_splits(_decoded(found))
    compared = {} if comparison is None else {"across_splits": comparison}
    return encode_json({"splits": found} | compared) if found else None


def read_statistics(output: str, splits: Iterable[str]) -> dict[str, SplitStatistics]:
    """The statistics of those of the splits that have some."""
    return _decoded(dict(_files(output, splits)))


def _decoded(files: Mapping[str, msgspec.Raw]) -> dict[str, SplitStatistics]:
    found = {}
    for split, data in files.items():
        with suppress(msgspec.ValidationError):  # of another program
            found[split] = msgspec.json.decode(data, type=SplitStatistics)
    return found


def _files(output: str, splits: Iterable[str]) -> Iterator[tuple[str, msgspec.Raw]]:
    for split in splits:
        data = read_file(output, split_statistics(split))
        with suppress(msgspec.DecodeError, UnicodeDecodeError):  # of one that was damaged, `verify` tells
            if data is not None:
                yield split, msgspec.json.decode(data, type=msgspec.Raw)


def file_sha256(path: str) -> str:
    """The SHA-256 of a file, which is not in memory at once, in hex digits.

    Raises:
        FileNotFoundError: there is none.
        UnreadableFileError: it is no file that can be read.
    """
    digest = sha256()
    with storage_for(path).open(path) as file:
        for piece in iter(partial(file.read, 1 << 20), b""):
            digest.update(piece)
    return digest.hexdigest()


def read_file(output: str, name: str) -> bytes | None:
    """A file of the folder; None where nothing has the name, or something that is no file."""
    storage = storage_for(output)
    try:
        return storage.read(storage.join(output, name))
    except (FileNotFoundError, UnreadableFileError):
        return None
