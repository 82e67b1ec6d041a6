"""Check all paths of the options."""

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, permutations, product
from typing import NamedTuple

from recordmill.launch.preflight.check_folder import folder_fault, real_path
from recordmill.pipelines.formats import formats
from recordmill.schemas.dataset.dataset_files import MANIFEST, state_folder
from recordmill.schemas.errors import ConfigError, RecordmillError
from recordmill.schemas.inputs.images import is_image_name, is_system_file
from recordmill.schemas.inputs.option import Must, named_paths
from recordmill.schemas.inputs.options import ConvertOptions
from recordmill.schemas.inputs.tables import ENDINGS
from recordmill.schemas.paths import is_remote
from recordmill.transforms.dataset.dataset_folder import is_metadata, unfinished_splits
from recordmill.transforms.rows.find_rows import find_rows, format_fault
from recordmill.transforms.storage.os_errors import explain_os_error, is_command_error
from recordmill.transforms.storage.resolve import find_archive, join_path, storage_for, suggest_path, tilde_hint


def check_inputs(options: ConvertOptions, writes: bool = True) -> None:
    """Check all paths of a conversion, or if it writes nothing, those that it reads.

    Raises:
        ConfigError: With all errors.
    """
    checked = [_check_paths(part) for part in (options, *options.set_options.values())]
    faults = [fault for paths in checked for fault in paths.faults]
    if writes and not _name_fault("", options.output):
        by_flag: dict[str, list[str]] = {}
        for typed, values in chain.from_iterable(paths.by_flag.items() for paths in checked):
            by_flag.setdefault(typed, []).extend(values)
        overlaps = [*_overlap_faults(options.output, by_flag)]
        faults += overlaps or _output_faults(options.output, chain.from_iterable(paths.files for paths in checked))
    faults += chain.from_iterable(_repeated_path_faults(*item) for paths in checked for item in paths.by_flag.items())
    faults += _shared_path_faults([paths.data for paths in checked[1:]])
    if faults:
        raise ConfigError("; ".join(faults))


class _Paths(NamedTuple):
    """Checked paths of options.

    Attributes:
        by_flag: All but the output and folders of masks.
        files: Files, which the output must not replace.
        data: Images and label files.
    """

    faults: list[str]
    by_flag: dict[str, list[str]]
    files: list[str]
    data: list[str]


def _check_paths(options: ConvertOptions) -> _Paths:
    """Return all paths of the options of a job, or of one of its data sets."""
    checked = _Paths([], {}, [*options.more_files], [])
    data_options = {
        "data",
        "images",
        "mask_images",
        "depth_images",
        *(name for entry in formats().values() for name in entry.files),
    }
    for option, path in named_paths(options):
        if name_fault := _name_fault(option.typed, path):
            checked.faults.append(name_fault)
            continue
        must = option.must_be or Must.FILE
        paths = find_rows(path) if must is Must.ROWS else (path,)
        checked.faults.extend(fault for one in paths if (fault := _fault(_CHECKS[must], option.typed, one)))
        if not paths:
            checked.faults.append(f"{option.typed} {path} is a folder without files of rows ({', '.join(ENDINGS)})")
        checked.files.extend(paths if must in (Must.FILE, Must.ROWS) else ())
        if must not in (Must.MASKS, Must.OUTPUT):
            checked.by_flag.setdefault(option.typed, []).extend(paths)
        checked.data.extend(paths if option.name in data_options else ())
    return checked


def _shared_path_faults(sets: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield an error for each path that is in two data sets of a job, whose images would be in both."""
    real = [{real_path(path): path for path in paths} for paths in sets]
    for one, other in permutations(range(len(real)), 2):
        for outer, inner in product(real[one], real[other]):
            if inner == outer and one < other:
                yield f"{real[one][outer]} and {real[other][inner]} are one path of two data sets. Give it once"
            elif inner.startswith(f"{outer}/"):
                yield (
                    f"{real[other][inner]} of one data set is within {real[one][outer]} of another, so its files would "
                    "be read twice. Give one of them"
                )


def _name_fault(typed: str, path: str) -> str:
    if not path:
        return f"{typed} is empty. Give a path"
    try:
        path.encode()
    except UnicodeEncodeError:
        return f"{typed} {path} is not UTF-8, which manifests need. Rename it"
    return ""


def _fault(check: Callable[[str, str], str], name: str, path: str) -> str:
    """Return a path's error, also if unreadable."""
    try:
        return check(name, path)
    except OSError as error:
        if not is_command_error(error):
            raise
        return f"{name} {explain_os_error(error)}"


def _file_fault(name: str, path: str) -> str:
    storage = storage_for(path)
    if storage.size(path) is not None:
        if not is_remote(path):
            storage.open(path).close()  # raises an error if the file cannot be read
        return ""
    if storage.is_folder(path):
        if not find_archive(path):
            return f"{name} {path} is a folder. Give the file{_other_format(path)}"
        files = sorted(file.name for file in storage.walk(path) if file.name.endswith((".json", ".csv")))
        files = [name for name in files if not is_system_file(name)]
        example = f", {join_path(path, files[0])} for example" if files else ""
        return f"{name} {path} is an archive. Name the file in it{example}"
    if not is_remote(path) and os.path.exists(path):
        return f"{name} {path} is a pipe or a device, and it has to be read twice. Give a file"
    return f"{name} {path}: no such file{suggest_path(path)}"


def _other_format(folder: str) -> str:
    """Return a hint at the command that reads a folder, if it is one of another format."""
    from recordmill.pipelines.recognise import recognise  # imports pyarrow

    with suppress(RecordmillError, OSError):
        matches = () if is_remote(folder) else recognise(folder)
        if len(matches) == 1:
            format_, match = matches[0]
            command = f"recordmill convert {shlex.quote(folder)} -o OUT --format {format_}"
            return f", or convert the folder: {command} ({match.why})"
    return ""


def _folder_fault(name: str, path: str, what: str = "folder") -> str:
    return "" if storage_for(path).is_folder(path) else f"{name} {path}: no such {what}{suggest_path(path)}"


def _image_fault(name: str, path: str) -> str:
    storage = storage_for(path)
    if not storage.is_folder(path):
        is_file = storage.size(path) is not None
        if is_file and path.endswith(".zip"):
            return f"{name} {path}: an archive within an archive is not read. Unpack {find_archive(path)}"
        what = "is a file. Give the folder that holds the images" if is_file else "no such folder"
        return f"{name} {path}: {what}{suggest_path(path)}"
    return "" if any(storage.walk(path)) else f"{name} {path}: the folder has no files. Give the folder of the images"


def _data_fault(name: str, path: str) -> str:
    return "" if storage_for(path).size(path) is not None else _folder_fault(name, path, "file or folder")


def _rows_fault(name: str, path: str) -> str:
    return _file_fault(name, path) or (f"{name} {fault}" if (fault := format_fault(path)) else "")


_CHECKS: dict[Must, Callable[[str, str], str]] = {
    Must.FILE: _file_fault,
    Must.FOLDER: _folder_fault,
    Must.IMAGES: _image_fault,
    Must.MASKS: lambda name, path: _folder_fault(name, path, "folder or .zip"),
    Must.OUTPUT: lambda name, path: "",  # checked together with the inputs, see `_output_faults`
    Must.ROWS: _rows_fault,
    Must.DATA: _data_fault,
}


def _repeated_path_faults(name: str, paths: list[str]) -> Iterator[str]:
    """Yield an error for a path that is given twice: a file would be joined with itself."""
    real = [real_path(path) for path in paths]
    if len(set(real)) < len(paths):
        yield f"{name} {' '.join(paths)}: two of these are the same"
    for outer, inner in permutations(sorted(set(real)), 2):
        if inner.startswith(f"{outer}/"):
            yield f"{name}: {inner} is within {outer}, so its files would be read twice. Give one of them"


def _output_faults(output: str, inputs: Iterable[str]) -> Iterator[str]:
    """Yield errors of the output folder: it cannot be created, or the job would replace files in it that are not of a
    data set."""
    if hint := tilde_hint(output):
        yield f"--output {output}{hint}"
    if fault := folder_fault(output):
        # A complete data set is not written again, so its folder may be read-only.
        if not os.path.isfile(os.path.join(output, MANIFEST)):
            yield f"--output {fault}"
        return
    reported = set()
    for path in inputs:
        folder, name = os.path.split(real_path(path))
        if folder == real_path(output) and is_metadata(name):
            reported.add(name)
            yield f"{path} would be replaced by the {name} of the data set. Give another --output"
        elif folder.startswith(f"{real_path(output)}/{state_folder('')}"):
            yield f"{path} is in the state of a run, which is deleted when the run ends. Copy it elsewhere"
    is_there = not is_remote(output) and os.path.isdir(output)
    for name in sorted(filter(is_metadata, os.listdir(output))) if is_there else ():
        path = os.path.join(output, name)
        if not os.path.islink(path) and not os.path.isfile(path):  # a folder, a pipe or the like
            yield (
                f"--output {output} has {name}, which is not a file, so a data set cannot use its name. Choose another "
                "--output"
            )
    storage = storage_for(output)
    metadata_names = [name for name in storage.names(output) if is_metadata(name) and name not in reported]
    # Checked in this order, because an ending run writes its manifest before it deletes its state.
    if metadata_names and not unfinished_splits(output) and storage.size(join_path(output, MANIFEST)) is None:
        yield (
            f"--output {output} has {', '.join(metadata_names)}, which would be replaced, and no manifest or "
            "unfinished run lists them. Give another --output, or move them"
        )


def _overlap_faults(output: str, by_flag: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Yield errors of an output that is DATA or --images, or that is in a folder of images below one of them. Other
    folders below them are allowed: files below the output are never read."""
    target = real_path(output)
    folders = [(option, path) for option in ("DATA", "--images") for path in by_flag.get(option, ())]
    for typed, path in folders:
        top = real_path(path)
        if target == top and storage_for(path).is_folder(path):
            what = "DATA" if typed == "DATA" else "a folder of images"
            yield f"--output {output} is {what}, too. Give another folder"
        elif not is_remote(output) and target.startswith(f"{top}/"):
            folder = target
            while folder != top and not (os.path.isdir(folder) and any(map(is_image_name, os.listdir(folder)))):
                folder = os.path.dirname(folder)
            if folder != top:
                images = "images of DATA" if typed == "DATA" else "images"
                yield f"--output {output} is in {folder}, which holds {images}. Give a folder elsewhere"
