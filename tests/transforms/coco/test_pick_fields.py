import msgspec
import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.fields import FieldSelection
from recordmill.transforms.coco.pick_fields import pick_fields
from recordmill.transforms.join.field_values import merge_fields

ALL = FieldSelection({}, True)


def picked(selection: FieldSelection, *rows: bytes, is_quoted: bool = False) -> list[dict | None]:
    texts = pick_fields("object", [msgspec.Raw(row) for row in rows], selection, is_quoted).texts
    return [msgspec.json.decode(text) if text else None for text in texts]


def test_all_are_leaves_without_stored_fields():
    nested = b'"a": {"b": 1, "c": {"d": "x"}, "e": null}'
    row = b'{"id": 1, "bbox": [1], "caption": "c", %b, "f": [2, 3], "g": [{"h": 1}]}' % nested
    assert picked(ALL, row, b'{"id": 2}') == [{"a.b": 1, "a.c.d": "x", "f": [2, 3]}, None]


@pytest.mark.parametrize(
    ("path", "row", "value"),
    [
        ("a.b", b'{"a.b": 1, "a": {"b": 2}}', 1),
        ("a.b.c", b'{"a": {"b.c": 3}}', 3),
        ("a.b.c", b'{"a.b": {"c": 4}}', 4),
        ("a", b'{"a": 123456789012345678901234567890}', 123456789012345678901234567890),
        ("a", b'{"a": "\\u00e4"}', "ä"),
    ],
)
def test_a_path_finds_a_value(path, row, value):
    assert picked(FieldSelection({path: ""}), row) == [{path: value}]


@pytest.mark.parametrize("row", [b'{"a": {"b": 1}}', b'{"a": [{"b": 1}]}', b'{"a": null}', b"{}", b'{"a": 1e999}'])
def test_no_value(row):
    assert picked(FieldSelection({"a": ""}), row) == [None]


def test_quoted_nan_is_missing():
    row = b'{"a": "NaN", "b": {"c": "-Infinity", "d": ["NaN", 1]}}'
    assert picked(ALL, row, is_quoted=True) == [{"b.d": [None, 1]}]
    assert picked(FieldSelection({"a": ""}), row) == [{"a": "NaN"}]


def test_columns_know_paths_that_are_not_requested():
    rows = [msgspec.Raw(b'{"id": 1, "a": {"b": 1}, "c": null, "score": 2}')]
    observed = pick_fields("object", rows, FieldSelection({"score": ""})).observed
    assert {label.name for label in observed if label.kind == "object path"} == {"a.b", "score"}


def test_without_rows():
    assert pick_fields("image", [], ALL).texts == []
    assert pick_fields("image", [msgspec.Raw(b"{}")] * 2, ALL).texts == [b"", b""]


def test_many_names():
    """Each row has its own."""
    rows = [msgspec.Raw(f'{{"k{number}": 1}}'.encode()) for number in range(30_000)]
    assert pick_fields("object", rows, FieldSelection({"k5": ""})).texts[5] == b'{"k5":1}'
    with pytest.raises(ConfigError, match="--fields: at least 30,000 fields, more than 200: k0, k1"):
        pick_fields("object", rows, ALL)


@pytest.mark.parametrize(
    ("texts", "merged"),
    [
        ([], (b"", 0)),
        ([b"", b'{"a":1}', b'{"a":1}'], (b'{"a":1}', 0)),
        ([b'{"a":1}', b'{"a":2,"b":[1]}', b'{"b":[2],"c":0}'], (b'{"a":1,"b":[1],"c":0}', 2)),
    ],
)
def test_first_value_holds(texts, merged):
    assert merge_fields(texts) == merged
