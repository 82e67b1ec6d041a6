"""Steps that read all rows before records are made: choose the types of columns, fit encoders of texts."""

from collections.abc import Iterator, Sequence
from functools import partial

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.inputs.encoders import EncoderSource, TextEncoder
from recordmill.schemas.inputs.tables import RowsFile, TableSchema
from recordmill.transforms.encoders.fit_encoder import FitEncoder
from recordmill.transforms.rows.read_rows import read_rows
from recordmill.transforms.runtime import progress
from recordmill.transforms.table.choose_schema import ChosenSchema, ColumnChoice, choose_schema
from recordmill.transforms.table.convert_columns import column_texts
from recordmill.transforms.table.make_records import RowEncoder, RowsRecipe
from recordmill.transforms.table.observe_columns import TableStats, observe
from recordmill.transforms.table.read_records import made_ahead


def observe_file(file: RowsFile, recipe: RowsRecipe, distinct: tuple[str, ...]) -> TableStats:
    progress.set_step("looking at columns")
    stats = TableStats()
    for seen in made_ahead(partial(observe, file=file.number, distinct=distinct), file, recipe):
        stats.add(seen)
    return stats


def choose_columns(found: list[TableStats], choice: ColumnChoice, files: tuple[RowsFile, ...]) -> ChosenSchema:
    """Merge facts in the order of the files: columns are in the order of the first file that has them."""
    total = TableStats()
    for stats in sorted(found, key=lambda stats: sorted(stats.bad)):
        total.add(stats)
    return choose_schema(total, choice, files)


def fit_texts(
    files: PCollection[RowsFile],
    chosen: PCollection[ChosenSchema],
    sources: Sequence[EncoderSource],
    recipe: RowsRecipe,
) -> PCollection[TextEncoder]:
    """Return the encoder of each source.

    Args:
        chosen: one ChosenSchema, without which no row is read.
    """
    saved = [source.saved for source in sources if source.saved]
    fitted = [source for source in sources if not source.saved]
    create = beam.Create(saved).with_output_types(TextEncoder)
    encoders = [files.pipeline | "SavedEncoders" >> create] if saved else []
    if fitted:
        texts = beam.FlatMap(row_texts, fitted, recipe, AsSingleton(chosen))
        found = (
            files
            | "SpreadToLearn" >> beam.Reshuffle()
            | "Texts" >> texts.with_outputs(*(f"of {each.column}" for each in fitted))
        )
        encoders += [found[f"of {each.column}"] | f"Fit-{each.column}" >> FitEncoder(each) for each in fitted]
    return encoders | "Encoders" >> beam.Flatten() if len(encoders) > 1 else encoders[0]


def row_texts(
    file: RowsFile, sources: Sequence[EncoderSource], recipe: RowsRecipe, chosen: ChosenSchema
) -> Iterator[TaggedOutput]:
    """Yield the texts of columns, a list for many rows, in the output of their column.

    Args:
        chosen: which says how classes are divided, where they are.
    """
    progress.set_step("learning words")
    splits, columns = recipe.splits, {column.name: column for column in chosen.schema.columns}
    label = TableSchema(tuple(columns[name] for name in [splits.stratified] if name))
    divide = RowEncoder(chosen._replace(schema=label), recipe._replace(image_column="", images=()))
    names = *(each.column for each in sources), *splits.columns, *filter(None, [splits.stratified])
    for batch in read_rows(file, recipe.reading._replace(columns=names)):
        divided, split_of_row = divide(batch), np.full(len(batch.lines), -1)
        split_of_row[np.isin(batch.lines, divided.lines)] = divided.split
        for name, of_split in ((each.column, splits.names.index(each.fit_split)) for each in sources):
            texts, _ = column_texts(columns[name], batch.columns.get(name), len(batch.lines))
            found = (text for at, text in zip(split_of_row, texts, strict=True) if at == of_split)
            yield TaggedOutput(f"of {name}", [text for text in found if text is not None])
