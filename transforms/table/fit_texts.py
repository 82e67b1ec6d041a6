"""The texts of one split's rows become the encoders of their columns."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection

from recordmill.schemas.encoders import EncoderSource, TextEncoder
from recordmill.schemas.table_splits import RowSplits
from recordmill.schemas.tables import Column, ColumnType, RowsFile
from recordmill.transforms.runtime import progress
from recordmill.transforms.table.choose_schema import ChosenSchema
from recordmill.transforms.table.convert_texts import column_texts
from recordmill.transforms.table.make_records import RecordMaker
from recordmill.transforms.table.read_rows import read_rows
from recordmill.transforms.text.fit_encoder import FitEncoder


class RowTexts(NamedTuple):
    """Where texts are.

    Attributes:
        default: what a missing one is taken as; None where it is no text.
        encoding: of CSV files.
    """

    column: str
    split: str
    splits: RowSplits
    default: str | None
    encoding: str


class FitTexts(beam.PTransform):
    """RowsFile become TextEncoder, one for each of `sources`.

    Args:
        chosen: a PCollection of one ChosenSchema, without which no row is read.
        defaults: by column.
    """

    def __init__(
        self,
        sources: Sequence[EncoderSource],
        splits: RowSplits,
        defaults: Mapping[str, str],
        encoding: str,
        chosen: PCollection,
    ):
        super().__init__()
        self._sources = sources
        self._splits = splits
        self._defaults = defaults
        self._encoding = encoding
        self._chosen = chosen

    def expand(self, files: PCollection[RowsFile]) -> PCollection[TextEncoder]:
        spread = files | "SpreadFiles" >> beam.Reshuffle()
        found = [self._encoder(spread, source) for source in self._sources]
        return found | "Encoders" >> beam.Flatten() if len(found) > 1 else found[0]

    def _encoder(self, files: PCollection[RowsFile], source: EncoderSource) -> PCollection[TextEncoder]:
        if source.saved:
            saved = files.pipeline | f"Saved-{source.column}" >> beam.Create([source.saved])
            return saved | f"Typed-{source.column}" >> beam.Map(_same).with_output_types(TextEncoder)
        default = self._defaults.get(source.column)
        where = RowTexts(source.column, source.fit_split, self._splits, default, self._encoding)
        texts = files | f"Texts-{source.column}" >> beam.FlatMap(
            _texts, where, AsSingleton(self._chosen)
        ).with_output_types(str)
        fit = FitEncoder(source.settings, source.column, source.fit_split, source.known)
        return texts | f"Fit-{source.column}" >> fit


def _same(encoder: TextEncoder) -> TextEncoder:
    return encoder


def _texts(file: RowsFile, where: RowTexts, chosen: ChosenSchema) -> Iterator[str]:
    progress.set_step("learning words")
    return row_texts(file, where, chosen)


def row_texts(file: RowsFile, where: RowTexts, chosen: ChosenSchema) -> Iterator[str]:
    """The texts of the rows of one split."""
    column = Column(where.column, where.column, ColumnType.BYTES, default=where.default)
    splits = where.splits
    divide = RecordMaker(chosen.schema, chosen.labels, splits, 0, borders=chosen.borders).splits_of
    number = splits.names.index(where.split)
    columns = where.column, *splits.columns, *filter(None, [splits.stratified])
    for batch in read_rows(file, columns, where.encoding):
        texts, _ = column_texts(column, batch.columns.get(where.column), len(batch.lines), batch.is_typed)
        for split, text in zip(divide(batch), texts, strict=True):
            if split == number and text is not None:
                yield text
