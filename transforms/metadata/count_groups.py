"""Groups that are never in two splits: how many there are, and how far they keep splits from their shares."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import PCollection

from recordmill.schemas.rejects import Count, Metric, SplitCount
from recordmill.schemas.splits import SplitShares

_FAR = 0.05
"""Of all images; chance alone seldom keeps a split of many groups so far from its share."""


class GroupSizes(NamedTuple):
    """Of a split: its images, its groups, and images and name of the largest group."""

    images: int
    groups: int
    largest: tuple[int, str]


class GroupFindings(NamedTuple):
    """What CountGroups gives.

    Attributes:
        counted: SplitCount, of the groups of each split.
        warnings: (split, text), of shares that are not met.
    """

    counted: PCollection
    warnings: PCollection


class CountGroups(beam.PTransform):
    """(split, group), one for each image, become GroupFindings; `shares` are what was asked for."""

    def __init__(self, shares: SplitShares):
        super().__init__()
        self._shares = shares

    def expand(self, images: PCollection[tuple[str, str]]):
        sizes = (
            images
            | "ImagesOfGroup" >> beam.combiners.Count.PerElement()  # ((split, group), number)
            | "OfSplit" >> beam.Map(_of_split).with_output_types(tuple[str, GroupSizes])
            | "AddSizes" >> beam.CombinePerKey(add_sizes)
        )
        return GroupFindings(
            # Of no type that Beam could tell from others, as what these are flattened with.
            sizes | "Counted" >> beam.Map(_counted).with_output_types(Any),
            sizes
            | "CollectSizes" >> beam.combiners.ToList()
            | "ShareWarnings" >> beam.FlatMap(share_warnings, self._shares).with_output_types(Any),
        )


def _of_split(counted: tuple[tuple[str, str], int]) -> tuple[str, GroupSizes]:
    (split, group), images = counted
    return split, GroupSizes(images, 1, (images, group))


def add_sizes(sizes: Iterable[GroupSizes]) -> GroupSizes:
    """The sizes of groups, or of none, together."""
    total = GroupSizes(0, 0, (0, ""))
    for images, groups, largest in sizes:
        total = GroupSizes(total.images + images, total.groups + groups, max(total.largest, largest))
    return total


def _counted(of_split: tuple[str, GroupSizes]) -> SplitCount:
    split, sizes = of_split
    return SplitCount(split, Count(Metric.GROUPS, sizes.groups))


def share_warnings(sizes: Sequence[tuple[str, GroupSizes]], shares: SplitShares) -> Iterator[tuple[str, str]]:
    """A sentence, if a split has another share of the images than was asked for, by more than 5 of 100."""
    total, of_split = add_sizes(of for _, of in sizes), dict(sizes)
    far = []
    for split, share in shares.shares:
        images = of_split[split].images if split in of_split else 0
        if abs(images - share * total.images) > _FAR * total.images:
            far.append(f"{split} has {images / total.images:.1%} where {float(share):.1%} were asked for")
    if far:
        images, group = total.largest
        yield (
            shares.names[0],
            f"groups are not divided, so that of {total.images:,} images {', '.join(far)}: there are {total.groups:,} "
            f"groups, and the largest, {group!r}, has {images:,} images; another --split-seed, other shares or a "
            "--group-from that finds smaller groups may come closer",
        )
