"""Tests for the collection of Facts."""

import apache_beam as beam
import pytest
from apache_beam.pvalue import TaggedOutput
from apache_beam.testing.util import assert_that, equal_to

from recordmill.transforms.dataset.collect_facts import WithFacts, collect_facts, hand_over
from recordmill.transforms.dataset.facts import Facts, FactsBuilder
from tests.beam_pipeline import Pipeline
from tests.transforms.dataset.kinds import applied


def split_numbers(number: int, facts: FactsBuilder, limit: int):
    if number > limit:
        facts.warn("train", f"{number} is large")
        yield TaggedOutput("large", number)
    else:
        yield number


class SplitNumbers(beam.DoFn):
    def setup(self):
        self.limit = 2

    def process(self, number: int, facts: FactsBuilder):
        return split_numbers(number, facts, self.limit)


@pytest.mark.parametrize(("step", "arguments"), [(split_numbers, (2,)), (SplitNumbers(), ())])
def test_step_with_facts(step, arguments):
    with Pipeline() as p:
        outputs, facts = applied(p | beam.Create([1, 2, 3]), WithFacts(step, *arguments, types=int, tags=("large",)))
        small, large = outputs
        assert_that(small, equal_to([1, 2]), "Small")
        assert_that(large, equal_to([3]), "Large")
        assert_that(facts, equal_to([Facts(warnings={("train", "3 is large")})]), "Facts")


def test_step_outside_of_job():
    with pytest.raises(RuntimeError, match="outside of `with collect_facts"):
        Pipeline() | beam.Create([1]) | WithFacts(split_numbers, 2)


def test_inner_block_keeps_its_facts():
    p = Pipeline()
    with collect_facts() as outer:
        with collect_facts() as inner:
            p | beam.Create([1]) | WithFacts(split_numbers, 2)
        assert (len(outer), len(inner)) == (0, 1)
        hand_over(inner[0])
    assert outer == inner
