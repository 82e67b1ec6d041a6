"""Splits by class: each split gets its share of every class, not only of all images, or rows of a table.

Which images those are still follows from their names; but an image at the border between two splits may come to lie
beyond it when others of its class are added. A group of images that belong together counts, with all of them, as of
the class that most of them have.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsDict, AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.inputs.splits import Division
from recordmill.transforms.blocks.pack_block import pack_block, unpack_block
from recordmill.transforms.join.divide_images import class_borders

Rows = tuple[int, bytes]
"""Number of a range, and a packed Block of image rows, each with a class."""
_GROUPED = "grouped"


@dataclass(eq=False, repr=False)
class Stratify(beam.PTransform):
    """Convert (range, packed Block) of image rows to the same rows with their splits by class.

    Args:
        splits: of the job; the column `split` is an index of them.
    """

    division: Division | AsSingleton
    splits: Sequence[str]

    def expand(self, rows: PCollection[Rows]) -> PCollection[Rows]:
        placed = rows | "PlaceInClass" >> beam.FlatMap(_placed, self.division).with_output_types(
            tuple[str, bytes]
        ).with_outputs(_GROUPED, main="alone")
        groups = (
            placed[_GROUPED]
            | "TypeOfGrouped" >> beam.Map(_same).with_output_types(tuple[str, str])
            | "GroupByGroup" >> beam.GroupByKey()  # (group, [class])
            | "ClassOfGroup" >> beam.Map(_counted_group)  # (group, (class, number of images, of how many classes))
        )
        of_groups = groups | "PlaceGroups" >> beam.Map(_placed_group, self.division).with_output_types(
            tuple[str, bytes]
        )
        units = (placed.alone, of_groups) | "Units" >> beam.Flatten()
        borders = units | "DivideClasses" >> DivideClasses(self.division)
        mixed = groups | "OfSeveralClasses" >> beam.FlatMap(_mixed)  # (group, class)
        assign = beam.Map(_assigned, AsDict(borders), AsDict(mixed), self.division, self.splits)
        return rows | "Assign" >> assign.with_output_types(Rows)


class DivideClasses(beam.PTransform):
    """Convert (class, packed units) to (class, borders): int64 [N, 2] as bytes to what `class_borders` returns."""

    def __init__(self, division: Division | AsSingleton):
        super().__init__()
        self._division = division

    def expand(self, units: PCollection[tuple[str, bytes]]):
        return units | "GroupByClass" >> beam.GroupByKey() | "Divide" >> beam.Map(_divided, self._division)


def units_at(positions: np.ndarray) -> bytes:
    """Return units of one image at each position: int64 [N, 2] as bytes, see `class_borders`."""
    return np.stack([positions, np.ones_like(positions)], axis=1).tobytes()


def _placed(keyed: Rows, division: Division) -> Iterator[Any]:
    block = unpack_block(keyed[1])
    positions: dict[str, list[int]] = {}
    for name, class_name in zip(block.file_name.texts(), block.class_name.texts(), strict=True):
        if name in division.groups:
            yield TaggedOutput(_GROUPED, (division.groups[name], class_name))
        else:
            positions.setdefault(class_name, []).append(division.shares.position(name))
    for class_name, of_class in positions.items():
        yield class_name, units_at(np.array(of_class, np.int64))


def _same(item: tuple[str, str]) -> tuple[str, str]:
    return item


def _counted_group(grouped: tuple[str, Iterable[str]]) -> tuple[str, tuple[str, int, int]]:
    group, classes = grouped
    counts = Counter(classes)
    most = min(counts, key=lambda name: (-counts[name], name))
    return group, (most, counts.total(), len(counts))


def _placed_group(grouped: tuple[str, tuple[str, int, int]], division: Division) -> tuple[str, bytes]:
    group, (class_name, images, _) = grouped
    return class_name, np.array([(division.shares.position(group), images)], np.int64).tobytes()


def _mixed(grouped: tuple[str, tuple[str, int, int]]) -> Iterator[tuple[str, str]]:
    group, (class_name, _, classes) = grouped
    if classes > 1:
        yield group, class_name


def _divided(group: tuple[str, Iterable[bytes]], division: Division) -> tuple[str, tuple[int, ...]]:
    class_name, units = group
    return class_name, class_borders(class_name, np.frombuffer(b"".join(units), np.int64), division.shares)


def _assigned(
    keyed: Rows,
    borders: dict[str, tuple[int, ...]],
    mixed: dict[str, str],
    division: Division,
    splits: Sequence[str],
) -> Rows:
    number, packed = keyed
    block, shares = unpack_block(packed), division.shares
    assigned = []
    for name, class_name in zip(block.file_name.texts(), block.class_name.texts(), strict=True):
        group = division.groups.get(name, name)
        split = shares.split_at(shares.position(group), borders[mixed.get(group, class_name)])
        assigned.append(splits.index(split))
    return number, pack_block(block.having(split=np.array(assigned, np.int64)))
