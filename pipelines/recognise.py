"""Recognise data sets: the format of the files of a folder, and the evidence."""

import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from recordmill.pipelines.formats import formats
from recordmill.schemas.dataset.dataset_files import MANIFEST
from recordmill.schemas.dataset.tfds import FEATURES
from recordmill.schemas.errors import ConfigError, RecordmillError
from recordmill.schemas.inputs.file_kinds import describe_container
from recordmill.schemas.inputs.images import is_image_name
from recordmill.schemas.inputs.splits import SPLIT_OF_WORD
from recordmill.schemas.inputs.tables import ENDINGS
from recordmill.schemas.sizes import number_text
from recordmill.transforms.annotated.recognise_format import own_data_set_error, reads_labels
from recordmill.transforms.dataset.dataset_folder import read_manifest
from recordmill.transforms.rows.data_contents import CLASS_FOLDERS, LISTED, ROWS, DataContents, Interpretation
from recordmill.transforms.rows.find_rows import find_rows, format_fault
from recordmill.transforms.storage.resolve import join_path, storage_for, suggest_path, tilde_hint

_FORMAT_FOLDERS = frozenset(("images", "labels", "annotations", "jpegimages", "data", *SPLIT_OF_WORD))
"""Folders that belong to a format, in lower case. Archives do not wrap a data set in one of them."""
_DOCUMENTS = re.compile(r"(\.|__MACOSX/|[^/]*(readme|licen[cs]e|source|citation)[^/]*$)", re.IGNORECASE)
_PATTERN = re.compile("[*?]")
_SHOWN = 4
_HEAD = 512  # bytes

Match = tuple[str, Interpretation]


def recognise_data(data: Sequence[str], given: Mapping[str, Any] = {}) -> list[Match]:
    """Return the formats that can read all of DATA as one data set, with their interpretations of the lowest rank. None
    if several paths are neither rows of one table nor class folders, so that each is a data set.

    Args:
        data: At least one path or pattern.
        given: Other options that the user gave, by name.

    Raises:
        ConfigError: A path does not exist; or paths are images and their annotation files.
    """
    for entry in formats().values():
        if inputs := entry.options_of_paths(data):
            return [(entry.name, Interpretation(entry.what, inputs))]
    if all(_is_pattern(path) or _is_rows_file(path) for path in data) and (len(data) > 1 or _is_pattern(data[0])):
        if all(map(_is_label_document, data)):
            return []
        what = "a pattern of files of rows" if len(data) == 1 else f"{len(data)} files of rows"
        files = find_rows(*data)
        splits = {SPLIT_OF_WORD.get(posixpath.basename(posixpath.dirname(path)).lower(), "") for path in files} - {""}
        if len(splits) > 1:
            raise ConfigError(
                f"{' '.join(data)}: the files are in folders of the splits {', '.join(sorted(splits))}. Give the "
                "folder that has these, or add --format table to write one split"
            )
        first_match = dict(recognise(files[0], given)).get("table")
        columns = {name: value for name, value in first_match.inputs.items() if name != "data"} if first_match else {}
        return [("table", Interpretation(what, {"data": list(data)} | columns, ROWS))]
    if len(data) == 1:
        return recognise(unwrap_folder(data[0]), given)
    if "labels" in given:
        return [("folder", Interpretation("--labels", {"data": list(data)}))]
    folders = [_class_folders(path, given) for path in data]
    if all(folders) and not any(map(_has_split_folders, folders)):
        why = f"class folders in {len(data)} folders"
        return [("folder", Interpretation(why, {"data": folders}, CLASS_FOLDERS))]
    documents = [path for path in data if path.lower().endswith((".json", ".json.gz"))]
    images = [path for path in data if path not in documents]
    if documents and not all(recognise(unwrap_folder(path), given) for path in images):
        words = shlex.join([*images, *(word for path in documents for word in ("--instances", path))])
        raise ConfigError(
            f"DATA has images and annotation files. Name the files by flags: recordmill convert {words} -o OUT"
        )
    return []


def _class_folders(path: str, given: Mapping[str, Any]) -> str:
    """Return the folder, in a wrapping folder perhaps, that has class folders, or a single one; "" without."""
    folder = unwrap_folder(path)
    matches = recognise(folder, given)
    if matches:
        is_found = [(name, match.rank) for name, match in matches] == [("folder", CLASS_FOLDERS)]
        return folder if is_found else ""
    above, _, top = folder.rpartition("/")
    is_class = above.startswith(path.rstrip("/")) and top.lower() not in _FORMAT_FOLDERS
    return above if is_class and any(map(is_image_name, storage_for(folder).names(folder))) else ""


def _has_split_folders(folder: str) -> bool:
    """Return True if all images are in folders of splits that have class folders."""
    images = [name for name in list_names(folder) if is_image_name(name)]
    is_of_split = (name.partition("/")[0].lower() in SPLIT_OF_WORD for name in images)
    return any(name.count("/") > 1 for name in images) and all(is_of_split)


def _is_label_document(path: str) -> bool:
    """Return True for a JSON document of a format of label files: not JSON Lines, which are rows of a table."""
    if _is_pattern(path) or not path.lower().endswith((".json", ".json.gz")):
        return False
    return any(name not in ("folder", "table") for name, _ in recognise(path))


def _is_pattern(path: str) -> bool:
    return bool(_PATTERN.search(path)) and storage_for(path).size(path) is None and not format_fault(path)


def _is_rows_file(path: str) -> bool:
    return not format_fault(path) and storage_for(path).size(path) is not None


def describe_data(data: Sequence[str]) -> str:
    """Return the error of DATA that is not recognised: its kinds of files, the nearest candidates, and the cure."""
    (path, *more_paths) = data
    if more_paths:
        return "the format is not recognised. Give one data set, or name the format by --format NAME"
    if not storage_for(path).is_folder(path):
        if is_image_name(path):
            return "a single image is not a data set. Give the folder of the images, or their file of labels"
        if what := describe_container(storage_for(path).read_range(path, 0, _HEAD), is_table=True):
            return f"the file is {what}"
        return f"the format of the file is not recognised. Give a data set, {_FORMATS_ADVICE}"
    names = list_names(path)
    if not names:
        return "the folder has no files. Give the folder of a data set"
    images = [name for name in names if is_image_name(name)]
    endings = {posixpath.splitext(name)[1].lower() or "no ending" for name in names if not is_image_name(name)}
    summary = f"the format is not recognised: {number_text(len(images), 'image')}, "
    summary += f"{number_text(len(names) - len(images), 'other file')} ({', '.join(sorted(endings)[:_SHOWN])}). "
    if not endings:
        summary = f"the format is not recognised: {number_text(len(images), 'image')} without labels. "
    cures = [f"run {command}" for command in _working_commands(path, endings, images)]
    near = "".join(_near_candidates(path, names))
    cures += ["name the labels by --instances FILE or --labels FILE"] if images and not near else []
    if not cures and not near:
        if endings & _ARCHIVES:
            return f"{summary}Archives within a folder are not read. Unpack them, or give one .zip"
        return f"{summary}Give a data set, {_FORMATS_ADVICE}"
    advice = ", or ".join(cures)
    return f"{summary}{near}{advice[:1].upper()}{advice[1:]}".rstrip()


_ARCHIVES = {".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".rar", ".7z"}
_FORMATS_ADVICE = "or name its format by --format NAME (recordmill convert --help lists the formats)"


def _working_commands(path: str, endings: set[str], images: Sequence[str]) -> Iterator[str]:
    """Yield the command of each format that reads the files if it is named."""
    for entry in formats().values():
        options: Any = entry.options
        if images and entry.has_label_files and endings & {*options.endings} and reads_data(entry.name, path):
            yield shlex.join(["recordmill", "convert", path, "-o", "OUT", "--format", entry.name])
    if endings & {*ENDINGS} - {".json"}:  # .json is rarely JSON Lines
        yield shlex.join(["recordmill", "convert", path, "-o", "OUT", "--format", "table"])
    tops = {name.partition("/")[0] if "/" in name else "" for name in images}
    if len(tops) == 1 and (top := tops.pop()) and not endings:
        named = ["--format", "folder", "--classes", top]
        yield f"{shlex.join(['recordmill', 'convert', path, '-o', 'OUT', *named])} if {top} is the only class"
    elif any("_" in posixpath.basename(name) for name in images[1:]):
        labels = ["--format", "folder", "--label-from", "name"]
        yield f"{shlex.join(['recordmill', 'convert', path, '-o', 'OUT', *labels])} for names like cat_1.jpg"


def reads_data(name: str, path: str, images: Sequence[str] = ()) -> bool:
    """Return True if a format of label files reads the data set at `path`, with these --images."""
    given = {"images": list(images)} if images else {}
    try:
        options: Any = formats()[name].options(data=path, output="out", **given)
        return reads_labels(options)
    except (RecordmillError, OSError):
        return False


def describe_nearest(data: str, name: str = "") -> str:
    """Return a sentence for each folder one level down that has a data set, of one format if `name` is given."""
    if not storage_for(data).is_folder(data):
        return ""
    names = list_names(data)
    return "".join(_near_candidates(data, names, name))


def _near_candidates(path: str, names: Sequence[str], only: str = "") -> Iterator[str]:
    """Yield a sentence for each folder one level down that is recognised, as one format if `only` names it."""
    tops = sorted({name.partition("/")[0] for name in names if "/" in name})
    for top in tops[:_SHOWN]:
        below = join_path(path, top)
        try:
            matches = recognise(below)
        except ConfigError:
            continue
        fitting = [pair for pair in matches if not only or (pair[0] == only and not pair[1].fault)]
        for name, match in fitting if len(fitting) == 1 else ():
            yield f"{below} is {'' if match.fault else 'read as '}{name} ({match.why}). Give that. "


def list_names(folder: str) -> list[str]:
    """Return the names of the first files in a folder and the folders in it. Data sets that we wrote there are skipped,
    so that a command whose output is in its data can be repeated."""
    names = list(islice(storage_for(folder).walk_names(folder), LISTED))
    outputs = tuple(name.removesuffix(MANIFEST) for name in names if name.endswith(f"/{MANIFEST}"))
    written = tuple(output for output in outputs if f"{output}{FEATURES}" in names)
    return [name for name in names if not name.startswith(written)]


def unwrap_folder(data: str) -> str:
    """Return the folder that holds the data set: `data`, or the only folder in it if everything beside that folder is
    documents. Archives often wrap their files in a folder."""
    storage = storage_for(data)
    while storage.is_folder(data):
        names = list_names(data)
        tops = {name.partition("/")[0] if "/" in name else "" for name in names if not _DOCUMENTS.match(name)}
        if len(tops) != 1 or (top := tops.pop()).lower() in ("", *_FORMAT_FOLDERS):
            break
        data = join_path(data, top)
    return data


def recognise(data: str, given: Mapping[str, Any] = {}, only: str = "") -> list[Match]:
    """Return all formats that can read a file, a folder or a .zip, with their interpretations of the lowest rank; only
    the first if all have faults.

    Args:
        given: Options that the user gave, by name.
        only: Format to try; "" for all.

    Raises:
        ConfigError: The file does not exist; or no format can read it, and Recordmill wrote it.
    """
    storage = storage_for(data)
    if storage.size(data) is not None and not storage.is_folder(data):
        folder, names = posixpath.dirname(data), [posixpath.basename(data)]
    elif storage.is_folder(data):
        folder, names = data.rstrip("/"), [*dict.fromkeys((*storage.names(data), *list_names(data)))]
    else:
        if _PATTERN.search(data):
            raise ConfigError(f"{data}: no file matches{tilde_hint(data)}")
        raise ConfigError(f"{data}: no such file or folder{suggest_path(data)}")
    contents = DataContents(data, folder, names, given)
    entries = [formats()[only]] if only else formats().values()
    candidates = [(entry.name, match) for entry in entries for match in entry.ways(contents)]
    rank = min((match.rank for _, match in candidates), default=0)
    matches = [(name, match) for name, match in candidates if match.rank == rank]
    if not all(match.fault for _, match in matches):
        return matches
    if MANIFEST in names and not only and _has_own_manifest(folder):
        raise own_data_set_error(folder, str(given.get("as") or "coco") if given.get("labels_only") else "")
    return matches[:1]


def _has_own_manifest(folder: str) -> bool:
    try:
        return read_manifest(folder) is not None
    except ConfigError:  # of another tool
        return False
