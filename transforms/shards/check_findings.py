"""Checks of the rows, before the first image is read."""

import logging
import os
import posixpath
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from hashlib import blake2b
from typing import NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsIter, AsList
from apache_beam.utils.shared import Shared

from recordmill.schemas.dataset.dataset_files import state_folder
from recordmill.schemas.errors import (
    CollidingImagesError,
    ConfigError,
    EmptyDatasetError,
    NoImageFoundError,
    TooManyRejectsError,
    rename_flags_in_errors,
    without_flags,
)
from recordmill.schemas.inputs.coco import AnnotationKind
from recordmill.schemas.names import NameSources, name_fault
from recordmill.schemas.rejects import REQUESTED_REASONS, Metric, Reason
from recordmill.schemas.shards import SplitSize
from recordmill.schemas.sizes import size_text
from recordmill.transforms.dataset.compare_names import Names, describe_archives, describe_mismatch
from recordmill.transforms.dataset.dataset_folder import delete_state
from recordmill.transforms.dataset.facts import Facts, add_facts
from recordmill.transforms.dataset.rejects import (
    KindRejects,
    KindsBuilder,
    RejectKind,
    Rejects,
    rejects_paths,
    tally_rejects,
    write_rejects,
)
from recordmill.transforms.join.match_blocks import base_name, match_names
from recordmill.transforms.shards.describe_split import Rows, check_rejects, is_over, rows_of_all
from recordmill.transforms.shards.shard_file import WrittenShard
from recordmill.transforms.storage.interface import is_remote
from recordmill.transforms.storage.resolve import join_path, storage_for

_LOGGER = logging.getLogger(__name__)

_NOT_FOUND = (Reason.IMAGE_MISSING, Reason.UNSAFE_FILE_NAME)


class Demands(NamedTuple):
    """Limits of the findings.

    Attributes:
        splits: Splits to write.
        sources: Sources of the names.
        max_rejects: Fraction of images, and of annotations, that may be rejected.
        output: Folder of the data set; empty if nothing is written.
        is_exact: See `check_space`.
        shares: Shares of the splits; empty if something else assigns the images.
        share_cure: Fix for a split that does not get its share.
        words: Names of options in messages, by their flags; flags stay where it has none.
    """

    splits: tuple[str, ...]
    sources: NameSources
    max_rejects: float
    output: str
    is_exact: bool
    shares: tuple[tuple[str, Fraction], ...] = ()
    share_cure: str = ""
    words: Mapping[str, str] = {}


@dataclass(eq=False, repr=False)
class CheckFindings(beam.PTransform):
    """Convert Findings to one dict with the Rows of each split, for the steps that read images. Warnings are logged.

    At run time, raises the errors of `check_findings`.
    """

    demands: Demands

    def expand(self, found):  # Findings has several PCollections: Beam accepts no type hints
        once = found.facts.pipeline | "OnceFound" >> beam.Impulse()
        return once | "Check" >> beam.Map(_check, self.demands, AsList(found.facts), AsIter(found.lists))


def _check(_: bytes, demands: Demands, parts: list[Facts], lists: KindRejects) -> dict[str, Rows]:
    facts = add_facts(parts)
    rows = count_rows(demands.splits, facts)
    unit = next(iter(rows.values())).what
    findings = *kinds_apart(facts), *shared_files(facts), *missed_shares(demands, facts, unit)
    texts = {*(text for _, text in facts.warnings), *findings}
    for text in sorted(texts):  # may explain too many rejects
        _LOGGER.warning(without_flags(text, demands.words))
    with rename_flags_in_errors(demands.words):
        check_findings(demands, rows, facts, lists)
        if demands.output:
            check_space(demands.output, facts.plans, demands.is_exact)
    return rows


_SHARE_OFF = 0.02


def missed_shares(demands: Demands, facts: Facts, unit: str = "image") -> Iterator[str]:
    """Yield a sentence if a split gets more than 2 points, and a unit, more or less than its share."""
    images = {name: facts.plans[name].images if name in facts.plans else 0 for name, _ in demands.shares}
    total = sum(images.values())
    wanted = {name: (float(share), images[name] - share * total) for name, share in demands.shares}
    missed = [
        f"{name} gets {images[name] / total:.1%}, not {share:.1%}"
        for name, (share, off) in wanted.items()
        if abs(off) >= 1 and abs(off) > _SHARE_OFF * total
    ]
    if missed:
        groups = sum(facts.counts.get((name, Metric.GROUPS.value), 0) for name in images)
        number, largest = facts.largest_group
        of_groups = f". Each of {groups:,} groups stays in one split; {largest!r} has {number:,} {unit}s" * (groups > 0)
        cure = f". {demands.share_cure}" if demands.share_cure else ""
        yield f"--split: of {total:,} {unit}s, {'; '.join(missed)}{of_groups}{cure}"


def shared_files(facts: Facts) -> Iterator[str]:
    """Yield a sentence if several image ids name one file."""
    if number := sum(number for (_, metric), number in facts.counts.items() if metric == Metric.SHARED_FILES.value):
        yield (
            f"{number:,} image ids name a file that another id names, so the file is in several records, each with "
            "the annotations of one id: give each file one id, in all annotation files"
        )


_MOST_APART = 0.25
_OF_ANNOTATIONS = {kind.value for kind in AnnotationKind} - {AnnotationKind.IMAGE_INFO.value}


def kinds_apart(facts: Facts) -> Iterator[str]:
    """Yield a sentence if annotation files of several kinds share few images, as those of two splits do."""
    of_kind: Counter[str] = Counter()
    for (_, _, kind), rows in facts.inputs.items():
        if kind in _OF_ANNOTATIONS:
            of_kind[kind] += rows.images
    merged = sum(number for (_, metric), number in facts.counts.items() if metric == Metric.ROWS_MERGED.value)
    if len(of_kind) > 1 and merged <= _MOST_APART * min(of_kind.values()) and not any(shared_files(facts)):
        kinds = ", ".join(f"{kind} {number:,}" for kind, number in sorted(of_kind.items()))
        yield (
            f"the annotation files share {merged:,} images (images in each kind: {kinds}), as if they were of "
            "different splits: give files of one split"
        )


def count_rows(splits: Iterable[str], facts: Facts) -> dict[str, Rows]:
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


def check_findings(demands: Demands, rows: dict[str, Rows], facts: Facts, lists: KindRejects) -> None:
    """Check that some images have their files, and the number of rejects. If there are too many, they are written to
    the state folders of the splits.

    Args:
        lists: Lists of the rejects.

    Raises:
        NoImageFoundError: No image has a file.
        EmptyDatasetError, TooManyRejectsError: See `describe_split.check_rejects`.
    """
    unit = next(iter(rows.values())).what
    tally, images, files = tally_rejects(facts.rejects.items()), facts.unmatched, facts.unlisted
    of_images = tally.reasons(unit)
    # If files name the images, or Samples name their files, no file is missing.
    is_looked_up = images.number and demands.sources.images
    not_found = sum(of_images.get(reason.value, 0) for reason in _NOT_FOUND) if is_looked_up else 0
    total = sum(of_split.images for of_split in rows.values())
    is_any_found = of_images.get(Reason.NO_GROUP.value, 0) > 0  # these images have a file
    if not_found and sum(of_images.values()) >= total and not is_any_found:
        raise NoImageFoundError(
            f"none of the {total} {unit}s has a file in --images, so nothing is written: "
            f"{_compared(demands, images, files, is_all=True)}"
        )
    nothing = "No image was read" if unit == "image" else "No shard was written"
    advice, are_apart = nothing, any(kinds_apart(facts))
    if not_found > demands.max_rejects * total and not are_apart:  # which is the cause
        advice = f"{_compared(demands, images, files, is_all=False)} {advice}"
    if demands.output:
        advice = f"They are listed in {rejects_paths(demands.output, demands.splits)}. {advice}"
    try:
        # Accepted rejects would leave images without the annotations of the other files.
        check_rejects(rows, tally, demands.max_rejects, demands.sources.rows, advice, may_accept=not are_apart)
    except EmptyDatasetError as error:
        for split in demands.splits if demands.output else ():
            delete_state(demands.output, split)
        if not total and (archive := describe_archives(files, demands.sources.images)):
            raise EmptyDatasetError(f"{error}. {archive}") from None
        raise
    except TooManyRejectsError:
        if demands.output:
            write_rejects(demands.output, demands.splits, lists)
        raise


def _compared(demands: Demands, images: Names, files: Names, is_all: bool) -> str:
    beside = _folder_of_rows(demands.sources, images.first[:3])
    sources = demands.sources
    has_ends = sources.match == "path" and sources.is_listed and _suffix_finds_all(images, files)
    return describe_mismatch(images, files, sources, beside, is_all, has_ends)


def _suffix_finds_all(images: Names, files: Names) -> bool:
    """Return True if --match suffix finds all compared files."""
    by_end: dict[str, tuple[list[str], list[str]]] = {}
    for side, names in enumerate((images.compared, files.compared)):
        for name in names:
            by_end.setdefault(base_name(name), ([], []))[side].append(name)
    try:
        found = sum(len(match_names(*names, "suffix")) for names in by_end.values())
    except CollidingImagesError:
        return False
    return found == len(images.compared) > 0


def _folder_of_rows(sources: NameSources, names: Iterable[str]) -> str:
    """Return the folder of a file that names images, if it has the images."""
    names = [name for name in names if not name_fault(name)]
    for path in sources.rows:
        folder = posixpath.dirname(path) or "."
        storage = storage_for(folder)
        if names and all(storage.size(join_path(folder, name)) is not None for name in names):
            return folder
    return ""


_LEAST = 0.8  # fraction of a plan, which includes later rejects and upper bounds of masks


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
    there = os.path.abspath(output)
    while not os.path.isdir(there):
        there = os.path.dirname(there)
    free = shutil.disk_usage(there).free
    if needed <= free:
        return
    takes = f"the shards take up to {size_text(needed)}, and the disk of {output} has {size_text(free)} free"
    fault = f"{takes}: free some, or give another --output"
    if is_exact and _LEAST * needed > free:
        raise ConfigError(fault)
    _LOGGER.warning(fault)


ENOUGH = 100
"""Number of rejects that a job lists before it stops, so that one run shows more than one."""


class LimitRejects(beam.DoFn):
    """Stop a job with too many rejects. A runner fuses it with the step that reads images, so that its error ends both.
    Each process counts its own rejects, so many workers stop later than one.

    Side inputs are the output of CheckFindings, and the lists of rejects of earlier steps. Raises the errors of
    `RejectLimit.add`.
    """

    def __init__(self, demands: Demands):
        self._demands = demands
        self._shared = Shared()

    def setup(self):
        self._limit = self._shared.acquire(lambda: RejectLimit(self._demands))

    def process(self, written: WrittenShard, rows: Mapping[str, Rows], found: KindRejects) -> None:
        with rename_flags_in_errors(self._demands.words):
            for item in written.facts.rejects.items():
                self._limit.add(item, rows, found)


class RejectLimit:
    """Rejects of a process. Rejects of a shard that is written again count once."""

    def __init__(self, demands: Demands):
        self._demands = demands
        self._seen: set[bytes] = set()
        self._met = KindsBuilder()
        self._numbers: Counter[str] = Counter()
        self._found: Counter[str] | None = None

    def add(self, item: tuple[RejectKind, Rejects], rows: Mapping[str, Rows], found: KindRejects) -> None:
        """Add rejects; stop the job at too many.

        Args:
            item: Rejects of one kind of a shard.
            rows: Rows of each split.
            found: Rejects of earlier steps.

        Raises:
            TooManyRejectsError: More are rejected than allowed, and at least `ENOUGH` are known. The rejects are
                written to the state folders of the splits.
        """
        kind, rejects = item
        digest = blake2b(rejects.packed, digest_size=16).digest()
        if digest in self._seen:
            return
        self._seen.add(digest)
        self._met.merge(kind, rejects)
        self._numbers[kind[1]] += rejects.number
        if self._is_over(rows, found):
            self._stop(rows, found)

    def _is_over(self, rows: Mapping[str, Rows], found: KindRejects) -> bool:
        """Return True at too many rejects, enough of them listed."""
        if max(self._numbers.values()) < ENOUGH:
            return False
        if self._found is None:
            self._found = Counter()
            for (_, what, reason), rejects in found:
                self._found[what] += 0 if reason in REQUESTED_REASONS else rejects.number
        return any(
            self._numbers[what] >= ENOUGH
            and is_over(self._numbers[what] + self._found[what], total, self._demands.max_rejects)
            for what, total in rows_of_all(rows).items()
        )

    def _stop(self, rows: Mapping[str, Rows], found: KindRejects) -> None:
        demands = self._demands
        for kind, rejects in found:
            self._met.merge(kind, rejects)
        known = self._met.build().items()
        write_rejects(demands.output, demands.splits, known)
        check_rejects(
            rows,
            tally_rejects(known),
            demands.max_rejects,
            demands.sources.rows,
            "The job stops before all images are read, as it cannot succeed any more. The rejects so far are in "
            f"{rejects_paths(demands.output, demands.splits)}. Finished shards are kept",
        )
