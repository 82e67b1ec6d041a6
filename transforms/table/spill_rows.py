"""Files of rows become sorted files of records, see `spill_file`."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection

from recordmill.schemas.splits import RowSplits
from recordmill.schemas.tables import RowsFile
from recordmill.transforms.dataset.facts import FACTS, FactsBuilder, tagged
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.cores import usable_cores
from recordmill.transforms.runtime.look_ahead import look_ahead
from recordmill.transforms.table.choose_schema import ChosenSchema
from recordmill.transforms.table.make_records import RecordMaker
from recordmill.transforms.table.read_rows import read_rows
from recordmill.transforms.table.row_batch import RowBatch
from recordmill.transforms.table.spill_file import Records, Spill, write_spill

Made = TypeVar("Made")

_SPILL_BYTES = 64_000_000
"""Of records, and so what a worker holds."""


class RowsRecipe(NamedTuple):
    """How rows become records.

    Attributes:
        output: folder of the data set; empty in a dry run.
        read: the only columns that are read; all where empty.
        encoding: of CSV files.
    """

    output: str
    splits: RowSplits
    seed: int
    read: tuple[str, ...]
    encoding: str


class SpillRows(beam.PTransform):
    """Convert RowsFile to Spill, and Facts in the output `facts`.

    Args:
        chosen: a PCollection of one ChosenSchema.
    """

    def __init__(self, chosen: PCollection, recipe: RowsRecipe):
        super().__init__()
        self._chosen = chosen
        self._recipe = recipe

    def expand(self, files: PCollection[RowsFile]):
        spill = beam.FlatMap(_spill, AsSingleton(self._chosen), self._recipe)
        return files | "SpreadFiles" >> beam.Reshuffle() | "Spill" >> spill.with_outputs(FACTS, main="spills")


def _spill(file: RowsFile, chosen: ChosenSchema, recipe: RowsRecipe) -> Iterator[Any]:
    progress.set_step("reading rows")
    facts = FactsBuilder()
    yield from spill_file(file, chosen, recipe, facts)
    yield tagged(facts)


def spill_file(file: RowsFile, chosen: ChosenSchema, recipe: RowsRecipe, facts: FactsBuilder) -> Iterator[Spill]:
    """Yield the spills of each split."""
    make = RecordMaker(chosen.schema, chosen.labels, recipe.splits, recipe.seed, chosen.encoders, chosen.borders)
    pending: dict[str, list[Records]] = {split: [] for split in recipe.splits.names}
    size = number = 0
    for made in made_ahead(make, file, recipe):
        for split, records in made.by_split.items():
            pending[split].append(records)
            facts.add_file_rows(split, file.path, len(records.orders), made.texts[split])
            facts.add_classes(split, made.classes[split])
            size += records.records.nbytes
        facts.add_file_rows(recipe.splits.names[0], file.path, len(made.bad), {})
        for bad in made.bad:
            facts.reject(recipe.splits.names[0], bad.reject(file.path))
        if size >= _SPILL_BYTES:
            yield from _spills(pending, file, number, recipe.output)
            size, number = 0, number + 1
    yield from _spills(pending, file, number, recipe.output)


def made_ahead(make: Callable[[RowBatch], Made], file: RowsFile, recipe: RowsRecipe) -> Iterator[Made]:
    """What is made of batches, in their order; threads make it, as Arrow's work needs no interpreter."""
    cores = usable_cores()
    with ThreadPoolExecutor(cores) as pool:
        yield from look_ahead(make, read_rows(file, recipe.read, recipe.encoding), pool, cores)


def _spills(pending: dict[str, list[Records]], file: RowsFile, number: int, output: str) -> Iterator[Spill]:
    for split, parts in pending.items():
        if any(len(part.orders) for part in parts):
            records = Records.joined(parts)
            parts.clear()
            yield write_spill(output, split, file.path, f"rows-{file.number:05d}-{number:05d}", records.sorted())
        parts.clear()
