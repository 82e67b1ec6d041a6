"""Values of records in words."""

import re
from typing import NamedTuple

import numpy as np

from recordmill.schemas.features import FeatureTable
from recordmill.schemas.rejects import UnusableError
from recordmill.schemas.sizes import size_text
from recordmill.transforms.draw.open_record_picture import picture_size
from recordmill.transforms.records.parse_example import Values
from recordmill.transforms.show.recognise_layout import Found

_MOST_NUMBERS = 24
"""More numbers than that are told by their range."""
HEX_SHOWN = 8


class ValueRow(NamedTuple):
    """A feature of a record.

    Attributes:
        type: its kind, with the names of its dimensions where they are known.
        text: its values, not cut; any character may be in it.
    """

    name: str
    type: str
    text: str


def describe_record(found: Found, table: FeatureTable) -> list[ValueRow]:
    """The features of a record, by name."""
    shapes = {feature.name: feature.shape for feature in table.features}
    rows = []
    for name in sorted(found):
        kind, values = found[name]
        shape = shapes.get(name, ())
        type_ = f"{kind.value} [{', '.join(shape)}]" if shape else kind.value
        rows.append(ValueRow(name, type_, describe_values(values, is_list=bool(shape))))
    return rows


def describe_values(values: Values, is_list: bool = False) -> str:
    """The values of a feature: of several their number comes first; of many numbers, from which to which they are.

    >>> describe_values(np.array([0.25, 1.0], np.float32)), describe_values([b"cat"]), describe_values([b"\\xff\\x00"])
    ('[2] 0.25, 1', 'cat', '2 bytes: ff 00')
    """
    number = f"[{len(values):,}] " if is_list or len(values) != 1 else ""
    if isinstance(values, list):
        return number + ", ".join(map(describe_bytes, values[:_MOST_NUMBERS]))
    if len(values) <= _MOST_NUMBERS:
        return number + ", ".join(map(_number, values.tolist()))
    finite = values[np.isfinite(values)]
    if not len(finite):
        return f"{number}none of them finite"
    odd = len(values) - len(finite)
    mean = f", mean {_number(finite.mean(dtype=np.float64))}" if values.dtype == np.float32 else ""
    described = f"{_number(finite.min())} to {_number(finite.max())}{mean}"
    return number + described + (f", {odd:,} not finite" if odd else "")


def _number(value: float) -> str:
    return f"{value:.5g}" if isinstance(value, float | np.floating) else str(value)


def describe_bytes(value: bytes) -> str:
    """A text as it is; of a picture its format and sizes; of anything else its size and how it begins."""
    try:
        picture = picture_size(value)
    except UnusableError as fault:
        return f"{size_text(len(value))}: a picture that cannot be opened: {fault.detail}"
    if picture:
        return f"{picture[0].upper()} {picture[1]}x{picture[2]}, {size_text(len(value))}"
    if (text := text_of(value)) is not None:
        return text
    return f"{size_text(len(value))}: {value[:HEX_SHOWN].hex(' ')}{' …' if len(value) > HEX_SHOWN else ''}"


def text_of(value: bytes) -> str | None:
    """Bytes as the text that they are in all likelihood; None where they are none."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return None if re.search(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]", text) else text
