"""Rejects of several steps become runs of each split."""

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.rejects import Reason, Rejected, SplitReject
from recordmill.transforms.rejects.gather_rejects import GatherRejects
from tests.transforms.rejects.runs import rejects_in

FIRST = [SplitReject(split, Rejected("image", id_, Reason.NO_CLASS, "")) for split in "ab" for id_ in range(150)]
SECOND = [("b", Rejected("annotation", 1, Reason.EMPTY_BOX, ""))]


def test_all_of_every_step_and_split_are_gathered(tmp_path):
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        runs = (p | "One" >> beam.Create(FIRST), p | "Two" >> beam.Create(SECOND)) | GatherRejects(str(tmp_path))
        assert_that(runs | "Rejects" >> beam.FlatMap(rejects_in), equal_to([*map(tuple, FIRST), *SECOND]), "All")
        count = runs | beam.combiners.Count.Globally()
        assert_that(count, equal_to([5]), "Few")


def test_a_dry_run_passes_on_a_tally_of_each_bundle_and_split_alone():
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        runs = (p | "One" >> beam.Create(FIRST), p | "Two" >> beam.Create(SECOND)) | GatherRejects("")
        counted = runs | beam.Map(lambda of: (of[0], of[1].tally.counts, of[1].blocks))
        images = {("image", "no_class"): 150}
        assert_that(
            counted,
            equal_to([("a", images, ()), ("b", images, ()), ("b", {("annotation", "empty_box"): 1}, ())]),
        )
