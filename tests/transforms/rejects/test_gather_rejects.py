"""Rejects of several steps become runs of each split."""

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.rejects import Reason, Rejected, SplitReject
from recordmill.transforms.rejects.gather_rejects import GatherRejects
from tests.transforms.rejects.runs import rejects_in


def test_all_of_every_step_and_split_are_gathered():
    first = [SplitReject(split, Rejected("image", id_, Reason.NO_CLASS, "")) for split in "ab" for id_ in range(150)]
    second = [("b", Rejected("annotation", 1, Reason.EMPTY_BOX, ""))]
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        runs = (p | "One" >> beam.Create(first), p | "Two" >> beam.Create(second)) | GatherRejects("")
        assert_that(runs | "Rejects" >> beam.FlatMap(rejects_in), equal_to([*map(tuple, first), *second]), "All")
        count = runs | beam.combiners.Count.Globally()
        assert_that(count, equal_to([5]), "Few")
