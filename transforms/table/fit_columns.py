"""Steps that read all rows before records are made: choose the types of columns, fit the encoders of texts."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.inputs.encoders import EncoderSource, TextEncoder
from recordmill.schemas.inputs.labels import ExistingLabels
from recordmill.schemas.inputs.tables import Column, RowsFile, RowsReading, TableSchema
from recordmill.transforms.encoders.fit_encoder import FitEncoder
from recordmill.transforms.rows.observe_columns import TableStats, observe
from recordmill.transforms.rows.read_rows import read_rows
from recordmill.transforms.runtime import progress
from recordmill.transforms.shape.class_map import read_class_map
from recordmill.transforms.table.choose_schema import ChosenSchema, choose_schema
from recordmill.transforms.table.convert_texts import column_texts
from recordmill.transforms.table.make_records import RowEncoder
from recordmill.transforms.table.read_records import map_batches
from recordmill.transforms.table.table_options import TableOptions


def observe_file(file: RowsFile, reading: RowsReading, distinct: tuple[str, ...]) -> TableStats:
    progress.set_step("looking at columns")
    stats = TableStats()
    for batch_stats in map_batches(partial(observe, file=file.number, distinct=distinct), file, reading):
        stats.add(batch_stats)
    return stats


def choose_columns(
    file_stats: list[TableStats],
    options: TableOptions,
    known: Mapping[str, Column],
    existing: ExistingLabels | None,
    files: tuple[RowsFile, ...],
) -> ChosenSchema:
    """Merge facts in the order of the files, so that columns are in the order of the first file that has them; see
    `choose_schema`."""
    total = TableStats()
    for stats in sorted(file_stats, key=lambda stats: sorted(stats.bad)):
        total.add(stats)
    class_map = read_class_map(options.class_map) if options.class_map else None
    return choose_schema(total, options, known, existing, files, class_map)


# Long list of arguments: see `recordmill.transforms.table.read_records`.
def fit_texts(
    files: PCollection[RowsFile],
    chosen: PCollection[ChosenSchema],
    sources: Sequence[EncoderSource],
    options: TableOptions,
    splits: tuple[str, ...],
    reading: RowsReading,
) -> PCollection[TextEncoder]:
    """Return the encoder of each source.

    Args:
        chosen: One ChosenSchema. Rows are read after it.
    """
    saved = [source.saved for source in sources if source.saved]
    fitted = [source for source in sources if not source.saved]
    create = beam.Create(saved).with_output_types(TextEncoder)
    encoders = [files.pipeline | "SavedEncoders" >> create] if saved else []
    if fitted:
        read = beam.FlatMap(row_texts, fitted, AsSingleton(chosen), options, splits, reading)
        texts = (
            files
            | "SpreadToLearn" >> beam.Reshuffle()
            | "Texts" >> read.with_outputs(*(f"of {source.column}" for source in fitted))
        )
        encoders += [texts[f"of {source.column}"] | f"Fit-{source.column}" >> FitEncoder(source) for source in fitted]
    return encoders | "Encoders" >> beam.Flatten() if len(encoders) > 1 else encoders[0]


def row_texts(
    file: RowsFile,
    sources: Sequence[EncoderSource],
    chosen: ChosenSchema,
    options: TableOptions,
    splits: tuple[str, ...],
    reading: RowsReading,
) -> Iterator[TaggedOutput]:
    """Yield the texts of columns, a list for a batch of rows, in the output of their column.

    Args:
        chosen: Schema, with the borders of classes if they are divided one by one.
    """
    progress.set_step("learning words")
    columns = {column.name: column for column in chosen.schema.columns}
    stratified = [options.label] if (options.stratify or options.class_map) and options.label else []
    label = TableSchema(tuple(columns[name] for name in stratified))
    divide = RowEncoder(chosen._replace(schema=label), options, splits, ignores_images=True)
    names = (*(source.column for source in sources), *options.required_columns, *stratified)
    for batch in read_rows(file, reading._replace(columns=names)):
        divided, split_of_row = divide(batch), np.full(len(batch.lines), -1)
        split_of_row[np.isin(batch.lines, divided.lines)] = divided.split
        for source in sources:
            name, fit_split = source.column, splits.index(source.fit_split)
            texts, _ = column_texts(columns[name], batch.columns.get(name), len(batch.lines))
            fit_texts = (text for split, text in zip(split_of_row, texts, strict=True) if split == fit_split)
            yield TaggedOutput(f"of {name}", [text for text in fit_texts if text is not None])
