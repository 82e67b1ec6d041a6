import pickle
import random

import apache_beam as beam
import msgspec
import pytest
from apache_beam.testing.util import assert_that, equal_to
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.dataset.manifest import InputRows
from recordmill.schemas.dataset.recipes import unlisted_folder
from recordmill.schemas.inputs.encoders import TextCounts
from recordmill.schemas.rejects import Metric, Reason, Rejected
from recordmill.schemas.shards import SplitSize
from recordmill.schemas.statistics import (
    FINDING_EXAMPLES,
    FINDINGS,
    GALLERY,
    HEAT_SIDE,
    Example,
    Finding,
    Histogram,
    Statistics,
)
from recordmill.transforms.dataset.facts import AddFacts, CombineFacts, Facts, FactsBuilder, add_facts
from recordmill.transforms.dataset.rejects import count_rejects
from recordmill.transforms.runtime import progress
from tests.beam_pipeline import Pipeline

LISTING = unlisted_folder("a")
SPLITS = st.sampled_from(["train", "val"])
REJECTS = st.builds(
    Rejected,
    st.sampled_from(["image", "annotation"]),
    st.none() | st.integers(0, 5),
    st.sampled_from([Reason.NO_CLASS, Reason.EMPTY_BOX]),
    st.sampled_from(["", "ü"]),
    annotations=st.integers(0, 3),
)
FOUND = st.one_of(
    st.tuples(st.just("count"), SPLITS, st.sampled_from([Metric.ROWS_MERGED, Metric.FILTERED_AREA]), st.integers(0, 3)),
    st.tuples(
        st.just("add_rows"),
        SPLITS,
        st.builds(InputRows, st.sampled_from("ab"), st.just("instances"), st.integers(0, 2), st.integers(0, 2)),
    ),
    st.tuples(st.just("reject"), SPLITS, REJECTS),
    st.tuples(st.just("add_unlisted"), st.text("abc", max_size=3)),
    st.tuples(st.just("warn"), SPLITS, st.text("ab", max_size=1)),
    st.tuples(st.just("add_unmatched"), st.text("abc", max_size=3), st.just("x")),
)
"""Calls of FactsBuilder: a method and its arguments."""


def facts_of(found: list[tuple]) -> Facts:
    builder = FactsBuilder()
    for method, *arguments in found:
        getattr(builder, method)(*arguments)
    return builder.build()


@settings(max_examples=100)
@given(st.lists(FOUND, max_size=12), st.integers(1, 4), st.randoms(use_true_random=False))
def test_merge(found, number, rng):
    """Whatever the bundles, their order, and however accumulators are merged and pickled."""
    expected = facts_of(found)
    shuffled = rng.sample(found, len(found))
    combine = CombineFacts()
    accumulators = [combine.create_accumulator() for _ in range(number)]
    for part in range(0, len(shuffled), 2):
        place = rng.randrange(number)
        accumulators[place] = combine.add_input(accumulators[place], facts_of(shuffled[part : part + 2]))
    accumulators = pickle.loads(pickle.dumps(accumulators))
    merged = combine.extract_output(combine.merge_accumulators(accumulators))
    assert sorted_facts(merged) == sorted_facts(add_facts([expected]))


def sorted_facts(facts: Facts) -> list:
    return [sorted(each.items()) for each in (facts.counts, facts.inputs, facts.rejects)] + [
        facts.unlisted,
        facts.unmatched,
        facts.warnings,
        sorted(facts.classes.items()),
        facts.statistics,
    ]


def test_rejects_are_progress_and_rows():
    progress.reset()
    builder = FactsBuilder()
    for split, id_ in (("val", 1), ("val", 2), ("train", 1)):
        builder.reject(split, Rejected("image", id_, Reason.NO_CLASS, ""))
    builder.add_rows("val", InputRows("a.csv", "labels", 1, 0))
    builder.count_rejected_rows("a.csv", "labels")
    numbers = {split: rows.images for (split, *_), rows in builder.build().inputs.items()}
    assert numbers == {"val": 3, "train": 1}
    assert progress.snapshot().rejected == 3


def test_add_facts():
    rows = ("add_rows", "val", InputRows("a.json", "captions", 2, 3, {"file": {"info": 1}}))
    parts = [
        facts_of([rows]),
        facts_of([("count", "val", Metric.ROWS_MERGED, 2), rows]),
        facts_of([("warn", "val", "x")]),
    ]
    parts += [
        Facts(classes={("val", 1): 2}, statistics={"val": Statistics(3)}, texts={("val", "t"): TextCounts(1, 2, 3, 4)})
    ] * 2
    parts.append(Facts(listings={"a": LISTING}, plans={"val": SplitSize(1, 2, 3)}, largest_group=(4, "b")))
    histograms = {"box_side": Histogram(8, 1.0, 3.0, {4: 2})}
    parts.append(Facts(statistics={"val": Statistics(1, histograms)}))
    expected = Facts(
        {("val", "rows_merged"): 2},
        {("val", "a.json", "captions"): InputRows("a.json", "captions", 4, 6, {"file": {"info": 1}})},
        warnings={("val", "x")},
        classes={("val", 1): 4},
        statistics={"val": Statistics(7, histograms)},
        texts={("val", "t"): TextCounts(2, 4, 6, 8)},
        listings={"a": LISTING},
        plans={"val": SplitSize(1, 2, 3)},
        largest_group=(4, "b"),
    )
    assert add_facts(parts) == expected
    assert add_facts([]) == Facts()
    with Pipeline() as p:
        found = tuple(p | f"{number}" >> beam.Create([part]) for number, part in enumerate(parts)) | AddFacts()
        nothing = (p | "None" >> beam.Create([]),) | "AddNothing" >> AddFacts()
        assert_that(found.facts, equal_to([expected]), "Found")
        assert_that(nothing.facts, equal_to([]), "Nothing")


@pytest.mark.parametrize(
    ("classes", "draw"),
    [
        pytest.param(21_841, lambda drawn: drawn.randint(1, 1 << 20), id="ImageNet"),
        pytest.param(100_000, lambda drawn: int(drawn.paretovariate(1)), id="long tail"),
    ],
)
def test_facts_are_at_most_a_megabyte(classes, draw):
    """Three splits with that many classes; names of 1,024 characters, and all histograms, examples and reasons full."""
    splits, example = ("train", "val", "test"), Example(1, 1 << 62, "x" * 60, 9, 1 << 40, 1 << 20)
    drawn = random.Random(0)
    numbers = [{index: draw(drawn) for index in range(classes)} for _ in splits]
    builder = FactsBuilder()
    for split, counts in zip(splits, numbers, strict=True):
        builder.add_classes(split, counts)
        for reason in Reason:
            for id_ in range(99):
                builder.reject(split, Rejected("image", id_, reason, "x" * 200))
    names = [f"{number:04}" + "x" * 1020 for number in range(2000)]
    builder.add_unlisted(*names)
    builder.add_unmatched(*names)
    statistics = Statistics(
        images=1 << 40,
        histograms={name: Histogram(1 << 50, 0.0, 1e9, dict.fromkeys(range(200), 1 << 30)) for name in "abcdefghijkl"},
        centres=dict.fromkeys(range(HEAT_SIDE**2), 1 << 30),
        examples={why: (example,) * number for why, number in GALLERY.items()},
        findings={name: Finding(1 << 40, (example,) * FINDING_EXAMPLES) for name in FINDINGS},
    )
    of_splits = {
        split: msgspec.structs.replace(statistics, images_of_class=counts)
        for split, counts in zip(splits, numbers, strict=True)
    }
    large = msgspec.structs.replace(builder.build(), statistics=of_splits)
    sum_ = add_facts([large] * 3)
    assert len(pickle.dumps(sum_)) < 1_000_000
    assert pickle.loads(pickle.dumps(sum_)) == sum_


def test_lists_of_rejects_are_apart_from_facts():
    one, other = (Rejected("image", id_, Reason.NO_CLASS, "") for id_ in (1, 2))
    with Pipeline() as p:
        parts = [p | f"{each.id}" >> beam.Create([facts_of([("reject", "val", each)])]) for each in (one, other)]
        findings = tuple(parts) | AddFacts()
        expected = count_rejects([("val", one), ("val", other)])
        assert_that(findings.lists, equal_to(list(expected.items())), "Lists")
        kinds = findings.facts | beam.Map(lambda facts: {kind: each.lines() for kind, each in facts.rejects.items()})
        assert_that(kinds, equal_to([{kind: [] for kind in expected}]), "Facts")
