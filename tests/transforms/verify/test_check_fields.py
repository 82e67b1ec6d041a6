"""Faults of open fields in a record."""

import msgspec
import pytest

from recordmill.schemas.dataset.checks import Check
from recordmill.schemas.features import FeatureKind, FeatureTable
from recordmill.transforms.records.example import ExampleWriter
from recordmill.transforms.verify.check_records import RecordChecker
from tests.recordmill.splits import LABELS
from tests.recordmill.test_read_fields import contents_of, draw_record

TABLE = contents_of("detection").table
OTHERS = {
    FeatureKind.INT64: FeatureKind.FLOAT,
    FeatureKind.FLOAT: FeatureKind.INT64,
    FeatureKind.BYTES: FeatureKind.INT64,
}


def faults_of(check: Check, values: dict, table: FeatureTable = TABLE) -> set[tuple[str, str]]:
    """Reasons and details, but for those of drawn images and boxes."""
    _, faults = RecordChecker(check, TABLE, LABELS, boxes_inside=False)(ExampleWriter(table).write(values))
    return {fault for fault in faults if fault[0] in ("schema", "object_lists")}


@pytest.mark.parametrize("check", list(Check))
@pytest.mark.parametrize("objects", [0, 2])
def test_good_record(check, objects):
    assert faults_of(check, draw_record("detection", 1, objects).values) == set()


LISTS = [feature.source for feature in TABLE.features if ".field:" in feature.source and feature.is_list]


@pytest.mark.parametrize("check", list(Check))
@pytest.mark.parametrize("source", LISTS)
def test_number_of_values(check, source):
    values = draw_record("detection", 1, 2).values
    values[source] = values[source] + values[source][:1]
    is_own = (source.startswith("image.") and ".pair" not in source) or source == "image.field:bytes.pair"
    assert bool(faults_of(check, values)) != is_own, "a list of an image may have any number of values"


@pytest.mark.parametrize("check", list(Check))
def test_number_of_values_of_an_object(check):
    values = draw_record("detection", 1, 2).values
    lengths = "objects.field:int64.list/ragged_row_lengths_0"
    values[lengths] = [length + 1 for length in values[lengths]]
    detail = "objects.field:int64.list/ragged_flat_values: 3 values for lists of 5 values"
    assert faults_of(check, values) == {("object_lists", detail)}


@pytest.mark.parametrize("check", list(Check))
@pytest.mark.parametrize("source", [feature.source for feature in TABLE.features if ".field:" in feature.source])
def test_kinds(check, source):
    features = tuple(
        msgspec.structs.replace(feature, kind=OTHERS[feature.kind]) if feature.source == source else feature
        for feature in TABLE.features
    )
    (feature,) = (feature for feature in features if feature.source == source)
    values = draw_record("detection", 1, 2).values
    values[source] = [1] * len(values[source]) if feature.is_list else 1
    ((reason, _),) = faults_of(check, values, msgspec.structs.replace(TABLE, features=features))
    assert reason == "schema"
