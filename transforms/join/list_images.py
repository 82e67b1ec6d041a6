"""List image folders."""

import base64
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

import apache_beam as beam
import google_crc32c
import msgspec
import numpy as np
from apache_beam.pvalue import PCollection, TaggedOutput

from recordmill.schemas.block import Block, ragged_texts
from recordmill.schemas.dataset.recipes import LISTING, InputFile
from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.images import is_image_name
from recordmill.schemas.names import name_key
from recordmill.schemas.paths import is_remote
from recordmill.transforms.blocks.image_tasks import file_folder
from recordmill.transforms.blocks.pack_block import Keyed, pack_parts
from recordmill.transforms.dataset.collect_facts import WithFacts
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.join.match_blocks import assign_buckets
from recordmill.transforms.runtime import progress
from recordmill.transforms.storage.interface import ALL_NAMES, NameRange, StoredFile, join_checksums
from recordmill.transforms.storage.resolve import find_archive, storage_for


class ListedPart(msgspec.Struct, frozen=True, array_like=True):
    """Listing of a range of a folder's names.

    Attributes:
        start: Start of the range.
        text_bytes, crc32c: Size and checksum of its `SIZE NAME` lines.
        file_bytes: Total size of its images.
    """

    start: str
    text_bytes: int
    crc32c: int
    file_bytes: int


class Listing:
    """Checksum of the `SIZE NAME` lines of images in a folder or a range of it, sorted by name.
    Buckets are listed in that order, so memory does not grow. Other folders are sorted in memory."""

    def __init__(self, folder: str, start: str = ""):
        self._start = start
        self._is_sorted = is_remote(folder) and not find_archive(folder)
        self._crc32c = self._text_bytes = self._file_bytes = 0
        self._unsorted: list[tuple[str, int]] = []

    def count(self, files: Iterator[StoredFile]) -> Iterator[StoredFile]:
        """Yield the same files, and count the images."""
        for file in files:
            if is_image_name(file.name):
                if self._is_sorted:
                    self._add(file.name, file.size_bytes)
                else:
                    self._unsorted.append((file.name, file.size_bytes))
            yield file

    def _add(self, name: str, size_bytes: int) -> None:
        line = f"{size_bytes} {name}\n".encode(errors="surrogateescape")
        self._crc32c = google_crc32c.extend(self._crc32c, line)
        self._text_bytes += len(line)
        self._file_bytes += size_bytes

    def to_part(self) -> ListedPart:
        """Return the listing of all counted images."""
        for name, size_bytes in sorted(self._unsorted):
            self._add(name, size_bytes)
        self._unsorted = []
        return ListedPart(self._start, self._text_bytes, self._crc32c, self._file_bytes)


def join_parts(folder: str, parts: Iterable[ListedPart]) -> InputFile:
    """Return a folder's listing from ranges in any order."""
    crc32c = file_bytes = 0
    for part in sorted(parts, key=lambda part: part.start):
        crc32c = join_checksums(crc32c, part.crc32c, part.text_bytes)
        file_bytes += part.file_bytes
    return InputFile(LISTING, folder, file_bytes, base64.b64encode(crc32c.to_bytes(4, "big")).decode())


def list_folder(folder: str) -> InputFile:
    """List a folder, and return the listing of its images."""
    listing = Listing(folder)
    for _ in listing.count(storage_for(folder).walk(folder)):
        pass
    return join_parts(folder, [listing.to_part()])


_LOGGER = logging.getLogger(__name__)
FILES_AT_ONCE = 50_000
Item = TypeVar("Item")
Files = list[tuple[str, ImageFile]]
"""Names, relative to their folder, and files."""
_LISTINGS = "listings"


class ListFolders(beam.PTransform):
    """Convert paths of folders to Keyed of their files, without files below the folder `output`.

    Args:
        make: Converts Files to Keyed. Its further arguments are a FactsBuilder and `args`, which may be side inputs.
        is_noted: True if Facts have the listings.
    """

    def __init__(self, output: str, make: Callable[..., Iterator[Keyed]], *args: Any, is_noted: bool = True):
        super().__init__()
        self._output, self._make, self._args, self._is_noted = output, make, args, is_noted

    def expand(self, folders: PCollection[str]) -> PCollection[Keyed]:
        options = self._output, self._is_noted, self._make, *self._args
        listing = WithFacts(_list_range, *options, types=Keyed, tags=(_LISTINGS,))
        files, listings = folders | "ListParts" >> ListParts() | "ListFolder" >> listing
        if self._is_noted:
            grouped = listings | "GroupByFolder" >> beam.GroupByKey()  # (folder, [ListedPart])
            grouped | "JoinParts" >> WithFacts(_note_listing)
        return files


class ListParts(beam.PTransform):
    """Convert paths of folders to (folder, bounds of a NameRange), one per element."""

    def expand(self, folders: PCollection[str]) -> PCollection[tuple[str, tuple[str, str]]]:
        return (
            folders
            | "CutNames" >> beam.FlatMap(_cut_names).with_output_types(tuple[str, tuple[str, str]])
            | "SpreadParts" >> beam.Reshuffle()
        )


def _cut_names(folder: str) -> Iterator[tuple[str, tuple[str, str]]]:
    progress.set_step("listing images")
    for part in storage_for(folder).parts(folder):
        yield folder, (part.start, part.end)


def _list_range(
    folder_range: tuple[str, tuple[str, str]],
    facts: FactsBuilder,
    output: str,
    is_noted: bool,
    make: Callable[..., Iterator[Keyed]],
    *args: Any,
) -> Iterator[Any]:
    folder, bounds = folder_range
    part = NameRange(*bounds)
    listing = Listing(folder, part.start) if is_noted else None
    for files in split_batches(list_outside(folder, part, output, listing), FILES_AT_ONCE):
        yield from make(files, facts, *args)
    if listing:
        yield TaggedOutput(_LISTINGS, (folder, listing.to_part()))


def _note_listing(group: tuple[str, Iterable[ListedPart]], facts: FactsBuilder) -> None:
    folder, parts = group
    facts.add_listing(folder, join_parts(folder, parts))


def files_by_name(files: Files, _: FactsBuilder, match: str, buckets: int) -> Iterator[Keyed]:
    """Yield the files of each bucket of names.

    Args:
        match: A `recordmill.schemas.names.Match`.
    """
    yield from pack_parts(file_block(files), assign_buckets([name for name, _ in files], match, buckets))


def file_block(files: Iterable[tuple[str, ImageFile]]) -> Block:
    """Return a Block of a folder's names and files."""
    files = list(files)
    return Block(
        file_name=ragged_texts([name for name, _ in files]),
        file_folder=ragged_texts([file_folder(file.path, name) for name, file in files]),
        file_bytes=np.array([file.size_bytes for _, file in files], np.int64),
        file_version=ragged_texts([file.version for _, file in files]),
    )


def split_batches(items: Iterable[Item], number: int) -> Iterator[list[Item]]:
    """Yield lists of `number` items; the last may be shorter."""
    iterator = iter(items)
    while batch := list(islice(iterator, number)):
        yield batch


def list_outside(folder: str, part: NameRange, output: str, listing: Listing | None) -> Iterator[tuple[str, ImageFile]]:
    """Yield names and files of a folder that are not below the folder `output`."""
    progress.set_step("listing images")
    prefix = _output_prefix(folder, output)
    for name, file in list_images(folder, listing, part):
        if not (prefix and name.startswith(prefix)):
            yield name, file


def _output_prefix(folder: str, output: str) -> str:
    """Return the prefix of names of files of `output` in a listing of `folder`; empty if `output` is not below it.

    >>> _output_prefix("gs://b/images", "gs://b/images/out/")
    'out/'
    """
    real = [path.rstrip("/") if is_remote(path) else os.path.realpath(path) for path in (folder, output)]
    parent = f"{real[0]}/"
    return name_key(real[1].removeprefix(parent)) + "/" if real[1].startswith(parent) else ""


def list_images(
    folder: str, listing: Listing | None = None, part: NameRange = ALL_NAMES
) -> Iterator[tuple[str, ImageFile]]:
    """Yield all files below `folder` by their `recordmill.schemas.names.name_key`.

    Names that are not UTF-8 are skipped with a warning, because JSON files cannot name them.
    """
    _LOGGER.info("Listing %s from %r to %r", folder, *part)
    files = storage_for(folder).walk(folder, part)
    skipped, first = 0, ""
    for file in listing.count(files) if listing else files:
        try:
            file.path.encode()
        except UnicodeEncodeError:
            skipped, first = skipped + 1, min(first or file.path, file.path)
            continue
        yield name_key(file.name), ImageFile(file.path, file.size_bytes, file.version)
    if skipped:
        _LOGGER.warning(
            "%s: files whose names are not UTF-8 are skipped (number: %d), the first %r. Rename them",
            folder,
            skipped,
            first,
        )
