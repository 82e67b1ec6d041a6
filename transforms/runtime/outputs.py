"""Steps with several outputs: what is not a step's main result leaves by an output of its own, chosen by its type."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import PCollection, TaggedOutput

from recordmill.schemas.coco import AnnotationFile
from recordmill.schemas.images import UnmatchedImage, UnreferencedFile
from recordmill.schemas.manifest import SplitRows
from recordmill.schemas.rejects import Count, Rejected, SplitCount, SplitReject
from recordmill.transforms.runtime import progress

REJECTED = "rejected"
COUNTED = "counted"
FILES = "files"
LISTINGS = "listings"
ROWS = "rows"
UNLISTED = "unlisted"
UNMATCHED = "unmatched"

_TAGS: dict[type, str] = {
    AnnotationFile: FILES,
    Count: COUNTED,
    Rejected: REJECTED,
    SplitCount: COUNTED,
    SplitReject: REJECTED,
    SplitRows: ROWS,
    UnmatchedImage: UNMATCHED,
    UnreferencedFile: UNLISTED,
}


def route_outputs(items: Iterable[Any]) -> Iterator[Any]:
    """`items`, where those of a type in _TAGS are wrapped as Beam's TaggedOutput; rejects are counted in Beam's metrics
    and the progress line."""
    for item in items:
        tag = _TAGS.get(type(item))
        if tag is None:
            yield item
            continue
        if tag is REJECTED:
            progress.rejected(item.reject if isinstance(item, SplitReject) else item)
        yield TaggedOutput(tag, item)


def in_split(split: str, items: Iterable[Any]) -> Iterator[Any]:
    """`items`, where rejects and counts are of the split."""
    for item in items:
        if isinstance(item, Rejected):
            yield SplitReject(split, item)
        else:
            yield SplitCount(split, item) if isinstance(item, Count) else item


def of_split(split: str) -> beam.PTransform:
    """Items become (split, item). Of no type that Beam could tell from others, so that what is flattened has one coder:
    Flink refuses to unite others."""
    return beam.Map(_of_split, split).with_output_types(Any)


def _of_split(item: Any, split: str) -> tuple[str, Any]:
    return split, item


class Written(NamedTuple):
    """What the steps that write records give.

    Attributes:
        shards: (split, ShardInfo), one a file.
        counted: (split, Count), of what is in the records.
        rejected: (RejectKind, Rejects), perhaps several of a kind.
        classes: ((split, class index), number) of objects, or of images.
        statistics: (split, Statistics) of shards.
        fingerprints: (split, Fingerprints) of shards; of those alone whose records have pictures.
    """

    shards: PCollection
    counted: PCollection
    rejected: PCollection
    classes: PCollection
    statistics: PCollection
    fingerprints: PCollection
