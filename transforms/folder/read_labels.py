"""Read tables of image paths and labels as image rows."""

import logging
import posixpath
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

import msgspec
import numpy as np

from recordmill.schemas.block import Block, ragged_bytes, ragged_texts
from recordmill.schemas.errors import AnnotationFileError, ConfigError
from recordmill.schemas.inputs.box_columns import boxes_fault
from recordmill.schemas.inputs.fields import columns_of_rows
from recordmill.schemas.inputs.files import File
from recordmill.schemas.inputs.images import LABEL_COLUMNS, PATH_COLUMNS, SPLIT_COLUMNS, is_image_name
from recordmill.schemas.inputs.labels import number_name
from recordmill.schemas.inputs.option import flag
from recordmill.schemas.inputs.splits import Division, split_name_fault
from recordmill.schemas.inputs.tables import names_cure, rows_format
from recordmill.schemas.names import has_control_character, is_absolute, name_fault, name_key
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.folder.choose_classes import build_image_rows
from recordmill.transforms.folder.folder_options import FolderOptions
from recordmill.transforms.join.field_values import observe_fields
from recordmill.transforms.join.image_names import path_below
from recordmill.transforms.join.observed_labels import ObservedLabel
from recordmill.transforms.rows.read_rows import TextRow, read_texts
from recordmill.transforms.runtime import progress

_LOGGER = logging.getLogger(__name__)

_ROWS_AT_ONCE = 10_000
_LOOKED_AT = 100


# Long list of arguments: the names of files are known during the job only.
def read_labels(
    table: File,
    options: FolderOptions,
    division: Division,
    splits: tuple[str, ...],
    facts: FactsBuilder,
    file_by_stem: Mapping[str, str] = {},
) -> Iterator[tuple[Block, list[ObservedLabel]]]:
    """Yield a table's image rows with their splits, and what decides how their open fields are stored. Paths in the
    table are relative to the image folders, or complete and begin with one of them.

    Args:
        division: Gives each image its split if the table does not.
        splits: Splits of the job. A rejected row without one of them is counted in the first.
        file_by_stem: Names of files by their names without ending, for tables that name images so; see `file_stems`.

    Raises:
        AnnotationFileError: See `label_rows`.
    """
    progress.set_step("reading labels")
    _LOGGER.info("Reading %s", table.path)
    selection = options.requested_columns
    further = set[str]()
    _, rows = label_rows(table.path, options, table.version, bool(selection), further)
    is_typed = rows_format(table.path) in ("json", "parquet")
    if _have_two_number_forms(options):
        facts.warn_all(splits, [_EQUAL_NUMBERS])
        rows = map(_name_number, rows)
    while batch := list(islice(rows, _ROWS_AT_ONCE)):
        labelled = [_label_row(row, table.path, options.images, division, splits, file_by_stem, facts) for row in batch]
        usable = [image for image in labelled if image]
        block = build_image_rows(Block(file_name=ragged_texts([name for name, _, _ in usable]))).replace(
            split=np.array([splits.index(split) for _, split, _ in usable], np.int64),
            class_name=ragged_texts([label for _, _, label in usable]),
        )
        if not selection:
            yield block, [ObservedLabel("image path", name) for name in further]
            continue
        rows_values = [row.values for row, image in zip(batch, labelled, strict=True) if image]
        picked = list(map(selection.pick, rows_values))
        texts = [msgspec.json.encode(row) if row else b"" for row in picked]
        paths = {path for values in rows_values for path in values}
        columns, is_previewed = columns_of_rows(picked), selection.is_previewed
        observed = list(observe_fields("image", columns, len(picked), paths, 0, is_typed, is_previewed))
        yield block.replace(image_fields=ragged_bytes(texts)), observed


def _label_row(
    row: TextRow,
    table: str,
    folders: tuple[str, ...],
    division: Division,
    splits: tuple[str, ...],
    file_by_stem: Mapping[str, str],
    facts: FactsBuilder,
) -> tuple[str, str, str] | None:
    """Return a row's name, split, label; None if rejected."""
    given_path, label, *given_split = row.cells or ("", "")
    path = path_below(given_path, folders)
    name = name_key(path)
    name = file_by_stem.get(name, name)
    (split,) = given_split or (division.split_of(name),)
    fault = None
    # `a/../b.jpg` is below the images. normpath would damage a URL.
    is_plain = is_absolute(path) or "/../" not in path
    if row.fault:
        fault = Reason.MALFORMED_IMAGE, row.fault
    elif unsafe := name_fault(path if is_plain else posixpath.normpath(path)):
        fault = Reason.UNSAFE_FILE_NAME, f"the path {given_path!r} {unsafe}"
    elif not given_split and (no_group := division.fault(name)):
        fault = Reason.NO_GROUP, f"the path {given_path!r} {no_group}"
    if not fault:
        return name, split, label
    detail = f"{posixpath.basename(table)} row {row.number}: {fault[1]}"
    facts.reject(
        split if split in splits else splits[0], Rejected("image", None, fault[0], detail).named(path or table)
    )
    return None


_EQUAL_NUMBERS = (
    "labels are whole numbers in one table, and numbers with a fraction, or true and false, in another. Equal numbers "
    "are one class, such as 1 and 1.0"
)


def _have_two_number_forms(options: FolderOptions) -> bool:
    """Return True if the first labels of some tables are whole numbers, and those of others are whole numbers with a
    fraction, as pandas writes them beside a missing one, or true and false."""
    forms = set[bool | None]()
    for path in options.labels if len(options.labels) > 1 else ():
        _, rows = label_rows(path, options)
        labels = {row.cells[1] for row in islice(rows, _LOOKED_AT) if not row.fault}
        is_number = all(re.fullmatch("-?[0-9]+", number_name(label)) for label in labels)
        forms |= {number_name(label) == label if is_number else None for label in labels}
    return forms == {True, False}


def _name_number(row: TextRow) -> TextRow:
    return row if row.fault else row._replace(cells=(row.cells[0], number_name(row.cells[1]), *row.cells[2:]))


def names_stems(options: FolderOptions) -> bool:
    """Return True if the first rows of a table name images without the ending of a file.

    Raises:
        AnnotationFileError: See `label_rows`.
    """
    for path in options.labels:
        _, rows = label_rows(path, options)
        names = [row.cells[0] for row in islice(rows, _LOOKED_AT) if not row.fault]
        if sum(map(is_image_name, names)) * 2 < len(names):
            return True
    return False


def file_stems(names: Iterable[str]) -> dict[str, str]:
    """Return the names of image files by their names without ending. An ending that is not unique is needed.

    >>> file_stems(["a/1.jpg", "2.png", "2.jpg", "notes.txt"])
    {'a/1': 'a/1.jpg'}
    """
    by_stem: dict[str, list[str]] = {}
    for name in filter(is_image_name, names):
        by_stem.setdefault(posixpath.splitext(name)[0], []).append(name)
    return {stem: same[0] for stem, same in by_stem.items() if len(same) == 1}


def table_splits(path: str, options: FolderOptions) -> tuple[str, ...] | None:
    """Return the splits in a table, sorted; None if it has no split column.

    Raises:
        AnnotationFileError: See `label_rows`.
    """
    names, rows = label_rows(path, options)
    splits = (row.cells[2:] for row in rows if not row.fault)
    return tuple(sorted(set(chain.from_iterable(splits)))) if len(names) > 2 else None


def label_rows(
    path: str, options: FolderOptions, version: str = "", has_values: bool = False, further: set[str] | None = None
) -> tuple[Sequence[str], Iterator[TextRow]]:
    """Return the columns and rows of a table: path, label, and split if it has such a column. Names of splits become
    lower case, so that TRAIN and train are one split.

    Args:
        version, has_values: See `recordmill.transforms.rows.read_rows.read_texts`.
        further: Set that gets the names of all other columns.

    Raises:
        AnnotationFileError: The table cannot be read, see `read_texts`, or a column is missing.
    """

    def choose_columns(names: list[str]) -> list[str]:
        columns = _choose_label_columns(path, options, names)
        if further is not None:
            further.update(name.strip() for name in names if name not in columns)
        return columns

    names, rows = read_texts(path, choose_columns, version, has_values)
    return names, map(_check_label_row, rows)


def _choose_label_columns(path: str, options: FolderOptions, names: list[str]) -> list[str]:
    """Return the names of the columns of paths, of labels, and of splits if there is one."""
    if fault := boxes_fault(path, names, options.images, options.label):
        raise ConfigError(fault)
    by_text = {name.strip(): name for name in reversed(names)}
    by_lower = {name.strip().lower(): name for name in reversed(names)}

    def choose(kind: str, option: str, usual: tuple[str, ...]) -> str | None:
        given = getattr(options, option)
        column = by_text.get(given) if given else next((by_lower[name] for name in usual if name in by_lower), None)
        if column or (not given and kind == "split"):
            return column
        expected = f"called {given!r}" if given else f"of {kind}s ({', '.join(usual)})"
        existing = ", ".join(map(repr, names)) or "none"
        raise AnnotationFileError(
            f"{path} has no column {expected}; its columns are {existing}. Name the column with {flag(option)}"
            f"{names_cure(names)}"
        )

    chosen = (
        choose("path", "image_column", PATH_COLUMNS),
        choose("label", "label", LABEL_COLUMNS),
        choose("split", "split_column", SPLIT_COLUMNS),
    )
    columns = list(filter(None, chosen))
    if stored := sorted({name.strip() for name in columns} & options.requested_columns.kinds.keys()):
        raise ConfigError(
            f"--fields {stored[0]}: {path} has paths, classes or splits in this column, which are no fields. Leave it "
            "out"
        )
    return columns


def _check_label_row(row: TextRow) -> TextRow:
    if row.fault:
        return row
    path, label, *splits = row.cells
    label, splits = unicodedata.normalize("NFC", label), [split.lower() for split in splits]
    fault = ""
    if not path:
        fault = "the path is empty"
    elif not label:
        fault = f"{path!r} has no label"
    elif has_control_character(label):
        fault = f"{path!r} has a label with a control character, {label[:80]!r}"
    for split in () if fault else splits:
        if name_error := split_name_fault(split):
            fault = f"{path!r} has split {split!r}, which {name_error}" if split else f"{path!r} has no split"
    return TextRow(row.number, (path, label, *splits), fault, row.values)
