import pytest

from recordmill.schemas.inputs.labels import LabelMap
from recordmill.transforms.extract.extract_files import UnusableRecordError, read_record
from tests.transforms.records.test_parse_record import TABLE, record


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"no record", "schema"),
        (b"", "schema"),
        (record(image=[]), "schema"),
        (record(**{"objects/id": [5]}), "object_lists"),
        (record(**{"objects/bbox": [0.0] * 4}), "object_lists"),
        (record(**{"objects/bbox": [0.0] * 7}), "schema"),
        (record(**{"objects/bbox": [0.0] * 7 + [float("inf")]}), "schema"),
    ],
)
def test_a_record_that_cannot_be_used(data, reason):
    with pytest.raises(UnusableRecordError) as caught:
        read_record(data, TABLE, LabelMap(()))
    assert caught.value.reason == reason
    assert "\n" not in caught.value.detail
