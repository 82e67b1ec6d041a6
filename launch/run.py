"""A pipeline is run, and what stops it is told in one line."""

import logging
import re
from collections.abc import Callable, Sequence

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

from schemas import errors

_LOCAL_RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"

# Beam hands on a worker's exception as the text of its traceback, whose last line is `module.Class: message [while
# running 'step']`.
_RAISED = re.compile(r"^(?:[\w.]+\.)?(\w+): (.+?)(?: \[while running '([^']+)'\])?$", re.MULTILINE)


class _Options(PipelineOptions):
    """Beam asks for the same few views hundreds of times while a pipeline is built, and each time parses the flags of a
    class anew: 0.17 of the 0.27 s that building takes. Views share their values, so one of each will do."""

    def view_as(self, cls):
        views = self.__dict__.setdefault("_views", {})
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]


def run(build: Callable[[beam.Pipeline], None], beam_arguments: Sequence[str]) -> None:
    """Build a pipeline and run it to its end: in this process, unless `beam_arguments` name another runner.

    Raises:
        RecordmillError: the one that a step raised, or a JobError that names the step and what went wrong in it.
    """
    options = _Options(list(beam_arguments))
    standard = options.view_as(StandardOptions)
    # The DirectRunner first tries to download and start another runner, Prism.
    if standard.runner in (None, "DirectRunner"):
        standard.runner = _LOCAL_RUNNER
    try:
        pipeline = beam.Pipeline(options=options)
        build(pipeline)
        pipeline.run().wait_until_finish()
    except Exception as error:
        logging.getLogger(__name__).debug("The pipeline failed", exc_info=True)
        raise explain(error) from error


def explain(error: Exception) -> errors.RecordmillError:
    """What a failed pipeline's exception comes down to."""
    found = _RAISED.findall(f"{type(error).__name__}: {error}")
    if not found:
        return errors.JobError(f"the job failed: {type(error).__name__}: {error}")
    name, message, step = found[-1]
    ours = getattr(errors, name, None)
    if isinstance(ours, type) and issubclass(ours, errors.RecordmillError):
        return ours(message)
    where = f" in step {step}" if step else ""
    return errors.JobError(f"the job failed{where}: {name}: {message} (--debug shows the traceback)")
