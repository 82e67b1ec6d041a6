"""Write the metadata of a finished job. The manifest comes last, and means that its splits are complete."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import chain
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec
from apache_beam.pvalue import AsIter, AsList, AsSideInput, PCollection

from recordmill.schemas.dataset.dataset_files import split_rejects
from recordmill.schemas.dataset.manifest import Manifest, SplitManifest, encode_json, manifest_of
from recordmill.schemas.dataset.recipes import Recipe
from recordmill.schemas.errors import JobError
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.image_records import split_images
from recordmill.schemas.inputs.encoders import TextEncoder
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.problems import split_fingerprints
from recordmill.schemas.rejects import RejectTally
from recordmill.schemas.shards import ShardInfo, ShardKey
from recordmill.schemas.statistics import SplitStatistics, Statistics, split_statistics
from recordmill.transforms.dataset.dataset_folder import (
    delete_old_files,
    delete_state,
    read_file,
    read_manifest,
    read_note,
    read_split_manifests,
)
from recordmill.transforms.dataset.facts import AddFacts, Facts, Findings, add_facts, add_statistics
from recordmill.transforms.dataset.rejects import KindRejects, RejectList, rejects_paths, tally_rejects, write_rejects
from recordmill.transforms.insight.across_splits import (
    FingerprintFile,
    check_complete_duplicates,
    check_duplicates,
    fingerprint_line,
    fingerprints_path,
)
from recordmill.transforms.insight.count_images import describe_statistics
from recordmill.transforms.insight.invert_statistics import invert_statistics
from recordmill.transforms.runtime.beam_steps import library_versions
from recordmill.transforms.shards.check_findings import JobLimits
from recordmill.transforms.shards.commit_splits import changes_path, check_base, commit_splits, finish_commit
from recordmill.transforms.shards.describe_split import (
    Rows,
    check_examples,
    check_limited_rejects,
    check_rejects,
    check_totals,
    class_counts,
    describe_split,
)
from recordmill.transforms.shards.grow_split import grow_split, without_rejects
from recordmill.transforms.shards.image_records import ImageLines, images_line, images_path
from recordmill.transforms.shards.line_file import LineFile
from recordmill.transforms.shards.shard_file import FinishedShards, WrittenShard, is_intact, shard_files
from recordmill.transforms.shards.take_out import NOTHING_REMOVED, Removed, add_removed, take_out
from recordmill.transforms.storage.interface import UnreadableFileError
from recordmill.transforms.storage.resolve import join_path, storage_for


class WriteMetadata(beam.PTransform):
    """Convert WrittenShard to a PCollection of one Manifest, when all files are in place.

    Args:
        findings: Findings of earlier steps.
        recipes: One per split.
        sides: Labels, table and encoders of `write_metadata`, as side inputs.
        write: Function that writes something else, with a JobReport and the sides as arguments.
        copies: A PCollection of (ShardKey, note) of further shards, whose facts are those of `removed`; None without.
        more: Further arguments of `write` by name, which may be side inputs.
    """

    def __init__(
        self,
        findings: Findings,
        recipes: Sequence[Recipe],
        limits: JobLimits,
        sides: Mapping[str, AsSideInput],
        write: Callable[..., Any] | None = None,
        copies: PCollection | None = None,
        **more: Any,
    ):
        super().__init__()
        self._copies = copies
        self._findings, self._recipes, self._limits = findings, tuple(recipes), limits
        self._sides, self._write = {**sides, **more}, write or _write_job_metadata

    def expand(self, written: PCollection[WrittenShard]):
        facts = written | "FactsOfShards" >> beam.Map(attrgetter("facts")).with_output_types(Facts)
        added = (facts,) | "AddFacts" >> AddFacts()
        notes = written | "Notes" >> beam.FlatMap(_keyed_notes).with_output_types(tuple[ShardKey, str])
        if self._copies is not None:
            notes = (notes, self._copies) | "AllNotes" >> beam.Flatten()
        parts = self._findings, added  # flattened, they would be a stage of their own
        sides = *(AsList(part.facts) for part in parts), *(AsIter(part.lists) for part in parts), AsList(notes)
        write = beam.Map(_write_report, self._write, self._recipes, self._limits, *sides, **self._sides)
        return written.pipeline | "Once" >> beam.Impulse() | "Write" >> write


def _keyed_notes(written: WrittenShard) -> list[tuple[ShardKey, str]]:
    return [(written.key, written.note)] if written.note else []


class JobReport(NamedTuple):
    """Findings of a job when its shards are written.

    Attributes:
        recipes: One per split, with listings.
        step_facts, step_lists: Facts of the steps before the shards, and lists of their rejects.
        shard_facts, shard_lists: The same of the shards.
        notes: Notes of the shards, see WrittenShard.
    """

    recipes: tuple[Recipe, ...]
    limits: JobLimits
    step_facts: Facts
    shard_facts: Facts
    step_lists: KindRejects
    shard_lists: KindRejects
    notes: list[tuple[ShardKey, str]]


# Long list of arguments: two parts of facts and of lists of rejects.
def _write_report(
    _: bytes,
    write: Callable[..., Any],
    recipes: tuple[Recipe, ...],
    limits: JobLimits,
    step_facts: list[Facts],
    shard_facts: list[Facts],
    step_lists: KindRejects,
    shard_lists: KindRejects,
    notes: list[tuple[ShardKey, str]],
    **sides: Any,
) -> Any:
    facts = add_facts(step_facts)
    listed = tuple(recipe.with_listings(facts.listings) for recipe in recipes)
    return write(JobReport(listed, limits, facts, add_facts(shard_facts), step_lists, shard_lists, notes), **sides)


def _write_job_metadata(report: JobReport, **sides: Any) -> Manifest:
    facts = add_facts([report.step_facts, report.shard_facts])
    lists = chain(report.step_lists, report.shard_lists)
    return write_metadata(report.recipes, report.limits, facts, report.notes, lists, **sides)


# Long list of arguments: three options of the job, five parts of what it found, and three side inputs. A long function:
# each check needs the entries of all splits.
def write_metadata(
    recipes: Sequence[Recipe],
    limits: JobLimits,
    facts: Facts,
    notes: Iterable[tuple[ShardKey, str]],
    lists: KindRejects,
    labels: LabelMap,
    table: FeatureTable,
    encoders: Iterable[TextEncoder] = (),
    changes: Mapping[str, bytes] = MappingProxyType({}),
    removed: Iterable[Removed] = (),
    prune: bool = False,
) -> Manifest:
    """Check the splits and commit them with their metadata.

    After an error, each split's rejects are in its state folder, and an earlier version of the split stays.

    Args:
        recipes: One per split.
        facts: Facts of all steps.
        notes: Notes of all shards, see WrittenShard.
        lists: Lists of rejects, with their lines.
        changes: Contents of the file of changes of each split that has some, see `split_changes`.
        removed: Images of the data set that the run has written again.
        prune: True to delete the shards that had these images.

    Raises:
        DuplicatesError: See `check_duplicates`. The shards stay, and so do the splits if another job has written its
            own meanwhile.
        EmptyDatasetError, TooManyRejectsError: See `describe_split.check_rejects` and `check_examples`. The shards
            stay.
        LostImagesError: See `describe_split.check_totals`.
        CategoryError, JobError: See `commit_splits`; or the note of a shard is missing, and no other run of the same
            job has committed the splits; or a run with another recipe has started, and will replace the splits.
    """
    output, gone = limits.output, add_removed(removed)
    check_notes(output, recipes)
    recipes = [recipe.of_layout(table.layout) for recipe in recipes]  # Samples of a pipeline may decide it
    try:
        base = _read_base(recipes, limits)
        earlier = {
            split: read_list(output, split_rejects(split), entry.rejects_sha256) for split, entry in base.items()
        }
        written = {
            recipe.split: _written_names(output, recipe, notes) for recipe in recipes if earlier.get(recipe.split)
        }
        rejects = write_rejects(output, [recipe.split for recipe in recipes], lists, earlier, written)
        base |= {split: without_rejects(base[split], rejects[split].repeated) for split in rejects if split in base}
        shards = {recipe.split: read_notes(output, recipe, notes, base.get(recipe.split), gone) for recipe in recipes}
    except JobError:
        if committed := committed_by_another(recipes, limits):
            return committed
        raise
    runs, splits, files = {}, {}, {}
    for recipe in recipes:
        split = recipe.split
        counts = class_counts(split, labels, facts)
        own = facts.statistics.get(split, Statistics())
        statistics: Statistics | None = own
        run = runs[split] = describe_split(recipe, facts, rejects[split], counts, b"", *shards[split])
        if split in changes:
            storage_for(output).write(changes_path(output, split), changes[split])
            run = msgspec.structs.replace(run, changes_sha256=sha256(changes[split]).hexdigest())
        if split in base:
            if gone.files.get(split) and not prune:
                run = msgspec.structs.replace(run, replaced_shards=tuple(gone.files[split]))
            run, statistics = _grow(output, base[split], gone, run, own, table)
        splits[split], files[split] = _with_statistics(run, statistics, labels, table)
        check_totals(splits[split], table)
    _check_splits(recipes, limits, runs, base.keys(), rejects, tally_rejects(facts.rejects.items()))
    planned = {name: facts.plans[name].images for name in runs if name in facts.plans}
    check_limited_rejects(runs, planned, limits.max_rejects, rejects_paths(output, splits))
    compared: set[str] = set()
    if limits.duplicates != "report":
        fingerprints = {
            split: FingerprintFile(fingerprints_path(output, split))
            for split, entry in splits.items()
            if entry.fingerprints_sha256 is not msgspec.UNSET
        }
        compared = check_duplicates(output, fingerprints, table, limits.duplicates)
    encoders = sorted(encoders, key=attrgetter("column"))
    infos = tuple(encoder.info for encoder in encoders)
    manifest = manifest_of(recipes[0].name, labels, table, dict(sorted(splits.items())), infos)
    try:
        whole = commit_splits(output, manifest, files, encoders, limits.base)
    except JobError:
        if limits.base is not None and (committed := committed_by_another(recipes, limits)):
            return committed
        raise
    if compared and not whole.splits.keys() <= compared:  # another job has added a split meanwhile
        check_complete_duplicates(output, splits, whole.table, limits.duplicates)
    return whole


def _read_base(recipes: Sequence[Recipe], limits: JobLimits) -> dict[str, SplitManifest]:
    """Return the entries of the splits that the job adds to.

    Raises:
        JobError: See `check_base`.
    """
    if limits.base is None:
        return {}
    manifests = read_split_manifests(limits.output)
    check_base(limits.output, [recipe.split for recipe in recipes], limits.base, manifests)
    return {split: manifests[split].splits[split] for split in limits.base}


def read_list(output: str, file: str, sha256_: str) -> bytes:
    """Return a file of a split that grows.

    Raises:
        JobError: Its digest is another one.
    """
    data = read_file(output, file)
    if data is None or sha256(data).hexdigest() != sha256_:
        raise _changed_list(output, file)
    return data


def _changed_list(output: str, file: str) -> JobError:
    return JobError(
        f"{join_path(output, file)} is missing or has changed since it was written, so nothing can be added to it. "
        "Restore it, or convert all data with --overwrite"
    )


def _grow(
    output: str, base: SplitManifest, gone: Removed, run: SplitManifest, statistics: Statistics, table: FeatureTable
) -> tuple[SplitManifest, Statistics | None]:
    """Return entry and statistics of a split with those of a run, and without images that are gone; None for a split
    whose statistics are unknown."""
    earlier = Statistics()
    if base.statistics_sha256 is not msgspec.UNSET:
        data = read_list(output, split_statistics(base.recipe.split), base.statistics_sha256)
        earlier = invert_statistics(msgspec.json.decode(data, type=SplitStatistics), table)
    before = base.images.replaced
    if gone.files.get(base.recipe.split):
        base, earlier = take_out(base, earlier, gone)
    grown = grow_split(base, run, base.images.replaced - before)
    is_known = base.statistics_sha256 is not msgspec.UNSET
    return grown, add_statistics(earlier, statistics) if is_known else None


def _with_statistics(
    entry: SplitManifest, statistics: Statistics | None, labels: LabelMap, table: FeatureTable
) -> tuple[SplitManifest, bytes | None]:
    """Return the entry with the digest of its statistics, and the statistics as JSON."""
    if statistics is None:
        return msgspec.structs.replace(entry, statistics_sha256=msgspec.UNSET), None
    data = encode_json(describe_statistics(statistics, labels, table, entry.class_counts))
    return msgspec.structs.replace(entry, statistics_sha256=sha256(data).hexdigest()), data


def check_notes(output: str, recipes: Iterable[Recipe]) -> bool:
    """Return True if the folder has the noted recipe of one of the splits at least.

    Raises:
        JobError: It has another recipe.
    """
    noted = {recipe.split: (read_note(output, recipe.split), recipe) for recipe in recipes}
    for split, (note, recipe) in noted.items():
        if note and not note.unlisted.is_same_content(recipe.unlisted):
            raise JobError(
                f"{output}: another job has begun to write {split} with other options, before this job finished a "
                "shard. Give this job another --output"
            )
    return any(note for note, _ in noted.values())


def committed_by_another(recipes: Sequence[Recipe], limits: JobLimits) -> Manifest | None:
    """Return the folder's manifest if another run of the same job has committed all splits, and delete the state of
    this run; otherwise None.

    Raises:
        DuplicatesError: See `check_complete_duplicates`.
    """
    output = limits.output
    if limits.base is not None:
        finish_commit(output)  # the other run may be in the middle of its commit
    manifest = read_manifest(output)
    if manifest is None or not all(is_committed(output, recipe, manifest) for recipe in recipes):
        return None
    splits = [recipe.split for recipe in recipes]
    for split in splits:
        delete_old_files(output, manifest.splits[split])
    if limits.duplicates != "report":
        check_complete_duplicates(output, splits, manifest.table, limits.duplicates)
    return manifest


def is_committed(output: str, recipe: Recipe, manifest: Manifest) -> bool:
    """Return True if the split of this recipe and these versions is complete."""
    split = manifest.splits.get(recipe.split)
    if split is None:
        return False
    runs = [(split.recipe, split.made_by), *((run.recipe, run.made_by) for run in split.runs)]
    if (recipe, library_versions(recipe.layout, recipe.container)) not in runs:
        return False
    files = {name: file for shard in split.shards for name, file in shard_files(shard).items()}
    return all(is_intact(storage_for(output), join_path(output, name), file) for name, file in files.items())


def read_notes(
    output: str,
    recipe: Recipe,
    notes: Iterable[tuple[ShardKey, str]],
    base: SplitManifest | None = None,
    gone: Removed = NOTHING_REMOVED,
) -> tuple[list[ShardInfo], str | msgspec.UnsetType, str | msgspec.UnsetType]:
    """Read the notes of a split's shards one after the other, and write their fingerprints and images to its state
    folder; return the shards, and the SHA-256 of the fingerprints and of the images.

    Args:
        base: Entry of a split that grows. Its fingerprints and images come first. Shards without records are left out,
            and the line before has their images.
        gone: Images of the split that are written again. Its shards that had one are left out.

    Raises:
        JobError: A note is missing, or a list of `base` has changed.
    """
    finished = FinishedShards(output, recipe.name, recipe.layout, recipe.container)
    infos = []
    with (
        LineFile(output, fingerprints_path(output, recipe.split)) as fingerprints,
        ImageLines(output, images_path(output, recipe.split)) as images,
    ):
        has_fingerprints = has_images = True
        if base:
            split, files = recipe.split, gone.files.get(recipe.split, ())
            list_file, digest = split_fingerprints(split), base.fingerprints_sha256
            has_fingerprints = _copy_list(output, list_file, digest, fingerprints, files)
            has_images = _copy_list(output, split_images(split), base.images_sha256, images, files)
        for key, note in sorted(keyed for keyed in notes if keyed[0].split == recipe.split):
            result = finished.result(key, note)
            if base and not result.info.examples:
                if result.images and has_images:
                    images.add_to_last(result.images)
                continue
            infos.append(result.info)
            if result.fingerprints and has_fingerprints:
                fingerprints.write(fingerprint_line(result.fingerprints))
            if result.images and has_images:
                images.write(images_line(result.images))
    return infos, fingerprints.sha256, images.sha256


def _written_names(output: str, recipe: Recipe, notes: Iterable[tuple[ShardKey, str]]) -> set[str]:
    """Return the file names of the images that a run has written to a split."""
    finished, names = FinishedShards(output, recipe.name, recipe.layout, recipe.container), set[str]()
    for key, note in notes:
        if key.split == recipe.split and (images := finished.result(key, note).images):
            _, wholes = images.image_names()
            numbers = images.array["records"].tolist()
            names.update(name for name, number in zip(wholes, numbers, strict=True) if number)
    return names


class _LineOfShard(msgspec.Struct, frozen=True):
    """Shard of a line of fingerprints or of images."""

    shard: str


_LINE = msgspec.json.Decoder(_LineOfShard)


def _copy_list(
    output: str, file: str, sha256_: str | msgspec.UnsetType, lines: LineFile, without: Collection[str]
) -> bool:
    """Copy a list of a split that grows, but for the lines of some shards. Return False if the split has none.

    Raises:
        JobError: The digest of the list is another one.
    """
    if sha256_ is msgspec.UNSET:
        return False
    shards, digest = frozenset(without), sha256()
    try:
        with storage_for(output).open(join_path(output, file)) as stored:
            for line in stored:
                digest.update(line)
                if not shards or _LINE.decode(line).shard not in shards:
                    lines.write(line)
    except (FileNotFoundError, UnreadableFileError, msgspec.DecodeError) as error:
        raise _changed_list(output, file) from error
    if digest.hexdigest() != sha256_:
        raise _changed_list(output, file)
    return True


def _check_splits(
    recipes: Sequence[Recipe],
    limits: JobLimits,
    splits: Mapping[str, SplitManifest],
    grown: Collection[str],
    rejects: Mapping[str, RejectList],
    rejected: RejectTally,
) -> None:
    what, paths = recipes[0].unit, rejects_paths(limits.output, splits)
    check_rejects(
        {name: Rows(split.images.rows, split.annotations.rows, what) for name, split in splits.items()},
        rejected,
        limits.max_rejects,
        [file.path for recipe in recipes for file in recipe.inputs],
        f"They are listed in {paths}. The shards are kept",
    )
    new = {name: split for name, split in splits.items() if name not in grown}
    for name, split in new.items():
        if not split.examples:
            delete_state(limits.output, name)
    check_examples(new, rejects, paths)
