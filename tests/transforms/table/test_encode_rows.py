import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.features import Feature, FeatureKind, FeatureTable
from recordmill.transforms.records.example import ExampleWriter
from recordmill.transforms.rows.convert_columns import FeatureColumn
from recordmill.transforms.table.encode_records import encode_records

VALUES = {
    FeatureKind.INT64: st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-1, 300),
    FeatureKind.FLOAT: st.floats(width=32, allow_nan=False),
    FeatureKind.BYTES: st.binary(max_size=300),
}


def column(name: str, kind: FeatureKind, rows: list[list | None]) -> FeatureColumn:
    flat = [value for row in rows for value in row or []]
    values = (
        pa.array(flat, pa.binary())
        if kind is FeatureKind.BYTES
        else np.array(flat, "<f4" if kind is FeatureKind.FLOAT else "<i8")
    )
    ends = np.concatenate([[0], np.cumsum([len(row or []) for row in rows])]).astype(np.int64)
    absent = np.array([row is None for row in rows])
    return FeatureColumn(name, kind, values, ends, absent if absent.any() else None)


@settings(max_examples=60)
@given(st.data())
def test_bytes_are_one_record_at_time(data):
    rows = data.draw(st.integers(1, 5))
    kinds = data.draw(
        st.dictionaries(st.text("abc/é", min_size=1, max_size=130), st.sampled_from(FeatureKind), min_size=1)
    )
    cells = {
        name: [data.draw(st.none() | st.lists(VALUES[kind], max_size=4)) for _ in range(rows)]
        for name, kind in kinds.items()
    }
    made = encode_records([column(name, kind, cells[name]) for name, kind in kinds.items()], rows)
    for row in range(rows):
        present = {name: kind for name, kind in kinds.items() if cells[name][row] is not None}
        features = tuple(Feature(name, name, present[name], ("N",), "", "") for name in sorted(present))
        expected = ExampleWriter(FeatureTable("t", features)).write({name: cells[name][row] for name in present})
        assert made[row].as_py() == expected


def test_lengths_that_differ_by_more_than_are_counted():
    texts = [b"", b"x" * 200_000]
    made = encode_records([column("a", FeatureKind.BYTES, [[text] for text in texts])], 2)
    table = FeatureTable("t", (Feature("a", "a", FeatureKind.BYTES, (), "", ""),))
    assert made.to_pylist() == [ExampleWriter(table).write({"a": text}) for text in texts]
