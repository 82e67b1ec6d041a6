"""Read tables of image paths and labels as image rows."""

import logging
import posixpath
import unicodedata
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice

import numpy as np

from recordmill.schemas.block import Block, ragged_texts
from recordmill.schemas.errors import AnnotationFileError
from recordmill.schemas.inputs.files import File
from recordmill.schemas.inputs.images import LABEL_COLUMNS, PATH_COLUMNS, SPLIT_COLUMNS, LabelColumns
from recordmill.schemas.inputs.splits import Division, split_name_fault
from recordmill.schemas.names import has_control_character, is_absolute, name_fault, name_key
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.folder.choose_classes import named_rows
from recordmill.transforms.join.image_names import path_below
from recordmill.transforms.rows.read_rows import TextRow, read_texts
from recordmill.transforms.runtime import progress

_LOGGER = logging.getLogger(__name__)

_ROWS_AT_ONCE = 10_000


# Long list of arguments: the options of ReadTables, without those of other steps.
def read_labels(
    table: File,
    columns: LabelColumns,
    folders: tuple[str, ...],
    division: Division,
    splits: tuple[str, ...],
    facts: FactsBuilder,
) -> Iterator[Block]:
    """Yield a table's image rows with their splits.

    Args:
        folders: Image folders; paths in the table are relative to them, or complete and begin with one of them.
        division: gives each image its split if the table does not.
        splits: of the job; a rejected row that gives none of them is counted in the first.

    Raises:
        AnnotationFileError: see `label_rows`.
    """
    progress.set_step("reading labels")
    _LOGGER.info("Reading %s", table.path)
    _, rows = label_rows(table.path, columns, table.version)
    while some := list(islice(rows, _ROWS_AT_ONCE)):
        found = [_labelled(row, table.path, folders, division, splits, facts) for row in some]
        usable = [each for each in found if each]
        yield named_rows(Block(file_name=ragged_texts([name for name, _, _ in usable]))).replace(
            split=np.array([splits.index(split) for _, split, _ in usable], np.int64),
            class_name=ragged_texts([label for _, _, label in usable]),
        )


def _labelled(
    row: TextRow, table: str, folders: tuple[str, ...], division: Division, splits: tuple[str, ...], facts: FactsBuilder
) -> tuple[str, str, str] | None:
    """Return a row's name, split, label; None if rejected."""
    given, label, *of_row = row.cells or ("", "")
    path = path_below(given, folders)
    name = name_key(path)
    (split,) = of_row or (division.split_of(name),)
    fault = None
    # `a/../b.jpg` is below the images; normpath would take a URL apart.
    is_plain = is_absolute(path) or "/../" not in path
    if row.fault:
        fault = Reason.MALFORMED_IMAGE, row.fault
    elif unsafe := name_fault(path if is_plain else posixpath.normpath(path)):
        fault = Reason.UNSAFE_FILE_NAME, f"the path {given!r} {unsafe}"
    elif not of_row and (no_group := division.fault(name)):
        fault = Reason.NO_GROUP, f"the path {given!r} {no_group}"
    if not fault:
        return name, split, label
    detail = f"{posixpath.basename(table)} row {row.number}: {fault[1]}"
    facts.reject(split if split in splits else splits[0], Rejected("image", None, fault[0], detail))
    return None


def table_splits(path: str, columns: LabelColumns) -> tuple[str, ...] | None:
    """Return the splits that a table gives, sorted; None if it has no column of them.

    Raises:
        AnnotationFileError: see `label_rows`.
    """
    names, rows = label_rows(path, columns)
    splits = (row.cells[2:] for row in rows if not row.fault)
    return tuple(sorted(set(chain.from_iterable(splits)))) if len(names) > 2 else None


def label_rows(path: str, columns: LabelColumns, version: str = "") -> tuple[Sequence[str], Iterator[TextRow]]:
    """Return the columns and rows of a table: path, label, and split if it has such a column. Names of splits are lower
    case, so that TRAIN and train are one. `version` is as of `read_texts`.

    Raises:
        AnnotationFileError: it cannot be read, see `recordmill.transforms.rows.read_rows.read_texts`, or a column is
            missing.
    """
    names, rows = read_texts(path, partial(_choose, path, columns), version)
    return names, map(_checked, rows)


def _choose(path: str, columns: LabelColumns, names: list[str]) -> list[str]:
    """Return the names of the columns of paths, of labels, and of splits if there is one."""
    by_text = {name.strip(): name for name in reversed(names)}
    by_lower = {name.strip().lower(): name for name in reversed(names)}

    def chosen(what: str, asked: str | None, usual: tuple[str, ...]) -> str | None:
        if found := by_text.get(asked) if asked else next((by_lower[name] for name in usual if name in by_lower), None):
            return found
        if not asked and what == "split":
            return None
        expected = f"called {asked!r}" if asked else f"of {what}s ({', '.join(usual)})"
        there = ", ".join(repr(name.strip()) for name in names) or "none"
        raise AnnotationFileError(
            f"{path} has no column {expected}; its columns are {there}: name the column with --{what}-column"
        )

    asked = (
        chosen("path", columns.path, PATH_COLUMNS),
        chosen("label", columns.label, LABEL_COLUMNS),
        chosen("split", columns.split, SPLIT_COLUMNS),
    )
    return list(filter(None, asked))


def _checked(row: TextRow) -> TextRow:
    if row.fault:
        return row
    path, label, *splits = row.cells
    label, splits = unicodedata.normalize("NFC", label), [split.lower() for split in splits]
    fault = ""
    if not path:
        fault = "it has no path"
    elif not label:
        fault = f"{path!r} has no label"
    elif has_control_character(label):
        fault = f"{path!r} has a label with a control character, {label[:80]!r}"
    for split in () if fault else splits:
        if wrong := split_name_fault(split):
            fault = f"{path!r} is of split {split!r}, which {wrong}" if split else f"{path!r} has no split"
    return TextRow(row.number, (path, label, *splits), fault)
