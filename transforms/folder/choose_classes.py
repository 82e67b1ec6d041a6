"""Choose the classes of images: those of --classes, or all."""

import contextlib
import logging
import os
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from operator import attrgetter

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton, PCollection

from recordmill.schemas.block import Block, ragged_texts
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.images import is_image_name, path_class
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.option import join_names
from recordmill.schemas.inputs.splits import Division, name_id
from recordmill.schemas.names import name_fault
from recordmill.schemas.paths import is_remote
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.schemas.sizes import first_texts
from recordmill.transforms.blocks.pack_block import unpack_block
from recordmill.transforms.dataset.collect_facts import WithFacts
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.folder.folder_options import FolderOptions
from recordmill.transforms.images.open_image import image_kind
from recordmill.transforms.join.choose_categories import class_labels
from recordmill.transforms.join.list_images import file_block, list_images
from recordmill.transforms.storage.resolve import find_archive, storage_for


def label_paths(
    files: Iterable[tuple[str, ImageFile]],
    separator: str | None,
    division: Division,
    splits: Sequence[str],
    facts: FactsBuilder,
) -> Block:
    """Return rows of the files that are images, with the columns of their files.

    Args:
        files: Files by their `recordmill.schemas.names.name_key`.
        separator: See `recordmill.schemas.inputs.images.path_class`.
        splits: Splits of the job; the column `split` has their indices.
        facts: Gets files that are not images, and rejects of images without a class.
    """
    labelled: list[tuple[str, ImageFile]] = []
    classes: list[str] = []
    for name, file in files:
        if not is_image_name(name):
            facts.add_unlisted(name)
        elif fault := path_fault(name, separator, division):
            facts.reject(division.split_of(name), Rejected("image", name_id(name), *fault).named(name))
        else:
            labelled.append((name, file))
            classes.append(path_class(name, separator))
    return build_image_rows(file_block(labelled)).replace(
        split=np.array([splits.index(division.split_of(name)) for name, _ in labelled], np.int64),
        class_name=ragged_texts(classes),
    )


def build_image_rows(block: Block) -> Block:
    """Return image rows of files: ids are hashes of names, and sizes are unknown."""
    ids = np.array(list(map(name_id, block.file_name.texts())), np.int64)
    return block.replace(image_id=ids, image_size_px=np.zeros((len(ids), 2), np.int64))


def path_fault(name: str, separator: str | None, division: Division) -> tuple[Reason, str] | None:
    """Return the reason and detail if the name of an image makes it unusable; else None."""
    if fault := name_fault(name):
        return Reason.UNSAFE_FILE_NAME, f"{name!r} {fault}"
    if not path_class(name, separator):
        missing = "is not in a folder" if separator is None else f"has no {separator!r} after its class"
        return Reason.NO_CLASS, f"{name!r} {missing}"
    if fault := division.fault(name):
        return Reason.NO_GROUP, f"{name!r} {fault}"
    return None


class ListClasses(beam.PTransform):
    """Convert (range, packed Block of image rows) to one LabelMap.

    Args:
        names: Classes by index, or empty for all.
        folders: Folders of the class folders, for messages; empty if classes are not folders.
        is_added: True for images that are added to a data set.
    """

    def __init__(self, names: tuple[str, ...], folders: tuple[str, ...], is_added: bool = False):
        super().__init__()
        self._arguments = names, folders, is_added

    def expand(self, rows: PCollection[tuple[int, bytes]]) -> PCollection[LabelMap]:
        return (
            rows
            | "Classes" >> beam.FlatMap(_list_class_names).with_output_types(str)
            | "Distinct" >> beam.Distinct()
            | "CollectClasses" >> beam.combiners.ToList()
            | "LabelMap" >> beam.Map(class_labels, *self._arguments)
        )


def _list_class_names(keyed: tuple[int, bytes]) -> set[str]:
    return set(unpack_block(keyed[1]).class_name.texts())


_FOLDERS_SHOWN = 5

Nested = tuple[tuple[str, str], int]
"""((class, folder below it), number of images)."""


class WarnNestedClasses(beam.PTransform):
    """Report warnings about (range, packed Block) of image rows whose first folder is their class as Facts.

    Args:
        labels: PCollection of one LabelMap.
        splits: Splits that get the warnings.
    """

    def __init__(self, labels: PCollection, splits: tuple[str, ...]):
        super().__init__()
        self._labels, self._splits = labels, splits

    def expand(self, rows: PCollection[tuple[int, bytes]]):
        return (
            rows
            | "Folders" >> beam.FlatMap(_count_nested_folders).with_output_types(Nested)
            | "CountFolders" >> beam.CombinePerKey(sum)
            | "CollectFolders" >> beam.combiners.ToList()
            | "Warn" >> WithFacts(_warn_nested, AsSingleton(self._labels), self._splits)
        )


def _count_nested_folders(keyed: tuple[int, bytes]) -> Iterable[Nested]:
    counts: Counter[tuple[str, str]] = Counter()
    for name in unpack_block(keyed[1]).file_name.texts():
        class_name, *folders = name.split("/")[:-1]
        counts.update((class_name, folder) for folder in set(folders))
    return counts.items()


def _warn_nested(nested: list[Nested], facts: FactsBuilder, labels: LabelMap, splits: tuple[str, ...]) -> None:
    facts.warn_all(splits, nested_classes(nested, labels))


def nested_classes(nested: Iterable[Nested], labels: LabelMap) -> Iterator[str]:
    """Yield a warning for each class whose folder contains folders with the names of other classes, in any case."""
    names = [category.name for category in labels.categories]
    known = {name.casefold(): name for name in names}
    folders_by_class: dict[str, list[tuple[str, int]]] = {}
    for (name, folder), number in sorted(nested):
        if name in names and known.get(folder.casefold(), name) != name:
            folders_by_class.setdefault(name, []).append((folder, number))
    remaining = [name for name in names if name not in folders_by_class]
    for name, folders in folders_by_class.items():
        examples = first_texts((f"{folder!r} {number:,}" for folder, number in folders), _FOLDERS_SHOWN)
        is_short = 0 < len(remaining) <= _FOLDERS_SHOWN
        fix = f"--classes {shlex.quote(join_names(remaining))}" if is_short else "--classes with the other classes"
        yield (
            f"class {name!r} contains folders with the names of other classes (images per folder: {examples}). If it "
            f"is a copy, or a split, exclude it by {fix}"
        )


def folders_without_images(folders: Iterable[str], output: str) -> Iterator[str]:
    """Yield a warning for each class folder on this machine that has no image. A bucket has no empty folders.

    Args:
        output: Output folder of the job, which is not a class.
    """
    for folder in folders:
        for name, below in () if is_remote(folder) else _walk_class_folders(folder):
            path = os.path.join(folder, name)
            if os.path.realpath(path) == os.path.realpath(output) or not is_image_name(f"{name}/1.jpg"):
                continue
            files: list[str] = []
            for file in below:
                files.append(file)
                if is_image_name(file):
                    break
            else:
                why = "it is empty"
                if files:
                    why = f"none of its {len(files):,} files, such as {files[0]!r}, has the suffix of an image format"
                    why += _suffix_hint(os.path.join(folder, files[0]))
                yield f"folder {name!r} in {folder} contains no images, so it does not become a class: {why}"


def _walk_class_folders(folder: str) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield the folders in a folder or .zip on this machine, and the names of the files below each."""
    if find_archive(folder):
        names = sorted(file.name for file in storage_for(folder).walk(folder) if "/" in file.name)
        yield from groupby(names, lambda name: name.partition("/")[0])
    elif os.path.isdir(folder):
        for entry in sorted(os.scandir(folder), key=attrgetter("name")):
            if entry.is_dir():
                yield entry.name, (f"{entry.name}/{file.name}" for file in storage_for(entry.path).walk(entry.path))


def _suffix_hint(path: str) -> str:
    """Return a hint to rename a file that is an image; empty if it is not an image."""
    kind = ""
    with contextlib.suppress(OSError):
        kind = image_kind(storage_for(path).read_range(path, 0, 16))
    return f"; that is a {kind.upper()} image. Give such files the suffix of their format" if kind else ""


_LOGGER = logging.getLogger(__name__)

_SAMPLE = 1000  # files, a page of a bucket's listing


def check_sample(options: FolderOptions) -> None:
    """List the first files of each folder in a bucket; warn if none is an image of a class.

    Raises:
        ConfigError: The folders have no other files, so the job would start its machines for nothing.
    """
    folders = [folder for folder in options.images if is_remote(folder)]
    samples = {folder: [name for name, _ in islice(list_images(folder), _SAMPLE)] for folder in folders}
    faults = {folder: why for folder in folders if (why := _sample_fault(options, samples[folder]))}
    if len(faults) == len(options.images) and all(len(sample) < _SAMPLE for sample in samples.values()):
        raise ConfigError("; ".join(f"DATA {path} has no image of a class: {why}" for path, why in faults.items()))
    for folder, why in faults.items():
        _LOGGER.warning("DATA %s: no image of a class among its first %s files: %s", folder, f"{_SAMPLE:,}", why)


def _sample_fault(options: FolderOptions, names: list[str]) -> str:
    """Return why none of the files is an image of a class; empty if one is."""
    images = list(filter(is_image_name, names))
    if not images:
        return f"{names[0]!r} has no suffix of an image format" if names else "it is empty"
    faults = [path_fault(name, options.class_separator, options.division) for name in images]
    return faults[0][1] if faults[0] and all(faults) else ""
