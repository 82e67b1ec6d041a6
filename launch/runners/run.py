"""A pipeline is run, and what stops it is reported in one line."""

import logging
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext

import apache_beam as beam

from recordmill.launch.local_engine.engine import is_entered
from recordmill.launch.local_engine.lean_buffers import lean_buffers
from recordmill.launch.runners import watch
from recordmill.launch.runners.beam_options import Runner, beam_options, purpose_of, runner_of
from recordmill.launch.runners.explain import explain
from recordmill.transforms.runtime import progress

_LOGGER = logging.getLogger(__name__)

# Ctrl-C, or a signal that is heeded as it, within a step: wrapped by Beam.
_INTERRUPTED = re.compile(
    r"^(?:RuntimeError: )?(?:KeyboardInterrupt|[\w.]+\.Terminated)(?: \[while running|$)", re.MULTILINE
)


def run(build: Callable[[beam.Pipeline], None], beam_arguments: Sequence[str]) -> None:
    """Build a pipeline and run it to its end: in this process, unless `beam_arguments` name another runner. Where they
    ask for a dry run or a template (`beam_options.purpose_of`), it is made and not run.

    Raises:
        RecordmillError: the one that a step raised, or a JobError that names the step and what went wrong in it.
        KeyboardInterrupt: Ctrl-C.
    """
    options = beam_options(beam_arguments)
    runner = runner_of(options)
    try:
        with lean_buffers(options) if is_entered() else nullcontext():
            pipeline = beam.Pipeline(options=options)
            build(pipeline)
            if runner is Runner.PORTABLE:
                progress.set_step("waiting for the job server")
            result = watch.submit(pipeline, runner, options)
            if purpose_of(options) == "run":
                watch.wait(result, runner, options)
    except Exception as error:
        _LOGGER.debug("The pipeline failed", exc_info=True)
        if _INTERRUPTED.search(str(error)):
            raise KeyboardInterrupt from error
        raise explain(error) from error
