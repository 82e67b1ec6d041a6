"""Steps that read all rows before records are made: choose the types of columns, fit encoders of texts."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.features import ColumnType
from recordmill.schemas.inputs.encoders import EncoderSource, TextEncoder
from recordmill.schemas.inputs.tables import Column, RowsFile, TableSchema
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


class RowTexts(NamedTuple):
    """Texts of a column, for fitting an encoder.

    Attributes:
        split: whose rows have them.
        default: what a missing one is taken as; None where it is no text.
    """

    column: str
    split: str
    default: str | None = None


def fit_texts(
    files: PCollection[RowsFile],
    chosen: PCollection[ChosenSchema],
    sources: Sequence[EncoderSource],
    recipe: RowsRecipe,
    defaults: Mapping[str, str],
) -> PCollection[TextEncoder]:
    """Return the encoder of each source.

    Args:
        chosen: one ChosenSchema, without which no row is read.
        defaults: by column.
    """
    saved = [source.saved for source in sources if source.saved]
    fitted = [source for source in sources if not source.saved]
    create = beam.Create(saved).with_output_types(TextEncoder)
    encoders = [files.pipeline | "SavedEncoders" >> create] if saved else []
    if fitted:
        wanted = [RowTexts(each.column, each.fit_split, defaults.get(each.column)) for each in fitted]
        tags = [str(number) for number in range(len(wanted))]
        texts = beam.FlatMap(_texts, wanted, recipe, AsSingleton(chosen)).with_outputs(*tags)
        found = files | "SpreadFiles" >> beam.Reshuffle() | "Texts" >> texts
        encoders += [
            found[tag] | f"Fit-{each.column}" >> FitEncoder(each) for tag, each in zip(tags, fitted, strict=True)
        ]
    return encoders | "Encoders" >> beam.Flatten() if len(encoders) > 1 else encoders[0]


def _texts(
    file: RowsFile, wanted: Sequence[RowTexts], recipe: RowsRecipe, chosen: ChosenSchema
) -> Iterator[TaggedOutput]:
    progress.set_step("learning words")
    for number, texts in row_texts(file, wanted, recipe, chosen):
        yield TaggedOutput(str(number), texts)


def row_texts(
    file: RowsFile, wanted: Sequence[RowTexts], recipe: RowsRecipe, chosen: ChosenSchema
) -> Iterator[tuple[int, list[str]]]:
    """Yield the texts of columns, a list for many rows, with the index of the column among the wanted ones.

    Args:
        chosen: which says how classes are divided, where they are.
    """
    splits = recipe.splits
    label = TableSchema(tuple(column for column in chosen.schema.columns if column.name == splits.stratified))
    divide = RowEncoder(chosen._replace(schema=label), recipe._replace(image_column="", images=()))
    columns = *(each.column for each in wanted), *splits.columns, *filter(None, [splits.stratified])
    for batch in read_rows(file, recipe.reading._replace(columns=columns)):
        divided, split_of_row = divide(batch), np.full(len(batch.lines), -1)
        split_of_row[np.isin(batch.lines, divided.lines)] = divided.split
        for number, (name, split, default) in enumerate(wanted):
            column = Column(name, name, ColumnType.BYTES, default=default)
            texts, _ = column_texts(column, batch.columns.get(name), len(batch.lines))
            of_split = splits.names.index(split)
            yield (
                number,
                [text for at, text in zip(split_of_row, texts, strict=True) if at == of_split and text is not None],
            )
