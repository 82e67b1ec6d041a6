"""Rejects of several steps become one element a split and reason."""

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.rejects import Reason, Rejected, SplitReject
from recordmill.transforms.rejects.bounded_rejects import GatherRejects
from tests.transforms.rejects.kinds import rejects_in

FIRST = [SplitReject(split, Rejected("image", id_, Reason.NO_CLASS, "")) for split in "ab" for id_ in range(150)]
SECOND = [("b", Rejected("annotation", 1, Reason.EMPTY_BOX, "")), ("b", Rejected("image", 7, Reason.NO_CLASS, "z"))]


def test_gather_rejects():
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        kinds = (p | "One" >> beam.Create(FIRST), p | "Two" >> beam.Create(SECOND)) | GatherRejects()
        assert_that(kinds | "Rejects" >> beam.FlatMap(rejects_in), equal_to([*map(tuple, FIRST), *SECOND]), "All")
        numbers = kinds | "Number" >> beam.MapTuple(lambda kind, rejects: (kind, rejects.number))
        expected = [(("a", "image", "no_class"), 150), (("b", "image", "no_class"), 151)]
        assert_that(numbers, equal_to([*expected, (("b", "annotation", "empty_box"), 1)]), "Counts")
