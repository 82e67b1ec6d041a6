"""Are the files and folders that a command names there?"""

import difflib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, permutations

from recordmill.launch.preflight.check_folder import folder_fault
from recordmill.pipelines.options.coco_options import ANNOTATIONS, CAPTIONS, CocoOptions
from recordmill.pipelines.options.embed_options import EmbedOptions
from recordmill.pipelines.options.folder_options import LabelledOptions
from recordmill.pipelines.options.option import flag
from recordmill.pipelines.options.picture_options import DividedOptions, ImageOptions
from recordmill.pipelines.options.table_options import TableOptions
from recordmill.schemas.dataset_files import MANIFEST, state_folder
from recordmill.schemas.encoders import CLASSES, TextForm, encoder_file
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.models import FETCHED, ON_DISK, RANDOM
from recordmill.schemas.tables import ENDINGS, rows_format
from recordmill.transforms.dataset.dataset_folder import is_metadata, read_manifest, unfinished_splits
from recordmill.transforms.join.read_groups import read_groups
from recordmill.transforms.storage.interface import is_remote
from recordmill.transforms.storage.match_files import match_files
from recordmill.transforms.storage.os_errors import explain_os_error, is_of_command
from recordmill.transforms.storage.resolve import archive_of, storage_for

_LOGGER = logging.getLogger(__name__)

_SAMPLE = 1000
"""Files of a folder in a bucket that are looked at: a page of a bucket's listing."""


def check_coco_inputs(options: CocoOptions) -> None:
    """The files and folders that the options name are there.

    Raises:
        ConfigError: with every fault.
    """
    files = (_fault(_file_fault, flag(source.kind.value), source.path) for source in options.sources)
    _raise_all(
        *files,
        *(_fault(_file_fault, "--groups", path) for path in options.group_files),
        *(_fault(_image_fault, "--images", path) for path in options.images),
        *(_fault(_folder_fault, "--panoptic-masks", path) for path in options.panoptic_masks),
        *(_fault(_file_fault, "--stop-words", path) for path in options.stop_words),
        *(_fault(_folder_fault, "--encoders", path) for path in options.encoders),
        *_output_faults(options.output, [*(source.path for source in options.sources), *options.group_files]),
        *([] if options.text_form is TextForm.RAW else _encoder_faults(options.output, CAPTIONS)),
        *_same_faults(options, "images", *ANNOTATIONS),
    )
    _check_groups(options)


def check_folder_inputs(options: LabelledOptions) -> None:
    """The files and folders that the options name are there.

    Raises:
        ConfigError: with every fault.
    """
    _raise_all(
        *(_fault(_file_fault, "--labels", path) for path in options.labels),
        *(_fault(_image_fault, "--images", path) for path in options.images),
        *(_fault(_file_fault, "--groups", path) for path in options.group_files),
        *_output_faults(options.output, [*options.labels, *options.group_files]),
        *_same_faults(options, "images", "labels"),
    )
    _check_groups(options)


def _check_groups(options: DividedOptions) -> None:
    """What the job will read again: a line that is none of a list of groups is told at once."""
    for path in options.group_files:
        read_groups(path)


def check_embed_inputs(options: EmbedOptions) -> None:
    """As `check_folder_inputs`; what the model is, is found when it is loaded.

    Raises:
        ConfigError: with every fault.
    """
    check_folder_inputs(options)
    if options.weights not in (RANDOM, ON_DISK, FETCHED, ""):
        _raise_all(_fault(_file_fault, "--weights", options.weights))
    _raise_all(*_output_faults(options.output, options.model_paths))


def check_table_inputs(options: TableOptions, paths: Sequence[str]) -> None:
    """The files that the options name are there, and of a known format.

    Args:
        paths: of all files of rows.

    Raises:
        ConfigError: with every fault.
    """
    _raise_all(
        *(_fault(_file_fault, "--rows", path) or _format_fault(path) for path in paths),
        *(_fault(_image_fault, "--images", path) for path in options.images),
        *_same_faults(options, "images"),
        *([_fault(_file_fault, "--schema", options.schema)] if options.schema else []),
        *(_fault(_file_fault, "--stop-words", path) for path in options.stop_words),
        *(_fault(_folder_fault, "--encoders", path) for path in options.encoders),
        *(fault for column in options.encoded_columns for fault in _encoder_faults(options.output, column)),
        *_output_faults(options.output, [*paths, *filter(None, [options.schema])]),
    )


def check_sample(options: LabelledOptions) -> None:
    """Look at the first files of each folder in a bucket; warn of one without a picture of a class among them.

    Raises:
        ConfigError: these were all the files, so the job would start its machines for nothing.
    """
    from recordmill.transforms.join.list_images import list_images

    folders = [folder for folder in options.images if is_remote(folder)]
    looked_at = {folder: [name for name, _ in islice(list_images(folder), _SAMPLE)] for folder in folders}
    without = {folder: why for folder in folders if (why := _sample_fault(options, looked_at[folder]))}
    if len(without) == len(options.images) and all(len(names) < _SAMPLE for names in looked_at.values()):
        raise ConfigError(
            "; ".join(f"--images {folder} has no picture of a class: {why}" for folder, why in without.items())
        )
    for folder, why in without.items():
        _LOGGER.warning("--images %s: no picture of a class among its first %s files: %s", folder, f"{_SAMPLE:,}", why)


def _sample_fault(options: LabelledOptions, names: list[str]) -> str:
    """Why none of the files is a picture of a class; empty where one is."""
    from recordmill.schemas.image_labels import is_image_name
    from recordmill.transforms.folder.choose_classes import path_fault

    images = list(filter(is_image_name, names))
    if not images:
        return f"{names[0]!r} is not called as pictures are" if names else "it is empty"
    faults = [path_fault(name, options.path_labels, options.division) for name in images]
    return faults[0][1] if faults[0] and all(faults) else ""


def find_rows(patterns: Iterable[str]) -> tuple[str, ...]:
    """The files that `patterns` name, sorted: a path stands for itself, wild cards for all files that they match.

    Raises:
        ConfigError: a pattern matches nothing, or two name one file.
    """
    found: list[str] = []
    for pattern in patterns:
        try:
            found += match_files(pattern)
        except ConfigError as error:
            raise ConfigError(f"--rows {error}") from error
    real = list(map(_real, found))
    if twice := sorted(path for path in set(real) if real.count(path) > 1):
        raise ConfigError(f"--rows: {twice[0]} is named twice, so its rows would be written twice")
    return tuple(sorted(found))


def _format_fault(path: str) -> str:
    known = ", ".join(ENDINGS)
    return "" if rows_format(path) else f"--rows {path}: its name ends in none of {known}, perhaps with .gz"


def _raise_all(*faults: str) -> None:
    if found := list(filter(None, faults)):
        raise ConfigError("; ".join(found))


def _same_faults(options: ImageOptions, *names: str) -> Iterator[str]:
    """One file under two names would be joined with itself, and every annotation or image written twice."""
    for name in names:
        paths = getattr(options, name)
        real = list(map(_real, paths))
        if len(set(real)) < len(paths):
            yield f"{flag(name)} {' '.join(paths)}: two of these are the same"
        for outer, inner in permutations(sorted(set(real)), 2):
            if inner.startswith(f"{outer}/"):
                yield f"{flag(name)}: {inner} is within {outer}, so its files would be taken twice; give one of them"


def _fault(check: Callable[[str, str], str], name: str, path: str) -> str:
    """What a check finds of a flag's path; or why it may not be looked at, so that other faults are told as well."""
    try:
        return check(name, path)
    except OSError as error:
        if not is_of_command(error):
            raise
        return f"{name} {explain_os_error(error)}"


def _file_fault(name: str, path: str) -> str:
    storage = storage_for(path)
    if storage.size(path) is not None:
        if not is_remote(path):
            storage.open(path).close()  # raises where it may not be read
        return ""
    if storage.is_folder(path):
        if not archive_of(path):
            return f"{name} {path} is a folder; give the file"
        files = sorted(file.name for file in storage.walk(path) if file.name.endswith((".json", ".csv")))
        example = f", {storage.join(path, files[0])} for example" if files else ""
        return f"{name} {path} is an archive; name the file in it{example}"
    if not is_remote(path) and os.path.exists(path):
        return f"{name} {path} is a pipe or a device, and it has to be read twice; give a file"
    return f"{name} {path}: no such file{_near(path)}"


def _folder_fault(name: str, path: str) -> str:
    what = "folder or .zip" if name == "--panoptic-masks" else "folder"
    return "" if storage_for(path).is_folder(path) else f"{name} {path}: no such {what}{_near(path)}"


def _image_fault(name: str, path: str) -> str:
    storage = storage_for(path)
    if not storage.is_folder(path):
        what = (
            "is a file; give the folder that holds the images" if storage.size(path) is not None else "no such folder"
        )
        return f"{name} {path}: {what}{_near(path)}"
    return "" if any(storage.walk(path)) else f"{name} {path}: no file in it, nor in any folder below"


def _output_faults(output: str, inputs: Iterable[str]) -> Iterator[str]:
    """No folder can be there; or it has files that the job would write over and that are of no data set: an input, or
    somebody else's."""
    if fault := folder_fault(output):
        # What is complete is not written again: `claim_output` looks into a data set that cannot be written to.
        if not os.path.isfile(os.path.join(output, MANIFEST)):
            yield f"--output {fault}"
        return
    reported = set()
    for path in inputs:
        folder, name = os.path.split(_real(path))
        if folder == _real(output) and is_metadata(name):
            reported.add(name)
            yield f"{path} would be replaced by the {name} of the data set; give another --output"
        elif folder.startswith(f"{_real(output)}/{state_folder('')}"):
            yield f"{path} is in the state of a run, which is deleted when it ends or begins anew; copy it elsewhere"
    is_there = not is_remote(output) and os.path.isdir(output)
    for name in sorted(filter(is_metadata, os.listdir(output))) if is_there else ():
        path = os.path.join(output, name)
        if not os.path.islink(path) and not os.path.isfile(path):  # a folder, a pipe or the like
            yield f"--output {output} has {name}, which is no file, where the data set has one; give another --output"
    storage = storage_for(output)
    found = [name for name in storage.names(output) if is_metadata(name) and name not in reported]
    # In this order: another run that is done just now writes its manifest before it deletes its state.
    if found and not unfinished_splits(output) and storage.size(storage.join(output, MANIFEST)) is None:
        yield (
            f"--output {output} has {', '.join(found)}, which would be replaced, and no manifest or unfinished run "
            "says that they are a data set's; give another --output, or move them"
        )


def _encoder_faults(output: str, column: str) -> Iterator[str]:
    """Files that are called as those of encoders, and are of no data set."""
    storage = storage_for(output)
    names = [name for name in (encoder_file(column), CLASSES) if storage.size(storage.join(output, name)) is not None]
    manifest = read_manifest(output) if names else None
    if names and not unfinished_splits(output) and not (manifest and manifest.encoders):
        yield (
            f"--output {output} has {', '.join(names)}, which would be replaced, and no manifest says that they are a "
            "data set's; give another --output, or move them"
        )


def _real(path: str) -> str:
    return path.rstrip("/") if is_remote(path) else os.path.realpath(path)


def _near(path: str) -> str:
    """What a mistyped path may have meant."""
    folder, name = os.path.split(path.rstrip("/"))
    if is_remote(path):
        return ""
    if not os.path.isdir(folder or ".") or os.path.exists(path):
        return ""
    near = difflib.get_close_matches(name, os.listdir(folder or "."), 1)
    return f" (did you mean {os.path.join(folder, near[0])}?)" if near else ""
