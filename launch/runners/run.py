"""Run a pipeline, and explain the exception of a failed one in one line."""

import logging
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext

import apache_beam as beam
import grpc

from recordmill.launch.local_engine.engine import is_entered
from recordmill.launch.local_engine.lean_buffers import lean_buffers
from recordmill.launch.runners import watch
from recordmill.launch.runners.beam_options import Runner, beam_options, purpose_of, runner_of
from recordmill.schemas import errors
from recordmill.transforms.runtime import progress
from recordmill.transforms.storage.os_errors import explain_text

_LOGGER = logging.getLogger(__name__)

# Ctrl-C, or a signal that is heeded as it, within a step: wrapped by Beam.
_INTERRUPTED = re.compile(
    r"^(?:RuntimeError: )?(?:KeyboardInterrupt|[\w.]+\.Terminated)(?: \[while running|$)", re.MULTILINE
)


def run(build: Callable[[beam.Pipeline], object], beam_arguments: Sequence[str]) -> None:
    """Build a pipeline and run it to its end, in this process unless `beam_arguments` name another runner. For a dry
    run or a template (`beam_options.purpose_of`), only build it.

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


# Beam hands on a worker's exception as the text of its traceback, whose last line is `module.Class: message [while
# running 'step']`.
_RAISED = re.compile(r"^(?:[\w.]+\.)?(\w+): (.+?)(?: \[while running '([^']+)'\])?$", re.MULTILINE)

_CANCELLED = re.compile(r"\b[Ss]tate:? CANCELLED\b")
_OURS = r"named 'recordmill\b"


def explain(error: Exception) -> errors.RecordmillError:
    """Return the one-line error at the root of a pipeline's exception."""
    if isinstance(error, grpc.RpcError | grpc.FutureTimeoutError):
        # gRPC's own text has many lines
        why = f"{error.code().name}: {error.details()}" if isinstance(error, grpc.Call) else type(error).__name__
        return errors.JobError(f"the job server is gone, and perhaps the job with it ({why})")
    of_google = sys.modules.get("google.api_core.exceptions")  # imported where one of its exceptions was raised
    if of_google and isinstance(error, of_google.GoogleAPICallError):
        if error.code == 409:
            return errors.JobError(_of_active_job(error.message))
        advice = " (docs/dataflow.md has the roles)" if error.code in (401, 403) else ""
        return errors.JobError(f"the service refused the job: {error.code} {error.message}{advice}")
    if type(error).__name__ == "DataflowJobAlreadyExistsError":  # the service answers with the one that there is
        return errors.JobError(_of_active_job(str(error)))
    _, _, invalid = str(error).partition("Pipeline has validations errors: ")
    if invalid:
        return errors.ConfigError("; ".join(line.strip() for line in invalid.splitlines() if line.strip()))
    found = _RAISED.findall(f"{type(error).__name__}: {error}")
    if not found:
        return errors.JobError(f"the job failed: {type(error).__name__}: {error}")
    name, message, step = found[-1]
    ours = getattr(errors, name, None)
    if isinstance(ours, type) and issubclass(ours, errors.RecordmillError):
        return ours(message)
    return errors.JobError(_of_others(error, name, message, step))


def _of_others(error: Exception, name: str, message: str, step: str) -> str:
    if name == "ModuleNotFoundError" and re.search(_OURS, message):
        return (
            f"the workers do not have Recordmill ({message}): they need it installed, of this version, or shipped by "
            "--setup_file=./setup.py or --extra_package=recordmill-….whl"
        )
    if _CANCELLED.search(str(error)):
        return "the job was cancelled; finished shards stay, and the same command goes on from there"
    if type(error).__name__ == "DataflowRuntimeException" and "Traceback" not in str(error):
        return " ".join(str(error).split())
    if name == "BrokenProcessPool" or message.startswith("Channel closed prematurely"):
        return (
            "a worker process died in the middle of its work, killed perhaps because memory ran out; finished shards "
            "stay, and the same command goes on from there"
        )
    if message.startswith("Service failed to start up"):
        return (
            f"the job server that Beam starts ended at once ({message}): is it one, and can this machine run it? "
            "--debug shows what it said"
        )
    if "java.net.ConnectException" in message:
        return (
            f"{message.rstrip('.')}: is there a worker pool at --environment_config, and a cluster where the job "
            "server looks for one?"
        )
    if sentence := explain_text(message):
        return sentence
    # Beam wraps an error whose class wants more than a message: `RuntimeError: ThatError: …`.
    failure = message if name == "RuntimeError" else f"{name}: {message}"
    where = f" in step {step}" if step else ""
    return f"the job failed{where}: {failure} (--debug shows the traceback)"


def _of_active_job(message: str) -> str:
    return (
        f"such a job is running already: {message.rstrip('.')}. It writes the same splits into the same folder: wait "
        "for it, or cancel it (gcloud dataflow jobs list --status=active); --job_name after -- is for a job of another "
        "kind"
    )
