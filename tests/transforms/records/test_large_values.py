"""Large values are cut out of a record before protobuf parses it. All results equal those of protobuf alone."""

import random

import pytest

from recordmill.schemas.features import Feature, FeatureKind, FeatureTable, RecordOf
from recordmill.transforms.records import parse_record
from recordmill.transforms.records.example import LARGE_BYTES, cut_large_values, varint
from recordmill.transforms.records.parse_record import RecordParseError, RecordParser

IMAGE, OTHER = b"\xff\xd8" + bytes(LARGE_BYTES), b"x" * LARGE_BYTES


def length(size: int, more: int = 0) -> bytes:
    """A varint of two bytes, or `more` bytes longer than needed."""
    septets = [size & 127, size >> 7 & 127, size >> 14 & 127, *[0] * more]
    return bytes([*(septet | 128 for septet in septets[:-1]), septets[-1]])


def field(tag: int, body: bytes, more: int = 0) -> bytes:
    return bytes([tag]) + length(len(body), more) + body


def bytes_list(*values: bytes) -> bytes:
    return field(0x0A, b"".join(field(0x0A, value) for value in values))


def entry(name: bytes, feature: bytes) -> bytes:
    return field(0x0A, field(0x0A, name) + field(0x12, feature))


def example(*entries: bytes) -> bytes:
    return field(0x0A, b"".join(entries))


FLOATS = field(0x12, field(0x0A, bytes(LARGE_BYTES)))
UNPACKED = field(0x1A, b"\x08\x07" * LARGE_BYTES)
A_IMAGE, B_INT = entry(b"a", bytes_list(IMAGE)), entry(b"b", field(0x1A, field(0x0A, b"\x07")))
NAMED = field(0x0A, b"a") + field(0x12, bytes_list(IMAGE))
SMALL = entry(b"a", bytes_list(b"small"))

RECORDS = {
    "one value": example(A_IMAGE, B_INT),
    "in the middle": example(B_INT, A_IMAGE, entry(b"c", FLOATS)),
    "large twice": example(A_IMAGE, entry(b"c", bytes_list(OTHER)), B_INT),
    "name twice": example(A_IMAGE, B_INT, entry(b"a", bytes_list(OTHER))),
    "large, then small": example(A_IMAGE, SMALL),
    "small, then large": example(SMALL, A_IMAGE),
    "two values": example(entry(b"a", bytes_list(IMAGE, OTHER))),
    "list in two parts": example(entry(b"a", bytes_list(IMAGE) + bytes_list(OTHER))),
    "another kind after it": example(entry(b"a", bytes_list(IMAGE) + FLOATS)),
    "value before name": example(field(0x0A, field(0x12, bytes_list(IMAGE)) + field(0x0A, b"a"))),
    "no name": example(field(0x0A, field(0x12, bytes_list(IMAGE)))),
    "name twice in its entry": example(field(0x0A, field(0x0A, b"b") + NAMED)),
    "name that is not UTF-8": example(entry(b"\xff", bytes_list(IMAGE))),
    "unknown field of the entry": example(field(0x0A, NAMED + field(0x1A, b"x"))),
    "unknown field of the features": example(A_IMAGE, field(0x12, b"x")),
    "unknown field of the record": example(A_IMAGE) + field(0x1A, b"x"),
    "two records": example(A_IMAGE) + example(B_INT),
    "two records of one name": example(A_IMAGE) + example(SMALL),
    "length of five bytes": example(field(0x0A, field(0x0A, b"a") + field(0x12, bytes_list(IMAGE), 2))),
    "length of six bytes": example(field(0x0A, field(0x0A, b"a") + field(0x12, bytes_list(IMAGE), 3))),
    "endless length": b"\x0a" + b"\xff" * 9,
    "numbers": example(entry(b"a", FLOATS), entry(b"b", UNPACKED)),
    "truncated": example(A_IMAGE, B_INT)[:-1],
    "truncated in the image": example(A_IMAGE)[:-9],
    "entry that ends after the features": example(A_IMAGE[:-9]),
    "empty": b"",
}  # fmt: skip
TABLE = FeatureTable(
    "table",
    tuple(
        Feature(name, f"row.{name}", kind, shape, "", "")
        for name, kind, shape in [
            ("a", FeatureKind.BYTES, ()),
            ("b", FeatureKind.INT64, ("N",)),
            ("c", FeatureKind.BYTES, ("N",)),
        ]
    ),
    RecordOf.ROW,
)
PARSE = RecordParser(TABLE)


def outcome(record: bytes | memoryview) -> list[str]:
    """Value or error of each feature, or the error of the record."""
    try:
        values = PARSE.lazy(record)
    except RecordParseError as error:
        return [str(error)]
    return [text(values.__getitem__, source) for source in values] + [text(values.buffer, "row.a")]


def text(read, source: str) -> str:
    try:
        value = read(source)
    except RecordParseError as error:
        return str(error)
    return repr(
        bytes(value) if isinstance(value, memoryview) else value.tolist() if hasattr(value, "tolist") else value
    )


def assert_as_protobuf(records: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = [(outcome(record), outcome(memoryview(bytearray(record)))) for record in records]
    monkeypatch.setattr(parse_record, "cut_large_values", lambda record: (record, {}))
    for record, (as_bytes, as_view) in zip(records, outcomes, strict=True):
        expected = outcome(record)
        assert as_bytes == expected
        assert as_view == expected


@pytest.mark.parametrize("name", RECORDS)
def test_values_and_errors_are_protobufs(name, monkeypatch):
    assert_as_protobuf([RECORDS[name]], monkeypatch)


def test_mutants_have_the_values_and_errors_of_protobuf(monkeypatch):
    rng = random.Random(64)
    records = [(record, structure(record)) for record in RECORDS.values() if record]
    mutants = []
    for _ in range(4000):
        record, offsets = rng.choice(records)
        mutant = bytearray(record)
        for offset in sorted(rng.choices(offsets, k=rng.randint(1, 2)), reverse=True):
            change = rng.choice([rng.randrange(256), record[offset] ^ 1 << rng.randrange(8)])
            mutant[offset : offset + rng.choice([0, 1, 1, 1, 1])] = bytes([change])
        mutants.append(bytes(mutant))
    assert_as_protobuf(mutants, monkeypatch)


def structure(record: bytes) -> list[int]:
    """Return the offsets of the bytes that are not in the middle of a large value."""
    return [at for at in range(len(record)) if at < 4 or len(set(record[at - 4 : at + 4])) > 1]


def test_large_value_is_not_copied():
    record, others = RECORDS["in the middle"], B_INT + entry(b"c", FLOATS)
    rest, values = cut_large_values(record)
    assert rest == b"\x0a" + varint(len(others)) + others
    assert values == {"a": IMAGE}
    assert values["a"].obj is record


@pytest.mark.parametrize(
    "name", ["name twice", "unknown field of the record", "two records", "truncated", "endless length"]
)
def test_unusual_record_is_returned_whole(name):
    assert cut_large_values(RECORDS[name]) == (RECORDS[name], {})
