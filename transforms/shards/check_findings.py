"""Checks of the rows, before the first image is read."""

import logging
import os
import posixpath
import shlex
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from hashlib import blake2b
from typing import NamedTuple

import apache_beam as beam
import msgspec
from apache_beam.pvalue import AsIter, AsList
from apache_beam.utils.shared import Shared

from recordmill.schemas.command_texts import python_text
from recordmill.schemas.dataset.dataset_files import state_folder
from recordmill.schemas.dataset.manifest import MappedClass
from recordmill.schemas.errors import (
    CollidingImagesError,
    ConfigError,
    EmptyDatasetError,
    NoImageFoundError,
    TooManyRejectsError,
)
from recordmill.schemas.inputs.coco import AnnotationKind
from recordmill.schemas.names import NameSources, name_fault
from recordmill.schemas.paths import is_remote
from recordmill.schemas.rejects import REQUESTED_REASONS, Metric, Reason
from recordmill.schemas.shards import SplitSize
from recordmill.schemas.sizes import first_texts, number_text, size_text
from recordmill.transforms.dataset.compare_names import Names, describe_archives, describe_mismatch
from recordmill.transforms.dataset.dataset_folder import delete_state
from recordmill.transforms.dataset.facts import Facts, add_facts
from recordmill.transforms.dataset.rejects import (
    KindRejects,
    KindsBuilder,
    RejectKind,
    Rejects,
    rejects_paths,
    strip_key,
    tally_rejects,
    write_rejects,
)
from recordmill.transforms.join.match_blocks import base_name, match_names
from recordmill.transforms.shards.describe_split import Rows, check_rejects, is_over, total_rows
from recordmill.transforms.shards.shard_file import WrittenShard
from recordmill.transforms.storage.resolve import join_path, storage_for

_LOGGER = logging.getLogger(__name__)

_NOT_FOUND = (Reason.IMAGE_MISSING, Reason.UNSAFE_FILE_NAME)


class JobLimits(NamedTuple):
    """Limits of the findings of a job.

    Attributes:
        splits: Splits to write.
        sources: Sources of the names.
        max_rejects: Fraction of images, and of annotations, that may be rejected.
        output: Folder of the data set; empty if nothing is written.
        is_exact: See `check_space`.
        shares: Shares of the splits; empty if something else assigns the images.
        share_cure: Fix for a split that does not get its share.
        keywords: Annotations of keywords for messages, by name; empty to name flags.
        duplicates: Policy for duplicate images, see `recordmill.transforms.insight.across_splits.check_duplicates`.
        class_maps: Class map that may not drop all labels of a split, for a message, and the flag that lets it, if any.
            By data set, whose map it is; empty text for that of the job.
        joins_sets: True for several data sets, each of which may have a class map.
        keeps_state: True if other processes write other parts of the job, so that their shards stay after an error.
        base: With --add, `Manifest.sha256` of the manifest of each of these splits that the data set has; else None.
        other_images_cure: Fix for images that the data set has with other bytes.
    """

    splits: tuple[str, ...]
    sources: NameSources
    max_rejects: float
    output: str
    is_exact: bool
    shares: tuple[tuple[str, Fraction], ...] = ()
    share_cure: str = ""
    keywords: Mapping[str, str] = {}
    duplicates: str = "report"
    class_maps: Mapping[str, tuple[str, str]] = {}
    joins_sets: bool = False
    keeps_state: bool = False
    base: Mapping[str, str] | None = None
    other_images_cure: str = ""

    @property
    def grown(self) -> frozenset[str]:
        """Splits that the data set has already, to which the job adds."""
        return frozenset(self.base or ())


class CheckFindings(beam.PTransform):
    """Convert Findings to one dict with the Rows of each split, for the steps that read images. Warnings are logged.

    At run time, raises the errors of `check_findings`.
    """

    def __init__(self, limits: JobLimits):
        super().__init__()
        self._limits = limits

    def expand(self, findings):  # Findings has several PCollections: Beam accepts no type hints
        once = findings.facts.pipeline | "OnceFound" >> beam.Impulse()
        return once | "Check" >> beam.Map(_check_facts, self._limits, AsList(findings.facts), AsIter(findings.lists))


def _check_facts(_: bytes, limits: JobLimits, parts: list[Facts], lists: KindRejects) -> dict[str, Rows]:
    facts = add_facts(parts)
    rows = count_input_rows(limits.splits, facts)
    unit = next(iter(rows.values())).what
    findings = *disjoint_kinds(facts), *shared_files(facts), *missed_shares(limits, facts, unit), *repeated_data(facts)
    texts = {*(text for _, text in facts.warnings), *findings}
    for text in sorted(texts):  # may explain too many rejects
        _warn(limits, text)
    check_findings(limits, rows, facts, lists)
    check_other_images(limits, facts)
    check_mapped(limits, facts)
    check_tiles(limits, rows, facts)
    for text in lone_labels(limits, facts):
        _warn(limits, text)
    if limits.output:
        check_space(limits.output, facts.plans, limits.is_exact)
    return rows


def _warn(limits: JobLimits, text: str) -> None:
    _LOGGER.warning("%s", python_text(text, limits.keywords) if limits.keywords else text)


def lone_labels(limits: JobLimits, facts: Facts) -> Iterator[str]:
    """Yield a sentence for each split over half of whose label files have no image."""
    for split in limits.splits:
        rejects = facts.rejects.get((split, "image", Reason.LABEL_WITHOUT_IMAGE.value))
        total = facts.counts.get((split, Metric.LABEL_FILES.value), 0)
        if not rejects or 2 * rejects.number <= total:
            continue
        name = msgspec.json.decode(strip_key(rejects.first))["file_name"]
        folder, images = posixpath.dirname(name) or ".", first_texts(sorted(limits.sources.images), _SHOWN)
        yield (
            f"{', '.join(limits.sources.rows)}: {rejects.number:,} of {total:,} label files in {folder} have no image, "
            f"such as {name!r}. Images are read from {images}. Give the folder of all images by --images, or leave "
            "these label files out by --max-rejects 1"
        )


_SHOWN = 3
_SHARE_TOLERANCE = 0.02
_OVER = Metric.OVER_LIMIT, Metric.OVER_CLASS_LIMIT


def missed_shares(limits: JobLimits, facts: Facts, unit: str = "image") -> Iterator[str]:
    """Yield a sentence if a split gets more than 2 points, and a unit, more or less than its share; none if --limit or
    --max-per-class leave out images, because each split gets its limit, not its share."""
    if any(facts.counts.get((name, metric.value)) for name, _ in limits.shares for metric in _OVER):
        return
    planned = {name: size.images for name, size in facts.plans.items()}  # tiles, if images are divided
    divided = Metric.DIVIDED.value
    present = Metric.PRESENT.value
    images = {
        name: facts.counts.get((name, divided), planned.get(name, 0)) + facts.counts.get((name, present), 0)
        for name, _ in limits.shares
    }
    total = sum(images.values())
    wanted = {name: (float(share), images[name] - share * total) for name, share in limits.shares}
    missed = [
        f"{name} gets {images[name] / total:.1%}, not {share:.1%}"
        for name, (share, off) in wanted.items()
        if abs(off) >= 1 and abs(off) > _SHARE_TOLERANCE * total
    ]
    if missed:
        groups = sum(facts.counts.get((name, Metric.GROUPS.value), 0) for name in images)
        number, largest = facts.largest_group
        group_text = f". Each of {groups:,} groups stays in one split; {largest!r} has {number:,} {unit}s" * (
            groups > 0
        )
        fix = f". {limits.share_cure}" if limits.share_cure else ""
        yield f"--split: of {total:,} {unit}s, {'; '.join(missed)}{group_text}{fix}"


def shared_files(facts: Facts) -> Iterator[str]:
    """Yield a sentence if several image ids name one file."""
    if number := sum(number for (_, metric), number in facts.counts.items() if metric == Metric.SHARED_FILES.value):
        yield (
            f"{number:,} image ids name a file that another id names, so the file is in several records, each with "
            "the annotations of one id. Give each file one id, in all annotation files"
        )


_MAX_REPEATED_BYTES = 1 << 30


def repeated_data(facts: Facts) -> Iterator[str]:
    """Yield a sentence if tiles of Samples with `data` repeat many bytes of their images."""
    repeated = Metric.TILE_DATA_BYTES.value
    number = sum(number for (_, metric), number in facts.counts.items() if metric == repeated)
    if number > _MAX_REPEATED_BYTES:
        yield (
            f"tiles of Samples with data repeat {size_text(number)} of image bytes between workers, because each tile "
            "has its whole image. Write the images to files, and give Samples with path: a shard reads each file once"
        )


_MAX_SHARED_FRACTION = 0.25
_ANNOTATION_KINDS = {kind.value for kind in AnnotationKind} - {AnnotationKind.IMAGE_INFO.value}


def disjoint_kinds(facts: Facts) -> Iterator[str]:
    """Yield a sentence if annotation files of several kinds share few images, as those of two splits do; for each data
    set, if there are several."""
    if facts.sets:
        for name, set_facts in sorted(facts.sets.items()):
            yield from (f"{name}: {text}" for text in disjoint_kinds(set_facts))
        return
    images_by_kind: Counter[str] = Counter()
    for (_, _, kind), rows in facts.inputs.items():
        if kind in _ANNOTATION_KINDS:
            images_by_kind[kind] += rows.images
    merged = sum(number for (_, metric), number in facts.counts.items() if metric == Metric.ROWS_MERGED.value)
    if (
        len(images_by_kind) > 1
        and merged <= _MAX_SHARED_FRACTION * min(images_by_kind.values())
        and not any(shared_files(facts))
    ):
        kinds = ", ".join(f"{kind} {number:,}" for kind, number in sorted(images_by_kind.items()))
        yield (
            f"the annotation files share {merged:,} images (images of each kind: {kinds}), so they "
            "probably belong to different splits. Give the files of one split"
        )


def count_input_rows(splits: Iterable[str], facts: Facts) -> dict[str, Rows]:
    """Return the rows of each split. Rows of one image in two annotation files count once."""
    images: Counter[str] = Counter()
    annotations: Counter[str] = Counter()
    what = "image"
    for (split, _, kind), rows in facts.inputs.items():
        what = "row" if kind == "rows" else "image"
        images[split] += rows.images
        annotations[split] += rows.annotations
    merged = Metric.ROWS_MERGED.value
    return {
        split: Rows(images[split] - facts.counts.get((split, merged), 0), annotations[split], what) for split in splits
    }


def check_findings(limits: JobLimits, rows: dict[str, Rows], facts: Facts, lists: KindRejects) -> None:
    """Check that some images have their files, and the number of rejects. If there are too many, they are written to
    the state folders of the splits.

    Args:
        lists: Lists of the rejects.

    Raises:
        NoImageFoundError: No image has a file.
        ConfigError: Over half of the label files of a split have no image, and that is more than may be rejected.
        EmptyDatasetError: There is no image, or none for a split.
        TooManyRejectsError: See `describe_split.check_rejects`.
    """
    unit = next(iter(rows.values())).what
    tally, images, files = tally_rejects(facts.rejects.items()), facts.unmatched, facts.unlisted
    image_rejects = tally.reasons(unit)
    # If files name the images, or Samples name their files, no file is missing.
    is_matched = images.number and limits.sources.images
    not_found = sum(image_rejects.get(reason.value, 0) for reason in _NOT_FOUND) if is_matched else 0
    total = sum(split_rows.images for split_rows in rows.values())
    has_any_file = image_rejects.get(Reason.NO_GROUP.value, 0) > 0  # these images have a file
    if not_found and sum(image_rejects.values()) >= total and not has_any_file:
        raise NoImageFoundError(
            f"none of the {total} {unit}s has a file, so nothing is written: "
            f"{_mismatch_text(limits, images, files, is_all=True)}"
        )
    lone = sum(rejects.number for kind, rejects in facts.rejects.items() if kind[2] == Reason.LABEL_WITHOUT_IMAGE.value)
    if is_over(lone, total, limits.max_rejects) and (texts := list(lone_labels(limits, facts))):
        raise ConfigError(texts[0])
    nothing = "No image was read" if unit == "image" else "No shard was written"
    advice, are_disjoint = nothing, any(disjoint_kinds(facts))
    if not_found > limits.max_rejects * total and not are_disjoint:  # which is the cause
        advice = f"{_mismatch_text(limits, images, files, is_all=False)} {advice}"
    if limits.output:
        advice = f"They are listed in {rejects_paths(limits.output, limits.splits)}. {advice}"
    try:
        # Accepted rejects would leave images without the annotations of the other files.
        check_rejects(rows, tally, limits.max_rejects, limits.sources.rows, advice, may_accept=not are_disjoint)
        _check_splits(limits, rows)
    except EmptyDatasetError as error:
        for split in limits.splits if limits.output and not limits.keeps_state else ():
            delete_state(limits.output, split)
        if not total and (archive := describe_archives(files, limits.sources)):
            raise EmptyDatasetError(f"{error}. {archive}") from None
        raise
    except TooManyRejectsError:
        if limits.output:
            write_rejects(limits.output, limits.splits, lists)
        raise


def _check_splits(limits: JobLimits, rows: Mapping[str, Rows]) -> None:
    """Check that every split has an image, of the job or of the data set.

    Raises:
        EmptyDatasetError: A split has none.
    """
    total, shares = sum(split_rows.images for split_rows in rows.values()), dict(limits.shares)
    empty = next((name for name, own in rows.items() if not own.images and name not in limits.grown), None)
    if empty is None:
        return
    unit, sources = rows[empty].what, limits.sources.rows
    cures = [] if sources else ["give the same split= to the reading and the writing transform"]  # of Samples
    cures += ["give it a larger share"] if empty in shares else []
    if sources and empty not in shares:
        cures.append(f"{' '.join(map(shlex.quote, sources))} names this split. Add {unit}s to it there")
    cure = f"{', or '.join(cures)}, or leave it out"
    cure += f". {limits.share_cure}" if limits.share_cure and shares.get(empty, 0) * total >= 1 else ""
    raise EmptyDatasetError(f"split {empty} gets none of the {total:,} {unit}s: {cure}")


def check_other_images(limits: JobLimits, facts: Facts) -> None:
    """Check that images that the data set has are the same files.

    Raises:
        ConfigError: Some have other bytes, and --sync is not given.
    """
    if number := facts.other_images.number:
        names, has = first_texts(map(repr, facts.other_images.first), _SHOWN), "has" if number == 1 else "have"
        raise ConfigError(
            f"{number_text(number, 'image')} {has} the name of an image of the data set, and other bytes: {names}. "
            f"{limits.other_images_cure}"
        )


def check_mapped(limits: JobLimits, facts: Facts) -> None:
    """Check that each class map leaves labels in each split that has any.

    Raises:
        EmptyDatasetError: It drops all labels of a split.
    """
    by_split: dict[tuple[str, str], list[MappedClass]] = {}
    for (split, *_, data_set), mapped in sorted(facts.mapped.items()):
        by_split.setdefault((split, data_set if limits.joins_sets else ""), []).append(mapped)
    for (split, data_set), classes in by_split.items():
        names = [f"{mapped.name!r} ({mapped.labels:,})" for mapped in classes if mapped.labels]
        is_empty = names and not any(mapped.new_name and mapped.labels for mapped in classes)
        if is_empty and data_set in limits.class_maps and split not in limits.grown:
            class_map, flag = limits.class_maps[data_set]
            raise EmptyDatasetError(
                f"{f'set {data_set}: ' if data_set else ''}{class_map} drops all labels of the split {split}: "
                f"{first_texts(names, _SHOWN)}. Keep one of these classes{f', or add {flag}' if flag else ''}"
            )


def check_tiles(limits: JobLimits, rows: Mapping[str, Rows], facts: Facts) -> None:
    """Check that each split of divided images has a tile.

    Raises:
        EmptyDatasetError: --keep-empty skips all tiles of a split.
    """
    for split in limits.splits:
        number = facts.counts.get((split, Metric.WITHOUT_TILE.value), 0)
        if number and split not in facts.plans and split not in limits.grown:
            raise EmptyDatasetError(
                f"split {split} gets no tile: {number:,} of its {rows[split].images:,} images have no "
                "tile with an object. Use a smaller --tile-min-visible, or a larger --keep-empty, which writes tiles "
                "without objects, or leave the split out"
            )


def _mismatch_text(limits: JobLimits, images: Names, files: Names, is_all: bool) -> str:
    beside = _folder_of_rows(limits.sources, images.first[:3])
    sources = limits.sources
    has_ends = sources.match == "path" and sources.is_listed and _suffix_finds_all(images, files)
    return describe_mismatch(images, files, sources, beside, is_all, has_ends)


def _suffix_finds_all(images: Names, files: Names) -> bool:
    """Return True if --match suffix finds all compared files."""
    by_end: dict[str, tuple[list[str], list[str]]] = {}
    for side, names in enumerate((images.compared, files.compared)):
        for name in names:
            by_end.setdefault(base_name(name), ([], []))[side].append(name)
    try:
        num_matches = sum(len(match_names(*names, "suffix")) for names in by_end.values())
    except CollidingImagesError:
        return False
    return num_matches == len(images.compared) > 0


def _folder_of_rows(sources: NameSources, names: Iterable[str]) -> str:
    """Return the folder of a file that names images, if it has the images."""
    names = [name for name in names if not name_fault(name)]
    for path in sources.rows:
        folder = posixpath.dirname(path) or "."
        storage = storage_for(folder)
        if names and all(storage.size(join_path(folder, name)) is not None for name in names):
            return folder
    return ""


_MIN_PLAN_FRACTION = 0.8  # fraction of a plan, which includes later rejects and upper bounds of masks


def check_space(output: str, sizes: Mapping[str, SplitSize], is_exact: bool) -> None:
    """Check that the records of a plan fit the free space of the disk, and log a warning if they may not.

    Args:
        output: Folder of the data set. A bucket always has space.
        sizes: Planned size of each split. Finished shards of a resumed run are subtracted.
        is_exact: False if records may be much smaller than planned: compressed records, or transcoded images.

    Raises:
        ConfigError: The records do not fit.
    """
    if is_remote(output):
        return
    states = (os.path.join(output, state_folder(split)) for split in sizes)
    finished = (os.path.join(state, name) for state in states for name in storage_for(output).names(state))
    needed = sum(size.bytes for size in sizes.values()) - sum(map(os.path.getsize, finished))
    folder = os.path.abspath(output)
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    free = shutil.disk_usage(folder).free
    if needed <= free:
        return
    shortage = f"the shards take up to {size_text(needed)}, and the disk of {output} has {size_text(free)} free"
    fault = f"{shortage}. Free some space, or give another --output"
    if is_exact and _MIN_PLAN_FRACTION * needed > free:
        raise ConfigError(fault)
    _LOGGER.warning(fault)


MIN_LISTED_REJECTS = 100
"""Number of rejects that a job lists before it stops, so that one run shows more than one."""


class LimitRejects(beam.DoFn):
    """Stop a job with too many rejects. A runner fuses it with the step that reads images, so that its error ends both.
    Each process counts its own rejects, so many workers stop later than one.

    Side inputs are the output of CheckFindings, and the lists of rejects of earlier steps. Raises the errors of
    `RejectLimit.add`.
    """

    def __init__(self, limits: JobLimits):
        self._limits = limits
        self._shared = Shared()

    def setup(self):
        self._reject_limit = self._shared.acquire(lambda: RejectLimit(self._limits))

    def process(self, written: WrittenShard, rows: Mapping[str, Rows], earlier: KindRejects) -> None:
        for item in written.facts.rejects.items():
            self._reject_limit.add(item, rows, earlier)


class RejectLimit:
    """Rejects of a process. Rejects of a shard that is written again count once."""

    def __init__(self, limits: JobLimits):
        self._limits = limits
        self._seen: set[bytes] = set()
        self._builder = KindsBuilder()
        self._numbers: Counter[str] = Counter()
        self._earlier: Counter[str] | None = None

    def add(self, item: tuple[RejectKind, Rejects], rows: Mapping[str, Rows], earlier: KindRejects) -> None:
        """Add rejects; stop the job at too many.

        Args:
            item: Rejects of one kind of a shard.
            rows: Rows of each split.
            earlier: Rejects of earlier steps.

        Raises:
            TooManyRejectsError: More are rejected than allowed, and at least `MIN_LISTED_REJECTS` are known. The
                rejects are written to the state folders of the splits.
        """
        kind, rejects = item
        digest = blake2b(rejects.packed, digest_size=16).digest()
        if digest in self._seen:
            return
        self._seen.add(digest)
        self._builder.merge(kind, rejects)
        self._numbers[kind[1]] += rejects.number
        if self._is_over(rows, earlier):
            self._stop(rows, earlier)

    def _is_over(self, rows: Mapping[str, Rows], earlier: KindRejects) -> bool:
        """Return True if rejects exceed the limit, and enough of them are listed."""
        if max(self._numbers.values()) < MIN_LISTED_REJECTS:
            return False
        if self._earlier is None:
            self._earlier = Counter()
            for (_, what, reason), rejects in earlier:
                self._earlier[what] += 0 if reason in REQUESTED_REASONS else rejects.number
        return any(
            self._numbers[what] >= MIN_LISTED_REJECTS
            and is_over(self._numbers[what] + self._earlier[what], total, self._limits.max_rejects)
            for what, total in total_rows(rows).items()
        )

    def _stop(self, rows: Mapping[str, Rows], earlier: KindRejects) -> None:
        limits = self._limits
        for kind, rejects in earlier:
            self._builder.merge(kind, rejects)
        known = self._builder.build().items()
        write_rejects(limits.output, limits.splits, known)
        check_rejects(
            rows,
            tally_rejects(known),
            limits.max_rejects,
            limits.sources.rows,
            "The job stops before all images are read, because it cannot succeed any more. The rejects so far are in "
            f"{rejects_paths(limits.output, limits.splits)}. Finished shards are kept",
        )
