"""Tests for Facts."""

import pickle

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.manifest import InputRows, SplitRows
from recordmill.schemas.rejects import Count, Metric, Reason, Rejected
from recordmill.transforms.dataset.facts import FACTS, CombineFacts, Facts, FactsBuilder, FindFacts, tagged
from recordmill.transforms.join.compare_names import NO_NAMES, Names
from recordmill.transforms.rejects.bounded_rejects import count_rejects
from recordmill.transforms.runtime import progress

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
        st.just("add_rows"), SPLITS, st.sampled_from("ab"), st.just("instances"), st.integers(0, 2), st.integers(0, 2)
    ),
    st.tuples(st.just("reject"), SPLITS, REJECTS),
    st.tuples(st.just("add_unlisted"), st.text("abc", max_size=3)),
    st.tuples(st.just("add_unmatched"), st.text("abc", max_size=3), st.just("x")),
)
"""What is found: a method of FactsBuilder and its arguments."""


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
    assert sorted_facts(combine.extract_output(combine.merge_accumulators(accumulators))) == sorted_facts(expected)
    kinds = {name: [arguments for method, *arguments in found if method == name] for name, *_ in found}
    assert expected.rejects == count_rejects(kinds.get("reject", []))
    assert expected.unlisted.number == len(kinds.get("add_unlisted", []))
    assert expected.unmatched.number == 2 * len(kinds.get("add_unmatched", []))
    assert sum(expected.counts.values()) == sum(arguments[-1] for arguments in kinds.get("count", []))
    assert 0 not in expected.counts.values()
    images, annotations = map(sum, zip(*expected.rows.values(), strict=True)) if expected.rows else (0, 0)
    assert (images, annotations) == tuple(sum(row[place] for row in kinds.get("add_rows", [])) for place in (-2, -1))


def sorted_facts(facts: Facts) -> list:
    return [sorted(each.items()) for each in (facts.counts, facts.rows, facts.rejects)] + [
        facts.unlisted,
        facts.unmatched,
    ]


def test_rejects_are_progress_and_rows():
    progress.reset()
    builder = FactsBuilder()
    for split, id_ in (("val", 1), ("val", 2), ("train", 1)):
        builder.reject(split, Rejected("image", id_, Reason.NO_CLASS, ""))
    builder.add_rows("val", "a.csv", "labels", 1, 0)
    builder.count_rejected_rows("a.csv", "labels")
    assert builder.build().rows == {("val", "a.csv", "labels"): (3, 0), ("train", "a.csv", "labels"): (1, 0)}
    assert progress.snapshot().rejected == 3
    assert tagged(builder).tag == FACTS
    assert tagged(builder).value == builder.build()


def test_find_facts():
    reject = ("val", Rejected("image", 1, Reason.NO_CLASS, ""))
    rows = ("add_rows", "val", "a.json", "captions", 2, 3)
    parts = [facts_of([("reject", *reject), rows]), facts_of([("count", "val", Metric.ROWS_MERGED, 2), rows])]
    parts += [facts_of([("add_unlisted", "b"), ("count", "val", Metric.ROWS_MERGED, 1)])]
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        found = tuple(p | f"{number}" >> beam.Create([part]) for number, part in enumerate(parts)) | FindFacts()
        assert_that(found.rejected, equal_to(count_rejects([reject]).items()), "Rejected")
        assert_that(found.counted, equal_to([("val", Count(Metric.ROWS_MERGED, 3))]), "Counted")
        assert_that(found.rows, equal_to([SplitRows("val", InputRows("a.json", "captions", 4, 6))]), "Rows")
        assert_that(found.unlisted, equal_to([Names.of(["b"])]), "Unlisted")
        assert_that(found.unmatched, equal_to([NO_NAMES]), "Unmatched")
