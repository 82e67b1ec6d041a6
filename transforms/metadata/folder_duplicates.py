"""Pictures that are in a data set's folder more than once: fingerprints are a file of each split, written with the
split; duplicates.jsonl follows from those of all."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256

import msgspec

from recordmill.schemas.dataset_files import state_folder
from recordmill.schemas.duplicates import (
    DUPLICATES,
    FINGERPRINTS,
    DuplicateGroup,
    Duplicates,
    Fingerprints,
    split_fingerprints,
)
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.manifest import Manifest
from recordmill.transforms.duplicates.find_duplicates import Found, find_duplicates
from recordmill.transforms.metadata.folder_statistics import read_file
from recordmill.transforms.storage.interface import UnreadableFileError
from recordmill.transforms.storage.resolve import join_path, storage_for

json_lines = msgspec.json.Encoder().encode_lines
_GROUP = msgspec.json.Decoder(DuplicateGroup)
_READ_BYTES = 1 << 22
_DECODER = msgspec.json.Decoder(Fingerprints)


def fingerprints_path(output: str, split: str) -> str:
    """Where the fingerprints of a split are that is not complete."""
    return join_path(output, f"{state_folder(split)}/{FINGERPRINTS}")


def fingerprint_line(fingerprints: Fingerprints) -> bytes:
    """A line of fingerprints-SPLIT.jsonl."""
    return json_lines([fingerprints])


def read_fingerprints(output: str, manifest: Manifest, splits: Iterable[str]) -> dict[str, list[Fingerprints]]:
    """The fingerprints of those of the splits that have some, as they were written."""
    found = {}
    for split in splits:
        data = read_file(output, split_fingerprints(split))
        if data is None or sha256(data).hexdigest() != manifest.splits[split].fingerprints_sha256:
            continue
        found[split] = decode_fingerprints(data)
    return found


def decode_fingerprints(data: bytes) -> list[Fingerprints]:
    """The lines of fingerprints-SPLIT.jsonl."""
    # Names would keep all of the file in memory, of which they are a sixth.
    return [msgspec.structs.replace(each, names=each.names.copy()) for each in _DECODER.decode_lines(data)]


def duplicates_of(output: str, manifest: Manifest) -> tuple[Duplicates, bytes] | None:
    """What is in a folder more than once, for its manifest, and the bytes of duplicates.jsonl; None where no split has
    fingerprints to compare, as records have no pictures."""
    fingerprints = read_fingerprints(output, manifest, manifest.splits)
    if not fingerprints:
        return None
    found = compared(fingerprints, manifest.table)
    data = json_lines(found.groups)
    leaks = sum(group.is_leak for group in found.groups)
    copied = {manifest.categories[index].name: number for index, number in found.copied.items()}
    return Duplicates(sha256(data).hexdigest(), len(found.groups), leaks, found.splits, copied), data


def first_groups(output: str, number: int) -> list[DuplicateGroup]:
    """The first lines of duplicates.jsonl, as far as they are not too long to be read."""
    storage = storage_for(output)
    try:
        data = storage.read_range(join_path(output, DUPLICATES), 0, _READ_BYTES)
    except (FileNotFoundError, UnreadableFileError):
        return []
    lines = data.splitlines(keepends=True)[:number]
    with suppress(msgspec.DecodeError, UnicodeDecodeError):  # of one that was damaged, `verify` tells
        return [_GROUP.decode(line) for line in lines if line.endswith(b"\n")]
    return []


def compared(fingerprints: Mapping[str, Sequence[Fingerprints]], table: FeatureTable) -> Found:
    return find_duplicates(fingerprints, has_classes=bool(table.class_source))
