"""Groups are counted, and shares that they keep from being met are told."""

from fractions import Fraction

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.rejects import Count, Metric, SplitCount
from recordmill.schemas.splits import SplitShares
from recordmill.transforms.metadata.count_groups import CountGroups, GroupSizes, add_sizes, share_warnings

SHARES = SplitShares((("train", Fraction(4, 5)), ("val", Fraction(1, 5))))


def sizes(train: int, val: int) -> list[tuple[str, GroupSizes]]:
    return [("val", GroupSizes(val, 2, (val, "b"))), ("train", GroupSizes(train, 3, (train, "a")))]


def test_sizes_add_up_and_of_the_largest_groups_one_is_named_whatever_the_order():
    several = [GroupSizes(3, 1, (3, "a")), GroupSizes(5, 2, (4, "x")), GroupSizes(4, 1, (4, "y"))]
    assert add_sizes(several) == add_sizes(reversed(several)) == GroupSizes(12, 4, (4, "y"))
    assert add_sizes([]) == GroupSizes(0, 0, (0, ""))


@pytest.mark.parametrize(("train", "val"), [(80, 20), (85, 15), (75, 25), (0, 0)])
def test_shares_that_are_nearly_met_are_not_told(train, val):
    assert list(share_warnings(sizes(train, val), SHARES)) == []


@pytest.mark.parametrize(("train", "val"), [(86, 14), (74, 26)])
def test_shares_that_are_not_met_are_told_with_numbers(train, val):
    ((split, text),) = share_warnings(sizes(train, val), SHARES)
    assert split == "train"
    assert text.startswith(
        f"groups are not divided, so that of 100 images train has {train}.0% where 80.0% were asked for, val has "
        f"{val}.0% where 20.0% were asked for: there are 5 groups, and the largest, 'a', has {train} images; another "
    )


def test_a_split_without_a_group_has_none_of_the_images():
    ((_, text),) = share_warnings(sizes(7, 0)[1:], SHARES)
    assert "train has 100.0% where 80.0% were asked for, val has 0.0% where 20.0% were asked for" in text


def test_the_transform_counts_a_group_once():
    images = [("train", "a")] * 8 + [("train", "b"), ("val", "c")]
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        found = p | beam.Create(images) | CountGroups(SHARES)
        counted = [SplitCount("train", Count(Metric.GROUPS, 2)), SplitCount("val", Count(Metric.GROUPS, 1))]
        assert_that(found.counted, equal_to(counted), "Counted")
        told = found.warnings | beam.MapTuple(lambda split, text: (split, "'a', has 8 images" in text))
        assert_that(told, equal_to([("train", True)]), "Warnings")
