"""Pipelines of tests."""

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.launch.runners.beam_options import beam_options


class Pipeline(beam.Pipeline):
    """A pipeline on the local runner, with the options of commands by default: they keep the values of Beam's flags,
    which a plain pipeline parses hundreds of times, in up to half of a small job's processor time."""

    def __init__(self, runner: object = None, options: PipelineOptions | None = None, argv: list[str] | None = None):
        super().__init__(runner, options or beam_options(argv or []))
