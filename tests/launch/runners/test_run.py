"""A pipeline is run; an error of a step comes out of it as what it is."""

import re

import apache_beam as beam
import pytest

from recordmill.launch.runners.beam_options import beam_options
from recordmill.launch.runners.run import run
from recordmill.launch.runners.signals import Terminated
from recordmill.schemas.errors import JobError, RecordError, RecordmillError


def _raise(error: Exception) -> None:
    raise error


def failure(error: Exception) -> Exception:
    """What `run` raises when a step raises `error`."""
    with pytest.raises(RecordmillError) as caught:
        run(lambda p: p | "Once" >> beam.Create([error]) | "Some" >> beam.ParDo(_raise), beam_options([]))
    return caught.value


def test_error_of_ours_comes_out_of_step_as_it_went_in():
    error = RecordError("the checksum is wrong", 3, "data_crc")
    told = failure(error)
    assert (type(told), str(told)) == (type(error), str(error))


def test_another_error_is_named_with_its_step():
    assert re.search("in step Some: .*ValueError: one: two", str(failure(ValueError("one: two"))))


def _interrupt(kind: type) -> None:
    raise kind


@pytest.mark.parametrize("kind", [KeyboardInterrupt, Terminated])
def test_ctrl_c_within_step_is_ctrl_c_and_no_failure(kind):
    with pytest.raises(KeyboardInterrupt):
        run(lambda p: p | "Once" >> beam.Create([kind]) | "Some" >> beam.Map(_interrupt), beam_options([]))


def test_pipeline_that_cannot_be_built_is_named():
    with pytest.raises(JobError, match="the job failed: KeyError: "):
        run(lambda p: {}[p], beam_options([]))
