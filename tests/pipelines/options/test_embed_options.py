"""What `recordmill embed` is asked to do with rows is checked at the door."""

from fractions import Fraction

import pytest

from recordmill.pipelines.options.embed_options import EmbedOptions
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.names import NameSources

GIVEN = {"images": ("pics",), "model": "m", "output": "out"}
ROWS = {"rows": ("t.csv",), "image_column": "path", "label": "kind"}
HALVES = (("a", Fraction(1, 2)), ("b", Fraction(1, 2)))


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"key": "id"}, "--key is of --rows, and none is given"),
        ({"image_column": "path"}, "--image-column is of --rows, and none is given"),
        ({"split_column": "set"}, "--split-column is of tables of --labels, and none is given"),
        (ROWS | {"label": None}, "--label is missing: the column of --rows that has the class of each row"),
        (
            ROWS | {"image_column": None},
            "--image-column is missing: the column of --rows that has the image of each row",
        ),
        (ROWS | {"labels": ("l.csv",)}, "--labels names images, and so does --rows: give one"),
        (ROWS | {"label_from": "name"}, "--rows gives the labels, and so does --label-from name: give one"),
        (ROWS | {"path_column": "x"}, "--path-column is of tables of --labels, and none is given"),
        (ROWS | {"split": HALVES, "group_from": "x"}, "--group-from is of images without --rows; give --group-column"),
        (ROWS | {"split": HALVES, "groups": "x"}, "--groups is of images without --rows; give --group-column"),
        (
            ROWS | {"split_column": "set", "split": HALVES},
            "--split-column says which split a row is of, and so does --split: give one",
        ),
    ],
)
def test_faults(changed, fault):
    with pytest.raises(ConfigError) as caught:
        EmbedOptions(**GIVEN | changed)
    assert str(caught.value) == fault


def test_rows_are_those_of_a_table():
    more = {"split": HALVES, "split_seed": 3, "stratify": True, "classes": ("x", "y"), "key": "id"}
    options = EmbedOptions(**GIVEN, **ROWS, **more)
    table = options.as_table()
    assert (table.rows, table.images, table.image_column, table.label) == (("t.csv",), ("pics",), "path", "kind")
    assert {name: getattr(table, name) for name in more} == more
    assert table.written_columns == ("kind",)
    assert options.name_sources == NameSources(("pics",), ("t.csv",))
    assert "t.csv" in options.paths
    plain = EmbedOptions(**GIVEN).record_options
    assert EmbedOptions(**GIVEN, **ROWS).record_options.keys() - plain.keys() == {
        *("image_column", "label", "key", "group_column")
    }
