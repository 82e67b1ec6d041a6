"""Values of Arrow's arrays."""

import pyarrow as pa
import pytest

from recordmill.transforms.rows.row_batch import python_values


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([[[1.5, -0.0], []], None, [[]], [None, [2.0, None]]], pa.list_(pa.list_(pa.float64()))),
        ([[1, 2], [], None, [None]], pa.large_list(pa.int64())),
        ([1.5, None], pa.float64()),
        ([1 << 62, -1], pa.int64()),
        ([1, 2], pa.uint64()),
        ([["a"], None, ["b", None]], pa.large_list(pa.large_string())),
        ([], pa.list_(pa.float64())),
    ],
)
@pytest.mark.parametrize("cut", [0, 1])
def test_python_values_are_those_of_arrow(values, type_, cut):
    array = pa.array([*values[:1], *values], type_).slice(cut)
    assert repr(python_values(array)) == repr(array.to_pylist())
