"""Convert columns of texts to features of their terms or tokens."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from recordmill.schemas.features import ColumnType
from recordmill.schemas.inputs.tables import Column
from recordmill.schemas.rejects import Reason
from recordmill.transforms.encoders.fit_encoder import TextVectorizer
from recordmill.transforms.rows.convert_columns import FeatureColumn, ValueFault, as_texts
from recordmill.transforms.rows.row_batch import format_value

_TERM_VALUES = {ColumnType.TERM_VALUE: np.float32, ColumnType.TERM_COUNT: np.int64}
MOST_TEXT_BYTES = 1 << 24
"""Maximum bytes of a text, and of a row of CSV. The terms of a text take 30 times its memory."""


def convert_texts(
    columns: Sequence[Column], array: pa.Array | None, rows: int, vectorize: TextVectorizer
) -> tuple[list[FeatureColumn], list[ValueFault], np.ndarray]:
    """Return the features of a column of texts. A row without a text has no terms.

    Args:
        columns: Columns of one feature each.
        array: See `convert_column`.
    """
    texts, faults = column_texts(columns[0], array, rows)
    vectors = vectorize([text or "" for text in texts])
    features = []
    for column in columns:
        values = vectors.values if column.type in _TERM_VALUES else vectors.indices
        values = values.astype(_TERM_VALUES.get(column.type, np.int64))
        features.append(FeatureColumn(column.feature, column.kind, values, vectors.ends))
    has_text = np.array([text is not None for text in texts], bool)
    return features, faults, vectors.counts * has_text[:, None]


def column_texts(column: Column, array: pa.Array | None, rows: int) -> tuple[list[str | None], list[ValueFault]]:
    """Return the text of each row, None if it is missing or faulty; and faults of texts that are not UTF-8 or too
    long."""
    values = pa.nulls(rows) if array is None else array
    values = as_texts(values.dictionary_decode() if pa.types.is_dictionary(values.type) else values)
    texts: list[str | None] = []
    faults: list[ValueFault] = []
    for place, data in enumerate(values.cast(pa.large_binary()).to_pylist()):
        texts.append(column.default)
        if data is None:
            continue
        texts[place] = None
        if len(data) > MOST_TEXT_BYTES:
            detail = f"column {column.name}: a text of {len(data):,} bytes; the limit is {MOST_TEXT_BYTES:,}"
            faults.append(ValueFault(place, Reason.RECORD_TOO_LARGE, detail))
            continue
        try:
            texts[place] = data.decode()
        except UnicodeDecodeError:
            faults.append(
                ValueFault(place, Reason.OTHER_TYPE, f"column {column.name}: {format_value(data)} is not UTF-8")
            )
    return texts, faults
