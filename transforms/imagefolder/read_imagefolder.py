"""Hugging Face's imagefolder: images with metadata files, whose places and first rows decide what is read."""

import contextlib
import posixpath
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.coco import BoxFormat
from recordmill.schemas.inputs.images import is_image_name
from recordmill.schemas.inputs.splits import SPLIT_OF_FOLDER, USUAL_SPLITS, split_of_file
from recordmill.schemas.inputs.tables import RowsReading
from recordmill.schemas.layouts import LAYOUTS
from recordmill.schemas.names import name_fault
from recordmill.schemas.rejects import UnusableError
from recordmill.transforms.annotated.naming import split_folders
from recordmill.transforms.annotated.source import ImageParts, Source, SourceFolder
from recordmill.transforms.imagefolder.imagefolder_options import ImagefolderOptions
from recordmill.transforms.imagefolder.parse_metadata import (
    CAPTIONS,
    CLASSES,
    FILE_NAME,
    NUMBERED,
    OBJECTS,
    UNREAD,
    RowRules,
    box_of,
    has_objects,
    image_bytes,
    image_column,
    is_numbered,
    objects_of,
    parse_metadata,
    rows_of,
    shard_name,
    size_of,
    value_of,
)
from recordmill.transforms.images.load_images import inspect_image
from recordmill.transforms.join.guess_box_format import Boxes, check_box_format
from recordmill.transforms.rows.read_rows import read_stream
from recordmill.transforms.storage.resolve import join_path, list_existing, split_folder, storage_for

METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
_ROOTS = ("", "data")
_SIZES_READ = 100
"""So many images are looked at for their size, where rows do not state it."""


class MetadataFile(NamedTuple):
    """Metadata file, or a Parquet file that holds images.

    Attributes:
        folder: in the data set; empty for the data set itself. Of a .zip its name.
        name: of the file in the folder.
        path: of the file.
        columns, rows: of its first rows, at most 8,192. Files that hold images have those of the first of their split.
        class_names: of the types of Parquet.
        image: column of images; empty if they are files.
        fault: of the first row that cannot be read.
    """

    folder: str
    name: str
    path: str
    columns: Mapping[str, Any]
    rows: list[dict[str, Any]]
    class_names: tuple[str, ...] = ()
    picture: str = ""
    fault: str = ""

    @property
    def split(self) -> str:
        return split_of_file(self.name) if self.picture else _split_of(self.folder)

    @property
    def prefix(self) -> str:
        """Prefix of its files' names in the data set."""
        return f"{self.folder.removesuffix('.zip')}/" if self.folder else ""

    def objects(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Yield each readable object's row and values."""
        for row in self.rows:
            with contextlib.suppress(UnusableError):
                yield from ((row, each) for each in objects_of(row))


def _split_of(folder: str) -> str:
    return SPLIT_OF_FOLDER.get(posixpath.basename(folder).removesuffix(".zip").lower(), "")


def source(options: ImagefolderOptions) -> Source:
    """Return what is read.

    Raises:
        ConfigError: there is no metadata file, or several for a split; or its columns are of no use; or --class-names
            or --bbox-format is needed.
    """
    data, images = options.data, options.images
    if len(images) > 1:
        raise ConfigError("--images: file_name begins at one folder; give one")
    root, files = _find_files(data)
    heads = {file.split: file for file in reversed(files)}
    picture = files[0].picture
    if picture and images:
        raise ConfigError(f"{files[0].path} holds its images in the column {picture}: leave out --images")
    class_names = options.class_names or (files[0].class_names if picture else ())
    others = [file.path for file in files if picture and not options.class_names and file.class_names != class_names]
    if others:
        raise ConfigError(f"{files[0].path} and {others[0]} have different names of classes: --class-names gives them")
    has_captions = Part.CAPTIONS in LAYOUTS[options.layout].parts
    captions = tuple(name for name in CAPTIONS if any(name in file.columns for file in files))
    warnings = _unread_splits(root, files)
    if captions and not has_captions:
        warnings.append(f"{data} has captions ({', '.join(captions)}), and records of this --layout have none")
    for file in reversed(heads.values()):
        _check_file(file, class_names, captions)
        if options.bbox_format is None:
            check_box_format(file.path, _sampled(file, images[0] if images else split_folder(file.path)[0]))
    splits = {file.split for file in files if file.split}
    by_folder = {} if splits else split_folders(root)
    if picture:
        by_folder = {shard_name(file.name): file.split for file in files if file.split}
        places = dict.fromkeys((join_path(root, file.folder), file.prefix) for file in files)
        folders = [SourceFolder(*place, has_images=False) for place in places]
    else:
        folders = [SourceFolder(join_path(root, file.folder), file.prefix, file.split, not images) for file in files]
    folders += [SourceFolder(folder) for folder in images]
    box_format, is_beside = BoxFormat(options.bbox_format or "xywh"), not images and not picture
    rules = RowRules(class_names, box_format, captions, by_folder, is_beside, picture)
    return Source(
        path=data,
        kind="imagefolder",
        folders=tuple(folders),
        parse=partial(parse_metadata, rules=rules),
        is_label=frozenset(file.prefix + file.name for file in files).__contains__,
        categories=tuple(Category(*each) for each in enumerate(class_names)) if class_names else None,
        splits=tuple(split for split in USUAL_SPLITS if split in {*splits, *by_folder.values()}),
        check=partial(_check, path=data),
        parts=(Part.CAPTIONS,) if captions and has_captions else (),
        inputs=tuple(file.path for file in files),
        warnings=tuple(warnings),
    )


def _find_files(data: str) -> tuple[str, list[MetadataFile]]:
    """Return the data set's folder and its metadata files.

    Raises:
        ConfigError: there is none, or it is not clear which to read.
    """
    storage = storage_for(data)
    if storage.size(data) is not None and not storage.is_folder(data):
        folder, name = split_folder(data)
        return folder, [_read_head(folder, "", name)]
    folders = [posixpath.join(base, split) for base in _ROOTS for split in ("", *split_folders(join_path(data, base)))]
    for base in _ROOTS:
        folder = join_path(data, base) if base else data
        folders += [posixpath.join(base, name) for name in storage_for(folder).names(folder) if name.endswith(".zip")]
    tried = (posixpath.join(folder, name) for folder in folders for name in METADATA)
    found = [posixpath.split(name) for name in list_existing(data, tried)]
    if not found and (shards := _find_shards(data)):
        return data, shards
    if not found:
        raise ConfigError(_no_metadata(data))
    splits = [_split_of(folder) for folder, _ in found]
    if len(set(splits)) < len(splits) or ("" in splits and len(splits) > 1):
        names = ", ".join(posixpath.join(*each) for each in found)
        raise ConfigError(f"--data {data} has {names}, which are not one for each split: --data reads one such file")
    return data, [_read_head(data, *each) for each in found]


def _find_shards(data: str) -> list[MetadataFile]:
    """Return the Parquet files that hold images; none if there are no Parquet files.

    Raises:
        ConfigError: they hold no images, or some of their names begin with a split and others do not.
    """
    for base in _ROOTS:
        folder, heads = join_path(data, base) if base else data, dict[str, MetadataFile]()
        names = sorted(name for name in storage_for(folder).names(folder) if name.endswith(".parquet"))
        for name in names:
            if (split := split_of_file(name)) not in heads:
                head = heads[split] = _read_head(data, base, name)
                if not head.picture:
                    columns = ", ".join(head.columns) or "none"
                    raise ConfigError(f"{head.path} has neither {FILE_NAME} nor images, and these columns: {columns}")
        if "" in heads and len(heads) > 1:
            raise ConfigError(
                f"{folder} has Parquet files with and without a split at the beginning of their names: "
                f"{', '.join(head.name for head in heads.values())}. Rename them, or give one as --data"
            )
        if names:
            return [heads[split_of_file(name)]._replace(name=name, path=join_path(folder, name)) for name in names]
    return []


def _read_head(root: str, folder: str, name: str) -> MetadataFile:
    path = join_path(root, posixpath.join(folder, name))
    with storage_for(path).open(path) as stream:
        batch = next(read_stream(path, stream, RowsReading(is_label_table=True)), None)
    if batch is None:
        return MetadataFile(folder, name, path, {}, [])
    rows = [row for _, row in rows_of(batch)]
    class_names = next((names for key in CLASSES if (names := batch.names.get(f"{OBJECTS}.{key}"))), ())
    picture = "" if FILE_NAME in batch.columns else image_column(batch.columns)
    fault = next((f", row {row.line}: {row.detail}" for row in batch.bad), "")
    return MetadataFile(folder, name, path, batch.columns, rows, class_names, picture, fault)


def _unread_splits(root: str, files: list[MetadataFile]) -> list[str]:
    """Return warnings of folders of splits that have no metadata file, where others have."""
    known = {file.folder for file in files}
    bases = {posixpath.dirname(file.folder) for file in files if file.split}
    names = [posixpath.join(base, name) for base in sorted(bases) for name in split_folders(join_path(root, base))]
    return [
        f"{join_path(root, name)} has no metadata file, so its images are left out"
        for name in names
        if name not in known
    ]


def _no_metadata(data: str) -> str:
    """Return the error of a folder without a metadata file, with the command that reads it."""
    said = f"--data {data} has none of {', '.join(METADATA)}"
    splits = split_folders(data)
    if not splits:
        return f"{said}. recordmill folder --images {data} reads folders of classes"
    commands = [f"recordmill folder --images {join_path(data, name)} --split {split}" for name, split in splits.items()]
    return f"{said}, in it or in {', '.join(splits)}. Folders of classes are read by {' and '.join(commands)}"


def _check_file(file: MetadataFile, class_names: tuple[str, ...], captions: tuple[str, ...]) -> None:
    """Refuse a metadata file without any storable column.

    Raises:
        ConfigError: The columns have neither images with objects nor captions, or classes need names.
    """
    folder = split_folder(file.path)[0]
    columns = ", ".join(file.columns)
    if not columns:
        raise ConfigError(f"{file.path}{file.fault or ': no row is in it'}")
    if FILE_NAME not in file.columns and not file.picture:
        raise ConfigError(f"{file.path} has no column {FILE_NAME}, and these: {columns}")
    if not has_objects(file.columns) and not any(name in file.columns for name in captions):
        others = [name for name in file.columns if name != FILE_NAME]
        said = f"{file.path} has neither objects nor captions ({', '.join(CAPTIONS)}), and these columns: {columns}."
        if file.picture:
            raise ConfigError(
                f"{said} recordmill table --rows '{join_path(folder, '*.parquet')}' --image-column {file.picture} "
                "--label LABEL reads images and their classes"
            )
        raise ConfigError(
            f"{said} recordmill folder --images {folder} --labels {file.path} --label-column {(*others, 'NAME')[0]} "
            f"reads one as class of the image, recordmill table --rows {file.path} --images {folder} --image-column "
            f"{FILE_NAME} reads all"
        )
    first = next(file.objects(), None)
    if first is None or class_names:
        return
    if is_numbered(first[1]):
        number = value_of(first[1], CLASSES)
        raise ConfigError(_unnamed(f"{file.path}: class {number} of the first object is a number"))
    if value_of(first[1], CLASSES) is None:
        raise ConfigError(f"{file.path}: the first object has no category: --class-names object gives all that class")


def _unnamed(said: str) -> str:
    return f"{said}: --class-names cat,dog gives the names of all classes, from number 0 on"


def _sampled(file: MetadataFile, folder: str) -> Boxes:
    """Return boxes of the first rows, with the sizes of their images where rows state them, or of the first images."""
    numbers, sizes, areas = [], [], []
    read: dict[str, tuple[float, float]] = {}
    for row, each in file.objects():
        with contextlib.suppress(UnusableError):
            box = box_of(each, ImageParts())
            name = str(row.get(FILE_NAME, id(row)))
            size = size_of(row) or read.get(name)
            if size is None:
                size = _image_size(folder, row, file.picture) if len(read) < _SIZES_READ else (np.nan, np.nan)
                read[name] = size
            area = value_of(each, ("area", "areas"))
            numbers.append(box)
            sizes.append(size)
            areas.append(area if isinstance(area, int | float) else np.nan)
    unknown = np.full((4, len(numbers)), np.nan)
    as_columns = np.array(numbers, float).reshape(-1, 4).T, np.array(sizes, float).reshape(-1, 2).T
    return Boxes(*as_columns, np.array(areas, float), unknown)


def _image_size(folder: str, row: Mapping[str, Any], picture: str) -> tuple[float, float]:
    """Return the size of an image in pixels; NaN if it cannot be read, which the job reports."""
    name = str(row.get(FILE_NAME))
    with contextlib.suppress(OSError, UnusableError):
        if picture:
            return inspect_image(image_bytes(row, picture), "none")[1:]
        if is_image_name(name) and not name_fault(name):
            path = join_path(folder, name)
            return inspect_image(storage_for(path).read(path), "none")[1:]
    return np.nan, np.nan


def _check(notes: frozenset[str], path: str) -> Iterator[str]:
    """Yield a warning of columns that no record stores.

    Raises:
        ConfigError: Some object has a number as its class, and classes have no names.
    """
    if NUMBERED in notes:
        raise ConfigError(_unnamed(f"{path}: some objects have numbers as classes"))
    if unread := sorted(note.removeprefix(UNREAD) for note in notes if note.startswith(UNREAD)):
        yield f"columns that records do not have are left out: {', '.join(unread)}"
