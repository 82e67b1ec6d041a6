"""A pipeline is run, and what stops it is told in one line."""

import argparse
import difflib
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

from schemas import errors

_LOCAL_RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"

# Beam hands on a worker's exception as the text of its traceback, whose last line is `module.Class: message [while
# running 'step']`.
_RAISED = re.compile(r"^(?:[\w.]+\.)?(\w+): (.+?)(?: \[while running '([^']+)'\])?$", re.MULTILINE)

# Ctrl-C within a step, wrapped by Beam.
_INTERRUPTED = re.compile(r"^(?:RuntimeError: )?KeyboardInterrupt(?: \[while running|$)", re.MULTILINE)


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
        KeyboardInterrupt: Ctrl-C.
    """
    options = beam_options(beam_arguments)
    try:
        pipeline = beam.Pipeline(options=options)
        build(pipeline)
        pipeline.run().wait_until_finish()
    except Exception as error:
        logging.getLogger(__name__).debug("The pipeline failed", exc_info=True)
        if _INTERRUPTED.search(str(error)):
            raise KeyboardInterrupt from error
        raise explain(error) from error


def beam_options(beam_arguments: Sequence[str]) -> PipelineOptions:
    """Beam's options, for the local runner unless another is named.

    Raises:
        ConfigError: a flag or a value that Beam does not take.
    """
    try:
        options = _Options(list(beam_arguments))
        standard = options.view_as(StandardOptions)
    except SystemExit as error:  # argparse, which has told on standard error what is wrong
        raise errors.ConfigError("after --, a flag has a value that Beam does not take") from error
    # The DirectRunner first tries to download and start another runner, Prism.
    if standard.runner in (None, "DirectRunner"):
        _refuse_unknown(beam_arguments)
        standard.runner = _LOCAL_RUNNER
    return options


class _BeamFlags(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise errors.ConfigError(f"after --, {message}")


def _refuse_unknown(beam_arguments: Sequence[str]) -> None:
    """Beam drops a flag that it does not know without a word; other runners than the local one may know more.

    Raises:
        ConfigError: a flag of no class of Beam's options.
    """
    parser: Any = _BeamFlags(allow_abbrev=False, conflict_handler="resolve", add_help=False)
    for options_class in PipelineOptions.__subclasses__():
        options_class._add_argparse_args(parser)
    _, unknown = parser.parse_known_args(list(beam_arguments))
    for argument in unknown:
        near = difflib.get_close_matches(argument.partition("=")[0], parser._option_string_actions, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise errors.ConfigError(f"after --, {argument} is no flag that Beam knows{hint}")


def explain(error: Exception) -> errors.RecordmillError:
    """What a failed pipeline's exception comes down to."""
    found = _RAISED.findall(f"{type(error).__name__}: {error}")
    if not found:
        return errors.JobError(f"the job failed: {type(error).__name__}: {error}")
    name, message, step = found[-1]
    ours = getattr(errors, name, None)
    if isinstance(ours, type) and issubclass(ours, errors.RecordmillError):
        return ours(message)
    # Beam wraps an error whose class wants more than a message: `RuntimeError: OSError: [Errno 28] …`.
    told = message if name == "RuntimeError" else f"{name}: {message}"
    where = f" in step {step}" if step else ""
    return errors.JobError(f"the job failed{where}: {told} (--debug shows the traceback)")
