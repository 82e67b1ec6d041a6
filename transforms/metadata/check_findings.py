"""What the rows alone say will fail is told before the first picture is read."""

import logging
import posixpath
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsIter, AsList

from recordmill.schemas.errors import EmptyDatasetError, NoImageFoundError, TooManyRejectsError
from recordmill.schemas.names import NameSources, name_fault
from recordmill.schemas.rejects import Metric, Reason
from recordmill.transforms.dataset.compare_names import Names, compared_text
from recordmill.transforms.dataset.facts import Facts, add_facts
from recordmill.transforms.metadata.dataset_folder import forget
from recordmill.transforms.metadata.describe_split import Rows, check_rejects
from recordmill.transforms.rejects.write_rejects import KindRejects, rejects_paths, tally_rejects, write_rejects
from recordmill.transforms.storage.resolve import join_path, storage_for

_LOGGER = logging.getLogger(__name__)

_NOT_FOUND = (Reason.IMAGE_MISSING, Reason.UNSAFE_FILE_NAME)


class Demands(NamedTuple):
    """What findings have to meet.

    Attributes:
        splits: that are to be written.
        sources: what was read.
        max_rejects: fraction of images, and of annotations, that may be rejected.
        output: the data set's folder; empty where nothing is to be written.
    """

    splits: tuple[str, ...]
    sources: NameSources
    max_rejects: float
    output: str


@dataclass(eq=False, repr=False)
class CheckFindings(beam.PTransform):
    """Convert Findings to one dict, the Rows of each split, for the steps that read pictures to wait for.
    Warnings are logged.

    Raises, when it runs, what `check_findings` does.
    """

    demands: Demands

    def expand(self, found):  # Findings, of several PCollections, of which Beam takes no hints
        once = found.facts.pipeline | "OnceFound" >> beam.Create([self.demands])
        return once | "Check" >> beam.Map(_check, AsList(found.facts), AsIter(found.lists))


def _check(demands: Demands, parts: list[Facts], lists: KindRejects) -> dict[str, Rows]:
    facts = add_facts(parts)
    for text in sorted({text for _, text in facts.warnings}):  # why there may be too much to reject
        _LOGGER.warning(text)
    rows = count_rows(demands.splits, facts)
    check_findings(demands, rows, facts, lists)
    return rows


def count_rows(splits: Iterable[str], facts: Facts) -> dict[str, Rows]:
    """The rows of each split; those that two annotation files have of one image are one."""
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
    """Check that some images have their files, and `describe_split.check_rejects` with the rejects so far. If these are
    too many, they are written into the folders of the splits' states.

    Args:
        lists: of the rejects.

    Raises:
        NoImageFoundError: no image has a file.
        EmptyDatasetError, TooManyRejectsError: see `describe_split.check_rejects`.
    """
    unit = next(iter(rows.values())).what
    tally, images, files = tally_rejects(facts.rejects.items()), facts.unmatched, facts.unlisted
    of_images = tally.reasons(unit)
    # Of images that files alone name, none is without its file.
    not_found = sum(of_images.get(reason.value, 0) for reason in _NOT_FOUND) if images.number else 0
    total = sum(of_split.images for of_split in rows.values())
    is_any_found = of_images.get(Reason.NO_GROUP.value, 0) > 0  # which is said of images that have a file
    if not_found and sum(of_images.values()) >= total and not is_any_found:
        raise NoImageFoundError(
            f"none of the {total} {unit}s has a file in --images, so nothing is written: "
            f"{_compared(demands, images, files, is_all=True)}"
        )
    nothing = "No picture was read" if unit == "image" else "No shard was written"
    advice = f"{nothing}: run again with the data mended, or with a larger --max-rejects to accept this"
    if not_found > demands.max_rejects * total:
        advice = f"{_compared(demands, images, files, is_all=False)} {advice}"
    if demands.output:
        advice = f"They are listed in {rejects_paths(demands.output, demands.splits)}. {advice}"
    try:
        check_rejects(rows, tally, demands.max_rejects, demands.sources.rows, advice)
    except EmptyDatasetError:
        for split in demands.splits if demands.output else ():
            forget(demands.output, split)
        raise
    except TooManyRejectsError:
        if demands.output:
            write_rejects(demands.output, demands.splits, lists)
        raise


def _compared(demands: Demands, images: Names, files: Names, is_all: bool) -> str:
    beside = _folder_of_rows(demands.sources, images.first[:3])
    return compared_text(images, files, demands.sources, beside, is_all)


def _folder_of_rows(sources: NameSources, names: Iterable[str]) -> str:
    """The folder of a file that names images, if it has those, too."""
    names = [name for name in names if not name_fault(name)]
    for path in sources.rows:
        folder = posixpath.dirname(path) or "."
        storage = storage_for(folder)
        if names and all(storage.size(join_path(folder, name)) is not None for name in names):
            return folder
    return ""
