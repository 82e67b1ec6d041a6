"""Claim the data set that `convert --add` adds to. Its manifest and the recipes of the job decide the outcome.

| the data set has of a split | the recipe | the outcome |
|---|---|---|
| some shards damaged | any | refused |
| all shards | that of one of its runs; with --sync, of the last. No new file is possible | COMPLETE |
| an unfinished run | the same | UNFINISHED |
| an unfinished run, also of another split | another | refused; dropped if it has failed |
| anything else | differs in options of records | refused |
| anything else | the same options of records | NEW |
"""

import logging
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec

from recordmill.launch.preflight.check_folder import folder_fault
from recordmill.launch.preflight.claim_output import (
    Listings,
    OutputState,
    check_division,
    check_keras,
    check_split_manifests,
    check_split_names,
    damaged_shards,
    note_recipes,
    release_output,
)
from recordmill.pipelines.formats import fields_by_name
from recordmill.pipelines.sets_options import set_names
from recordmill.schemas.dataset.dataset_files import MANIFEST, state_folder
from recordmill.schemas.dataset.manifest import Addition, Manifest, SplitManifest
from recordmill.schemas.dataset.recipes import LISTING, Recipe
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import OF_INPUT
from recordmill.schemas.inputs.coco import AnnotationKind
from recordmill.schemas.inputs.option import ARGUMENT, READ, Must, named_paths
from recordmill.schemas.inputs.text_options import FITTED
from recordmill.schemas.rejects import Reason
from recordmill.schemas.shards import SIZING_OPTIONS
from recordmill.schemas.sizes import first_texts
from recordmill.transforms.dataset.dataset_folder import failure_path, read_manifest, read_note, unfinished_splits
from recordmill.transforms.storage.resolve import join_path, storage_for, suggest_path
from recordmill.transforms.verify.check_folder import unaddable_faults

_LOGGER = logging.getLogger(__name__)

_SHOWN = 3
_OF_RUN = ("add_as", "sync", "sets", "exclude_kinds", "group_from", "limit", "max_per_class")
"""Options that runs may have differently: they choose images, not what a record is."""
_SELECTIONS = ("categories", "classes")
_DIVISIONS = ("split_by", "stratify")
_OF_FILES = frozenset({Reason.IMAGE_MISSING, Reason.IMAGE_UNREADABLE, Reason.IMAGE_INACCESSIBLE, Reason.MASK_MISSING})
_KINDS_OF_LABELS = frozenset({LISTING, "labels", *AnnotationKind})


def read_base(output: str) -> Manifest:
    """Return the manifest of the data set to add to.

    Raises:
        ConfigError: The folder has none, or only a part of a data set; or see `read_manifest`.
    """
    manifest = read_manifest(output)
    if manifest is None:
        raise ConfigError(_no_data_set(output))
    check_split_manifests(output, manifest, set())
    return manifest


def _no_data_set(output: str) -> str:
    storage = storage_for(output)
    if not storage.is_folder(output) or not any(storage.walk_names(output)):
        what = "is empty" if storage.is_folder(output) else f"does not exist{suggest_path(output)}"
        return f"--output {output} {what}, so there is nothing to add to. Leave --add out to write a new data set"
    if splits := unfinished_splits(output):
        return (
            f"--output {output} has an unfinished run of {', '.join(splits)} and no {MANIFEST}. Run its command again "
            "until it is complete, and then add to it"
        )
    return (
        f"--output {output} has no {MANIFEST}, so it is not a data set to add to. Give the folder of one, or leave "
        "--add out and give another --output"
    )


def adopt_options(options: Any, base: Manifest) -> tuple[Any, tuple[str, ...]]:
    """Return the options of a job with the name of the data set and the name of the set that it adds, if any, and a
    line about the set.

    A data set that was made of several sets gets DATA as a set with the name of its folder.
    """
    changes = {} if "name" in options.model_fields_set else {"name": base.name}
    set_name, known = options.add_as, _known_sets(base)
    joins_sets = any("sets" in entry.recipe.options for entry in base.splits.values())
    if set_name is None and joins_sets and not options.set_options:
        paths = {field.name: path for field, path in named_paths(options) if field.must_be is not Must.OUTPUT}
        (set_name,) = set_names([paths])
    if set_name is None:
        return options.model_copy(update=changes), ()
    which = "which the data set has" if set_name in known else "which is new"
    other_sets = f" besides {first_texts(sorted(known - {set_name}), _SHOWN)}" if known - {set_name} else ""
    line = f"images are added as the set {set_name}, {which}{other_sets}"
    return options.model_copy(update=changes | {"add_as": set_name}), (line,)


def _known_sets(base: Manifest) -> set[str]:
    """Return the names of the sets of a data set."""
    names = set[str]()
    for entry in base.splits.values():
        for recipe in entry.recipes:
            texts = recipe.options.get("sets") or ()
            names |= {msgspec.json.decode(text)["name"] for text in texts} if isinstance(texts, list) else set()
            names |= {str(recipe.options["add_as"])} if "add_as" in recipe.options else set()
    return names


def check_agreement(output: str, base: Manifest, recipes: Sequence[Recipe]) -> None:
    """Check that the records of a job fit the data set.

    Raises:
        ConfigError: Options of records differ, or the job divides images differently.
    """
    check_split_names(output, {*base.splits}, {recipe.split for recipe in recipes})
    for recipe in recipes:
        entry = base.splits.get(recipe.split) or next(iter(base.splits.values()))
        left_out = _left_out(entry.recipe, recipe)
        known, wanted = (_record_options(run, recipe.split, left_out) for run in (entry.recipe, recipe))
        if known != wanted:
            if known.options != wanted.options:  # parts follow from options
                wanted = msgspec.structs.replace(wanted, parts=known.parts)
            raise ConfigError(
                f"{output} was written with other options ({known.changes(wanted, ', ')}), and all records of a data "
                "set have the same. Give those of the data set, or another --output"
            )
        check_division(output, base, recipe, {*base.splits})
        check_keras(output, recipe, base.splits)


def _left_out(known: Recipe, job: Recipe) -> set[str]:
    """Return the options that a job may have differently than the first run of the data set, or leaves to it."""
    left_out = {*SIZING_OPTIONS, *_OF_RUN, *_reading_options(), *(name for name in FITTED if name not in job.options)}
    left_out |= {name for name in _SELECTIONS if name in job.options}
    divides = ["=" in str(recipe.options.get("split", "")) for recipe in (known, job)]
    return left_out | (set() if all(divides) else {"split", "split_seed"}) | (set() if divides[1] else {*_DIVISIONS})


def _record_options(recipe: Recipe, split: str, left_out: set[str]) -> Recipe:
    """Return what must be equal in all runs, with the name of the split."""
    options = {name: value for name, value in recipe.options.items() if name not in left_out}
    parts = tuple(part for part in recipe.parts if part not in OF_INPUT)
    return msgspec.structs.replace(recipe, split=split, parts=parts, inputs=(), images=(), options=options)


@cache
def _reading_options() -> frozenset[str]:
    """Return the keys of options that say how DATA is read."""
    fields = [field for by_format in fields_by_name().values() for field in by_format.values()]
    return frozenset(field.recorded_as for field in fields if field.group in (ARGUMENT, READ))


def claim_addition(output: str, base: Manifest, recipes: Sequence[Recipe]) -> list[OutputState]:
    """Return the state of each split of a job that adds to a data set, and note the recipe of each new one.

    Args:
        base: Manifest of the data set.

    Raises:
        ConfigError: The records of the job do not fit the data set; shards are damaged; or another run is unfinished.
    """
    check_agreement(output, base, recipes)
    _check_files(output, base, recipes)
    listings = Listings()
    states = [_split_state(output, base, recipe, listings) for recipe in recipes]
    if set(states) != {OutputState.COMPLETE}:
        _check_unfinished(output, recipes)
        if fault := folder_fault(output):
            raise ConfigError(f"--output {fault}")
    note_recipes(output, recipes, states)
    for recipe in recipes:
        storage_for(output).delete(failure_path(output, recipe.split))
    try:  # after the notes, so that one of two simultaneous jobs sees the other
        if set(states) != {OutputState.COMPLETE}:
            _check_unfinished(output, recipes)
    except ConfigError:
        new = [recipe for recipe, state in zip(recipes, states, strict=True) if state is OutputState.NEW]
        release_output(output, new, ())
        raise
    return states


def _check_files(output: str, base: Manifest, recipes: Sequence[Recipe]) -> None:
    """Raise ConfigError if a shard, a manifest or a list of the data set is damaged."""
    if faults := unaddable_faults(output, base):
        if read_manifest(output) != base:
            raise ConfigError(f"{output}: another run has just written the data set. Run the same command again")
        texts = [f"{fault.file}: {fault.detail}" for fault in faults]
        raise ConfigError(
            f"{output} is damaged: {first_texts(texts, _SHOWN)}. Restore the files from a copy, or write all images to "
            "another --output"
        )
    for split in sorted({recipe.split for recipe in recipes} & {*base.splits}):
        if damaged := damaged_shards(output, base.splits[split]):
            other = "write all images to another --output"
            if not base.splits[split].runs:
                other = f"run the command that wrote {split} again"
            raise ConfigError(
                f"{output} is damaged: {first_texts(damaged, _SHOWN)}. Restore the files from a copy, or {other}"
            )


def _split_state(output: str, base: Manifest, recipe: Recipe, listings: Listings) -> OutputState:
    entry = base.splits.get(recipe.split)
    runs = entry.recipes if entry and _covers_labels(recipe) else ()
    for number, run in reversed([*enumerate(runs)][-1:] if "sync" in recipe.options else [*enumerate(runs)]):
        if run.unlisted == recipe and run == recipe.with_listings(listings):
            counts = entry.runs[number - 1] if entry and number else entry
            if counts and not _has_files_to_come(counts):
                return OutputState.COMPLETE
            break
    noted = _read_note(output, recipe.split)
    return OutputState.UNFINISHED if noted and noted.unlisted.is_same_content(recipe) else OutputState.NEW


def _read_note(output: str, split: str) -> Recipe | None:
    try:
        return read_note(output, split)
    except ConfigError as error:
        folder = join_path(output, state_folder(split))
        raise ConfigError(f"{folder} is not readable as an unfinished run. Delete it, and run again") from error


def _covers_labels(recipe: Recipe) -> bool:
    """Return True if files that a recipe has checksums of name all images and labels. Label files beside images have
    none, so a recipe stays the same when files are added."""
    return "sets" not in recipe.options and any(file.kind in _KINDS_OF_LABELS for file in recipe.inputs)


def _has_files_to_come(run: SplitManifest | Addition) -> bool:
    """Return True if a run had rejects of files that may be delivered, or mended, without a change of labels."""
    return not _OF_FILES.isdisjoint({*run.images.rejected, *run.annotations.rejected})


def _check_unfinished(output: str, recipes: Sequence[Recipe]) -> None:
    """Refuse to add while another run of the data set is unfinished: both would give the same ids to new classes, and
    the same numbers to new shards. A run that has failed is dropped."""
    ours, storage = {recipe.split: recipe for recipe in recipes}, storage_for(output)
    for split in unfinished_splits(output):
        noted = _read_note(output, split)
        if not (noted and split in ours and noted.unlisted.is_same_content(ours[split])):
            if storage.size(failure_path(output, split)) is not None:
                _LOGGER.warning("%s: another run of --add to %s has failed; its shards are deleted", output, split)
                storage.delete_folder(join_path(output, state_folder(split)))
                continue
            raise ConfigError(
                f"{output} has another unfinished run, of {split}. Wait until it ends, or run its command again to "
                f"finish it. If it will not be finished, delete {join_path(output, state_folder(split))}"
            )
