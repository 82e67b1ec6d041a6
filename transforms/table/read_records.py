"""Rows of a file as records, and what is known of them."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from recordmill.schemas.encoders import TextCounts
from recordmill.schemas.manifest import InputRows
from recordmill.schemas.tables import RowsFile
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.threads import look_ahead, usable_cores
from recordmill.transforms.table.choose_schema import ChosenSchema
from recordmill.transforms.table.make_records import MadeRows, RowEncoder, RowsRecipe
from recordmill.transforms.table.read_rows import read_rows
from recordmill.transforms.table.row_batch import RowBatch

Made = TypeVar("Made")


class RowReader:
    """Iterates over the records of a file, a batch of rows at a time; rows that do not fit are counted as rejects.

    Attributes:
        facts: of the rows so far.
    """

    def __init__(self, file: RowsFile, chosen: ChosenSchema, recipe: RowsRecipe):
        self._file = file
        self._chosen = chosen
        self._recipe = recipe
        self.facts = FactsBuilder()

    def __iter__(self) -> Iterator[MadeRows]:
        progress.set_step("reading rows")
        for made in made_ahead(RowEncoder(self._chosen, self._recipe), self._file, self._recipe):
            self._count(made)
            yield made

    def _count(self, made: MadeRows) -> None:
        good, splits = made.good, self._recipe.splits.names
        numbers = np.bincount(made.split, minlength=len(splits))
        numbers[0] += len(good.bad)
        for number, split in enumerate(splits):
            if numbers[number]:
                self.facts.add_rows(split, InputRows(self._file.path, "rows", int(numbers[number]), 0))
            for column, counts in good.texts.items():
                of_split = counts[made.split == number].sum(axis=0)
                self.facts.add_texts(split, column, TextCounts(*of_split.tolist()))
        for bad in good.bad:
            self.facts.reject(splits[0], bad.reject(self._file.path))
        if good.classes is not None and not self._recipe.image_column:  # of pictures, some are not written
            for number, split in enumerate(splits):
                self.facts.add_classes(split, Counter(good.classes[made.split == number].tolist()))


def made_ahead(make: Callable[[RowBatch], Made], file: RowsFile, recipe: RowsRecipe) -> Iterator[Made]:
    """What is made of batches, in their order; threads make it, as Arrow's work needs no interpreter."""
    cores = usable_cores()
    with ThreadPoolExecutor(cores) as pool:
        yield from look_ahead(make, read_rows(file, recipe.read, recipe.encoding), pool, cores)
