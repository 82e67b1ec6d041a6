"""Rows of tables that name pictures become image rows, each with the record of its other columns."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton, PCollection

from recordmill.schemas.annotations import ImageLabels, TableRow
from recordmill.schemas.block import Block, ragged_texts
from recordmill.schemas.splits import name_id
from recordmill.schemas.tables import RowsFile
from recordmill.transforms.blocks.image_tasks import label_column
from recordmill.transforms.blocks.pack_block import pack_parts
from recordmill.transforms.dataset.facts import FACTS, tagged
from recordmill.transforms.join.match_blocks import name_buckets
from recordmill.transforms.table.choose_schema import ChosenSchema
from recordmill.transforms.table.make_records import MadeRows, RowsRecipe
from recordmill.transforms.table.read_records import RowReader

BUCKETS = 64
"""Of names, in which rows meet their files."""


class ReadPictureRows(beam.PTransform):
    """Convert RowsFile to (bucket of names, packed Block of image rows) in the output `rows`; Facts are in the
    output FACTS.

    Args:
        chosen: a PCollection of one ChosenSchema.
    """

    def __init__(self, chosen: PCollection, recipe: RowsRecipe):
        super().__init__()
        self._chosen = chosen
        self._recipe = recipe

    def expand(self, files: PCollection[RowsFile]):
        read = beam.FlatMap(_read, AsSingleton(self._chosen), self._recipe).with_output_types(tuple[int, bytes])
        return files | "SpreadFiles" >> beam.Reshuffle() | "Read" >> read.with_outputs(FACTS, main="rows")


def _read(file: RowsFile, chosen: ChosenSchema, recipe: RowsRecipe) -> Iterator[Any]:
    reader = RowReader(file, chosen, recipe)
    for made in reader:
        if made.names:
            block = picture_block(made, file, chosen, recipe)
            yield from pack_parts(block, name_buckets(made.names, "path", BUCKETS))
    yield tagged(reader.facts)


def picture_block(made: MadeRows, file: RowsFile, chosen: ChosenSchema, recipe: RowsRecipe) -> Block:
    """The rows of a batch as images."""
    good, labels = made.good, []
    class_names = [category.name for category in chosen.labels.categories]
    of_rows = [None] * len(made.names) if good.classes is None else [class_names[c] for c in good.classes.tolist()]
    for record, line, class_name in zip(good.records, good.lines.tolist(), of_rows, strict=True):
        row = TableRow(record.as_py(), line, f"{file.path} row {line}: column {recipe.image_column}")
        labels.append(ImageLabels(class_name=class_name, row=row))
    return Block(
        image_id=np.array([name_id(identity.decode()) for identity in good.identities], np.int64),
        file_name=ragged_texts(made.names),
        image_size_px=np.zeros((len(labels), 2), np.int64),
        split=made.split,
        labels=label_column(labels),
    )
