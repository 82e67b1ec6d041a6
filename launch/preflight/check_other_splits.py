"""May a split be written beside the others that its folder has? Each of these raises a ConfigError where it may not."""

import os
from collections.abc import Iterable, Mapping
from itertools import product

from recordmill.schemas.dataset_files import split_manifest
from recordmill.schemas.encoders import TextForm
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import OF_INPUT, ShardNaming, listed
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.recipes import Recipe
from recordmill.schemas.splits import ONLY_CASE
from recordmill.transforms.dataset.dataset_folder import read_manifest, read_split_manifests
from recordmill.transforms.storage.interface import is_remote


def check_all_committed(output: str, manifest: Manifest, written: set[str]) -> None:
    """Whether each split has a manifest of its own: the folder's is made of those, and would forget one without."""
    missing = sorted(manifest.splits.keys() - read_split_manifests(output).keys() - written)
    again = read_manifest(output) if missing else None  # another run may just be replacing one
    if again and (missing := [split for split in missing if split in again.splits]):
        files = ", ".join(map(split_manifest, missing))
        raise ConfigError(
            f"{output} has a manifest of the splits {', '.join(manifest.splits)}, but no {files}: was only a part of "
            "the folder copied? Copy all of it, or give another --output"
        )


def check_cases(output: str, known: Iterable[str], wanted: Iterable[str]) -> None:
    """Whether no two splits differ in capital letters alone."""
    for one, other in sorted(product(known, wanted)):
        if one != other and one.lower() == other.lower():
            raise ConfigError(
                f"{output} has the split {one}, and {other} is asked for, {ONLY_CASE}: give --split {one}, another "
                "name, or another --output"
            )


def check_same_dataset(output: str, manifest: Manifest, recipe: Recipe, replaced: set[str]) -> None:
    """Whether name, layout and parts are those of the splits that stay."""
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


def check_same_division(output: str, manifest: Manifest, recipe: Recipe, written: set[str]) -> None:
    """Whether splits of one input were divided in one way: divided in two, they would share images."""
    for name, split in manifest.splits.items():
        known, wanted = split.recipe.options.get("split"), recipe.options.get("split")
        if name not in written and known != wanted and _share_images(split.recipe, recipe):
            raise ConfigError(
                f"{output} holds the split {name} of the same images, divided by --split {known or name}: with --split "
                f"{wanted or recipe.split} some images would be in both; give the same --split, or another --output"
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


def check_unfinished(output: str, recipe: Recipe, others: Mapping[str, Recipe | None]) -> None:
    """Whether a split can go together with others that another job is writing: with none in the layout keras; where
    texts become numbers, with those of the same vocabulary.

    Args:
        others: their recipes, by split; None where it cannot be read.
    """
    if recipe.shard_names.naming is ShardNaming.KERAS:
        _check_no_other_split(output, recipe, list(others))
    own = _vocabulary(recipe)
    for split, other in others.items() if own is not None else ():
        theirs = _vocabulary(other) if other else None
        if theirs is not None and (not own or own != theirs):
            raise ConfigError(
                f"{output} has an unfinished run of {split}, whose texts have another vocabulary than {recipe.split} "
                f"would have, and a data set has one: finish {split} first, write both in one command, or give "
                "--encoders to both"
            )


def _vocabulary(recipe: Recipe) -> tuple[str, ...] | None:
    """Checksums of the saved encoders of a recipe's texts; empty where they are to be fitted, None without texts that
    become numbers."""
    form = recipe.options.get("caption_text", recipe.options.get("text"))
    if form in (None, TextForm.RAW.value):
        return None
    return tuple(sorted(file.crc32c for file in recipe.inputs if file.kind == "encoders"))
