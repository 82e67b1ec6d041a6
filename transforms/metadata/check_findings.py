"""What the rows alone say will fail is told before the first picture is read."""

import logging
import posixpath
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsList, AsSingleton

from recordmill.schemas.errors import EmptyDatasetError, NoImageFoundError, TooManyRejectsError
from recordmill.schemas.images import UnmatchedImage, UnreferencedFile
from recordmill.schemas.manifest import InputRows
from recordmill.schemas.names import NameSources, name_fault
from recordmill.schemas.rejects import Count, Metric, Reason
from recordmill.transforms.join.compare_names import Names, SampleNames, compared_text
from recordmill.transforms.metadata.dataset_folder import forget
from recordmill.transforms.metadata.describe_split import Rows, check_rejects
from recordmill.transforms.rejects.write_rejects import KindRejects, rejects_paths, tally_rejects, write_rejects
from recordmill.transforms.storage.resolve import storage_for

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


class CheckFindings(beam.PTransform):
    """Findings become a PCollection of one dict, the Rows of each split, for the steps that read pictures to wait for.
    Warnings are logged.

    Raises, when it runs, what `check_findings` does.
    """

    def __init__(self, demands: Demands):
        super().__init__()
        self._demands = demands

    def expand(self, findings):
        once = findings.rejected.pipeline | "OnceFound" >> beam.Create([self._demands])
        merged = findings.counted | "RowsMerged" >> beam.FlatMap(numbers_of, Metric.ROWS_MERGED)
        return once | "Check" >> beam.Map(
            _check,
            AsList(findings.inputs),
            AsList(merged),
            AsList(findings.rejected),
            AsList(findings.warnings),
            AsSingleton(findings.unmatched | "ImageNames" >> beam.Map(_name) | "Images" >> _sample()),
            AsSingleton(findings.unlisted | "FileNames" >> beam.Map(_name) | "Files" >> _sample()),
        )


def _sample() -> beam.PTransform:
    return beam.CombineGlobally(SampleNames())


def _name(item: UnmatchedImage | UnreferencedFile) -> str:
    return item.name


def numbers_of(of_split: tuple[str, Count], metric: Metric) -> list[tuple[str, int]]:
    """The number of a split, where it is of the metric."""
    split, counted = of_split
    return [(split, counted.number)] if counted.what is metric else []


def _check(  # one parameter a side input
    demands: Demands,
    inputs: list[tuple[str, InputRows]],
    merged: list[tuple[str, int]],
    rejected: KindRejects,
    warnings: list[tuple[str, str]],
    images: Names,
    files: Names,
) -> dict[str, Rows]:
    for text in sorted({text for _, text in warnings}):  # which may say why there is too much to reject
        _LOGGER.warning(text)
    rows = count_rows(demands.splits, inputs, merged)
    check_findings(demands, rows, rejected, images, files)
    return rows


def count_rows(
    splits: Iterable[str], inputs: Iterable[tuple[str, InputRows]], merged: Iterable[tuple[str, int]]
) -> dict[str, Rows]:
    """The rows of each split; those that two annotation files have of one image are one."""
    images: Counter[str] = Counter()
    annotations: Counter[str] = Counter()
    what = "image"
    for split, rows in inputs:
        what = "row" if rows.kind == "rows" else "image"
        images[split] += rows.images
        annotations[split] += rows.annotations
    for split, number in merged:
        images[split] -= number
    return {split: Rows(images[split], annotations[split], what) for split in splits}


def check_findings(demands: Demands, rows: dict[str, Rows], rejected: KindRejects, images: Names, files: Names) -> None:
    """Check that some images have their files, and `describe_split.check_rejects` with the rejects so far. If these are
    too many, they are written into the folders of the splits' states.

    Args:
        images: names of images without a file.
        files: names of files without an image.

    Raises:
        NoImageFoundError: no image has a file.
        EmptyDatasetError, TooManyRejectsError: see `describe_split.check_rejects`.
    """
    unit = next(iter(rows.values())).what
    tally = tally_rejects(rejected)
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
            write_rejects(demands.output, demands.splits, rejected)
        raise


def _compared(demands: Demands, images: Names, files: Names, is_all: bool) -> str:
    beside = _folder_of_rows(demands.sources, images.first)
    return compared_text(images, files, demands.sources, beside, is_all)


def _folder_of_rows(sources: NameSources, names: Iterable[str]) -> str:
    """The folder of a file that names images, if it has those, too."""
    names = [name for name in names if not name_fault(name)]
    for path in sources.rows:
        folder = posixpath.dirname(path) or "."
        storage = storage_for(folder)
        if names and all(storage.size(storage.join(folder, name)) is not None for name in names):
            return folder
    return ""
