import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.fields import (
    MOST_FIELDS,
    FieldSelection,
    columns_of_rows,
    config_fields,
    field_choices,
    parse_fields,
)

LEAVES = st.none() | st.integers(-2, 2) | st.text("ab", max_size=1) | st.lists(st.integers(0, 1), max_size=2)
VALUES = st.recursive(LEAVES, lambda values: st.dictionaries(st.sampled_from(["a", "b", "a.b"]), values, max_size=2))
ROWS = st.lists(st.dictionaries(st.sampled_from(["a", "b", "a.b", "b.a"]), VALUES), min_size=1, max_size=4)
PATHS = ["a", "b", "a.b", "b.a", "a.b.a", "a.a.b", "c"]
SELECTIONS = st.just(FieldSelection({}, True)) | st.lists(st.sampled_from(PATHS), unique=True).map(
    lambda paths: FieldSelection(dict.fromkeys(paths, ""))
)


@given(ROWS, SELECTIONS)
def test_columns_are_those_of_rows(rows, selection):
    keys = dict.fromkeys(key for row in rows for key in row)
    columns = {key: [row.get(key) for row in rows] for key in keys}
    picked = selection.pick_columns(columns)
    assert picked == columns_of_rows([selection.pick(row) for row in rows])
    assert set(picked) <= set(selection.kinds) or selection.is_all


def test_too_many_fields():
    columns_of_rows([{f"k{number}": 1} for number in range(MOST_FIELDS)])
    with pytest.raises(ConfigError, match=r"201 fields, more than 200: k0, k1"):
        columns_of_rows([{f"k{number}": 1} for number in range(MOST_FIELDS + 1)])


@pytest.mark.parametrize(
    ("value", "choices"),
    [
        ('score:float, "a,b":text,"c:d","e ""f"""', ("score:float", '"a,b":text', '"c:d"', '"e ""f"""')),
        (["a,b", "c:int", "all"][:2], ('"a,b"', '"c:int"')),
        ({"a,b": "text", "c": None}, ('"a,b":text', "c")),
        (["all"], ("all",)),
        ("none", ("none",)),
    ],
)
def test_names_are_literal_but_on_the_command_line(value, choices):
    assert field_choices(value) == choices == field_choices(choices)
    config = config_fields(choices)
    assert field_choices(config) == choices
    assert isinstance(config, dict) or config == [choice.path for choice in parse_fields(",".join(choices))]


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("score:double", "kind 'double' must be one of int, float, text"),
        ({"score": "double"}, "kind 'double' must be one of int, float, text"),
        ("score,score:int", "score is named twice"),
        ("all,score", "all stands alone"),
        ([""], "a path is missing"),
    ],
)
def test_wrong_fields(value, fault):
    with pytest.raises(ValueError, match=f"^{fault}$"):
        field_choices(value)
