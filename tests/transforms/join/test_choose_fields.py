"""Kinds of open fields, from all values."""

from typing import Any

import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import FeatureKind
from recordmill.schemas.field_features import RAGGED, FieldColumn, add_fields, field_columns
from recordmill.schemas.inputs.fields import select_fields
from recordmill.schemas.inputs.labels import ExistingLabels, LabelMap
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.layouts import LAYOUTS
from recordmill.transforms.join.choose_fields import FieldRequest, add_requested_fields
from recordmill.transforms.join.field_values import FieldPicker, merge_stats, observe_fields, observe_values, pack_stats

INT, FLOAT, BYTES = FeatureKind.INT64, FeatureKind.FLOAT, FeatureKind.BYTES
DETECTION = LAYOUTS["detection"].with_parts(())


def sample(*fields: dict, **image: object) -> Sample:
    objects = tuple(SampleObject("cat", (0, 0, 1, 1), fields=values) for values in fields)
    return Sample("a.jpg", objects=objects, fields=image)


def choose(samples: list[Sample], *choices: str, existing: ExistingLabels | None = None) -> tuple:
    """The stored fields and warnings, if each Sample is read apart."""
    selections, labels = select_fields(choices), set()
    for number, one in enumerate(samples):
        picker = FieldPicker(selections)
        picker.pick(one)
        labels |= {*picker.observed(number)}
    table, warnings, _ = add_requested_fields(DETECTION, FieldRequest(*selections, {}, existing), labels)
    return list(field_columns(table)), warnings


@pytest.mark.parametrize(
    ("values", "kind", "size"),
    [
        ([1, 2], INT, 0),
        ([1, 2.5], FLOAT, 0),
        ([True, False], INT, 0),
        (["a", "b"], BYTES, 0),
        ([1, "b"], BYTES, 0),
        ([True, 1], BYTES, 0),
        ([1 << 70, 1], BYTES, 0),
        ([[1, 2], [3, 4]], INT, 2),
        ([[1, 2], [3]], INT, RAGGED),
        ([["a"], ["b"]], BYTES, 1),
        ([[1], 1], BYTES, 0),
        ([[[1], [2]], [[1]]], BYTES, 0),
    ],
)
def test_kind_follows_from_all_values(values, kind, size):
    """Whether they are of one Sample or of several."""
    rows = [{"f": value} for value in values]
    for samples in ([sample(*rows)], [sample(row) for row in rows]):
        columns, _ = choose(samples, "f")
        assert columns == [FieldColumn("object", "f", kind, size, is_bool=values == [True, False])]


def test_named_kind_wins():
    columns, _ = choose([sample({"f": 1})], "f:text")
    assert columns == [FieldColumn("object", "f", BYTES)]


def test_missing_and_mixed_values_are_counted():
    _, warnings = choose([sample({"f": 1, "g": "x"}, {"f": None, "g": 2}, {})], "f,g")
    assert warnings == [
        "field f: 2 of 3 objects have no value; -1 is stored there",
        "field g is stored as text, as it has text (1), whole numbers (1)",
        "field g: 1 of 3 objects have no value; empty text is stored there",
    ]


@pytest.mark.parametrize(
    ("values", "what"), [(([1, 2], 3), "lists and other values"), (([[1], [2, 3]],), "lists in lists")]
)
def test_lists_that_become_text_are_warned_of(values, what):
    _, warnings = choose([sample(*({"f": value} for value in values))], "f")
    assert warnings == [f"field f is stored as JSON text, as it has {what}"]


@pytest.mark.parametrize(("values", "number"), [([-1, 3, -1, -2], "2 times"), ([[-1], [2]], "1 time")])
def test_minus_one_that_is_a_value_is_counted(values, number):
    rows = [{"f": value} for value in values]
    expected = [
        f"field image.f: -1 occurs {number}, and stands for a missing value; with --fields image.f:float, NaN does"
    ]
    assert choose([sample(**row) for row in rows], "image.f")[1] == expected
    assert choose([sample(**row) for row in rows], "image.f:float")[1] == []


def test_minus_ones_in_lists_and_texts_are_counted():
    stats = merge_stats([pack_stats(observe_values({"f": [[-1, 2], [-1]]}, 2))])
    assert stats.columns["f"].minus_ones == 2
    stats = observe_values({"f": ["-1", "7", None]}, 3, is_typed=False)
    assert (stats.columns["f"].minus_ones, stats.columns["f"].least, stats.columns["f"].greatest) == (1, -1, 7)


def preview(*rows: dict[str, Any], are_texts: bool = False) -> dict[str, str]:
    """The previews of fields of images, if each is read apart."""
    selections, labels = select_fields(["all"], is_previewed=True), []
    for number, row in enumerate(rows):
        picker = FieldPicker(selections, are_texts)
        picker.pick(sample(**row))
        labels += picker.observed(number)
    return add_requested_fields(DETECTION, FieldRequest(*selections, {}, None), labels).previews


def test_dry_run_shows_values():
    rows = [{"number": 3}, {"number": -2.5}, {"text": "x" * 50}, {"text": "a"}, {"text": "a"}, {"list": [1, 5]}]
    assert preview(*rows, {"list": ["b"]}, {"is": True}, {"number": float("nan")}) == {
        "image.is": "true (1); 8 of 9 images have none",
        "image.list": "1 (1), 5 (1), b (1); 7 of 9 images have none",
        "image.number": "-2.5 to 3; 6 of 9 images have none",
        "image.text": f"a (2), {'x' * 39}… (1); 6 of 9 images have none",
    }
    assert preview({"is": "TRUE"}, {"is": "true"}, are_texts=True) == {"image.is": "true (2); 0 of 2 images have none"}


def test_preview_shows_ten_values():
    (shown,) = preview({"list": [f"{number:02}" for number in range(12)]}).values()
    assert shown.endswith("09 (1) and 2 more; 0 of 1 images have none")
    (shown,) = preview({"list": ["y"]}, {"list": [f"x{number}" for number in range(10_001)]}).values()
    assert shown == "more than 10,000 different values; 0 of 2 images have none"


def test_no_values_are_counted_without_a_dry_run():
    assert {label.kind for label in observe_fields("image", {"f": ["a"]}, 1, ())} == {"image fields"}


def test_all_are_the_leaves_of_both_axes():
    one = sample({"a": {"b": 1, "c": {"d": "x"}}, "list": [{"no": 1}]}, date="2026")
    columns, _ = choose([one], "all")
    assert [(column.axis, column.path) for column in columns] == [
        ("image", "date"),
        ("object", "a.b"),
        ("object", "a.c.d"),
    ]


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ("scor", "--fields scor: no object has this field. Did you mean score?"),
        ("attributes", "--fields attributes: it has several values. Name those that records need: attributes.color"),
        ("image.x", "--fields image.x: no image has this field. They have image.date"),
        ('"score:int"', "--fields score:int: names of a list are literal. Give kinds by a mapping: {'score': 'int'}"),
        ("parts", "--fields parts: its values are lists of objects, which are no field. Leave it out"),
        ("zzz", "--fields zzz: no object has this field. They have attributes.color, score"),
    ],
)
def test_unknown_path_shows_the_paths_that_exist(choice, said):
    with pytest.raises(ConfigError) as caught:
        choose([sample({"score": 1, "attributes": {"color": "red"}, "parts": [{}, {}]}, date="2026")], choice)
    assert str(caught.value) == said


def test_one_of_several_sets_may_lack_a_field():
    picker = FieldPicker(selections := select_fields(["scor", "score"]))
    picker.pick(sample({"score": 1}))
    request = FieldRequest(*selections, {"image/object/scor": "x"}, None, is_part=True)
    table = add_requested_fields(DETECTION, request, picker.observed(0)).table
    assert table.lacking == (("scor", "no object has this field. Did you mean score?"),)


def test_map_with_keys_of_its_own_is_refused_with_their_number():
    rows = [sample({"votes": {f"user{number}": 1}}) for number in range(201)]
    with pytest.raises(
        ConfigError, match=r"--fields all: there are 201 fields of objects, more than 200: votes\.user0"
    ):
        choose(rows, "all")


def test_added_split_has_the_fields_of_the_data_set():
    there = FieldColumn("object", "f", FLOAT)
    table = add_fields(DETECTION, [there], {"image/object/f": "f"}).table
    existing = ExistingLabels(LabelMap(()), "train of out", table)
    assert choose([sample({"f": 1})], "f", existing=existing)[0] == [there]
    with pytest.raises(ConfigError, match="train of out has f, and --fields gives no field"):
        choose([sample({"f": 1})], existing=existing)
    selections = select_fields(["f"])
    labels = [*observe_fields("object", {}, 1, ())]
    assert add_requested_fields(DETECTION, FieldRequest(*selections, {}, existing), labels)[0] == table
    with pytest.raises(ConfigError, match=r"train of out has f, and --fields gives f, image\.g"):
        choose([sample({"f": 1}, g=1)], "f,image.g", existing=existing)
