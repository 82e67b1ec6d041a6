"""Folder of a data set: manifest and state of runs."""

import os
import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from functools import partial
from hashlib import sha256

import msgspec

from recordmill.schemas.containers import CONTAINERS
from recordmill.schemas.dataset.dataset_files import (
    CHANGES,
    COMMIT,
    FAILED,
    MANIFEST,
    PART_FILES,
    RECIPE,
    REJECTS,
    split_changes,
    split_manifest,
    split_rejects,
    state_folder,
)
from recordmill.schemas.dataset.manifest import Manifest, SplitManifest, decode_manifest, encode_manifest
from recordmill.schemas.dataset.recipes import Recipe
from recordmill.schemas.dataset.tfds import DATASET_INFO, FEATURES, shard_links
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.image_records import IMAGES, split_images
from recordmill.schemas.inputs.labels import LABEL_FILES, ExistingLabels
from recordmill.schemas.inputs.tables import SCHEMA_FILES
from recordmill.schemas.layouts import LAYOUTS
from recordmill.schemas.problems import DUPLICATES, FINGERPRINTS, split_fingerprints, split_problems
from recordmill.schemas.shards import SHARD_FILES, JobPart
from recordmill.schemas.statistics import REPORT, STATISTICS, SplitStatistics, split_statistics
from recordmill.transforms.records.shard_index import ENDING, INDEX, index_file
from recordmill.transforms.storage.interface import UnreadableFileError
from recordmill.transforms.storage.resolve import join_path, storage_for, suggest_path

_RUN_FILES = re.compile(
    rf"{REJECTS}|{FAILED}|{DUPLICATES}|{FINGERPRINTS}|{IMAGES}|{CHANGES}|{STATISTICS}|{COMMIT}|({SHARD_FILES})(\.json)?|"
    rf"(rows|images)-\d{{5,}}-\d{{5,}}|{PART_FILES}|{re.escape(INDEX)}/[^/]+|\.[^/]+\.tmp|beam-temp-.+"
)
"""Files of a state folder: finished shards, indexes, notes, sorted rows, finished parts, temporary files, files of
Beam's sink."""
_SPLIT_FILES = re.compile(
    f"{split_manifest('([A-Za-z0-9_]+)')}|{split_rejects('[A-Za-z0-9_]+')}|{split_statistics('[A-Za-z0-9_]+')}|"
    f"{split_fingerprints('[A-Za-z0-9_]+')}|{split_problems('[A-Za-z0-9_]+')}|"
    f"{split_images('[A-Za-z0-9_]+')}|{split_changes('[A-Za-z0-9_]+')}"
)


def existing_labels(output: str, splits: Collection[str]) -> ExistingLabels | None:
    """Return the label map of the data set that has other splits than these; None if there is none."""
    manifest = read_manifest(output)
    other_splits = sorted(manifest.splits.keys() - set(splits)) if manifest else []
    if not manifest or not other_splits:
        return None
    return ExistingLabels(manifest.labels, f"{', '.join(other_splits)} of {output}", manifest.table)


def read_manifest(output: str, file: str = MANIFEST) -> Manifest | None:
    """Return the manifest of a folder, or of one of its splits; None if there is none.

    Raises:
        ConfigError: See `recordmill.schemas.dataset.manifest.decode_manifest`.
    """
    path = join_path(output, file)
    try:
        return decode_manifest(storage_for(output).read(path), path)
    except FileNotFoundError:
        return None


def require_manifest(output: str) -> Manifest:
    """Return the manifest of a complete data set.

    Raises:
        ConfigError: The folder has none, or see `read_manifest`.
    """
    manifest = read_manifest(output)
    if manifest is None:
        storage = storage_for(output)
        if storage.size(output) is not None:
            raise ConfigError(f"{output} is a file. Give the folder of the data set: {os.path.dirname(output) or '.'}")
        if not storage.is_folder(output):
            raise ConfigError(f"{output}: no such folder{suggest_path(output) or '. Give the folder of a data set'}")
        raise ConfigError(
            f"{output} has no {MANIFEST}: it is not a Recordmill data set, or its conversion did not "
            "finish (run it again)"
        )
    return manifest


def read_split_manifests(output: str) -> dict[str, Manifest]:
    """Return the manifest of each split, by name.

    Raises:
        ConfigError: See `read_manifest`; or a manifest has splits other than the one in its name.
    """
    storage = storage_for(output)
    manifests: dict[str, Manifest] = {}
    for file in storage.names(output):
        match = _SPLIT_FILES.fullmatch(file)
        if match is None or match[1] is None or (manifest := read_manifest(output, file)) is None:
            continue
        if list(manifest.splits) != [match[1]]:
            raise ConfigError(f"{join_path(output, file)} must have exactly the split {match[1]}; was it edited?")
        manifests[match[1]] = manifest
    return manifests


def is_as_written(output: str, file: str, manifest: Manifest) -> bool:
    """Return True if the file of a manifest has the bytes that a job wrote."""
    return storage_for(output).read(join_path(output, file)) == encode_manifest(manifest)


def is_metadata(name: str) -> bool:
    """Return True if a file of that name is metadata of a data set.

    >>> is_metadata("labels.csv"), is_metadata("objects-label.labels.txt"), is_metadata("a.csv")
    (True, True, False)
    """
    if _SPLIT_FILES.fullmatch(name):
        return True
    names = (MANIFEST, STATISTICS, DUPLICATES, REPORT, DATASET_INFO, FEATURES, *LABEL_FILES, *SCHEMA_FILES)
    return name in names or name.endswith(".labels.txt")


def note_path(output: str, split: str) -> str:
    """Return the path of the recipe of an unfinished run."""
    return join_path(output, f"{state_folder(split)}/{RECIPE}")


def read_note(output: str, split: str) -> Recipe | None:
    """Return the recipe of an unfinished run of a split; None if there is none, or one of another version.

    Raises:
        ConfigError: It cannot be read.
    """
    storage, note = storage_for(output), note_path(output, split)
    if storage.size(note) is None:
        return None
    try:
        recipe = msgspec.json.decode(storage.read(note), type=Recipe)
        return recipe if recipe.layout in LAYOUTS else None
    except FileNotFoundError:  # another run may have ended just now
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{note} cannot be read ({error}); --overwrite starts again") from error


def is_written(output: str, entry: SplitManifest) -> bool:
    """Return True if another run than those of a complete split is writing to it, or was stopped."""
    with suppress(ConfigError):
        noted = read_note(output, entry.recipe.split)
        return noted is not None and not any(noted.unlisted.is_same_content(one.unlisted) for one in entry.recipes)
    return False


def failure_path(output: str, split: str) -> str:
    """Return the path of the error file of a failed `--add` run."""
    return join_path(output, f"{state_folder(split)}/{FAILED}")


def unfinished_splits(output: str) -> list[str]:
    """Return the splits with an unfinished run."""
    storage = storage_for(output)
    if not storage.is_folder(output):
        return []
    ending = f"/{RECIPE}"
    notes = (file.name for file in storage.walk(output) if file.name.endswith(ending))
    return sorted(note[len(state_folder("")) : -len(ending)] for note in notes if note.startswith(state_folder("")))


def finished_shards(output: str, recipes: Iterable[Recipe], part: JobPart | None = None) -> int:
    """Return the number of finished shards of unfinished runs, or of one part of them. A rerun keeps those that it
    would write unchanged."""
    storage = storage_for(output)
    names = (
        (recipe, name.removesuffix(".json"))
        for recipe in recipes
        for name in storage.names(join_path(output, state_folder(recipe.split)))
        if name != RECIPE and name.endswith(".json")
    )
    if part is None:
        return sum(1 for _ in names)
    ours = ((recipe.shard_names, shard) for recipe, shard in names if recipe.shard_names.is_one(shard))
    return sum(part.has(shard_names.key(shard, 0)) for shard_names, shard in ours)


def find_unknown_file(output: str, split: str) -> str:
    """Return a file in a split's state folder that no run has written; empty if there is none."""
    storage = storage_for(output)
    folder = join_path(output, state_folder(split))
    names = [file.name for file in storage.walk(folder)] if storage.is_folder(folder) else []
    if RECIPE in names:
        return ""
    return min((name for name in names if not _RUN_FILES.fullmatch(name)), default="")


def indexed_shards(output: str) -> list[str]:
    """Return the shards with an index, existing or not."""
    names = storage_for(output).names(join_path(output, INDEX))
    return [name.removesuffix(ENDING) for name in names if name.endswith(ENDING)]


def delete_state(output: str, split: str, keep: str = REJECTS) -> None:
    """Delete the state of a split, except for a file. The rejects of a split without records stay: no run can resume
    its state, which would block other commands."""
    storage = storage_for(output)
    folder = join_path(output, state_folder(split))
    for name in storage.names(folder):
        if name != keep:
            storage.delete(join_path(folder, name))
    storage.delete_folder(join_path(folder, INDEX))


def replaced_bytes(output: str, split: SplitManifest) -> int:
    """Return the size of the shards that --add --sync has replaced, and of their indexes, in bytes."""
    files = (path for file in split.replaced_shards or () for path in (file, index_file(file)))
    return sum(storage_for(output).size(join_path(output, file)) or 0 for file in files)


def delete_old_files(output: str, split: SplitManifest) -> None:
    """Delete files of earlier runs of a complete split: its state, shards that are not in the manifest, and temporary
    files of killed runs. Shards that the last run replaced stay."""
    storage = storage_for(output)
    names = split.recipe.shard_names
    storage.delete_folder(join_path(output, state_folder(split.recipe.split)))
    ours = {shard.file for shard in split.shards} | shard_links(names, split).keys() | set(split.replaced_shards or ())
    for name in storage.names(output):  # shards of the replaced split
        if names.is_one(name) and name not in ours:
            storage.delete(join_path(output, name))
    for shard in indexed_shards(output):
        if names.is_one(shard) and shard not in ours:
            storage.delete(join_path(output, index_file(shard)))
    indexes = join_path(output, INDEX)
    for folder in (output, indexes):
        storage.delete_leftovers(folder)
    has_index = CONTAINERS[split.recipe.container].has_index
    if not has_index and storage.is_folder(indexes) and not any(storage.walk_names(indexes)):
        storage.delete_folder(indexes)  # of a replaced data set in another container


def read_statistics(output: str, splits: Iterable[str]) -> dict[str, SplitStatistics]:
    """Return the statistics of the splits that have some."""
    return {split: known for split, (known, _) in read_raw_statistics(output, splits).items()}


def read_raw_statistics(output: str, splits: Iterable[str]) -> dict[str, tuple[SplitStatistics, msgspec.Raw]]:
    """Return statistics by split, decoded and as JSON. Damaged files are skipped; `verify` reports them."""
    statistics = {}
    for split in splits:
        data = read_file(output, split_statistics(split))
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            if data is not None:
                known = msgspec.json.decode(data, type=SplitStatistics)
                statistics[split] = known, msgspec.json.decode(data, type=msgspec.Raw)
    return statistics


def file_sha256(path: str) -> str:
    """Return the SHA-256 of a file in hex digits. The file is read in parts.

    Raises:
        FileNotFoundError: There is no such file.
        UnreadableFileError: The path is not a readable file.
    """
    digest = sha256()
    with storage_for(path).open(path) as file:
        for piece in iter(partial(file.read, 1 << 20), b""):
            digest.update(piece)
    return digest.hexdigest()


def read_file(output: str, name: str) -> bytes | None:
    """Return a file of the folder; None if it does not exist, or is not a file."""
    try:
        return storage_for(output).read(join_path(output, name))
    except (FileNotFoundError, UnreadableFileError):
        return None
