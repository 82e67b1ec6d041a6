"""Files of rows become sorted files of records, see `spill_file`."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.encoders import TextCounts
from recordmill.schemas.manifest import InputRows
from recordmill.schemas.rejects import SplitReject
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

OF_FILE = "of_file"
"""The output of steps that give OfFile."""
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


class OfFile(NamedTuple):
    """What a file gave to a split.

    Attributes:
        classes: records of each class index.
        texts: what was encoded, by column.
    """

    split: str
    rows: InputRows
    classes: dict[int, int]
    texts: dict[str, TextCounts]


class FileCounts:
    """Sums over the batches of a file."""

    def __init__(self, splits: Sequence[str]):
        self._splits = splits
        self._rows: Counter[str] = Counter()
        self._classes: dict[str, Counter[int]] = {split: Counter() for split in splits}
        self._texts: dict[str, Counter[tuple[str, int]]] = {split: Counter() for split in splits}

    def add(self, split: str, rows: int, classes: Mapping[int, int], texts: Mapping[str, np.ndarray]) -> None:
        """Rows of a split, the classes of their records, and of each column's texts the numbers that TextCounts has."""
        self._rows[split] += rows
        self._classes[split].update(classes)
        for column, counts in texts.items():
            self._texts[split].update({(column, place): int(count) for place, count in enumerate(counts)})

    def of(self, path: str) -> Iterator[OfFile]:
        """The sums, for each split that has rows."""
        for split in self._splits:
            if rows := self._rows[split]:
                counts = self._texts[split]
                texts = {column: TextCounts(*(counts[column, place] for place in range(4))) for column, _ in counts}
                yield OfFile(split, InputRows(path, "rows", rows, 0), dict(self._classes[split]), texts)


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
        spill = beam.FlatMap(_spill, AsSingleton(self._chosen), self._recipe)
        return files | "SpreadFiles" >> beam.Reshuffle() | "Spill" >> spill.with_outputs(FACTS, OF_FILE, main="spills")


def _spill(file: RowsFile, chosen: ChosenSchema, recipe: RowsRecipe) -> Iterator[Any]:
    progress.set_step("reading rows")
    facts = FactsBuilder()
    for item in spill_file(file, chosen, recipe):
        if isinstance(item, SplitReject):
            facts.reject(*item)
        else:
            yield TaggedOutput(OF_FILE, item) if isinstance(item, OfFile) else item
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
