"""Charts of open fields."""

import msgspec
import numpy as np
import pytest

from recordmill.schemas.features import FeatureKind
from recordmill.schemas.field_features import FieldColumn, add_fields
from recordmill.schemas.layouts import DETECTION
from recordmill.schemas.statistics import EXACT_LEVEL, MOST_TEXTS, Bin, FieldCounts, FieldStatistics, SplitStatistics
from recordmill.transforms.blocks.image_facts import FieldItems
from recordmill.transforms.dataset.count_fields import count_items
from recordmill.transforms.insight.count_images import describe_field
from recordmill.transforms.insight.field_charts import chart_fields, number_bins, text_rows

INT, FLOAT, BYTES = FeatureKind.INT64, FeatureKind.FLOAT, FeatureKind.BYTES
NO_STATISTICS = SplitStatistics(0, {}, (), {}, (), (), {}, {}, 0)


def bins_of(values: list, kind: FeatureKind = FLOAT) -> tuple[Bin, ...]:
    return field_of(values, kind).bins


def field_of(values: list, kind: FeatureKind) -> FieldStatistics:
    items = values if kind is BYTES else np.array(values, np.float32 if kind is FLOAT else np.int64)
    return describe_field(count_items([FieldItems(items, len(values) + 1, 1)]), kind)


def test_few_values_have_a_bar_each():
    bins = number_bins([bins_of([2023, 2024, 2024], INT), bins_of([2015], INT), ()], is_whole=True)
    assert [(bin_.label, bin_.numbers) for bin_ in bins] == [
        ("2015", [0, 1, 0]),
        ("2023", [1, 0, 0]),
        ("2024", [2, 0, 0]),
    ]
    assert number_bins([(), ()], is_whole=True) == []
    assert [bin_.label for bin_ in number_bins([bins_of([0.1])], is_whole=False)] == ["0.1"]


@pytest.mark.parametrize("scale", [1e-30, 1, 1e30])
def test_splits_share_bins_and_outliers_are_in_one(scale):
    of = np.random.default_rng(1)
    splits = [of.normal(0, scale, 5000).tolist(), [*of.normal(0, scale, 150).tolist(), 1e6 * scale]]
    bins = number_bins([bins_of(values) for values in splits], is_whole=False)
    assert len(bins) <= 34
    assert [sum(bin_.numbers[split] for bin_ in bins) for split in (0, 1)] == [5000, 151]
    assert bins[-1].label.startswith("from ")
    middle = [bin_ for bin_ in bins if " to " in bin_.label]
    assert len({bin_.label for bin_ in middle}) == len(middle) > 8


def test_whole_numbers_have_bins_of_whole_numbers():
    bins = number_bins([bins_of([*range(60)], INT)], is_whole=True)
    assert (bins[0].label, bins[0].numbers) == ("0 to 1", [2])
    assert sum(bin_.numbers[0] for bin_ in bins) == 60


def test_most_frequent_texts_are_those_of_all_splits():
    rows = text_rows([{"a": 1, "b": 3}, None, {"a": 3, **{str(number): 1 for number in range(20)}}])
    assert len(rows) == 10
    assert [(row.name, row.counts) for row in rows[:3]] == [
        ("a", [1, None, 3]),
        ("b", [3, None, 0]),
        ("0", [0, None, 1]),
    ]
    assert rows[1].widths == [100, 0, 0]
    assert [row.name for row in text_rows([{"x" * 99: 1}])] == ["x" * 59 + "…"]


def test_figures_say_what_is_missing():
    columns = [
        FieldColumn("object", "score", FLOAT),
        FieldColumn("object", "seen", INT, is_bool=True),
        FieldColumn("image", "colours", BYTES, size=-1),
        FieldColumn("image", "prompt", BYTES),
    ]
    table = add_fields(DETECTION, columns).table
    fields = {
        columns[0].source: field_of([0.5, 0.25, 0.5], FLOAT),
        columns[1].source: field_of([0, 1, 1], INT),
        columns[2].source: field_of([b"red", b"red"], BYTES),
        columns[3].source: field_of([b"%d" % number for number in range(MOST_TEXTS + 1)], BYTES),
    }
    statistics = {"train": msgspec.structs.replace(NO_STATISTICS, fields=fields), "val": None, "test": NO_STATISTICS}
    figures = {figure.title: figure for figure in chart_fields(table, statistics)}
    assert {title: figure.lines[0] for title, figure in figures.items()} == {
        "score": "median 0.5, least 0.25, largest 0.5; 1 of 4 missing",
        "seen": "1 of 4 missing",
        "image.colours": "2 values; 1 different text; 1 of 3 missing",
        "image.prompt": "more than 1,000 different texts, which are not counted; 1 of 1,002 missing",
    }
    assert {line for figure in figures.values() for line in figure.lines[1:]} == {"no statistics"}
    assert [(row.name, row.counts) for row in figures["seen"].texts] == [("true", [2, 0, 0]), ("false", [1, 0, 0])]
    assert figures["image.prompt"].texts == []
    assert [(row.name, row.counts) for row in figures["image.colours"].texts] == [("red", [2, 0, 0])]
    assert [title for title, figure in figures.items() if figure.chart] == ["score"]
    assert chart_fields(table, {"train": NO_STATISTICS}) == []


@pytest.mark.parametrize(("level", "bins"), [(EXACT_LEVEL, [(4, 4), (6, 6)]), (1, [(4, 6), (6, 8)])])
def test_bins_of_one_number_have_no_width(level, bins):
    counts = FieldCounts(5, 0, 5, 4, 7, level, {6: 2, 4: 3})
    statistics = describe_field(counts, FeatureKind.INT64)
    assert [(bin_.low, bin_.high, bin_.number) for bin_ in statistics.bins] == [(*bins[0], 3), (*bins[1], 2)]
