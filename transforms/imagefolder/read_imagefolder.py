"""Hugging Face's imagefolder: images with metadata files, whose folders and first rows determine the Source."""

import contextlib
import posixpath
import shlex
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.box_columns import ObjectColumns, find_box_columns
from recordmill.schemas.inputs.coco import BoxFormat
from recordmill.schemas.inputs.images import LABEL_COLUMNS, is_image_name
from recordmill.schemas.inputs.splits import SPLIT_OF_FOLDER, USUAL_SPLITS, split_of_file
from recordmill.schemas.inputs.tables import RowsReading, names_cure
from recordmill.schemas.layouts import LAYOUTS
from recordmill.schemas.names import name_fault
from recordmill.schemas.rejects import UnusableError
from recordmill.schemas.sizes import quote_blanks
from recordmill.transforms.annotated.naming import split_folders
from recordmill.transforms.annotated.source import ImageParts, Source, SourceFolder
from recordmill.transforms.imagefolder.imagefolder_options import ImagefolderOptions
from recordmill.transforms.imagefolder.parse_metadata import (
    AREA,
    CAPTIONS,
    CLASSES,
    FILE_NAME,
    NUMBERED,
    OBJECTS,
    MetadataFormat,
    find_image_column,
    first_value,
    has_objects,
    image_bytes,
    is_numbered,
    metadata_rows,
    parse_metadata,
    read_box,
    read_value,
    row_objects,
    shard_name,
    stated_size,
)
from recordmill.transforms.images.load_images import inspect_image
from recordmill.transforms.join.guess_box_format import Boxes, check_box_format
from recordmill.transforms.rows.read_rows import read_stream
from recordmill.transforms.storage.resolve import join_path, list_existing, split_folder, storage_for

METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
_ROOTS = ("", "data")
_STEP, _MAX_BOXES = 8, 10_000
"""Number of boxes whose format is guessed, as in COCO's files, and step between the rows of the first ones."""
_MAX_SIZES = 100
"""Number of images whose size is read from their files, if rows do not state it."""


class MetadataFile(NamedTuple):
    """Metadata file, or a Parquet file that holds images.

    Attributes:
        folder: Folder in the data set, or name of a .zip; empty for the data set itself.
        name: Name of the file in the folder.
        path: Path of the file.
        columns, rows: First rows of the file, at most 8,192. For files that hold images, rows of the first file of
            their split.
        class_names: Names of classes in the types of Parquet.
        image_column: Column of images; empty if images are files.
        fault: Fault of the first unreadable row.
    """

    folder: str
    name: str
    path: str
    columns: Mapping[str, Any]
    rows: list[dict[str, Any]]
    class_names: tuple[str, ...] = ()
    image_column: str = ""
    fault: str = ""

    @property
    def split(self) -> str:
        return split_of_file(self.name) if self.image_column else _folder_split(self.folder)

    @property
    def prefix(self) -> str:
        """Prefix of the names of its files in the data set."""
        return f"{self.folder.removesuffix('.zip')}/" if self.folder else ""

    def objects(self, step: int = 1) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
        """Yield each readable row and the values of its objects. Every `step`-th row comes first."""
        for row in chain.from_iterable(self.rows[start::step] for start in range(step)):
            with contextlib.suppress(UnusableError):
                yield row, row_objects(row)


def _folder_split(folder: str) -> str:
    return SPLIT_OF_FOLDER.get(posixpath.basename(folder).removesuffix(".zip").lower(), "")


def source(options: ImagefolderOptions) -> Source:
    """Return the Source of an imagefolder.

    Raises:
        ConfigError: There is no metadata file, or there are several for a split; or a file lacks usable columns; or
            --class-names or --bbox-format is needed.
    """
    data, images = options.data, options.images
    if len(images) > 1:
        raise ConfigError("--images: file_name begins at one folder. Give only one")
    root, files = _find_metadata(data)
    heads = {file.split: file for file in reversed(files)}
    image_column = files[0].image_column
    if image_column and images:
        raise ConfigError(f"{files[0].path} holds its images in the column {image_column}. Omit --images")
    class_names = options.class_names or (files[0].class_names if image_column else ())
    if image_column and not options.class_names:
        for file in files:
            if file.class_names != class_names:
                raise ConfigError(f"{files[0].path} and {file.path} have different names of classes. Add --class-names")
    has_captions = Part.CAPTIONS in LAYOUTS[options.layout].parts
    captions = tuple(name for name in CAPTIONS if any(name in file.columns for file in files))
    warnings = _unread_splits(root, files)
    if captions and not has_captions:
        warnings.append(f"{data} has captions ({', '.join(captions)}), which records of this --layout cannot store")
    for file in reversed(heads.values()):
        _check_columns(file, class_names, captions)
        if options.bbox_format is None:
            check_box_format(file.path, _sample_boxes(file, images[0] if images else split_folder(file.path)[0]))
    splits = {file.split for file in files if file.split}
    by_folder = {} if splits else split_folders(root)
    if image_column:
        by_folder = {shard_name(file.name): file.split for file in files if file.split}
        paths = dict.fromkeys((join_path(root, file.folder), file.prefix) for file in files)
        folders = [SourceFolder(path, prefix, has_images=False) for path, prefix in paths]
    else:
        folders = [SourceFolder(join_path(root, file.folder), file.prefix, file.split, not images) for file in files]
    folders += [SourceFolder(folder, has_labels=False) for folder in images]
    box_format, is_beside = BoxFormat(options.bbox_format or "xywh"), not images and not image_column
    has_fields = bool(options.fields)
    row_format = MetadataFormat(class_names, box_format, captions, by_folder, is_beside, image_column, has_fields)
    return Source(
        path=data,
        kind="imagefolder",
        folders=tuple(folders),
        parse=partial(parse_metadata, row_format=row_format),
        is_label=frozenset(file.prefix + file.name for file in files).__contains__,
        categories=tuple(Category(index, name) for index, name in enumerate(class_names)) if class_names else None,
        splits=tuple(split for split in USUAL_SPLITS if split in {*splits, *by_folder.values()}),
        check=partial(_check_metadata_notes, path=data),
        parts=(Part.CAPTIONS,) if captions and has_captions else (),
        inputs=tuple(file.path for file in files),
        warnings=tuple(warnings),
        image_fields=("",),
        text_fields=any(file.name.endswith(".csv") for file in files),
    )


def _find_metadata(data: str) -> tuple[str, list[MetadataFile]]:
    """Return the folder of the data set and its metadata files.

    Raises:
        ConfigError: There is no metadata file, or it is ambiguous which to read.
    """
    storage = storage_for(data)
    if storage.size(data) is not None and not storage.is_folder(data):
        folder, name = split_folder(data)
        return folder, [_read_metadata_head(folder, "", name)]
    folders = [posixpath.join(base, split) for base in _ROOTS for split in ("", *split_folders(join_path(data, base)))]
    for base in _ROOTS:
        folder = join_path(data, base) if base else data
        folders += [posixpath.join(base, name) for name in storage_for(folder).names(folder) if name.endswith(".zip")]
    candidates = (posixpath.join(folder, name) for folder in folders for name in METADATA)
    names = list(list_existing(data, candidates))
    if not names and (files := _find_parquet_files(data)):
        return data, files
    if not names:
        raise ConfigError(_no_metadata(data))
    splits = [_folder_split(posixpath.dirname(name)) for name in names]
    if len(set(splits)) < len(splits) or ("" in splits and len(splits) > 1):
        raise ConfigError(f"{data} has {', '.join(names)}, not one file per split. Give one of them")
    return data, [_read_metadata_head(data, *posixpath.split(name)) for name in names]


def _find_parquet_files(data: str) -> list[MetadataFile]:
    """Return the Parquet files that hold images; empty without Parquet files.

    Raises:
        ConfigError: The files do not hold images, or only some of their names begin with a split.
    """
    for base in _ROOTS:
        folder, heads = join_path(data, base) if base else data, dict[str, MetadataFile]()
        names = sorted(name for name in storage_for(folder).names(folder) if name.endswith(".parquet"))
        for name in names:
            if (split := split_of_file(name)) not in heads:
                head = heads[split] = _read_metadata_head(data, base, name)
                if not head.image_column:
                    columns = ", ".join(quote_blanks(head.columns)) or "none"
                    raise ConfigError(f"{head.path} has neither {FILE_NAME} nor images. Its columns are: {columns}")
        if "" in heads and len(heads) > 1:
            raise ConfigError(
                f"{folder} has Parquet files with and without a split at the beginning of their names: "
                f"{', '.join(head.name for head in heads.values())}. Rename them, or give one of them"
            )
        if names:
            return [heads[split_of_file(name)]._replace(name=name, path=join_path(folder, name)) for name in names]
    return []


def _read_metadata_head(root: str, folder: str, name: str) -> MetadataFile:
    path = join_path(root, posixpath.join(folder, name))
    with storage_for(path).open(path) as stream:
        batch = next(read_stream(path, stream, RowsReading(is_label_table=True)), None)
    if batch is None:
        return MetadataFile(folder, name, path, {}, [])
    rows = [row for _, row in metadata_rows(batch)]
    class_names = next((names for key in CLASSES if (names := batch.names.get(f"{OBJECTS}.{key}"))), ())
    image_column = "" if FILE_NAME in batch.columns else find_image_column(batch.columns)
    fault = next((f", row {row.line}: {row.detail}" for row in batch.bad), "")
    return MetadataFile(folder, name, path, batch.columns, rows, class_names, image_column, fault)


def _unread_splits(root: str, files: list[MetadataFile]) -> list[str]:
    """Return a warning for each folder of a split without a metadata file, if other folders have one."""
    known = {file.folder for file in files}
    bases = {posixpath.dirname(file.folder) for file in files if file.split}
    names = [posixpath.join(base, name) for base in sorted(bases) for name in split_folders(join_path(root, base))]
    return [
        f"{join_path(root, name)} has no metadata file, so its images are skipped"
        for name in names
        if name not in known
    ]


def _no_metadata(data: str) -> str:
    """Return the error for a folder without a metadata file, with the command that reads it."""
    fault = f"{data} has none of {', '.join(METADATA)}"
    splits = split_folders(data)
    if not splits:
        return f"{fault}. To read folders of classes, add --format folder"
    return f"{fault}, in it or in {', '.join(splits)}. To read folders of classes, add --format folder"


def _check_columns(file: MetadataFile, class_names: tuple[str, ...], captions: tuple[str, ...]) -> None:
    """Refuse a metadata file without a column that records can store.

    Raises:
        ConfigError: The columns have neither images with objects nor captions, or classes need names.
    """
    folder = split_folder(file.path)[0]
    columns = ", ".join(quote_blanks(file.columns))
    if not columns:
        raise ConfigError(f"{file.path}{file.fault or ' has no rows'}")
    if FILE_NAME not in file.columns and not file.image_column:
        raise ConfigError(
            f"{file.path} has no column {FILE_NAME}. Its columns are: {columns}{names_cure([*file.columns])}"
        )
    if not has_objects(file.columns) and not any(name in file.columns for name in captions):
        if boxes := find_box_columns(file.columns):
            raise ConfigError(_describe_boxes(file, boxes))
        label = next((name for name in file.columns if name.lower() in LABEL_COLUMNS), "COLUMN")
        fault = f"{file.path} has neither objects nor captions ({', '.join(CAPTIONS)}). Its columns are: {columns}."
        if file.image_column:
            raise ConfigError(
                f"{fault} recordmill convert {shlex.quote(join_path(folder, '*.parquet'))} -o OUT --format table "
                f"--image-column {shlex.quote(file.image_column)} --label LABEL reads images and their classes"
            )
        folder, path = shlex.quote(folder), shlex.quote(file.path)
        raise ConfigError(
            f"{fault} recordmill convert {folder} --labels {path} --label {shlex.quote(label)} -o OUT reads one as the "
            f"class of the image, recordmill convert {path} --format table --images {folder} --image-column "
            f"{FILE_NAME} -o OUT reads all"
        )
    entry = next((entry for _, entries in file.objects() for entry in entries), None)
    if entry is None or class_names:
        return
    if is_numbered(entry):
        number = first_value(entry, CLASSES)
        raise ConfigError(_missing_class_names(f"{file.path}: class {number} of the first object is a number"))
    if first_value(entry, CLASSES) is None:
        raise ConfigError(f"{file.path}: the first object has no category. Add --class-names object for one class")


def _describe_boxes(file: MetadataFile, boxes: ObjectColumns) -> str:
    """Return the error of a file with boxes in columns that the format does not have."""
    text = f"{file.path} has boxes ({', '.join(boxes.box)}) outside the column objects. "
    if all(boxes.used) and file.name.endswith(".csv"):
        data = file.path.removesuffix(posixpath.join(file.folder, file.name)).rstrip("/") if file.split else file.path
        return text + f"Convert them by: {shlex.join(['recordmill', 'convert', data or '.'])} --format tfcsv -o OUT"
    return (
        text + 'Write them into it, as {"bbox": [[x, y, width, height]], "category": ["cat"]} with lists of one length'
    )


def _missing_class_names(fault: str) -> str:
    return f"{fault}. Add --class-names cat,dog with the names of all classes, from number 0"


def _sample_boxes(file: MetadataFile, folder: str) -> Boxes:
    """Return boxes of the first rows, with the sizes of images that rows state, or that the first image files have."""
    parts = ImageParts()
    numbers: list[Any] = []
    sizes, areas = [], []
    read_sizes: dict[str, tuple[float, float]] = {}
    for row, entries in file.objects(_STEP):
        if len(numbers) >= _MAX_BOXES:
            break
        name, stated = str(row.get(FILE_NAME, id(row))), stated_size(row, set())
        size = stated if stated[0] else read_sizes.get(name)
        for entry in entries:
            with contextlib.suppress(UnusableError):
                box, area = read_box(entry, parts), read_value(entry, AREA, float, parts)
                if size is None:
                    is_enough = len(read_sizes) >= _MAX_SIZES
                    size = (np.nan, np.nan) if is_enough else _image_size(folder, row, file.image_column)
                    read_sizes[name] = size
                numbers.append(box)
                sizes.append(size)
                areas.append(np.nan if area is None else area)
    unknown = np.full((4, len(numbers)), np.nan)
    as_columns = np.array(numbers, float).reshape(-1, 4).T, np.array(sizes, float).reshape(-1, 2).T
    return Boxes(*as_columns, np.array(areas, float), unknown)


def _image_size(folder: str, row: Mapping[str, Any], image_column: str) -> tuple[float, float]:
    """Return the size of an image in pixels; NaN if it cannot be read, which the job reports."""
    name = str(row.get(FILE_NAME))
    with contextlib.suppress(OSError, UnusableError):
        if image_column:
            return inspect_image(image_bytes(row, image_column), "none")[1:]
        if is_image_name(name) and not name_fault(name):
            path = join_path(folder, name)
            return inspect_image(storage_for(path).read(path), "none")[1:]
    return np.nan, np.nan


def _check_metadata_notes(notes: frozenset[str], path: str) -> Iterator[str]:
    """Yield no warning.

    Raises:
        ConfigError: Some object has a number as its class, and classes have no names.
    """
    if NUMBERED in notes:
        raise ConfigError(_missing_class_names(f"{path}: some objects have numbers as classes"))
    yield from ()
