"""Statistics from the file of a split."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.dataset.manifest import encode_json
from recordmill.schemas.features import FeatureKind, Part
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import CLASSIFICATION, DETECTION
from recordmill.schemas.statistics import (
    MOST_BINS,
    MOST_TEXTS,
    SCALE,
    FieldCounts,
    FieldStatistics,
    SplitStatistics,
    Statistics,
)
from recordmill.transforms.blocks.image_facts import FieldItems
from recordmill.transforms.dataset.count_fields import count_items
from recordmill.transforms.dataset.facts import add_statistics
from recordmill.transforms.insight.count_images import describe_field, describe_statistics, histogram
from recordmill.transforms.insight.invert_statistics import invert_field, invert_statistics
from tests.transforms.insight.drawn_facts import counted, draw_facts

LABELS = LabelMap(
    tuple(Category(id_, f"c{id_}") for id_ in range(1, 132)), tuple(Category(id_, f"s{id_}") for id_ in range(200, 205))
)


def through_file(statistics: Statistics, table=DETECTION) -> tuple[SplitStatistics, Statistics]:
    """Statistics as their file has them, and read back."""
    described = describe_statistics(statistics, LABELS, table, [0] * len(LABELS.categories))
    file = msgspec.json.decode(encode_json(described), type=SplitStatistics)
    return file, invert_statistics(file, table)


_PARTS = {"maps": (Part.SEMANTIC, Part.DEPTH)}


@pytest.mark.parametrize("kind", ["objects", "masks", "captions", "maps", "classes"])
@pytest.mark.parametrize("seed", range(4))
def test_statistics_come_back_from_their_file(seed, kind):
    facts, places = draw_facts(seed, kind=kind)
    statistics = counted(*facts, places=places)
    table = CLASSIFICATION.with_parts(()) if kind == "classes" else DETECTION.with_parts(_PARTS.get(kind, ()))
    file, inverted = through_file(statistics, table)
    assert inverted.histograms.keys() == statistics.histograms.keys()
    small = {name for name, one in statistics.histograms.items() if one.total < SCALE << 32}
    assert small >= {"image_width", "image_aspect"}
    for name, one in inverted.histograms.items():
        total = statistics.histograms[name].total if name in small else one.total
        assert msgspec.structs.replace(one, total=total) == statistics.histograms[name], name
    assert msgspec.structs.replace(inverted, histograms={}) == msgspec.structs.replace(statistics, histograms={})
    assert through_file(inverted, table)[0] == file


def test_sum_with_statistics_of_a_file_is_that_of_all_records():
    (one, places), (other, other_places) = draw_facts(1, kind="objects"), draw_facts(2, kind="objects")
    parts = [counted(*one, shard="a", places=places), counted(*other, shard="b", places=other_places)]
    whole = add_statistics(*parts)
    grown = add_statistics(through_file(parts[0])[1], parts[1])
    assert through_file(grown) == through_file(whole)


def test_pixels_of_an_earlier_version_are_not_taken_for_zero():
    """Its file has no numbers of pixels: a sum with them would count the new images only."""
    old, inverted = through_file(Statistics(1))
    assert old.pixels is msgspec.UNSET
    assert inverted.pixels is None
    grown = add_statistics(inverted, Statistics(1, pixels={7: 12}))
    assert through_file(grown)[0].pixels is msgspec.UNSET


def test_sum_of_many_bytes_is_exact():
    numbers = np.full(3, 2.0**40 + 1)
    statistics = Statistics(3, {"image_bytes": histogram(numbers)})
    assert through_file(statistics)[1].histograms["image_bytes"].total == (3 * 2**40 + 3) * SCALE


def through_field_file(counts: FieldCounts, kind: FeatureKind) -> FieldCounts:
    file = encode_json(describe_field(counts, kind))
    return invert_field(msgspec.json.decode(file, type=FieldStatistics), kind)


@given(st.lists(st.floats(width=32, allow_nan=False), max_size=20), st.integers(0, 2 * MOST_BINS), st.integers(-30, 30))
def test_numbers_of_a_field_come_back(values, more, power):
    drawn = np.random.default_rng(more).normal(0, 2.0**power, more).astype(np.float32)
    counts = count_items([FieldItems(np.concatenate([np.array(values, np.float32), drawn]), 900, 7)])
    assert through_field_file(counts, FeatureKind.FLOAT) == counts


@pytest.mark.parametrize(
    "items",
    [
        np.arange(-5, MOST_BINS * 3),
        np.array([-(2**63), 2**63 - 1, 0]),
        [b"red", b"red", b"", b"\xff"],
        [b"%d" % number for number in range(MOST_TEXTS + 1)],
        [],
    ],
)
def test_values_of_a_field_come_back(items):
    kind = FeatureKind.BYTES if isinstance(items, list) else FeatureKind.INT64
    counts = count_items([FieldItems(items, len(items) + 1, 1)])
    assert through_field_file(counts, kind) == counts
