"""All rows of a table are looked at, and the types of its columns follow."""

from collections.abc import Sequence
from functools import partial

import apache_beam as beam
from apache_beam.pvalue import PCollection

from recordmill.schemas.inputs.tables import RowsFile
from recordmill.transforms.runtime import progress
from recordmill.transforms.table.choose_schema import ChosenSchema, ColumnChoice, choose_schema
from recordmill.transforms.table.make_records import RowsRecipe
from recordmill.transforms.table.observe_columns import TableStats, observe
from recordmill.transforms.table.read_records import made_ahead


class InferSchema(beam.PTransform):
    """RowsFile become one ChosenSchema.

    Args:
        files: all of them, for messages.
    """

    def __init__(self, choice: ColumnChoice, files: Sequence[RowsFile], recipe: RowsRecipe):
        super().__init__()
        self._choice = choice
        self._files = tuple(files)
        self._recipe = recipe

    def expand(self, files: PCollection[RowsFile]) -> PCollection[ChosenSchema]:
        distinct = self._choice.numbered
        return (
            files
            | "SpreadFiles" >> beam.Reshuffle()
            | "Observe" >> beam.Map(_observe, self._recipe, distinct)
            | "AddUp" >> beam.combiners.ToList()
            | "Choose" >> beam.Map(_choose, self._choice, self._files)
        )


def _observe(file: RowsFile, recipe: RowsRecipe, distinct: tuple[str, ...]) -> TableStats:
    progress.set_step("looking at columns")
    stats = TableStats()
    for seen in made_ahead(partial(observe, file=file.number, distinct=distinct), file, recipe):
        stats.add(seen)
    return stats


def _choose(found: list[TableStats], choice: ColumnChoice, files: tuple[RowsFile, ...]) -> ChosenSchema:
    """In the files' order, so that columns are in that of the first file that has them."""
    total = TableStats()
    for stats in sorted(found, key=lambda stats: sorted(stats.bad)):
        total.add(stats)
    return choose_schema(total, choice, files)
