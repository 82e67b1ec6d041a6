"""The statistics of a data set's folder: of each split a file, written with the split, and one of all."""

from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from hashlib import sha256

import msgspec

from recordmill.schemas.manifest import encode_json
from recordmill.schemas.statistics_file import SplitStatistics, split_statistics
from recordmill.transforms.statistics.compare_splits import compare_splits
from recordmill.transforms.storage.interface import UnreadableFileError
from recordmill.transforms.storage.resolve import join_path, storage_for


def folder_statistics(output: str, splits: Iterable[str]) -> bytes | None:
    """Return the content of statistics.json, made of the statistics of each split; None if no split has any."""
    found = _read(output, sorted(splits))
    comparison = compare_splits({split: known for split, (known, _) in found.items()})
    compared = {} if comparison is None else {"across_splits": comparison}
    # As in the splits' files: decoded numbers would be encoded in another way.
    return encode_json({"splits": {split: raw for split, (_, raw) in found.items()}} | compared) if found else None


def read_statistics(output: str, splits: Iterable[str]) -> dict[str, SplitStatistics]:
    """The statistics of those of the splits that have some."""
    return {split: known for split, (known, _) in _read(output, splits).items()}


def _read(output: str, splits: Iterable[str]) -> dict[str, tuple[SplitStatistics, msgspec.Raw]]:
    """Statistics by split, decoded and as JSON; `verify` reports damaged files, which are left out."""
    found = {}
    for split in splits:
        data = read_file(output, split_statistics(split))
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            if data is not None:
                known = msgspec.json.decode(data, type=SplitStatistics)
                found[split] = known, msgspec.json.decode(data, type=msgspec.Raw)
    return found


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
        return storage.read(join_path(output, name))
    except (FileNotFoundError, UnreadableFileError):
        return None
