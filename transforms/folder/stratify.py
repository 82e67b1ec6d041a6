"""Splits by class: each split gets its share of every class, not only of all images.

Which images those are still follows from their names; but an image at the border between two splits may come to lie
beyond it when others of its class are added.
"""

from collections.abc import Iterable

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import AsDict, PCollection

from recordmill.schemas.images import JoinSide
from recordmill.schemas.splits import SplitShares

Row = tuple[str, JoinSide]


class Stratify(beam.PTransform):
    """(name, JoinSide) of image rows, each with a class, become the same rows with their splits by class."""

    def __init__(self, shares: SplitShares):
        super().__init__()
        self._shares = shares

    def expand(self, rows: PCollection[tuple[str, JoinSide]]) -> PCollection[tuple[str, JoinSide]]:
        borders = (
            rows
            | "PlaceInClass" >> beam.Map(_placed, self._shares).with_output_types(tuple[str, int])
            | "GroupByClass" >> beam.GroupByKey()  # (class, [position])
            | "Divide" >> beam.Map(_divided, self._shares)  # (class, borders)
        )
        return rows | "Assign" >> beam.Map(_assigned, AsDict(borders), self._shares).with_output_types(Row)


def _placed(row: Row, shares: SplitShares) -> tuple[str, int]:
    name, match = row
    return _class_of(match), shares.position(name)


def _divided(group: tuple[str, Iterable[int]], shares: SplitShares) -> tuple[str, tuple[int, ...]]:
    class_name, positions = group
    return class_name, class_borders(class_name, np.fromiter(positions, np.int64), shares)


def class_borders(class_name: str, positions: np.ndarray, shares: SplitShares) -> tuple[int, ...]:
    """The position at which each split but the last ends, among the images of one class.

    Args:
        positions: int64 [N], `SplitShares.position` of each image, in any order.
    """
    ordered = np.append(np.sort(positions), np.iinfo(np.int64).max)
    return tuple(ordered[list(shares.ends(len(positions), class_name))].tolist())


def _assigned(row: Row, borders: dict[str, tuple[int, ...]], shares: SplitShares) -> Row:
    name, match = row
    split = shares.split_at(shares.position(name), borders[_class_of(match)])
    return name, JoinSide(msgspec.structs.replace(match.row, split=split), match.file)


def _class_of(match: JoinSide) -> str:
    return match.row.labels.class_name or ""
