"""Find the shards of a path: a data set, one of its shards, or any TFRecord files."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Feature, FeatureKind, FeatureTable
from recordmill.schemas.layouts import BOX_CODINGS, CLASSIFICATION, DETECTION, KERAS, TFDS, VALUE_OF
from recordmill.transforms.dataset.dataset_folder import read_manifest
from recordmill.transforms.images.open_image import image_kind
from recordmill.transforms.records.parse_record import TypedValues, Values
from recordmill.transforms.storage.resolve import join_path, match_files, split_folder, storage_for, tilde_hint

FILE_MARKS = ("tfrecord", ".tfrec")
"""Parts of the names of TFRecord files by TFDS, Beam, Keras and the Object Detection API."""
_INDEXES = (".idx", ".index")
"""Suffixes of indexes that other tools, such as DALI, write next to TFRecord files."""
_CLASS_NAMES = ".labels.txt"
"""Suffix of TFDS's files of class names, one name per line."""


class Shard(NamedTuple):
    """A file of records.

    Attributes:
        split: Empty if unknown.
        records: Number of records in the manifest; None without one.
    """

    path: str
    split: str = ""
    records: int | None = None


class Shards(NamedTuple):
    """Shards to show.

    Attributes:
        folder: Folder of the data set, the file or the pattern.
        manifest: Manifest of the folder; None for other TFRecord files.
        is_whole: True if the path is the folder, and not some of its files.
        class_names: Class names in files of other tools, by the name of the feature with their indices.
    """

    shards: tuple[Shard, ...]
    folder: str
    manifest: Manifest | None
    is_whole: bool
    class_names: dict[str, tuple[str, ...]]


def find_shards(path: str, split: str, marks: Sequence[str] = FILE_MARKS) -> Shards:
    """Return the shards of a folder, of a pattern with wild cards, or the single file with that name.

    Args:
        split: Split to return; empty for all.
        marks: Parts of the names of files in a folder without a manifest.

    Raises:
        ConfigError: The path has no files or no such split, or its manifest cannot be read.
    """
    storage = storage_for(path)
    is_folder = storage.is_folder(path)
    folder = path if is_folder else split_folder(path)[0]
    try:
        manifest = read_manifest(folder)
    except ConfigError:
        if is_folder:
            raise
        manifest = None  # a manifest.json next to named files may be another tool's
    manifest_shards = [
        Shard(join_path(folder, shard.file), name, shard.examples)
        for name, entry in (manifest.splits.items() if manifest else ())
        for shard in entry.shards
    ]
    if is_folder and manifest is not None:
        shards = manifest_shards
    elif is_folder:
        names = [name for name in _drop_indexes(storage.names(folder)) if any(mark in name.lower() for mark in marks)]
        if not names:
            raise ConfigError(
                f"{path} has no manifest.json, and no file with {', '.join(marks[:-1])} or {marks[-1]} in its name. "
                "Name files, or a pattern in quotes: 'folder/*'"
            )
        shards = [Shard(join_path(folder, name), _split_in_name(name)) for name in names]
    else:
        known = {os.path.basename(shard.path): shard for shard in manifest_shards}
        paths = {file: os.path.basename(file) for file in _drop_indexes(match_files(path))}
        shards = [known.get(name) or Shard(file, _split_in_name(name)) for file, name in paths.items()]
        if missing := [shard.path for shard in shards if storage_for(shard.path).size(shard.path) is None]:
            fix = tilde_hint(path) or ". Name the folder of a data set, or a file of records"
            raise ConfigError(f"{missing[0]}: no such file or folder{fix}")
        if not all(shard.records is not None for shard in shards):
            manifest = None  # the folder has other tools' files, too
    if split:
        splits = sorted({shard.split for shard in shards} - {""})
        shards = [shard for shard in shards if shard.split == split]
        if not shards:
            known_splits = f"Its splits are {', '.join(splits)}" if splits else "Its file names have no splits"
            raise ConfigError(f"--split {split!r}: {path} has no such split. {known_splits}")
    return Shards(tuple(shards), folder, manifest, is_folder, {} if manifest else _read_class_names(folder))


def _drop_indexes(names: Sequence[str]) -> Sequence[str]:
    """Return the names without indexes. If all are indexes, keep them, so that their error is reported."""
    return [name for name in names if not name.endswith(_INDEXES)] or names


def _split_in_name(name: str) -> str:
    """Return the split in a file name of TFDS, `coco-train.tfrecord-00000-of-00008`; empty if there is none.

    >>> _split_in_name("coco-train.tfrecord-00000-of-00008"), _split_in_name("a.tfrecord")
    ('train', '')
    """
    stem, mark, _ = name.partition(".tfrecord")
    _, dash, split = stem.rpartition("-")
    return split if mark and dash and split.isidentifier() else ""


def _read_class_names(folder: str) -> dict[str, tuple[str, ...]]:
    """Return class names of TFDS's files, by the feature's name with `-` for each `/`."""
    storage = storage_for(folder)
    class_names = {}
    for name in storage.names(folder):
        if name.endswith(_CLASS_NAMES):
            text = storage.read(join_path(folder, name)).decode(errors="replace")
            class_names[name.removesuffix(_CLASS_NAMES).replace(".", "-")] = tuple(text.splitlines())
    return class_names


RecordFeatures = Mapping[str, TypedValues]
"""Features by name, as `parse_example` returns them."""

UNKNOWN = FeatureTable("unknown", ())

_FILE_NAMES = ("filename", "file_name", "path")
_LABEL_IMAGES = ("mask", "panoptic", "segmentation", "annotation", "label")
"""Parts of the names of PNGs whose pixels are ids."""
_BOX_SOURCES = frozenset(source for coding in BOX_CODINGS for source in coding.sources)
_LEAST_NAMES = 3
"""Minimum number of names of a layout that identify it."""


def recognise_features(features: RecordFeatures) -> FeatureTable:
    """Return the features of a record, as far as known; layout `unknown` if no layout fits."""
    present = [
        FeatureTable(
            table.layout, tuple(feature for feature in table.features if feature.name in features), table.record_of
        )
        for table in (DETECTION, CLASSIFICATION, TFDS, KERAS)
    ]
    # Ties go to the layout with more features that every record has.
    best = max(
        present, key=lambda table: (len(table.features), sum(feature.part is None for feature in table.features))
    )
    if len(best.features) < _LEAST_NAMES or not best.sources & {"image.encoded", *_BOX_SOURCES}:
        best = UNKNOWN
    return _add_known_features(best, features)


def _add_known_features(table: FeatureTable, features: RecordFeatures) -> FeatureTable:
    """Return the table with features that its layout lacks: image, name, label, boxes of TFDS under any name."""
    more = dict[str, str]()  # source -> name
    for name, (kind, values) in features.items():
        group, _, last = name.rpartition("/")
        if kind is FeatureKind.BYTES and _is_image(name, values):
            more.setdefault("image.encoded", name)
        elif kind is FeatureKind.BYTES and len(values) == 1 and last in _FILE_NAMES:
            more.setdefault("image.file_name", name)
        elif kind is FeatureKind.INT64 and len(values) == 1 and last == "label":
            more.setdefault("image.class_index", name)
        elif kind is FeatureKind.FLOAT and last == "bbox" and len(values) % 4 == 0 and group:
            more.setdefault("objects.bbox_yxyx", name)
            labels = features.get(f"{group}/label")
            if labels and labels[0] is FeatureKind.INT64 and 4 * len(labels[1]) == len(values):
                more.setdefault("objects.class_index", f"{group}/label")
    if "objects.bbox_yxyx" in more or any(source.startswith("objects.") for source in table.sources):
        more.pop("image.class_index", None)  # it is the class of a single object
    if table.sources & _BOX_SOURCES:
        more.pop("objects.bbox_yxyx", None)
        more.pop("objects.class_index", None)
    known = {}
    for source, name in more.items():
        if source not in table.sources:
            value = VALUE_OF[source]
            known[name] = Feature(name, source, value.kind, value.shape, value.unit, value.meaning)
    known |= {feature.name: feature for feature in table.features}
    return FeatureTable(table.layout, tuple(known[name] for name in sorted(known)), table.record_of)


def _is_image(name: str, values: Values) -> bool:
    is_other = any(word in name.lower() for word in _LABEL_IMAGES)
    return not is_other and len(values) == 1 and bool(image_kind(values[0]))


def values_by_source(features: RecordFeatures, table: FeatureTable) -> dict[str, Any]:
    """Return values of a record as `RecordParser` does: bytes for a single text or file, an array of numbers, a list
    of bytes."""
    values: dict[str, Any] = {}
    for feature in table.features:
        kind, data = features.get(feature.name, (None, []))
        if kind is not feature.kind:
            continue
        if kind is FeatureKind.BYTES and not feature.is_list:
            values |= {feature.source: data[0]} if len(data) == 1 else {}
        else:
            values[feature.source] = data if kind is FeatureKind.BYTES else np.asarray(data)
    return values
