from fractions import Fraction

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.splits import Division, SplitShares
from recordmill.transforms.shards.count_groups import CountGroups, GroupSizes, add_sizes, unmatched_warnings
from tests.beam_pipeline import Pipeline
from tests.transforms.dataset.kinds import applied

SHARES = SplitShares((("train", Fraction(4, 5)), ("val", Fraction(1, 5))))


def test_sizes_add_up_and_one_largest_group_is_named():
    several = [GroupSizes(3, 1, (3, "a")), GroupSizes(5, 2, (4, "x"), 1), GroupSizes(6, 1, (4, "y"), 2)]
    assert add_sizes(several) == add_sizes(reversed(several)) == GroupSizes(14, 4, (4, "y"), 3)
    assert add_sizes([]) == GroupSizes(0, 0, (0, ""))


def test_transform_counts_group_once():
    images = [("train", f"a{number}") for number in range(8)] + [("train", "b1"), ("val", "c1")]
    with Pipeline() as p:
        _, facts = applied((p | beam.Create(images),) * 2, CountGroups(Division(SHARES, "^[a-z]")))
        counts = {("train", "groups"): 2, ("val", "groups"): 1}
        assert_that(facts | beam.Map(lambda step_facts: step_facts.counts), equal_to([counts]), "Counted")
        assert_that(
            facts | "Largest" >> beam.Map(lambda step_facts: step_facts.largest_group), equal_to([(8, "a")]), "Largest"
        )


def test_unmatched_groups_are_counted():
    division = Division(SHARES, groups={"1": "a", "2": "a", "3": "a", "gone": "b", "lost": "a"})
    images = [("train", name) for name in "123x"] + [("val", "y")]
    with Pipeline() as p:
        _, facts = applied((p | beam.Create(images),) * 2, CountGroups(division))
        counts = {("train", "groups"): 1, ("train", "ungrouped"): 1, ("val", "ungrouped"): 1}
        assert_that(facts | beam.Map(lambda step_facts: step_facts.counts), equal_to([counts]), "Counted")
        warned = facts | beam.FlatMap(lambda step_facts: step_facts.warnings)
        assert_that(warned, equal_to(list(unmatched_warnings("123", division))), "Warnings")


def test_names_of_images_that_options_skip_are_no_warning():
    division = Division(SHARES, groups={"1": "a", "2": "a"})
    with Pipeline() as p:
        sides = p | beam.Create([("train", "x")]), p | "Read" >> beam.Create([("train", name) for name in "12x"])
        _, facts = applied(sides, CountGroups(division))
        counted = facts | beam.Map(lambda step_facts: (step_facts.counts, step_facts.warnings))
        assert_that(counted, equal_to([({("train", "ungrouped"): 1}, set())]))


def test_groups_of_two_sets_are_counted_once_and_not_those_of_a_set_with_its_own():
    images = [("train", name) for name in ("one/a1", "two/a2", "two/b1", "own/a3")]
    with Pipeline() as p:
        _, facts = applied((p | beam.Create(images),) * 2, CountGroups(Division(SHARES, "^[a-z]", sets=("one", "two"))))
        counted = facts | beam.Map(lambda step_facts: (step_facts.counts, step_facts.largest_group))
        assert_that(counted, equal_to([({("train", "groups"): 2}, (2, "a"))]))


def test_names_of_no_image_are_named_with_their_number():
    division = Division(SHARES, groups=dict.fromkeys("abcdef", "g"))
    ((split, text),) = unmatched_warnings(["b", "b", "d"], division)
    assert (split, text.partition(". ")[0]) == (
        "train",
        "--groups: 4 of 6 names do not match a converted image ('a', 'c', 'e' …)",
    )
    assert list(unmatched_warnings("fedcba", division)) == []
    assert list(unmatched_warnings([], Division(SHARES))) == []


def test_list_that_names_no_image_would_do_nothing():
    with pytest.raises(ConfigError, match="--groups does not name a converted image \\('a', 'b'\\), so it has no eff"):
        list(unmatched_warnings([], Division(SHARES, groups={"b": "1", "a": "2"})))
