"""Images that several label files annotate, or several entries of one: equal files count once, others are refused."""

import heapq
import os
import posixpath
import shlex
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import groupby, islice, pairwise
from typing import NamedTuple

import numpy as np

from recordmill.schemas.block import Block
from recordmill.schemas.errors import CollidingImagesError, ConfigError
from recordmill.schemas.inputs.option import join_names, option_fields
from recordmill.schemas.names import name_key
from recordmill.schemas.sizes import first_texts
from recordmill.transforms.annotated.format_options import FormatOptions
from recordmill.transforms.annotated.source import Source, SourceFolder
from recordmill.transforms.join.label_versions import describe_versions
from recordmill.transforms.join.match_blocks import FileState
from recordmill.transforms.storage.resolve import join_path, storage_for

_SHOWN = 5
_MOST = 20
"""Maximum number of clashes of a kind that a range of images reports."""
COPY, FILES, ENTRIES, RECORDS, IMAGES = "copy", "files", "entries", "records", "images"
_CHECKSUM = 8
"""Digits of the checksum of an image in `LabelledImage.file`."""


class Clash(NamedTuple):
    """Two parts of label files that annotate one image.

    Attributes:
        kind: COPY if two files have the same bytes, FILES if they do not, ENTRIES for entries of one file; of label
            files that hold the images, RECORDS for equal entries, IMAGES for different images of one id.
        file: Label file; or the entry and its file, as text.
        other: The file that it is a copy of; or the other file; or the image and the two entries, as text.
    """

    kind: str
    file: str
    other: str


def drop_copies(block: Block, source: Source) -> tuple[Block, list[Clash]]:
    """Drop the rows of label files that are copies of others. Return the rest, and the first clashes of each kind."""
    if block.label_file is None:
        return block, []
    if source.holds_images:
        return _drop_equal_records(block)
    rows = np.lexsort((block.part, block.source, block.split, block.image_id))
    is_same_image, is_same_file = (
        np.all([np.diff(getattr(block, name)[rows]) == 0 for name in names], axis=0)
        for names in (("image_id", "split"), ("image_id", "split", "source"))
    )
    clashes, is_dropped = set(_repeated_entries(block, rows, is_same_file)), np.zeros(len(block), bool)
    starts = np.concatenate([[0], np.flatnonzero(~is_same_image) + 1, [len(rows)]])
    has_several = np.flatnonzero(is_same_image & ~is_same_file)
    for group in np.unique(np.searchsorted(starts, has_several, side="right") - 1).tolist():
        image_rows = rows[starts[group] : starts[group + 1]]
        files = block.label_file.take(image_rows).texts()
        originals = _originals(sorted({*files}, key=lambda name: (len(name), name)), source)
        is_dropped[image_rows] = [originals[file] != file for file in files]
        clashes |= {Clash(COPY, file, original) for file, original in originals.items() if file != original}
        if (block.state[image_rows] == FileState.FOUND).any():
            clashes |= {Clash(FILES, *pair) for pair in pairwise(dict.fromkeys(originals.values()))}
    if is_dropped.any():
        block = block.take(np.flatnonzero(~is_dropped))
    return block.replace(label_file=None, label_entry=None), [
        clash
        for _, kind in groupby(sorted(clashes), lambda clash: clash.kind)
        for clash in heapq.nsmallest(_MOST, kind)
    ]


def _drop_equal_records(block: Block) -> tuple[Block, list[Clash]]:
    """Drop the rows of records that equal an earlier one. Return the rest, and the clashes of records of one image."""
    _, files = np.unique(np.array(block.label_file.texts(), object), return_inverse=True)
    block = block.take(np.lexsort((block.part, files, block.split, block.image_id)))
    is_first = np.append(True, (np.diff(block.image_id) != 0) | (np.diff(block.split) != 0))
    clashes, is_kept = list[Clash](), np.ones(len(block), bool)
    if not is_first.all():
        places = [f"{entry} of {file}" for file, entry in zip(*_label_texts(block), strict=True)]
        versions, starts = block.file_version.texts(), np.append(np.flatnonzero(is_first), len(block)).tolist()
        for start, end in pairwise(starts):
            by_version: dict[str, int] = {}
            for row in range(start, end):
                first = by_version.setdefault(versions[row], row)
                is_kept[row] = first == row
                if first != row:
                    clashes.append(Clash(RECORDS, places[row], places[first]))
                elif versions[row][:_CHECKSUM] != versions[start][:_CHECKSUM]:
                    clashes.append(Clash(IMAGES, places[row], places[start]))
    block = block if is_kept.all() else block.take(is_kept)
    clashes = sorted(clashes, key=lambda clash: clash.kind)
    kinds = (list(kind) for _, kind in groupby(clashes, lambda clash: clash.kind))
    return block.replace(label_file=None, label_entry=None), [clash for kind in kinds for clash in kind[:_MOST]]


def _label_texts(block: Block) -> tuple[list[str], list[str]]:
    return block.label_file.texts(), block.label_entry.texts()


def _repeated_entries(block: Block, rows: np.ndarray, is_same_file: np.ndarray) -> Iterator[Clash]:
    """Yield the clashes of entries of one file. Rows without an entry may have objects of one image."""
    if block.label_entry is None:
        return
    is_entry = (block.label_entry.lengths[rows] > 0) & (block.state[rows] == FileState.FOUND)
    for index in np.flatnonzero(is_same_file & is_entry[1:] & is_entry[:-1]).tolist():
        pair = block.take(rows[index : index + 2])
        (file, _), (name, _), entries = (
            column.texts() for column in (pair.label_file, pair.file_name, pair.label_entry)
        )
        yield Clash(ENTRIES, file, f"{name} is {' and '.join(entries)}")


def _originals(files: Sequence[str], source: Source) -> dict[str, str]:
    """Return, for each file, the first file with the same bytes."""
    first: dict[tuple[int, str], str] = {}
    paths = {file: _label_path(file, _label_folder(file, source)) for file in files}
    stats = {file: storage_for(path).stat(path) for file, path in paths.items()}
    versions = {file: stat.version if stat else "" for file, stat in stats.items()}
    return {file: first.setdefault(_checksum(path, versions[file]), file) for file, path in paths.items()}


@lru_cache(maxsize=1024)
def _checksum(path: str, _version: str) -> tuple[int, str]:
    return storage_for(path).checksum(path)


def _label_folder(file: str, source: Source) -> SourceFolder:
    """Return the folder of a label file, from the name of the file in the data set."""
    folders = [folder for folder in source.folders if file.startswith(folder.prefix)]
    paths = ((folder, _label_path(file, folder)) for folder in folders)
    return next((folder for folder, path in paths if storage_for(path).size(path) is not None), folders[0])


def _label_path(file: str, folder: SourceFolder) -> str:
    return join_path(folder.path, file.removeprefix(folder.prefix))


def check_clashes(clashes: Sequence[Clash], options: FormatOptions, source: Source) -> Iterator[str]:
    """Yield a warning of copies.

    Raises:
        ConfigError: Label files that are not copies annotate the same images.
        CollidingImagesError: Two entries of a file have one image.
    """
    clashes = sorted({*clashes})
    files = list(dict.fromkeys(file for clash in clashes if clash.kind == FILES for file in clash[1:]))
    if files:
        raise ConfigError(_describe_files(sorted(files, key=lambda name: (len(name), name)), options, source))
    if clash := next((clash for clash in clashes if clash.kind == IMAGES), None):
        raise CollidingImagesError(
            f"{source.path}: different images have one id, image/source_id: {clash.file}, and {clash.other}. "
            "Add --keys image/source_id= to make ids from the names of images"
        )
    if records := [f"{clash.file} equals {clash.other}" for clash in clashes if clash.kind == RECORDS]:
        yield f"records with the same bytes count once: {first_texts(records, _SHOWN)}"
    if entries := [clash for clash in clashes if clash.kind == ENTRIES]:
        images = first_texts([clash.other for clash in entries], _SHOWN)
        raise CollidingImagesError(
            f"{entries[0].file} has several entries of one image: {images}. If these are different images, of two "
            "tasks for example, export them separately or rename them. If not, delete all but one of the entries"
        )
    if copies := [f"{clash.file} equals {clash.other}" for clash in clashes if clash.kind == COPY]:
        yield f"label files with the same bytes count once: {first_texts(copies, _SHOWN)}"


def _describe_files(files: Sequence[str], options: FormatOptions, source: Source) -> str:
    """Return the error of label files that annotate the same images, with the command that reads one of them."""
    text, largest = describe_versions({file: partial(_image_names, file, source) for file in files})
    # Files of one image each, as in LabelMe, are many: to convert one of them is no cure.
    is_one = len({*islice(_image_names(largest, source), 2)}) < 2
    cure = "" if is_one else f", or convert one: {_command(largest, options, source)}"
    return (
        f"{options.data}: several label files annotate the same images, so records would have boxes several times: "
        f"{text}. Move all but one to another folder{cure}"
    )


def _image_names(file: str, source: Source) -> Iterator[str]:
    path = _label_path(file, _label_folder(file, source))
    with storage_for(path).open(path) as stream:
        yield from (name_key(image.sample.file_name) for image in source.parse(stream, file) if image.sample)


def _command(file: str, options: FormatOptions, source: Source) -> str:
    """Return the command that reads a single label file. Without --images, its images are searched below its folder,
    and names are relative to that."""
    folder, below = _label_folder(file, source), posixpath.dirname(file)
    path = _label_path(file, folder)
    output = "OUT" if options.output.startswith(os.devnull) else options.output  # ReadDataset writes nothing
    words = ["recordmill", "convert", path, "-o", output, "--format", source.kind]
    own = [field for field in option_fields(type(options)) if field.attribute not in FormatOptions.model_fields]
    given = {
        field.flag: getattr(options, field.attribute) for field in own if field.attribute in options.model_fields_set
    }
    if not folder.has_images or not all(
        name.startswith(f"{below}/" * bool(below)) for name in _image_names(file, source)
    ):
        words += [word for image_folder in source.images for word in ("--images", image_folder)]
        given |= {"--match": "suffix"} if below and options.matching == "path" else {}
    for flag, value in given.items():
        words += [flag, join_names(value) if isinstance(value, tuple) else str(value)]
    return shlex.join(words)
