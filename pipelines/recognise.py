"""Recognition of data sets: which command converts the files of a folder, and why."""

import difflib
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa

from recordmill.pipelines.verbs import FORMATS, VERBS
from recordmill.schemas.errors import AnnotationFileError, ConfigError, RecordmillError
from recordmill.schemas.inputs.file_kinds import describe_content
from recordmill.schemas.inputs.images import LABEL_COLUMNS, PATH_COLUMNS, is_image_name
from recordmill.schemas.inputs.splits import SPLIT_OF_WORD, USUAL_SPLITS, split_of_file
from recordmill.schemas.inputs.tables import RowsFile, RowsReading, rows_format
from recordmill.transforms.coco.coco_options import CocoOptions
from recordmill.transforms.coco.find_exports import find_exports, is_export_name
from recordmill.transforms.rows.read_rows import read_rows
from recordmill.transforms.storage.resolve import GZIP, join_path, storage_for

_MOST_NAMES = 20_000
"""Names of a folder that are looked at; the files of its top always are."""
_MOST_READ, _HEAD = 3, 1 << 16
_PART_OF_FORMAT = frozenset(("images", "labels", "annotations", "jpegimages", "data", *SPLIT_OF_WORD))
"""Folders that say something about the files below them, in lower case. No archive wraps a data set in one of them."""
_DOCUMENTS = re.compile(r"(\.|__MACOSX/|[^/]*(readme|licen[cs]e|source|citation)[^/]*$)", re.IGNORECASE)
_COCO = re.compile(rb'"(images|annotations)"\s*:')
_READS_IT = re.compile(r"recordmill (\w+) reads")
"""Format in a text of `describe_content`."""
_BY_DATA = (*FORMATS, "coco")
"""Verbs that read any --data."""


class Recognised(NamedTuple):
    """A way to read a data set.

    Attributes:
        why: What shows it, for a person.
        commands: Flags that name the input. Several commands write a split each.
    """

    verb: str
    why: str
    commands: tuple[tuple[str, ...], ...]


def choose_format(data: str, asked: str | None) -> Recognised:
    """Return how a data set is read.

    Args:
        asked: A verb; None to find it.

    Raises:
        ConfigError: `asked` is no format; nothing is recognised, or several formats are, of which none is asked for.
    """
    known = (*_BY_DATA, "folder", "table")
    if asked and asked not in known:
        near = difflib.get_close_matches(asked, known, 1)
        hint = f"; did you mean {near[0]}?" if near else ";"
        raise ConfigError(f"--format-in {asked!r} is not a format{hint} they are {', '.join(known)}")
    data = unwrapped(data)
    found = recognise(data, asked)
    if asked:
        found = [each for each in found if each.verb == asked]
        if not found and asked in _BY_DATA:
            found = [Recognised(asked, "as --format-in says", (("--data", data),))]
    if len(found) == 1:
        return found[0]
    if not found:
        raise ConfigError(
            f"--data {data}: no data set is recognised in it. recordmill --help lists the formats that have a command; "
            f"`recordmill folder` needs a folder for each class, and --format-in names one of {', '.join(FORMATS)}"
        )
    ways = "; ".join(f"{each.verb} ({each.why})" for each in found)
    raise ConfigError(f"--data {data} may be read in {len(found)} ways: {ways}. --format-in NAME decides")


def unwrapped(data: str) -> str:
    """Return the folder that holds the data set: `data`, or the only folder in it, where nothing but documents is
    beside that folder. Archives often wrap their files in a folder.
    """
    storage = storage_for(data)
    while storage.is_folder(data):
        names = (file.name for file in islice(storage.walk(data), _MOST_NAMES))
        tops = {name.partition("/")[0] if "/" in name else "" for name in names if not _DOCUMENTS.match(name)}
        if len(tops) != 1 or (top := tops.pop()).lower() in ("", *_PART_OF_FORMAT):
            break
        data = join_path(data, top)
    return data


def recognise(data: str, asked: str | None = None) -> list[Recognised]:
    """Return all ways to read a file, or a folder or .zip. Those without annotations count if nothing else does.

    Raises:
        ConfigError: There is no such file; or nothing else is recognised, no format was asked for, and COCO files
            contradict each other, or name images that are in no usual folder.
    """
    storage = storage_for(data)
    if storage.size(data) is not None and not storage.is_folder(data):
        folder, names = posixpath.dirname(data), [posixpath.basename(data)]
    elif storage.is_folder(data):
        folder = data.rstrip("/")
        names = [
            *dict.fromkeys((*storage.names(data), *(file.name for file in islice(storage.walk(data), _MOST_NAMES))))
        ]
    else:
        raise ConfigError(f"--data {data}: no such file or folder")
    unread: ConfigError | None = None
    by_verb = {verb: why for verb in FORMATS if (why := _options(verb).recognise(names))}
    by_verb = dict(_by_content(folder, names)) | by_verb
    found = [Recognised(verb, why, (("--data", data),)) for verb, why in by_verb.items()]
    if folder == data.rstrip("/"):
        try:
            why = _coco(data)
        except (RecordmillError, OSError) as error:
            text = str(error).partition("; recordmill auto ")[0]
            why, unread = "", ConfigError(f"{text} (of recordmill coco --data {data})")
            if not asked and not found and any(map(is_export_name, names)):
                raise unread from error
        found += [Recognised("coco", why, (("--data", data),))] if why else []
    found = (
        found
        or [*_tables(data, folder, [name for name in names if "/" not in name and rows_format(name)])]
        or [*_tables(data, join_path(folder, "data"), [name for name in map(_in_data, names) if name])]
        or [*_class_folders(data, [name for name in names if is_image_name(name)])]
    )
    if unread and not found and not asked and any(_is_coco(head) for _, head in _heads(folder, names)):
        raise unread
    return found


def _options(verb: str) -> Any:
    return VERBS[verb].options


def _by_content(folder: str, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield formats by the contents of the first candidate files: tables with boxes, JSON and XML."""
    tables = (name for name in names if "/" not in name and name.lower().endswith((".csv", ".jsonl")))
    for name in islice(tables, _MOST_READ):
        yield from _by_rows(join_path(folder, name), name)
    for name, head in _heads(folder, names):
        if (found := _READS_IT.search(describe_content(head))) and found[1] in FORMATS:
            yield found[1], name


def _by_rows(path: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield formats by the columns of a table, or by the first rows of a CSV."""
    yield from ((verb, f"{name} has {what}") for verb, what in _by_columns(_columns(path)).items())
    if name.lower().endswith(".csv"):
        with storage_for(path).open(path) as file:
            head = file.read(_HEAD)
        yield from ((verb, f"{name} has {what}") for verb in FORMATS if (what := _options(verb).recognise_rows(head)))


def _by_columns(columns: Mapping[str, pa.Array]) -> dict[str, str]:
    """Return formats, and what shows them."""
    return {verb: what for verb in FORMATS if (what := _options(verb).recognise_columns(columns))}


def _columns(path: str) -> dict[str, pa.Array]:
    """Return the columns of the first rows of a table; none of a file that is no table."""
    try:
        batch = next(read_rows(RowsFile(0, path, 0, ""), RowsReading()), None)
    except AnnotationFileError:
        return {}
    return batch.columns if batch else {}


def _heads(folder: str, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the beginnings of the first possible annotation files."""
    for name in islice((name for name in names if name.lower().endswith((".json", ".xml"))), _MOST_READ):
        path = join_path(folder, name)
        with storage_for(path).open(path) as file:
            yield name, file.read(_HEAD)


def _is_coco(head: bytes) -> bool:
    return bool(_COCO.search(head) and not describe_content(head))


def _coco(data: str) -> str:
    """Return what shows that a folder is an export as COCO; empty if it is none.

    Raises:
        ConfigError: it has no annotation files, or they contradict each other.
    """
    _, given = find_exports(CocoOptions(data=data, output="out"))
    try:
        with storage_for(path := given.parts[0].sources[0].path).open(path) as file:
            head = file.read(_HEAD)
    except (RecordmillError, OSError):
        return ""
    return "; ".join(given.notes) if head.startswith(GZIP) or _is_coco(head) else ""


def _in_data(name: str) -> str:
    """Return the name of a Parquet file in the folder `data`, where Hugging Face's data sets have them; else none."""
    head, _, tail = name.partition("/")
    return tail if head == "data" and "/" not in tail and tail.endswith(".parquet") else ""


def _tables(data: str, folder: str, names: Sequence[str]) -> Iterator[Recognised]:
    """Yield the reading of tables that hold images, or name them with their classes."""
    if not names:
        return
    path = join_path(folder, names[0])
    columns = _columns(path)
    label = next((name for name in columns if name.lower() in LABEL_COLUMNS), "")
    files = [name.removesuffix(".bytes") for name, array in columns.items() if pa.types.is_large_binary(array.type)]
    formats = _by_columns(columns)
    yield from (Recognised(verb, f"{names[0]} has {what}", (("--data", data),)) for verb, what in formats.items())
    if files and not formats:
        flags = ("--image-column", files[0], *(("--label", label) if label else ()))
        by_split: dict[str, list[str]] = {}
        for name in names:
            by_split.setdefault(split_of_file(name), []).append(name)
        by_split = {"": [*names]} if "" in by_split else by_split
        commands = tuple(
            (
                *(word for name in by_split[split] for word in ("--rows", join_path(folder, name))),
                *flags,
                *(("--split", split) if split else ()),
            )
            for split in sorted(by_split, key=("", *USUAL_SPLITS).index)
        )
        yield Recognised("table", f"column {files[0]} of {names[0]} has images", commands)
    elif label and len(names) == 1 and any(name.lower() in PATH_COLUMNS for name in columns):
        yield Recognised(
            "folder", f"{names[0]} names images and their classes", (("--images", folder, "--labels", path),)
        )


def _class_folders(data: str, images: Sequence[str]) -> Iterator[Recognised]:
    """Yield the reading of class folders, also below splits."""
    tops = sorted({name.partition("/")[0] for name in images if "/" in name})
    within = sorted({name.split("/")[1] for name in images if name.count("/") > 1})
    splits = {split: top for top in tops if (split := SPLIT_OF_WORD.get(top.lower()))}
    if tops and len(splits) == len(tops):
        ordered = sorted(splits.items(), key=lambda each: USUAL_SPLITS.index(each[0]))
        commands = tuple(("--images", join_path(data, top), "--split", split) for split, top in ordered)
        if len(within) > 1:
            below = ", ".join(top for _, top in ordered)
            yield Recognised("folder", f"{len(within)} class folders below {below}", commands)
    elif len(tops) > 1:
        yield Recognised("folder", f"{len(tops)} class folders", (("--images", data),))
