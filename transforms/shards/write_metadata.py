"""Write the metadata of a finished job. The manifest comes last, and means that its splits are complete."""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec
from apache_beam.pvalue import AsIter, AsList, PCollection

from recordmill.schemas.dataset.manifest import Manifest, SplitManifest, encode_json, manifest_of
from recordmill.schemas.dataset.recipes import Recipe
from recordmill.schemas.errors import JobError, rename_flags_in_errors
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.inputs.encoders import TextEncoder
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.rejects import RejectTally
from recordmill.schemas.shards import ShardInfo, ShardKey
from recordmill.schemas.statistics import Statistics
from recordmill.transforms.dataset.dataset_folder import delete_old_files, delete_state, read_manifest, read_note
from recordmill.transforms.dataset.facts import AddFacts, Facts, Findings, add_facts
from recordmill.transforms.dataset.rejects import KindRejects, RejectList, rejects_paths, tally_rejects, write_rejects
from recordmill.transforms.insight.across_splits import (
    FingerprintFile,
    check_complete_duplicates,
    check_duplicates,
    fingerprint_line,
    fingerprints_path,
)
from recordmill.transforms.insight.count_images import describe_statistics
from recordmill.transforms.runtime.beam_steps import library_versions
from recordmill.transforms.shards.commit_splits import commit_splits
from recordmill.transforms.shards.describe_split import (
    Rows,
    check_examples,
    check_rejects,
    check_whole,
    class_counts,
    describe_split,
)
from recordmill.transforms.shards.shard_file import FinishedShards, WrittenShard, is_whole, moves
from recordmill.transforms.storage.resolve import join_path, storage_for


class Target(NamedTuple):
    """Requirements of a job.

    Attributes:
        recipes: One per split.
        output: Folder of the data set.
        max_rejects: Fraction of images, and of annotations, that may be rejected.
        duplicates: Policy for duplicate images, see `check_duplicates`.
        words: See `Demands`.
    """

    recipes: tuple[Recipe, ...]
    output: str
    max_rejects: float
    duplicates: str = "report"
    words: Mapping[str, str] = {}


@dataclass(eq=False, repr=False)
class WriteMetadata(beam.PTransform):
    """Convert WrittenShard to a PCollection of one Manifest, when all files are in place.

    Args:
        findings: Findings of earlier steps.
        sides: Labels, table and encoders of `write_metadata`, as side inputs.
    """

    findings: Findings
    target: Target
    sides: Mapping[str, Any]

    def expand(self, written: PCollection[WrittenShard]):
        facts = written | "FactsOfShards" >> beam.Map(attrgetter("facts")).with_output_types(Facts)
        added = (facts,) | "AddFacts" >> AddFacts()
        notes = written | "Notes" >> beam.FlatMap(_notes).with_output_types(tuple[ShardKey, str])
        parts = self.findings, added  # flattened, they would be a stage of their own
        sides = *(AsList(part.facts) for part in parts), *(AsIter(part.lists) for part in parts), AsList(notes)
        write = beam.Map(_write, self.target, *sides, **self.sides)
        return written.pipeline | "Once" >> beam.Impulse() | "Write" >> write


def _notes(written: WrittenShard) -> list[tuple[ShardKey, str]]:
    return [(written.key, written.note)] if written.note else []


# Long list of arguments: two parts of facts and of lists of rejects.
def _write(
    _: bytes,
    target: Target,
    found: list[Facts],
    of_shards: list[Facts],
    lists: KindRejects,
    lists_of_shards: KindRejects,
    notes: list[tuple[ShardKey, str]],
    **more: Any,
) -> Manifest:
    facts = add_facts([*found, *of_shards])
    recipes = tuple(recipe.with_listings(facts.listings) for recipe in target.recipes)
    with rename_flags_in_errors(target.words):
        return write_metadata(target._replace(recipes=recipes), facts, notes, chain(lists, lists_of_shards), **more)


def write_metadata(
    target: Target,
    facts: Facts,
    notes: Iterable[tuple[ShardKey, str]],
    lists: KindRejects,
    labels: LabelMap,
    table: FeatureTable,
    encoders: Iterable[TextEncoder] = (),
) -> Manifest:
    """Check the splits and commit them with their metadata.

    After an error, each split's rejects are in its state folder, and an earlier version of the split stays.

    Args:
        facts: Facts of all steps.
        notes: Notes of all shards, see WrittenShard.
        lists: Lists of rejects, with their lines.

    Raises:
        DuplicatesError: See `check_duplicates`. The shards stay, and so do the splits if another job has written its
            own meanwhile.
        EmptyDatasetError, TooManyRejectsError: See `describe_split.check_rejects` and `check_examples`. The shards
            stay.
        LostImagesError: See `describe_split.check_whole`.
        CategoryError, JobError: See `commit_splits`; or the note of a shard is missing, and no other run of the same
            job has committed the splits; or a run with another recipe has started, and will replace the splits.
    """
    for recipe in target.recipes:
        noted = read_note(target.output, recipe.split)
        if noted and not noted.unlisted.is_same_content(recipe.unlisted):
            raise JobError(
                f"{target.output}: another job has begun to write {recipe.split} otherwise, before this one had a "
                "finished shard; give this one another --output"
            )
    rejects = write_rejects(target.output, [recipe.split for recipe in target.recipes], lists)
    try:
        shards = {recipe.split: read_notes(target.output, recipe, notes) for recipe in target.recipes}
    except JobError:
        if whole := _committed_by_another(target):
            return whole
        raise
    splits, files = {}, {}
    for recipe in target.recipes:
        split = recipe.split
        counts = class_counts(split, labels, facts)
        statistics = describe_statistics(facts.statistics.get(split, Statistics()), labels, table, counts)
        files[split] = encode_json(statistics)
        splits[split] = describe_split(recipe, facts, rejects[split], counts, files[split], *shards[split])
        check_whole(splits[split], table)
    _check(target, splits, rejects, tally_rejects(facts.rejects.items()))
    compared: set[str] = set()
    if target.duplicates != "report":
        fingerprints = {
            split: FingerprintFile(fingerprints_path(target.output, split))
            for split, entry in splits.items()
            if entry.fingerprints_sha256 is not msgspec.UNSET
        }
        compared = check_duplicates(target.output, fingerprints, table, target.duplicates)
    encoders = sorted(encoders, key=attrgetter("column"))
    infos = tuple(encoder.info for encoder in encoders)
    manifest = manifest_of(target.recipes[0].name, labels, table, dict(sorted(splits.items())), infos)
    whole = commit_splits(target.output, manifest, files, encoders)
    if compared and not whole.splits.keys() <= compared:  # another job has added a split meanwhile
        check_complete_duplicates(target.output, splits, whole.table, target.duplicates)
    return whole


def _committed_by_another(target: Target) -> Manifest | None:
    """Return the folder's manifest if another run of the same job has committed all splits, and delete the state of
    this run; otherwise None.

    Raises:
        DuplicatesError: See `check_complete_duplicates`.
    """
    manifest = read_manifest(target.output)
    if manifest is None or not all(_is_committed(target.output, recipe, manifest) for recipe in target.recipes):
        return None
    splits = [recipe.split for recipe in target.recipes]
    for split in splits:
        delete_old_files(target.output, manifest.splits[split])
    if target.duplicates != "report":
        check_complete_duplicates(target.output, splits, manifest.table, target.duplicates)
    return manifest


def _is_committed(output: str, recipe: Recipe, manifest: Manifest) -> bool:
    """Return True if the split of this recipe and these versions is complete."""
    split = manifest.splits.get(recipe.split)
    if split is None or (split.recipe, split.made_by) != (recipe, library_versions(recipe.layout)):
        return False
    files = [move for shard in split.shards for move in moves(recipe.split, shard)]
    return all(is_whole(storage_for(output), join_path(output, move.target), move.file) for move in files)


def read_notes(
    output: str, recipe: Recipe, notes: Iterable[tuple[ShardKey, str]]
) -> tuple[list[ShardInfo], str | msgspec.UnsetType]:
    """Read the notes of a split's shards one after the other, and write their fingerprints to its state folder; return
    the shards, and the SHA-256 of the fingerprints.

    Raises:
        JobError: A note is missing.
    """
    finished = FinishedShards(output, recipe.name, recipe.layout)
    infos, digest, upload = [], sha256(), None
    with ExitStack() as stack:
        for key, note in sorted(each for each in notes if each[0].split == recipe.split):
            result = finished.result(key, note)
            infos.append(result.info)
            if result.fingerprints:
                if upload is None:
                    writing = storage_for(output).writing(fingerprints_path(output, recipe.split), output)
                    upload = stack.enter_context(writing)
                line = fingerprint_line(result.fingerprints)
                digest.update(line)
                upload.write(line)
    return infos, digest.hexdigest() if upload else msgspec.UNSET


def _check(
    target: Target, splits: Mapping[str, SplitManifest], rejects: Mapping[str, RejectList], rejected: RejectTally
) -> None:
    what, paths = target.recipes[0].unit, rejects_paths(target.output, splits)
    check_rejects(
        {name: Rows(split.images.rows, split.annotations.rows, what) for name, split in splits.items()},
        rejected,
        target.max_rejects,
        [file.path for recipe in target.recipes for file in recipe.inputs],
        f"They are listed in {paths}. The shards are kept",
    )
    for name, split in splits.items():
        if not split.examples:
            delete_state(target.output, name)
    check_examples(splits, rejects, paths)
