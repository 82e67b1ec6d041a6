"""What a path stands for: a data set's folder, one of its shards, or TFRecord files of anybody."""

import os
from collections.abc import Sequence
from typing import NamedTuple

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.manifest import Manifest
from recordmill.transforms.dataset.dataset_folder import read_manifest
from recordmill.transforms.storage.match_files import match_files
from recordmill.transforms.storage.resolve import storage_for

_MARKS = ("tfrecord", ".tfrec")
"""In names of TFRecord files: of TFDS, Beam, Keras and the Object Detection API."""
_INDEXES = (".idx", ".index")
"""End the names of indexes that others, DALI's users among them, have beside their files."""
_CLASS_NAMES = ".labels.txt"
"""Ends the names of TFDS' files of class names, one a line."""


class Shard(NamedTuple):
    """A TFRecord file.

    Attributes:
        split: empty where nothing says which.
        records: how many there are, where a manifest says so.
    """

    path: str
    split: str = ""
    records: int | None = None


class Shards(NamedTuple):
    """What is to be shown.

    Attributes:
        folder: that the files are in, or begin to be in where a pattern has several.
        manifest: of that folder; None where the files are nobody's that is known.
        is_whole: whether the folder was named, and not some of its files.
        class_names: of files of others, by the name of the feature that has their indices.
    """

    shards: tuple[Shard, ...]
    folder: str
    manifest: Manifest | None
    is_whole: bool
    class_names: dict[str, tuple[str, ...]]


def find_shards(path: str, split: str) -> Shards:
    """The files of a folder, of a pattern with wild cards, or the one file of that name.

    Args:
        split: only the files of that split; all where it is empty.

    Raises:
        ConfigError: there is none, no such split, or a manifest cannot be read.
    """
    storage = storage_for(path)
    is_folder = storage.is_folder(path)
    folder = path if is_folder else path.rpartition("/")[0] if "://" in path else os.path.dirname(path) or "."
    try:
        manifest = read_manifest(folder)
    except ConfigError:
        if is_folder:
            raise
        manifest = None  # beside files that were named; other tools call files so, too
    if is_folder and manifest is not None:
        shards = _listed(folder, manifest)
    elif is_folder:
        names = [name for name in _files(storage.names(folder)) if any(mark in name.lower() for mark in _MARKS)]
        if not names:
            raise ConfigError(
                f"{path} has no manifest.json, and no file that is called a TFRecord file (tfrecord or .tfrec in its "
                "name); name files, or a pattern in quotes: 'folder/*'"
            )
        shards = [Shard(storage.join(folder, name), _split_of(name)) for name in names]
    else:
        shards = [_known(found, folder, manifest) for found in _files(match_files(path))]
        if missing := [shard.path for shard in shards if storage_for(shard.path).size(shard.path) is None]:
            raise ConfigError(f"{missing[0]}: no such file or folder; give a data set's folder, or a TFRecord file")
        if not all(shard.records is not None for shard in shards):
            manifest = None  # a folder may hold files of others, too
    if split:
        splits = sorted({shard.split for shard in shards} - {""})
        shards = [shard for shard in shards if shard.split == split]
        if not shards:
            has = f"it has {', '.join(splits)}" if splits else "its files do not say of which split they are"
            raise ConfigError(f"--split {split!r}: {path} has no such split; {has}")
    return Shards(tuple(shards), folder, manifest, is_folder, {} if manifest else _class_names(folder))


def _files(names: Sequence[str]) -> Sequence[str]:
    """Without indexes of them; an index that is named alone is left, to be told what it is."""
    return [name for name in names if not name.endswith(_INDEXES)] or names


def _listed(folder: str, manifest: Manifest) -> list[Shard]:
    join = storage_for(folder).join
    return [
        Shard(join(folder, shard.file), name, shard.examples)
        for name, split in manifest.splits.items()
        for shard in split.shards
    ]


def _known(path: str, folder: str, manifest: Manifest | None) -> Shard:
    """A file, as the manifest beside it knows it."""
    for shard in _listed(folder, manifest) if manifest else ():
        if os.path.basename(shard.path) == os.path.basename(path):
            return shard
    return Shard(path, _split_of(os.path.basename(path)))


def _split_of(name: str) -> str:
    """The split in a file name of TFDS's form, `coco-train.tfrecord-00000-of-00008`.

    >>> _split_of("coco-train.tfrecord-00000-of-00008"), _split_of("a.tfrecord")
    ('train', '')
    """
    stem, mark, _ = name.partition(".tfrecord")
    _, dash, split = stem.rpartition("-")
    return split if mark and dash and split.isidentifier() else ""


def _class_names(folder: str) -> dict[str, tuple[str, ...]]:
    """TFDS' names of classes beside the files, by the feature's name with `-` for each `/`."""
    storage = storage_for(folder)
    found = {}
    for name in storage.names(folder):
        if name.endswith(_CLASS_NAMES):
            text = storage.read(storage.join(folder, name)).decode(errors="replace")
            found[name.removesuffix(_CLASS_NAMES).replace(".", "-")] = tuple(text.splitlines())
    return found
