"""Count groups, each of which is in one split."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsIter, AsList, AsSingleton

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.splits import Division
from recordmill.schemas.rejects import Metric
from recordmill.transforms.dataset.collect_facts import WithFacts
from recordmill.transforms.dataset.facts import FactsBuilder

_MAX_SHOWN_NAMES = 3


class GroupSizes(NamedTuple):
    """Groups of a split: numbers of images and groups, size and name of the largest group, and number of images without
    a group."""

    images: int
    groups: int
    largest: tuple[int, str]
    ungrouped: int = 0


class CountGroups(beam.PTransform):
    """Report (split, name) of each image as Facts: the groups of each split, the largest group, images without a
    group, and a warning about names in a list that no image has. Input is a tuple: images to write, and images that
    were read, of which options may skip some.

    At run time, raises the errors of `unmatched_warnings`.

    Args:
        is_added: True for images that are added to a data set, whose other images the list may name.
    """

    def __init__(self, division: Division | AsSingleton, is_added: bool = False):
        super().__init__()
        self._division, self._is_added = division, is_added

    def expand(self, both):  # several PCollections: Beam accepts no type hints
        images, read_images = both
        groups = images | "GroupOfImage" >> beam.FlatMap(_group_image, self._division)
        sizes = (
            groups
            | "ImagesOfGroup" >> beam.combiners.Count.PerElement()  # ((split, group, is_alone), number)
            | "OfSplit" >> beam.Map(_group_sizes).with_output_types(tuple[str, GroupSizes])
            | "AddSizes" >> beam.CombinePerKey(add_sizes)
        )
        names = read_images | "Listed" >> beam.FlatMap(_grouped_name, self._division).with_output_types(str)
        once = images.pipeline | "OnceGrouped" >> beam.Impulse()
        return once | "Groups" >> WithFacts(
            _report_groups, AsList(sizes), AsIter(names), self._division, self._is_added
        )


def _group_image(image: tuple[str, str], division: Division) -> Iterator[tuple[str, str, bool]]:
    split, name = image
    if division.has_groups(name):
        yield split, division.group_of(name), not division.group_from and name not in division.groups


def _grouped_name(image: tuple[str, str], division: Division) -> Iterator[str]:
    _, name = image
    if name in division.groups:
        yield name


def _group_sizes(counted: tuple[tuple[str, str, bool], int]) -> tuple[str, GroupSizes]:
    (split, group, is_alone), images = counted
    if is_alone:
        return split, GroupSizes(images, 0, (0, ""), images)
    return split, GroupSizes(images, 1, (images, group))


def _report_groups(
    _: bytes,
    facts: FactsBuilder,
    sizes: list[tuple[str, GroupSizes]],
    named: Iterable[str],
    division: Division,
    is_added: bool,
) -> None:
    for split, size in sizes:
        facts.count(split, Metric.GROUPS, size.groups)
        facts.count(split, Metric.UNGROUPED, size.ungrouped)
        facts.add_group(*size.largest)
    for warning in unmatched_warnings(named, division, is_added):
        facts.warn(*warning)


def unmatched_warnings(named: Iterable[str], division: Division, is_added: bool = False) -> Iterator[tuple[str, str]]:
    """Yield a warning if a file of groups has names without an image. `named` are the images that it names.

    Args:
        is_added: See CountGroups.

    Raises:
        ConfigError: The file names no image, and images are not added.
    """
    unmatched = sorted(division.groups.keys() - set(named))
    if not unmatched:
        return
    shown = ", ".join(map(repr, unmatched[:_MAX_SHOWN_NAMES])) + " …" * (len(unmatched) > _MAX_SHOWN_NAMES)
    advice = "Names are paths below the folders of images, like image/filename of records"
    if len(unmatched) == len(division.groups) and not is_added:
        raise ConfigError(f"--groups does not name a converted image ({shown}), so it has no effect. {advice}")
    yield (
        division.shares.names[0],
        f"--groups: {len(unmatched):,} of {len(division.groups):,} names do not match a converted image ({shown}). "
        f"{advice}",
    )


def add_sizes(sizes: Iterable[GroupSizes]) -> GroupSizes:
    """Return the sum of the counts."""
    images, groups, largest, ungrouped = zip(GroupSizes(0, 0, (0, "")), *sizes, strict=True)
    return GroupSizes(sum(images), sum(groups), max(largest), sum(ungrouped))
