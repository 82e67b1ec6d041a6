"""Why splits cannot be written next to others that their folder has."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

from recordmill.schemas.dataset.dataset_files import split_manifest
from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.dataset.recipes import Recipe
from recordmill.schemas.features import OF_INPUT, ShardNaming, listed
from recordmill.schemas.inputs.encoders import TextForm
from recordmill.schemas.inputs.splits import ONLY_CASE
from recordmill.transforms.dataset.dataset_folder import read_manifest, read_split_manifests
from recordmill.transforms.storage.interface import is_remote


def other_split_faults(
    output: str, manifest: Manifest | None, unfinished: Iterable[str], recipes: Sequence[Recipe], overwrite: bool
) -> Iterator[str]:
    """Yield the faults of recipes that would be written next to the splits of a manifest and of unfinished runs."""
    known, written = manifest.splits if manifest else {}, {recipe.split for recipe in recipes}
    for one, other in sorted(product({*known, *unfinished}, written)):
        if one != other and one.lower() == other.lower():
            yield (
                f"{output} has the split {one}, and {other} is asked for, {ONLY_CASE}: give --split {one}, another "
                "name, or another --output"
            )
    if manifest:
        for recipe in recipes:
            yield from _data_set_faults(output, manifest, recipe, set(known) - (written if overwrite else set()))
            yield from _division_faults(output, manifest, recipe, set(known) - written)


def _data_set_faults(output: str, manifest: Manifest, recipe: Recipe, kept: set[str]) -> Iterator[str]:
    """The name, layout or parts differ from those of the splits that are kept."""
    for what, known, wanted in (("name", manifest.name, recipe.name), ("layout", manifest.layout, recipe.layout)):
        if kept and known != wanted:
            yield (
                f"{output} holds the data set {manifest.name!r} in layout {manifest.layout!r} "
                f"(splits: {', '.join(sorted(kept))}); --{what} {wanted} would mix two data sets: give another --output"
            )
    others = sorted(kept - {recipe.split})
    asked = tuple(part for part in manifest.parts if part not in OF_INPUT)
    if others and asked != recipe.parts:
        yield (
            f"{output} holds records with {listed(asked)} (splits: {', '.join(others)}), these would have "
            f"{listed(recipe.parts)}: give the same annotation files and --masks for all splits, or another --output"
        )
    yield from _keras_faults(output, recipe, others)


def _keras_faults(output: str, recipe: Recipe, others: Iterable[str]) -> Iterator[str]:
    others = [name for name in others if name != recipe.split]
    if others and recipe.shard_names.naming is ShardNaming.KERAS:
        yield (
            f"{output} holds the split {', '.join(others)}; in layout {recipe.layout} the names of shards do not tell "
            f"splits apart: give --split {recipe.split} an --output of its own"
        )


def _division_faults(output: str, manifest: Manifest, recipe: Recipe, others: set[str]) -> Iterator[str]:
    """Splits of one input that were divided in two ways would share images."""
    for name in sorted(others):
        other = manifest.splits[name].recipe
        known, wanted = other.options.get("split"), recipe.options.get("split")
        if known != wanted and _share_images(other, recipe):
            yield (
                f"{output} holds the split {name} of the same images, divided by --split {known or name}: with --split "
                f"{wanted or recipe.split} some images would be in both; give the same --split, or another --output"
            )


def _share_images(one: Recipe, other: Recipe) -> bool:
    """True if both read the same table of labels, or the same folder and one has no such table."""
    if _real(file.path for file in one.inputs) & _real(file.path for file in other.inputs):
        return True
    is_listed = any(file.kind == "images" for recipe in (one, other) for file in recipe.inputs)
    return is_listed and bool(_real(one.images) & _real(other.images))


def _real(paths: Iterable[str]) -> set[str]:
    return {path if is_remote(path) else os.path.realpath(path) for path in paths}


def missing_manifest_faults(output: str, manifest: Manifest, written: set[str]) -> Iterator[str]:
    """Yield splits without their own manifest. The folder's manifest is made of those, and would lose them."""
    missing = sorted(manifest.splits.keys() - read_split_manifests(output).keys() - written)
    again = read_manifest(output) if missing else None  # another run may just be replacing one
    if again and (missing := [split for split in missing if split in again.splits]):
        yield (
            f"{output} has a manifest of the splits {', '.join(manifest.splits)}, but no "
            f"{', '.join(map(split_manifest, missing))}: was only a part of the folder copied? Copy all of it, or give "
            "another --output"
        )


def unfinished_faults(output: str, recipe: Recipe, others: Mapping[str, Recipe | None]) -> Iterator[str]:
    """Yield why a split cannot be written while another job writes `others`, by split; None if a recipe is unreadable.

    In layout keras a folder has one split. Encoded texts of all splits need the same vocabulary.
    """
    yield from _keras_faults(output, recipe, others)
    own = _vocabulary(recipe)
    for split, other in others.items() if own is not None else ():
        theirs = _vocabulary(other) if other else None
        if theirs is not None and (not own or own != theirs):
            yield (
                f"{output} has an unfinished run of {split}, whose texts have another vocabulary than {recipe.split} "
                f"would have, and a data set has one: finish {split} first, write both in one command, or give "
                "--encoders to both"
            )


def _vocabulary(recipe: Recipe) -> tuple[str, ...] | None:
    """Return the checksums of saved encoders; empty if they are to be fitted, None if no texts are encoded."""
    form = recipe.options.get("caption_text", recipe.options.get("text"))
    if form in (None, TextForm.RAW.value):
        return None
    return tuple(sorted(file.crc32c for file in recipe.inputs if file.kind == "encoders"))
