import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.block import ragged_bytes
from recordmill.schemas.features import FeatureKind
from recordmill.schemas.field_features import FieldColumn, add_fields
from recordmill.schemas.layouts import LAYOUTS
from recordmill.transforms.encoders import encode_fields
from recordmill.transforms.encoders.encode_fields import FieldEncoder

VALUES = {
    FeatureKind.INT64: st.integers(-(2**63), 2**63 - 1) | st.booleans(),
    FeatureKind.FLOAT: st.floats(-1e30, 1e30) | st.integers(-(2**60), 2**60) | st.booleans(),
    FeatureKind.BYTES: st.text(max_size=3),
}
COLUMNS = st.sampled_from(list(VALUES)).flatmap(
    lambda kind: st.tuples(st.just(kind), st.lists(st.none() | VALUES[kind], min_size=1, max_size=6))
)


def encode(kind: FeatureKind, values: list) -> tuple[list, list]:
    column = FieldColumn("object", "a", kind)
    rows = ragged_bytes([b"" if value is None else msgspec.json.encode({"a": value}) for value in values])
    encoder = FieldEncoder(add_fields(LAYOUTS["detection"].with_parts(()), [column]))
    columns, faults = encoder.encode("object", rows, len(values))
    (stored,) = columns.values()
    return list(stored), faults


@given(COLUMNS)
def test_plain_columns_are_those_of_the_general_way(drawn):
    quick = encode(*drawn)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode_fields, "_plain_column", lambda column, values: None)
        slow = encode(*drawn)
    np.testing.assert_array_equal(quick[0], slow[0])
    assert quick[1] == slow[1] == []


@pytest.mark.parametrize(
    ("kind", "values", "stored"),
    [
        (FeatureKind.INT64, ["true", "FALSE", "-7", None, True], [1, 0, -7, -1, 1]),
        (FeatureKind.FLOAT, ["1.5", 2, None], [1.5, 2, np.nan]),
        (FeatureKind.BYTES, ["a", 1, True, None], [b"a", b"1", b"true", b""]),
    ],
)
def test_other_values_become_the_kind(kind, values, stored):
    written, faults = encode(kind, values)
    np.testing.assert_array_equal(written, stored)
    assert not faults


def test_values_that_do_not_fit_are_faults():
    assert [fault.place for fault in encode(FeatureKind.INT64, [1, 2**63, "x"])[1]] == [1, 2]
