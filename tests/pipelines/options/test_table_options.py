"""What `recordmill table` is asked to do, and what contradicts itself."""

from fractions import Fraction

import pytest

from recordmill.pipelines.options.table_options import TableOptions
from recordmill.schemas.errors import ConfigError

HALVES = {"split": (("train", Fraction(1, 2)), ("val", Fraction(1, 2)))}


def options(**more) -> TableOptions:
    return TableOptions(rows=("r.csv",), output="out", **more)


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        (HALVES, "there are none without --label"),
        ({"label": "kind"}, "--split names a single split"),
        ({"label": "kind", **HALVES, "group_column": "g"}, "--stratify and --group-column contradict each other"),
        ({"label": "kind", "split_column": "s"}, "--stratify and --split-column contradict each other"),
    ],
)
def test_stratify_with_what_it_does_not_go_with(more, fault):
    with pytest.raises(ConfigError, match=fault) as caught:
        options(**more, stratify=True)
    assert str(caught.value).count(";") == str(caught.value).count("; give one"), "nothing else is wrong"
    options(**{name: value for name, value in more.items() if name != "stratify"})


def test_what_decides_the_records_is_in_the_recipe():
    plain, divided = options(label="kind", **HALVES), options(label="kind", **HALVES, stratify=True)
    assert divided.record_options == plain.record_options | {"stratify": True}
    assert (plain.row_splits(()).stratified, divided.row_splits(()).stratified) == ("", "kind")
