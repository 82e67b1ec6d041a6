"""Count groups, each of which is in one split, and compare the shares of the splits."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsIter, AsList, AsSingleton, PCollection

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.splits import Division, SplitShares
from recordmill.schemas.rejects import Metric
from recordmill.transforms.dataset.facts import Facts, FactsBuilder

_SHOWN = 3
_FAR = 0.05
"""Tolerance of a share. Chance alone seldom exceeds it with many groups."""


class GroupSizes(NamedTuple):
    """Groups of a split: numbers of images and groups, size and name of the largest group, and number of images without
    a group."""

    images: int
    groups: int
    largest: tuple[int, str]
    ungrouped: int = 0


@dataclass(eq=False, repr=False)
class CountGroups(beam.PTransform):
    """Convert (split, name) of each image to Facts: the groups of each split, images without a group, and warnings.

    Warnings are about missed shares, and about names in a file of groups without an image.

    At run time, raises the errors of `unmatched_warnings`.
    """

    division: Division | AsSingleton

    def expand(self, images: PCollection[tuple[str, str]]):
        groups = images | "GroupOfImage" >> beam.Map(_grouped, self.division)
        sizes = (
            groups
            | "ImagesOfGroup" >> beam.combiners.Count.PerElement()  # ((split, group, whether it is one), number)
            | "OfSplit" >> beam.Map(_of_split).with_output_types(tuple[str, GroupSizes])
            | "AddSizes" >> beam.CombinePerKey(add_sizes)
        )
        listed = images | "Listed" >> beam.FlatMap(_listed, self.division).with_output_types(str)
        once = images.pipeline | "OnceGrouped" >> beam.Impulse()
        return once | "Groups" >> beam.Map(_facts, AsList(sizes), AsIter(listed), self.division)


def _grouped(image: tuple[str, str], division: Division) -> tuple[str, str, bool]:
    split, name = image
    return split, division.group_of(name), not division.group_from and name not in division.groups


def _listed(image: tuple[str, str], division: Division) -> Iterator[str]:
    _, name = image
    if name in division.groups:
        yield name


def _of_split(counted: tuple[tuple[str, str, bool], int]) -> tuple[str, GroupSizes]:
    (split, group, is_alone), images = counted
    if is_alone:
        return split, GroupSizes(images, 0, (0, ""), images)
    return split, GroupSizes(images, 1, (images, group))


def _facts(_: bytes, sizes: list[tuple[str, GroupSizes]], found: Iterable[str], division: Division) -> Facts:
    facts = FactsBuilder()
    for split, of_split in sizes:
        facts.count(split, Metric.GROUPS, of_split.groups)
        facts.count(split, Metric.UNGROUPED, of_split.ungrouped)
    for warning in (*share_warnings(sizes, division.shares), *unmatched_warnings(found, division)):
        facts.warn(*warning)
    return facts.build()


def unmatched_warnings(found: Iterable[str], division: Division) -> Iterator[tuple[str, str]]:
    """Yield a warning if a file of groups has names without an image. `found` are the images that it names.

    Raises:
        ConfigError: The file names no image.
    """
    unmatched = sorted(division.groups.keys() - set(found))
    if not unmatched:
        return
    shown = ", ".join(map(repr, unmatched[:_SHOWN])) + " …" * (len(unmatched) > _SHOWN)
    advice = "names are paths below --images, as image/filename of records has them"
    if len(unmatched) == len(division.groups):
        raise ConfigError(f"--groups names no image that is converted, but {shown}, so it would do nothing: {advice}")
    yield (
        division.shares.names[0],
        f"--groups: {len(unmatched):,} of the {len(division.groups):,} names in it are of no image that is converted "
        f"({shown}); {advice}",
    )


def add_sizes(sizes: Iterable[GroupSizes]) -> GroupSizes:
    """Return the sum of two counts."""
    images, groups, largest, ungrouped = zip(GroupSizes(0, 0, (0, "")), *sizes, strict=True)
    return GroupSizes(sum(images), sum(groups), max(largest), sum(ungrouped))


def share_warnings(sizes: Sequence[tuple[str, GroupSizes]], shares: SplitShares) -> Iterator[tuple[str, str]]:
    """Yield a warning if the share of a split is off by more than 5 percentage points."""
    total, of_split = add_sizes(size for _, size in sizes), dict(sizes)
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
            f"groups, and the largest, {group!r}, has {images:,} images; another --split-seed, other shares or "
            "smaller groups may come closer",
        )
