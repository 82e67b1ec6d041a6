"""Test for MergeRejects."""

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.rejects.bounded_rejects import count_rejects
from recordmill.transforms.rejects.gather_rejects import MergeRejects
from tests.transforms.rejects.kinds import kind_rejects

FIRST = [(split, Rejected("image", id_, Reason.NO_CLASS, "")) for split in "ab" for id_ in range(150)]
SECOND = [("b", Rejected("annotation", 1, Reason.EMPTY_BOX, "")), ("b", Rejected("image", 7, Reason.NO_CLASS, "z"))]


def test_merge_rejects():
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        parts = (FIRST[:9], FIRST[9:], SECOND)
        kinds = tuple(p | f"{len(part)}" >> beam.Create(kind_rejects(part)) for part in parts) | MergeRejects()
        assert_that(kinds, equal_to(count_rejects([*FIRST, *SECOND]).items()))
