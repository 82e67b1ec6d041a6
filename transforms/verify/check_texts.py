"""Texts as numbers are held against the encoder that has made them."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from recordmill.schemas.encoders import UNKNOWN_ID, EncoderInfo
from recordmill.transforms.records.record_values import RecordFault


def text_faults(values: dict[str, Any], encoder: EncoderInfo) -> Iterator[RecordFault]:
    """What is wrong with a text as numbers: an index that the vocabulary has not, or out of order; a weight that is
    none."""
    index, value = values.get(f"{encoder.column}.index"), values.get(f"{encoder.column}.value")
    tokens = values.get(f"{encoder.column}.tokens")
    found = tokens if index is None else index
    least = 0 if tokens is None else UNKNOWN_ID
    if found is not None and found.size and not (least <= found.min() and found.max() < encoder.size):
        what = f"{encoder.column}: {found.min()} .. {found.max()}"
        yield "text", f"{what} is not within {least} .. {encoder.size - 1}, the encoder's"
    if index is not None and (np.diff(index) <= 0).any():
        yield "text", f"{encoder.column}: the indices of its terms do not ascend"
    if value is not None and not (np.isfinite(value) & (value > 0)).all():
        yield "text", f"{encoder.column}: a term weighs {value.min():g}"
