"""May a job write where it is told to, and what is there already?"""

import logging
import os
from collections.abc import Iterable, Sequence
from enum import Enum

import msgspec

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import OF_INPUT, ShardNaming, listed
from recordmill.schemas.layouts import LAYOUTS
from recordmill.schemas.manifest import MANIFEST, RECIPE, Manifest, Recipe, SplitManifest, encode_json, state_folder
from recordmill.transforms.metadata.dataset_folder import read_manifest, unfinished_splits
from recordmill.transforms.storage.interface import Storage, is_remote
from recordmill.transforms.storage.resolve import storage_for

_LOGGER = logging.getLogger(__name__)


class OutputState(Enum):
    """What the output folder holds of the split that is to be written."""

    NEW = "nothing"
    UNFINISHED = "a run of the same recipe that did not finish"
    COMPLETE = "the whole split"


def claim_output(output: str, recipes: Sequence[Recipe], overwrite: bool, look_only: bool = False) -> list[OutputState]:
    """Look at the output folder and, for each split that is not complete, note its recipe there, so that an interrupted
    run can go on.

    Args:
        recipes: of the splits of a job.
        overwrite: delete what there is of them, whatever it is.
        look_only: neither note nor delete anything yet.

    Raises:
        ConfigError: the folder holds something that this run must not be mixed with.
    """
    manifest = read_manifest(output)
    if manifest is not None:
        replaced = {recipe.split for recipe in recipes} if overwrite else set()
        for recipe in recipes:
            _check_same_dataset(output, manifest, recipe, replaced)
            _check_same_division(output, manifest, recipe, {recipe.split for recipe in recipes})
    return [_claim_split(output, recipe, overwrite, look_only) for recipe in recipes]


def claim_late(output: str, recipes: Sequence[Recipe], before: Manifest | None) -> None:
    """Replace splits as `claim_output` does, but when the job may be running already: nothing is deleted that it may
    have written. Old shards whose names the job may use, too, are overwritten by it, or deleted when it is done.

    Args:
        before: the manifest that the folder had before the job was submitted.
    """
    storage = storage_for(output)
    for recipe in recipes:
        replaced = before.splits.get(recipe.split) if before else None
        manifest = read_manifest(output)
        recorded = manifest.splits.get(recipe.split) if manifest else None
        if recorded != replaced:
            continue  # the job is done
        if before and manifest and replaced:
            _unlist_split(storage, output, manifest, recipe.split)
            ours = recipe.shard_names
            for shard in _listed_shards(before, recipe):
                if not ours.is_one(shard):
                    storage.delete(storage.join(output, shard))
        storage.write(_note(storage, output, recipe), encode_json(recipe))


def _claim_split(output: str, recipe: Recipe, overwrite: bool, look_only: bool) -> OutputState:
    storage = storage_for(output)
    manifest = read_manifest(output)
    recorded = manifest.splits.get(recipe.split) if manifest else None
    if recorded and not overwrite:
        _check_same_recipe(output, recorded.recipe, recipe, "holds")
        damaged = damaged_shards(storage, output, recorded)
        if not damaged:
            return OutputState.COMPLETE
        _LOGGER.warning("%s: %s; the split is written again", output, ", ".join(damaged))
    if recipe.shard_names.naming is ShardNaming.KERAS:  # only then is the folder listed with all that is below
        _check_no_other_split(output, recipe, unfinished_splits(output))
    note = _note(storage, output, recipe)
    noted = _read_note(storage, note, overwrite)
    known = [recipe.shard_names, *([noted.shard_names] if noted else [])]
    shards = [name for name in storage.names(output) if any(names.is_one(name) for names in known)]
    unfinished = None if overwrite else noted
    if unfinished and (shards or unfinished == recipe):
        _check_same_recipe(output, unfinished, recipe, "has an unfinished run of")
        return OutputState.UNFINISHED
    if shards and not overwrite and not recorded:
        raise ConfigError(
            f"{output} has {len(shards)} shards named as these would be ({shards[0]} …) that no manifest lists; "
            "give another --output, --name or --split, or --overwrite to delete them"
        )
    if not look_only:
        _forget_split(storage, output, manifest, recipe, shards)
        storage.write(note, encode_json(recipe))
    return OutputState.NEW


def finished_shards(output: str, recipes: Sequence[Recipe]) -> int:
    """How many finished shards unfinished runs have left; a rerun keeps those that it would write as they are."""
    storage = storage_for(output)
    folders = (storage.join(output, state_folder(recipe.split)) for recipe in recipes)
    return sum(name != RECIPE and name.endswith(".json") for folder in folders for name in storage.names(folder))


def damaged_shards(storage: Storage, output: str, split: SplitManifest) -> list[str]:
    """Faults of a split's files that show without reading them: a shard is missing, or of another size."""
    faults = []
    for shard in split.shards:
        size = storage.size(storage.join(output, shard.file))
        if size is None:
            faults.append(f"{shard.file} is missing")
        elif size != shard.bytes:
            faults.append(f"{shard.file} has {size:,} bytes instead of {shard.bytes:,}")
    return faults


def _check_same_dataset(output: str, manifest: Manifest, recipe: Recipe, replaced: set[str]) -> None:
    others = sorted(set(manifest.splits) - replaced)
    for what, known, wanted in (("name", manifest.name, recipe.name), ("layout", manifest.layout, recipe.layout)):
        if others and known != wanted:
            raise ConfigError(
                f"{output} holds the data set {manifest.name!r} in layout {manifest.layout!r} "
                f"(splits: {', '.join(others)}); --{what} {wanted} would mix two data sets: give another --output"
            )

    others = [name for name in others if name != recipe.split]
    asked = tuple(part for part in manifest.parts if part not in OF_INPUT)
    if others and asked != recipe.parts:
        raise ConfigError(
            f"{output} holds records with {listed(asked)} (splits: {', '.join(others)}), these would have "
            f"{listed(recipe.parts)}: give the same annotation files and --masks for all splits, or another --output"
        )
    if recipe.shard_names.naming is ShardNaming.KERAS:
        _check_no_other_split(output, recipe, others)


def _check_same_division(output: str, manifest: Manifest, recipe: Recipe, written: set[str]) -> None:
    """Splits of one input that were divided in two ways would share images."""
    for name, split in manifest.splits.items():
        known, wanted = split.recipe.options.get("split"), recipe.options.get("split")
        if name not in written and known != wanted and _share_images(split.recipe, recipe):
            raise ConfigError(
                f"{output} holds the split {name} of the same images, divided by --split {known}: with --split "
                f"{wanted} some images would be in both; give the same --split, or another --output"
            )


def _share_images(one: Recipe, other: Recipe) -> bool:
    """Whether two recipes read the same table of labels, or the same folder where one has no such table."""
    if _real(file.path for file in one.inputs) & _real(file.path for file in other.inputs):
        return True
    listed = any(file.kind == "images" for recipe in (one, other) for file in recipe.inputs)
    return listed and bool(_real(one.images) & _real(other.images))


def _real(paths: Iterable[str]) -> set[str]:
    return {path if is_remote(path) else os.path.realpath(path) for path in paths}


def _check_no_other_split(output: str, recipe: Recipe, splits: list[str]) -> None:
    if others := [name for name in splits if name != recipe.split]:
        raise ConfigError(
            f"{output} holds the split {', '.join(others)}; in layout {recipe.layout} the names of shards do not tell "
            f"splits apart: give --split {recipe.split} an --output of its own"
        )


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
            f"--{item['kind']} {item['path']} ({item['bytes']:,} bytes, crc32c {item['crc32c']})"
            + (f" with {item['masks']}" if item["masks"] else "")
            if isinstance(item, dict)
            else str(item)
            for item in value
        )
    return str(value)


def _read_note(storage: Storage, note: str, overwrite: bool) -> Recipe | None:
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


def _note(storage: Storage, output: str, recipe: Recipe) -> str:
    return storage.join(output, f"{state_folder(recipe.split)}/{RECIPE}")


def _forget_split(storage: Storage, output: str, manifest: Manifest | None, recipe: Recipe, shards: list[str]) -> None:
    """Delete the split: its entry in the manifest first, so that no entry names a shard that is gone."""
    if manifest and recipe.split in manifest.splits:
        _unlist_split(storage, output, manifest, recipe.split)
        shards = sorted({*shards, *_listed_shards(manifest, recipe)})
    for shard in shards:
        storage.delete(storage.join(output, shard))
    storage.delete_folder(storage.join(output, state_folder(recipe.split)))


def _unlist_split(storage: Storage, output: str, manifest: Manifest, split: str) -> None:
    left = {name: each for name, each in manifest.splits.items() if name != split}
    path = storage.join(output, MANIFEST)
    if left:
        storage.write(path, encode_json(msgspec.structs.replace(manifest, splits=left)))
    else:
        storage.delete(path)


def _listed_shards(manifest: Manifest, recipe: Recipe) -> list[str]:
    """Shards of the recipe's split that are in a manifest. It may have been edited, so a file that is not named as a
    shard is left out: it is not ours to delete."""
    known = msgspec.structs.replace(recipe, name=manifest.name, layout=manifest.layout).shard_names
    return [shard.file for shard in manifest.splits[recipe.split].shards if known.is_one(shard.file)]
