"""May a job write where it is told to, and what is there already?"""

import logging
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import Enum

import msgspec

from recordmill.launch.preflight.check_folder import folder_fault
from recordmill.launch.preflight.check_other_splits import (
    check_all_committed,
    check_cases,
    check_same_dataset,
    check_same_division,
    check_unfinished,
)
from recordmill.schemas.dataset_files import RECIPE, state_folder
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.layouts import LAYOUTS
from recordmill.schemas.manifest import Manifest, SplitManifest, encode_json
from recordmill.schemas.recipes import InputFile, Recipe
from recordmill.schemas.shards import ShardInfo
from recordmill.transforms.dataset.dataset_folder import read_manifest, strange_file, unfinished_splits
from recordmill.transforms.join.list_images import listing_of
from recordmill.transforms.storage.interface import Storage, is_remote
from recordmill.transforms.storage.resolve import storage_for

_LOGGER = logging.getLogger(__name__)

_LOOKS = 16
"""How many shards are looked at once: in a bucket, each is a request."""


class OutputState(Enum):
    """What the output folder holds of the split that is to be written."""

    NEW = "nothing"
    UNFINISHED = "a run of the same recipe that did not finish"
    COMPLETE = "the whole split"


def claim_output(output: str, recipes: Sequence[Recipe], overwrite: bool) -> list[OutputState]:
    """Look at the output folder and, for each split that is not complete, note its recipe there, so that an interrupted
    run can go on. A complete split that is to be replaced stays until the new one is whole.

    Args:
        recipes: of the splits of a job.
        overwrite: replace what there is of them, whatever it is.

    Raises:
        ConfigError: the folder holds something that this run must not be mixed with.
    """
    manifest = read_manifest(output)
    splits = {recipe.split for recipe in recipes}
    check_cases(output, {*(manifest.splits if manifest else ()), *unfinished_splits(output)}, splits)
    if manifest is not None:
        for recipe in recipes:
            check_same_dataset(output, manifest, recipe, splits if overwrite else set())
            check_same_division(output, manifest, recipe, splits)
    listings = _Listings()
    states = [_look_at_split(output, manifest, recipe, overwrite, listings) for recipe in recipes]
    if manifest is not None and set(states) != {OutputState.COMPLETE}:
        check_all_committed(output, manifest, splits)
        if fault := folder_fault(output):
            raise ConfigError(f"--output {fault}")
    new = [recipe for recipe, state in zip(recipes, states, strict=True) if state is OutputState.NEW]
    for recipe in new:
        _note_recipe(output, recipe)
    try:  # after the notes: of two jobs that begin at once, one sees the other
        for recipe in new:
            others = sorted(set(unfinished_splits(output)) - splits)
            check_unfinished(
                output, recipe, {split: _read_note(_note(output, split), overwrite=True) for split in others}
            )
    except ConfigError:
        release_output(output, new, ())
        raise
    for recipe, state in zip(recipes, states, strict=True):
        if state is not OutputState.COMPLETE:
            _check_replaceable(output, recipe)
    return states


def absent_folders(output: str) -> list[str]:
    """The folder and those above it that are not there, the innermost first; none in a bucket, which has no folders."""
    folders, folder = [], "" if is_remote(output) else os.path.abspath(output)
    while folder and not os.path.lexists(folder):
        folders.append(folder)
        folder = os.path.dirname(folder)
    return folders


def release_output(output: str, recipes: Sequence[Recipe], absent: Iterable[str]) -> None:
    """Undo `claim_output` for splits of which nothing was written.

    Args:
        recipes: of these splits.
        absent: the `absent_folders` before.
    """
    storage = storage_for(output)
    for recipe in recipes:
        storage.delete_folder(storage.join(output, state_folder(recipe.split)))
    for folder in absent:
        with suppress(OSError):  # another run may be writing there
            os.rmdir(folder)


class _Listings(dict[str, InputFile]):
    """What is in folders of images. Each is listed once, and only where a split is complete: nothing else tells whether
    it still is what there is."""

    def __missing__(self, folder: str) -> InputFile:
        self[folder] = listing_of(folder)
        return self[folder]


def _look_at_split(
    output: str, manifest: Manifest | None, recipe: Recipe, overwrite: bool, listings: _Listings
) -> OutputState:
    storage = storage_for(output)
    recorded = manifest.splits.get(recipe.split) if manifest else None
    if recorded and not overwrite:
        _check_same_recipe(output, recorded.recipe.unlisted, recipe, "holds")
        _check_same_recipe(output, recorded.recipe, recipe.with_listings(listings), "holds")
        damaged = damaged_shards(storage, output, recorded)
        if not damaged:
            return OutputState.COMPLETE
        _LOGGER.warning("%s: %s; the split is written again", output, ", ".join(damaged))
    noted = _read_note(_note(output, recipe.split), overwrite)
    # A finished shard is kept by what is in it, whatever else was listed, and however the input is compressed.
    if noted and noted.unlisted.is_same_content(recipe):
        return OutputState.UNFINISHED
    if noted and not overwrite and finished_shards(output, [recipe]):
        _check_same_recipe(output, noted.unlisted, recipe, "has an unfinished run of")
    shards = [name for name in storage.names(output) if recipe.shard_names.is_one(name)]
    if shards and not overwrite and not recorded:
        raise ConfigError(
            f"{output} has {len(shards)} shards named as these would be ({shards[0]} …) that no manifest lists; "
            "give another --output, --name or --split, or --overwrite to delete them"
        )
    if strange := strange_file(output, recipe.split):
        folder = storage.join(output, state_folder(recipe.split))
        raise ConfigError(f"{folder} has {strange}, which no run has left there, and would be deleted; move it")
    return OutputState.NEW


def _note_recipe(output: str, recipe: Recipe) -> None:
    """Delete what an earlier run of the split has left, and write down what this one is to make."""
    storage = storage_for(output)
    storage.delete_folder(storage.join(output, state_folder(recipe.split)))
    storage.write(_note(output, recipe.split), encode_json(recipe))


def _check_replaceable(output: str, recipe: Recipe) -> None:
    """Refuse a bucket that keeps what is written to it. The note says so: to ask the bucket takes a permission that an
    account which only reads and writes objects lacks.

    Raises:
        ConfigError: it does. The note stays there, as all would.
    """
    note = _note(output, recipe.split)
    if why := storage_for(note).protection(note):
        raise ConfigError(
            f"{note} can be neither deleted nor replaced ({why}), as shards and manifest.json could not be, so that no "
            "job could end there; give --output in another bucket, and copy the finished data set: gcloud storage cp "
            "--recursive"
        )


def finished_shards(output: str, recipes: Sequence[Recipe]) -> int:
    """How many finished shards unfinished runs have left; a rerun keeps those that it would write as they are."""
    storage = storage_for(output)
    folders = (storage.join(output, state_folder(recipe.split)) for recipe in recipes)
    return sum(name != RECIPE and name.endswith(".json") for folder in folders for name in storage.names(folder))


def damaged_shards(storage: Storage, output: str, split: SplitManifest) -> list[str]:
    """Faults of a split's files: a shard is missing, of another size, or has another checksum."""
    with ThreadPoolExecutor(_LOOKS) as pool:
        found = pool.map(lambda shard: _damage(storage, storage.join(output, shard.file), shard), split.shards)
    return [f"{shard.file} {damage}" for shard, damage in zip(split.shards, found, strict=True) if damage]


def _damage(storage: Storage, path: str, shard: ShardInfo) -> str:
    try:
        size, crc32c = storage.checksum(path)
    except FileNotFoundError:
        return "is missing"
    if size != shard.bytes:
        return f"has {size:,} bytes instead of {shard.bytes:,}"
    return "" if crc32c == shard.crc32c else f"has the checksum {crc32c} instead of {shard.crc32c}"


def _check_same_recipe(output: str, known: Recipe, wanted: Recipe, holds: str) -> None:
    if known == wanted:
        return
    raise ConfigError(
        f"{output} {holds} {known.name}-{known.split} made otherwise ({_difference(known, wanted)}); "
        "give another --output or --split, or --overwrite to replace it"
    )


def _difference(known: Recipe, wanted: Recipe) -> str:
    """What differs between two recipes, for a person: `seed 0, now 1`."""
    before, now = ({**msgspec.to_builtins(recipe), **recipe.options} for recipe in (known, wanted))
    keys = [key for key in now if key != "options" and before.get(key) != now[key]]
    return "; ".join(f"{key.replace('_', '-')} was {_shown(before.get(key))}, now {_shown(now[key])}" for key in keys)


def _shown(value: object) -> str:
    if isinstance(value, list | tuple):
        return " ".join(
            f"--{item['kind']} {item['path']}"
            + (f" ({item['bytes']:,} bytes, crc32c {item['crc32c']})" if item["crc32c"] else "")
            + (f" with {item['masks']}" if item["masks"] else "")
            if isinstance(item, dict)
            else str(item)
            for item in value
        )
    return str(value)


def _read_note(note: str, overwrite: bool) -> Recipe | None:
    storage = storage_for(note)
    if storage.size(note) is None:
        return None
    try:
        recipe = msgspec.json.decode(storage.read(note), type=Recipe)
        return recipe if recipe.layout in LAYOUTS else None
    except FileNotFoundError:  # another run may be done just now
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if overwrite:
            return None
        raise ConfigError(f"{note} cannot be read ({error}); --overwrite starts anew") from error


def _note(output: str, split: str) -> str:
    """Where the recipe of an unfinished run is noted."""
    return storage_for(output).join(output, f"{state_folder(split)}/{RECIPE}")
