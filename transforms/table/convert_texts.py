"""Texts of a column become numbers; rows with a text that is none are found."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from recordmill.schemas.rejects import Reason
from recordmill.schemas.tables import Column, ColumnType
from recordmill.transforms.table.convert_columns import Fault, convert_column
from recordmill.transforms.table.encode_rows import FeatureColumn
from recordmill.transforms.table.row_batch import shown
from recordmill.transforms.text.encode_texts import TextVectorizer

_VALUES = {ColumnType.TERM_VALUE: np.float32, ColumnType.TERM_COUNT: np.int64}
MOST_TEXT_BYTES = 1 << 24
"""As long as a row of CSV may be. The terms of a text take thirty times its memory."""


class ConvertedTexts(NamedTuple):
    """A column's features; those of rows with a fault are whatever.

    Attributes:
        counts: int64 [rows, 4]: what TextCounts has, of each row.
    """

    features: list[FeatureColumn]
    faults: list[Fault]
    counts: np.ndarray


def convert_texts(
    columns: Sequence[Column], array: pa.Array | None, rows: int, is_typed: bool, vectorize: TextVectorizer
) -> ConvertedTexts:
    """The features of a column of texts. A row without a text has no terms.

    Args:
        columns: what the column becomes, one a feature.
        array, is_typed: see `convert_column`.
    """
    texts, faults = column_texts(columns[0], array, rows, is_typed)
    vectors = vectorize([text or "" for text in texts])
    features = []
    for column in columns:
        values = vectors.values if column.type in _VALUES else vectors.indices
        values = values.astype(_VALUES.get(column.type, np.int64))
        features.append(FeatureColumn(column.feature, column.kind, values, vectors.ends))
    has_text = np.array([text is not None for text in texts], bool)
    return ConvertedTexts(features, faults, vectors.counts * has_text[:, None])


def column_texts(
    column: Column, array: pa.Array | None, rows: int, is_typed: bool
) -> tuple[list[str | None], list[Fault]]:
    """The text of each row, None where it has none; and rows whose bytes are no UTF-8, or too many."""
    raw = Column(column.name, column.name, ColumnType.BYTES, is_optional=True, default=column.default)
    converted = convert_column(raw, array, rows, is_typed, {})
    found = iter(converted.feature.values.to_pylist())
    absent = converted.feature.absent
    texts: list[str | None] = []
    faults = list(converted.faults)
    for place in range(rows):
        data = None if absent is not None and absent[place] else next(found)
        if data is not None and len(data) > MOST_TEXT_BYTES:
            texts.append(None)
            detail = f"column {column.name}: a text of {len(data):,} bytes, where at most {MOST_TEXT_BYTES:,} are taken"
            faults.append(Fault(place, Reason.RECORD_TOO_LARGE, detail))
            continue
        try:
            texts.append(None if data is None else data.decode())
        except UnicodeDecodeError:
            texts.append(None)
            faults.append(Fault(place, Reason.OTHER_TYPE, f"column {column.name}: {shown(data)} is no UTF-8 text"))
    return texts, faults
