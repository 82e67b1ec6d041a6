"""Splits by class: each split gets its share of the rows of every class, not only of all rows.

Which rows those are follows from their keys, as it does without: by their hashes, rows of a class have an order, and a
split ends at a row of it. Which one that is, is found without holding all hashes: a share of hashes that are evenly
distributed ends near that share of their range, so those near it are held, and the others are only counted.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from math import sqrt
from typing import NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsDict, AsSingleton, PCollection

from recordmill.schemas.splits import SplitShares
from recordmill.schemas.tables import RowsFile
from recordmill.transforms.runtime import progress
from recordmill.transforms.table.choose_schema import ChosenSchema
from recordmill.transforms.table.make_records import RecordMaker
from recordmill.transforms.table.spill_rows import RowsRecipe, made_ahead

_PLACES = 1 << 63
_ALL = 4096
"""So many rows of a class are all held."""
_DEVIATIONS = 16
"""How far from its share a border is looked for, in standard deviations of where it may be, at most."""


class NearBorder(NamedTuple):
    """Positions of rows, about the border of two splits.

    Attributes:
        below: how many lie below those that are held.
        held: uint64 [held], in any order.
    """

    below: int
    held: np.ndarray


class ClassPositions(NamedTuple):
    """Positions of the rows of one class, see `SplitShares.position`.

    Attributes:
        near: about each border.
    """

    rows: int
    near: tuple[NearBorder, ...]


class StratifyRows(beam.PTransform):
    """RowsFile and one ChosenSchema become a ChosenSchema that has the borders of classes.

    Args:
        chosen: a PCollection of one ChosenSchema.
    """

    def __init__(self, chosen: PCollection, recipe: RowsRecipe):
        super().__init__()
        self._chosen = chosen
        self._recipe = recipe

    def expand(self, files: PCollection[RowsFile]) -> PCollection[ChosenSchema]:
        shares, chosen = self._recipe.splits.shares, AsSingleton(self._chosen)
        borders = (
            files
            | "SpreadFiles" >> beam.Reshuffle()
            | "Place" >> beam.FlatMap(_placed, chosen, self._recipe).with_output_types(tuple[int, ClassPositions])
            | "Merge" >> beam.CombinePerKey(partial(merged, borders=shares.borders))
            | "Divide" >> beam.Map(_divided, chosen, shares).with_output_types(tuple[int, tuple[int, ...]])
        )
        return self._chosen | "Borders" >> beam.Map(_with_borders, AsDict(borders))


def _placed(file: RowsFile, chosen: ChosenSchema, recipe: RowsRecipe) -> Iterator[tuple[int, ClassPositions]]:
    progress.set_step("dividing classes")
    make = RecordMaker(chosen.schema, chosen.labels, recipe.splits, recipe.seed)
    borders = recipe.splits.shares.borders
    found: dict[int, ClassPositions] = {}
    for positions in made_ahead(make.class_positions, file, recipe):
        for index, of_class in positions.items():
            seen = [found[index]] if index in found else []
            found[index] = merged([*seen, all_held(of_class, borders)], borders)
    yield from found.items()


def all_held(positions: np.ndarray, borders: tuple[int, ...]) -> ClassPositions:
    """What is known of rows, each of whose positions is known."""
    return ClassPositions(len(positions), (NearBorder(0, positions),) * len(borders))


def merged(parts: Iterable[ClassPositions], borders: tuple[int, ...]) -> ClassPositions:
    """What is known of the rows of all `parts`, which are of one class.

    Args:
        borders: of the splits, where all hashes are evenly distributed.
    """
    parts = list(parts)
    rows = sum(part.rows for part in parts)
    near = []
    for number, border in enumerate(borders):
        own = [part.near[number] for part in parts]
        low, end = _reach(border, rows)  # no part has more rows, so each has held all that is in here
        below = sum(each.below + int((each.held < np.uint64(low)).sum()) for each in own)
        held = np.concatenate([np.zeros(0, np.uint64), *(each.held for each in own)])
        near.append(NearBorder(below, held[(held >= np.uint64(low)) & (held < np.uint64(end))]))
    return ClassPositions(rows, tuple(near))


def _reach(border: int, rows: int) -> tuple[int, int]:
    """Where the border may be that divides so many rows, the end not included."""
    reach = int(_DEVIATIONS / 2 / sqrt(rows) * _PLACES) if rows > _ALL else _PLACES
    return max(border - reach, 0), min(border + reach, _PLACES)


def class_borders(class_name: str, positions: ClassPositions, shares: SplitShares) -> tuple[int, ...]:
    """The position at which each split but the last ends, among the rows of one class: shares are exact to the row.

    Where a few keys have most of a class's rows, a border may lie beyond the positions that are held, and is as near as
    they reach.
    """
    found = []
    ends = shares.ends(positions.rows, class_name)
    for border, end, near in zip(shares.borders, ends, positions.near, strict=True):
        rank = end - near.below
        if 0 <= rank < len(near.held):
            found.append(int(np.partition(near.held, rank)[rank]))
        else:
            found.append(_reach(border, positions.rows)[rank >= 0])
    return tuple(found)


def _divided(
    of_class: tuple[int, ClassPositions], chosen: ChosenSchema, shares: SplitShares
) -> tuple[int, tuple[int, ...]]:
    index, positions = of_class
    return index, class_borders(chosen.labels.categories[index].name, positions, shares)


def _with_borders(chosen: ChosenSchema, borders: dict[int, tuple[int, ...]]) -> ChosenSchema:
    return chosen._replace(borders=borders)
