"""Splits by class: each split gets its share of every class, not only of all images.

Which images those are still follows from their names; but an image at the border between two splits may come to lie
beyond it when others of its class are added. A group of images that belong together counts, with all of them, as of
the class that most of them have.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import AsDict, AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.images import JoinSide
from recordmill.schemas.splits import Division, SplitShares

Row = tuple[str, JoinSide]
Unit = tuple[int, int]
"""Position and number of images that are not divided: of one, or of a group."""

_GROUPED = "grouped"


class Stratify(beam.PTransform):
    """(name, JoinSide) of image rows, each with a class, become the same rows with their splits by class."""

    def __init__(self, division: Division | AsSingleton):
        super().__init__()
        self._division = division

    def expand(self, rows: PCollection[tuple[str, JoinSide]]) -> PCollection[tuple[str, JoinSide]]:
        placed = rows | "PlaceInClass" >> beam.FlatMap(_placed, self._division).with_output_types(
            tuple[str, Unit]
        ).with_outputs(_GROUPED, main="alone")
        groups = (
            placed[_GROUPED]
            | "TypeOfGrouped" >> beam.Map(_same).with_output_types(tuple[str, str])
            | "GroupByGroup" >> beam.GroupByKey()  # (group, [class])
            | "ClassOfGroup" >> beam.Map(_counted_group)  # (group, (class, number of images, of how many classes))
        )
        of_groups = groups | "PlaceGroups" >> beam.Map(_placed_group, self._division).with_output_types(
            tuple[str, Unit]
        )
        borders = (
            (placed.alone, of_groups)
            | "Units" >> beam.Flatten()
            | "GroupByClass" >> beam.GroupByKey()  # (class, [(position, number)])
            | "Divide" >> beam.Map(_divided, self._division)  # (class, borders)
        )
        mixed = groups | "OfSeveralClasses" >> beam.FlatMap(_mixed)  # (group, class)
        return rows | "Assign" >> beam.Map(_assigned, AsDict(borders), AsDict(mixed), self._division).with_output_types(
            Row
        )


def _placed(row: Row, division: Division) -> Iterator[Any]:
    name, match = row
    if name in division.groups:
        yield TaggedOutput(_GROUPED, (division.groups[name], _class_of(match)))
    else:
        yield _class_of(match), (division.shares.position(name), 1)


def _same(item: tuple[str, str]) -> tuple[str, str]:
    return item


def _counted_group(grouped: tuple[str, Iterable[str]]) -> tuple[str, tuple[str, int, int]]:
    group, classes = grouped
    counts = Counter(classes)
    most = min(counts, key=lambda name: (-counts[name], name))
    return group, (most, counts.total(), len(counts))


def _placed_group(grouped: tuple[str, tuple[str, int, int]], division: Division) -> tuple[str, Unit]:
    group, (class_name, images, _) = grouped
    return class_name, (division.shares.position(group), images)


def _mixed(grouped: tuple[str, tuple[str, int, int]]) -> Iterator[tuple[str, str]]:
    group, (class_name, _, classes) = grouped
    if classes > 1:
        yield group, class_name


def _divided(group: tuple[str, Iterable[Unit]], division: Division) -> tuple[str, tuple[int, ...]]:
    class_name, units = group
    return class_name, class_borders(class_name, np.array(list(units), np.int64), division.shares)


def class_borders(class_name: str, units: np.ndarray, shares: SplitShares) -> tuple[int, ...]:
    """The position at which each split but the last ends, among the images of one class. What is not divided goes to
    the split that its middle is in.

    Args:
        units: int64 [N, 2], `SplitShares.position` and number of the images that are not divided, in any order.
    """
    units = units.reshape(-1, 2)
    ordered = units[np.lexsort((units[:, 1], units[:, 0]))]  # equal positions in one order, too
    after = np.cumsum(ordered[:, 1])
    twice_middle = 2 * after - ordered[:, 1]
    positions = np.append(ordered[:, 0], np.iinfo(np.int64).max)
    ends = shares.ends(int(ordered[:, 1].sum()), class_name)
    return tuple(int(positions[np.searchsorted(twice_middle, 2 * end, side="right")]) for end in ends)


def _assigned(row: Row, borders: dict[str, tuple[int, ...]], mixed: dict[str, str], division: Division) -> Row:
    name, match = row
    group = division.groups.get(name, name)
    shares = division.shares
    split = shares.split_at(shares.position(group), borders[mixed.get(group, _class_of(match))])
    return name, JoinSide(msgspec.structs.replace(match.row, split=split), match.file)


def _class_of(match: JoinSide) -> str:
    return match.row.labels.class_name or ""
