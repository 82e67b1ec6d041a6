"""Claim an output folder. Its contents, the recipes of the job and --overwrite decide the outcome.

| the folder has of a split | the recipe | without --overwrite | with --overwrite |
|---|---|---|---|
| all shards, undamaged | the same | COMPLETE | as below |
| all shards, some of them damaged | the same | as below, with a warning | as below |
| all shards | another | refused | as below |
| an unfinished run, also of other parts of the job | the same | UNFINISHED | UNFINISHED |
| an unfinished run with finished shards | another | refused | NEW |
| shards that no manifest lists | - | refused | NEW |
| files in its state that no run wrote | - | refused | refused |
| anything else | - | NEW | NEW |
"""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import Enum
from itertools import product

import msgspec

from recordmill.launch.preflight.check_folder import folder_fault, real_path
from recordmill.schemas.dataset.dataset_files import split_manifest, state_folder
from recordmill.schemas.dataset.manifest import Manifest, SplitManifest, encode_json
from recordmill.schemas.dataset.recipes import InputFile, Recipe
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import OF_INPUT, Part, format_parts
from recordmill.schemas.inputs.encoders import TextForm
from recordmill.schemas.inputs.splits import ONLY_CASE
from recordmill.schemas.layouts import FEATURES
from recordmill.schemas.paths import is_remote
from recordmill.schemas.shards import SIZING_OPTIONS
from recordmill.schemas.sizes import first_texts
from recordmill.transforms.dataset.dataset_folder import (
    find_unknown_file,
    finished_shards,
    note_path,
    read_manifest,
    read_note,
    read_split_manifests,
    unfinished_splits,
)
from recordmill.transforms.join.list_images import list_folder
from recordmill.transforms.shards.shard_file import describe_damage
from recordmill.transforms.storage.resolve import join_path, storage_for

_LOGGER = logging.getLogger(__name__)

_SHOWN = 3
_CONCURRENT_CHECKS = 16  # number of shards that are checked concurrently: in a bucket, each is a request


class OutputState(Enum):
    """State of a split in the output folder."""

    NEW = "nothing"
    UNFINISHED = "an unfinished run of the same recipe"
    COMPLETE = "the complete split"


def claim_output(
    output: str,
    recipes: Sequence[Recipe],
    overwrite: bool,
    listings: Mapping[str, InputFile] | None = None,
    has_parts: bool = False,
) -> list[OutputState]:
    """Return the state of each split, and note the recipe of each new one in the folder, so that an interrupted run can
    be resumed. A complete split that is replaced stays until the new one is complete.

    Args:
        recipes: Recipes of the splits of a job.
        overwrite: True to replace existing splits.
        listings: Listings of image folders; None to list those that a complete split is compared with.
        has_parts: True if the job has parts, for a message.

    Raises:
        ConfigError: The folder has contents that this run must not be mixed with.
    """
    manifest = read_manifest(output)
    splits = {recipe.split for recipe in recipes}
    _check_other_splits(output, manifest, recipes, overwrite)
    listings = Listings() if listings is None else listings
    states = [_split_state(output, manifest, recipe, overwrite, listings, has_parts) for recipe in recipes]
    if manifest is not None and set(states) != {OutputState.COMPLETE}:
        check_split_manifests(output, manifest, splits)
        if fault := folder_fault(output):
            raise ConfigError(f"--output {fault}")
    note_recipes(output, recipes, states)
    return states


def note_recipes(output: str, recipes: Sequence[Recipe], states: Sequence[OutputState]) -> None:
    """Note the recipe of each new split in the folder, so that an interrupted run can be resumed.

    Args:
        states: State of the split of each recipe.

    Raises:
        ConfigError: Another job writes there.
    """
    splits = {recipe.split for recipe in recipes}
    new = [recipe for recipe, state in zip(recipes, states, strict=True) if state is OutputState.NEW]
    for recipe in new:
        _note_recipe(output, recipe)
    try:  # after the notes, so that one of two simultaneous jobs sees the other
        other_notes = {
            split: _read_note(output, split, overwrite=True)
            for split in sorted(set(unfinished_splits(output)) - splits if new else ())
        }
        for recipe in new:
            _check_unfinished(output, recipe, other_notes)
    except ConfigError:
        release_output(output, new, ())
        raise
    for recipe in new:  # not every storage can refuse to replace a file
        noted = _read_note(output, recipe.split, overwrite=True)
        if noted and not noted.unlisted.is_same_content(recipe):
            raise ConfigError(f"{output}: another job is writing {recipe.split} with other options. Wait until it ends")
    for recipe, state in zip(recipes, states, strict=True):
        if state is not OutputState.COMPLETE:
            _check_bucket_unlocked(output, recipe)


def absent_folders(output: str) -> list[str]:
    """Return the folder and its parents that do not exist, innermost first; none in a bucket, which has no folders."""
    folders, folder = [], "" if is_remote(output) else os.path.abspath(output)
    while folder and not os.path.lexists(folder):
        folders.append(folder)
        folder = os.path.dirname(folder)
    return folders


def release_output(output: str, recipes: Sequence[Recipe], absent: Iterable[str]) -> None:
    """Undo `claim_output` for recipes without finished shards. `absent` is the result of `absent_folders` before the
    claim."""
    storage = storage_for(output)
    for recipe in recipes:
        storage.delete_folder(join_path(output, state_folder(recipe.split)))
    for folder in absent:
        with suppress(OSError):  # another run may be writing there
            os.rmdir(folder)


class Listings(dict[str, InputFile]):
    """Listings of image folders. Each folder is listed once, and only to compare a complete split with it."""

    def __missing__(self, folder: str) -> InputFile:
        self[folder] = list_folder(folder)
        return self[folder]


def _split_state(
    output: str,
    manifest: Manifest | None,
    recipe: Recipe,
    overwrite: bool,
    listings: Mapping[str, InputFile],
    has_parts: bool,
) -> OutputState:
    storage = storage_for(output)
    recorded = manifest.splits.get(recipe.split) if manifest else None
    if recorded and not overwrite:
        adding = "" if has_parts else _cure_by_adding(recorded.recipe, recipe)
        _check_same_recipe(output, recorded.recipe.unlisted, recipe, "already has", adding)
        _check_same_recipe(output, recorded.recipe, recipe.with_listings(listings), "already has", adding)
        damaged = damaged_shards(output, recorded)
        if not damaged:
            return OutputState.COMPLETE
        if recorded.runs:
            raise ConfigError(
                f"{output}: {first_texts(damaged, _SHOWN)}, and the split {recipe.split} also has images that --add "
                "added, which this command would not write. Restore the files from a copy, or write all images to "
                "another --output"
            )
        _LOGGER.warning("%s: %s; the split is written again", output, ", ".join(damaged))
    noted = _read_note(output, recipe.split, overwrite)
    # Finished shards depend neither on further listed files nor on the compression of the input.
    if noted and noted.unlisted.is_same_content(recipe):
        return OutputState.UNFINISHED
    if noted and not overwrite and finished_shards(output, [recipe]):
        same = "Give all parts of a job the same options and paths, add " if has_parts else ""
        _check_same_recipe(output, noted.unlisted, recipe, "has an unfinished run of", same)
    shards = [name for name in storage.names(output) if recipe.shard_names.is_one(name)]
    if shards and not overwrite and not recorded:
        raise ConfigError(
            f"{output} has {len(shards)} shards with the names of the new ones ({shards[0]} …), but no manifest lists "
            "them. Choose another --output, --name or --split, or add --overwrite to delete them"
        )
    if strange := find_unknown_file(output, recipe.split):
        folder = join_path(output, state_folder(recipe.split))
        raise ConfigError(f"{folder} has {strange}, which is not a file of a run and would be deleted. Move it")
    return OutputState.NEW


def _note_recipe(output: str, recipe: Recipe) -> None:
    """Delete the state of an earlier run of the split, and write the recipe of this one. A state that another process
    has begun meanwhile for the same recipe is kept, because its shards are in it."""
    storage, noted = storage_for(output), _read_note(output, recipe.split, overwrite=True)
    if noted and noted.unlisted.is_same_content(recipe):
        return
    folder = join_path(output, state_folder(recipe.split))
    if storage.is_folder(folder):
        storage.delete_folder(folder)
    storage.write(note_path(output, recipe.split), encode_json(recipe))


def _check_bucket_unlocked(output: str, recipe: Recipe) -> None:
    """Refuse a bucket whose objects cannot be replaced. The recipe's note shows it, because an account may read and
    write objects without the right to read the bucket's settings. The note stays."""
    note = note_path(output, recipe.split)
    if why := storage_for(note).protection(note):
        raise ConfigError(
            f"{note} can be neither deleted nor replaced ({why}). The same would hold for shards and manifest.json, so "
            "no job could finish there. Choose an --output in another bucket, and copy the finished data set: gcloud "
            "storage cp --recursive"
        )


def damaged_shards(output: str, split: SplitManifest) -> list[str]:
    """Return a split's file errors: missing, other size, other checksum."""
    storage = storage_for(output)
    with ThreadPoolExecutor(_CONCURRENT_CHECKS) as pool:
        damages = pool.map(lambda shard: describe_damage(storage, join_path(output, shard.file), shard), split.shards)
        return [f"{shard.file} {damage}" for shard, damage in zip(split.shards, damages, strict=True) if damage]


def _check_same_recipe(output: str, known: Recipe, wanted: Recipe, holds: str, cure: str = "") -> None:
    """Refuse another recipe, and name the differences. `cure` comes before other ones."""
    if known != wanted:
        raise ConfigError(
            f"{output} {holds} {known.name}-{known.split}, written with other options ({known.changes(wanted)}). "
            f"{cure or 'Add '}--overwrite to replace it, or choose another --output or --split"
        )


def _cure_by_adding(known: Recipe, wanted: Recipe) -> str:
    """Return the cure for a recipe that has other inputs or folders of images, and else only other sizes of shards."""
    if wanted.unit != "image" or wanted.layout == FEATURES.layout:
        return ""
    if (known.inputs, known.images) == (wanted.inputs, wanted.images):
        return ""
    known_options, wanted_options = (dict.fromkeys(SIZING_OPTIONS) | recipe.options for recipe in (known, wanted))
    options = known_options | {name: wanted_options[name] for name in SIZING_OPTIONS}
    has_same_options = options == wanted_options and wanted == msgspec.structs.replace(
        known, inputs=wanted.inputs, images=wanted.images, options=wanted.options
    )
    return "Add --add to write only the images that it lacks, " if has_same_options else ""


def _read_note(output: str, split: str, overwrite: bool) -> Recipe | None:
    try:
        return read_note(output, split)
    except ConfigError:
        if overwrite:
            return None
        raise


def _check_other_splits(output: str, manifest: Manifest | None, recipes: Sequence[Recipe], overwrite: bool) -> None:
    """Refuse recipes that cannot be written next to the splits of a manifest and of unfinished runs."""
    known, written = manifest.splits if manifest else {}, {recipe.split for recipe in recipes}
    check_split_names(output, {*known, *unfinished_splits(output)}, written)
    if manifest:
        for recipe in recipes:
            kept_splits = set(known) - (written if overwrite else set())
            cure = "give another --output" + ", or add --overwrite to replace it" * (kept_splits <= written)
            _check_data_set(output, manifest, recipe, kept_splits, cure)
            check_division(output, manifest, recipe, set(known) - written)


def check_split_names(output: str, known: set[str], written: set[str]) -> None:
    """Check that no written split has the name of a known one with other capitals.

    Raises:
        ConfigError: A written split has.
    """
    for one, other in sorted(product(known, written)):
        if one != other and one.lower() == other.lower():
            raise ConfigError(
                f"{output} has the split {one}, and the job would add {other}, {ONLY_CASE}. Give --split {one}, "
                "another name, or another --output"
            )


def _check_data_set(output: str, manifest: Manifest, recipe: Recipe, kept_splits: set[str], cure: str) -> None:
    """Refuse a name, layout or parts that differ from those of the kept splits. `cure` is for another name, layout or
    container."""
    for what, known, wanted in (
        ("name", manifest.name, recipe.name),
        ("layout", manifest.layout, recipe.layout),
        ("container", manifest.container, recipe.container),
    ):
        if kept_splits and known != wanted:
            files = f" as {manifest.container} files" if what == "container" else ""
            raise ConfigError(
                f"{output} holds the data set {manifest.name!r} in layout {manifest.layout!r}{files} "
                f"(splits: {', '.join(sorted(kept_splits))}); --{what} {wanted} would mix two data sets: "
                f"{cure}"
            )
    other_splits = sorted(kept_splits - {recipe.split})
    asked, wanted_parts = (
        tuple(part for part in parts if part not in OF_INPUT) for parts in (manifest.parts, recipe.parts)
    )
    if other_splits and asked != wanted_parts:
        raise ConfigError(
            f"{output} holds records with {format_parts(asked)} (splits: {', '.join(other_splits)}), the new ones "
            f"would have {format_parts(wanted_parts)}. Give the same annotation files and --masks for all splits, or "
            "another --output"
        )
    kinds = "tiles" if Part.TILES in manifest.parts else "images", "tiles" if "tile" in recipe.options else "images"
    if other_splits and recipe.inputs and kinds[0] != kinds[1]:  # Samples show only when they are read what they are
        raise ConfigError(
            f"{output} holds records of {kinds[0]} (splits: {', '.join(other_splits)}), the new ones would be of "
            f"{kinds[1]}. Give --tile for all splits or for none, or another --output"
        )
    scale, wanted_scale = manifest.depth_scale, recipe.options.get("depth_scale", manifest.depth_scale)
    if other_splits and scale != wanted_scale:
        raise ConfigError(
            f"{output} holds depth maps of --depth-scale {scale} (splits: {', '.join(other_splits)}), the new ones "
            f"would be of {wanted_scale}. Give all splits depth maps of one scale, or another --output"
        )
    check_keras(output, recipe, other_splits)


def check_keras(output: str, recipe: Recipe, other_splits: Iterable[str]) -> None:
    """Check that a folder has one split if names of shards do not contain the split.

    Raises:
        ConfigError: The folder has another split.
    """
    other_splits = [name for name in other_splits if name != recipe.split]
    if other_splits and recipe.shard_names.is_keras:
        raise ConfigError(
            f"{output} holds the split {', '.join(other_splits)}; shard names of layout {recipe.layout} do not contain "
            f"the split. Choose a separate --output for --split {recipe.split}"
        )


def check_division(output: str, manifest: Manifest, recipe: Recipe, other_splits: set[str]) -> None:
    """Check that splits of one input are divided by the same `--split`.

    Raises:
        ConfigError: They are not, so that splits would share images.
    """
    for name in sorted(other_splits):
        other = manifest.splits[name].recipe
        known, wanted = other.options.get("split"), recipe.options.get("split")
        if known != wanted and _share_images(other, recipe):
            raise ConfigError(
                f"{output} has the split {name} of the same images, divided by --split {known or name}, and --split "
                f"{wanted or recipe.split} would write some of them again. Give the same --split, or another --output"
            )


_NAME_NO_IMAGES = ("groups", "exclude", "class_map")
"""Kinds of input files that two inputs of different images may share."""


def _share_images(one: Recipe, other: Recipe) -> bool:
    """Return True if both read the same table of labels, or the same folder and one has no such table."""
    first, second = (
        {real_path(file.path) for file in recipe.inputs if file.kind not in _NAME_NO_IMAGES} for recipe in (one, other)
    )
    is_listed = any(file.kind == "images" for recipe in (one, other) for file in recipe.inputs)
    return bool(first & second or (is_listed and {*map(real_path, one.images)} & {*map(real_path, other.images)}))


def check_split_manifests(output: str, manifest: Manifest, written: set[str]) -> None:
    """Check that each split has its own manifest. The folder's manifest is built from these, and would lose a split.

    Raises:
        ConfigError: A split that is not written now has none.
    """
    missing = sorted(manifest.splits.keys() - read_split_manifests(output).keys() - written)
    again = read_manifest(output) if missing else None  # another run may be replacing one just now
    if again and (missing := [split for split in missing if split in again.splits]):
        raise ConfigError(
            f"{output} has a manifest of the splits {', '.join(manifest.splits)}, but no "
            f"{', '.join(map(split_manifest, missing))}: was only a part of the folder copied? Copy all of it, or give "
            "another --output"
        )


def _check_unfinished(output: str, recipe: Recipe, other_notes: Mapping[str, Recipe | None]) -> None:
    """Refuse a split while another job writes other splits.

    Args:
        other_notes: Noted recipes by split; None if a recipe is unreadable.

    In layout keras a folder has one split. Encoded texts of all splits need the same vocabulary.
    """
    check_keras(output, recipe, other_notes)
    own = _vocabulary(recipe)
    for split, other in other_notes.items() if own is not None else ():
        theirs = _vocabulary(other) if other else None
        if theirs is not None and (not own or own != theirs):
            raise ConfigError(
                f"{output} has an unfinished run of {split}, whose texts have another vocabulary than {recipe.split} "
                f"would have, but a data set has only one: finish {split} first, write both in one command, or give "
                "--encoders to both"
            )


def _vocabulary(recipe: Recipe) -> tuple[str, ...] | None:
    """Return the checksums of saved encoders; empty to fit new ones, None if no texts are encoded."""
    form = recipe.options.get("caption_text", recipe.options.get("text"))
    if form in (None, TextForm.RAW.value):
        return None
    return tuple(sorted(file.crc32c for file in recipe.inputs if file.kind == "encoders"))
