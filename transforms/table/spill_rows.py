"""Files of rows become sorted files of records, see `spill_file`."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection

from recordmill.schemas.rejects import SplitReject
from recordmill.schemas.table_splits import RowSplits
from recordmill.schemas.tables import RowsFile
from recordmill.transforms.dataset.facts import FACTS, FactsBuilder, tagged
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.cores import usable_cores
from recordmill.transforms.runtime.look_ahead import look_ahead
from recordmill.transforms.table.choose_schema import ChosenSchema
from recordmill.transforms.table.count_rows import OF_FILE, FileCounts, OfFile
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
    """Convert RowsFile to Spill; further outputs are `facts` and `of_file` (OfFile).

    Args:
        chosen: a PCollection of one ChosenSchema.
    """

    def __init__(self, chosen: PCollection, recipe: RowsRecipe):
        super().__init__()
        self._chosen = chosen
        self._recipe = recipe

    def expand(self, files: PCollection[RowsFile]):
        return (
            files
            | "SpreadFiles" >> beam.Reshuffle()
            | "Spill"
            >> beam.ParDo(_SpillFile(self._recipe), AsSingleton(self._chosen)).with_outputs(
                FACTS, OF_FILE, main="spills"
            )
        )


class _SpillFile(beam.DoFn):
    def __init__(self, recipe: RowsRecipe):
        self._recipe = recipe

    def process(self, file: RowsFile, chosen: ChosenSchema) -> Iterator[Any]:
        progress.set_step("reading rows")
        facts = FactsBuilder()
        for item in spill_file(file, chosen, self._recipe):
            if isinstance(item, SplitReject):
                facts.reject(*item)
            else:
                yield beam.pvalue.TaggedOutput(OF_FILE, item) if isinstance(item, OfFile) else item
        yield tagged(facts)


def spill_file(file: RowsFile, chosen: ChosenSchema, recipe: RowsRecipe) -> Iterator[Any]:
    """Spill of each split, SplitReject, and an OfFile a split."""
    make = RecordMaker(chosen.schema, chosen.labels, recipe.splits, recipe.seed, chosen.encoders, chosen.borders)
    pending: dict[str, list[Records]] = {split: [] for split in recipe.splits.names}
    counts = FileCounts(recipe.splits.names)
    size = number = 0
    for made in made_ahead(make, file, recipe):
        for split, records in made.by_split.items():
            pending[split].append(records)
            counts.add(split, len(records.orders), made.classes[split], made.texts[split])
            size += records.records.nbytes
        counts.add(recipe.splits.names[0], len(made.bad), {}, {})
        for bad in made.bad:
            yield SplitReject(recipe.splits.names[0], bad.reject(file.path))
        if size >= _SPILL_BYTES:
            yield from _spills(pending, file, number, recipe.output)
            size, number = 0, number + 1
    yield from _spills(pending, file, number, recipe.output)
    yield from counts.of(file.path)


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
