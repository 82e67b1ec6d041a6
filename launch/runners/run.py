"""Run a pipeline, watch its job, and explain the exception of a failed one in one line.

For a remote job, the progress line shows its state and counters, and the service's warnings are printed. Ctrl-C asks
whether to cancel the job."""

import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from tempfile import TemporaryDirectory
from typing import Any, TypeVar
from uuid import uuid4

import apache_beam as beam
import grpc
import msgspec
from apache_beam.metrics import MetricsFilter
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions

from recordmill.launch.local_engine.engine import is_entered
from recordmill.launch.local_engine.lean_buffers import lean_buffers
from recordmill.launch.runners.beam_options import Runner, chosen_runner, job_purpose
from recordmill.launch.runners.signals import Terminated, kill_workers_on_signal
from recordmill.launch.terminal.error_stream import error_stream
from recordmill.launch.terminal.progress import pause_progress
from recordmill.schemas import errors
from recordmill.schemas.sizes import printable
from recordmill.transforms.runtime import progress
from recordmill.transforms.storage.os_errors import explain_text
from recordmill.transforms.storage.resolve import join_path, storage_for

Report = TypeVar("Report")

_LOGGER = logging.getLogger(__name__)

# Ctrl-C, or a signal with the same effect, inside a step: Beam wraps the exception.
_INTERRUPTED = re.compile(
    r"^(?:RuntimeError: )?(?:KeyboardInterrupt|[\w.]+\.Terminated)(?: \[while running|$)", re.MULTILINE
)
_ASK_EVERY_S = 5.0
_LINE_CHARACTERS = 300

# Time and severity, Beam's prefix of a text.
_MESSAGE_HEAD = re.compile(r"^\S+ ?\S*: JOB_MESSAGE_\w+: ")


def run(build: Callable[[beam.Pipeline], object], options: PipelineOptions) -> None:
    """Build a pipeline and run it to its end, in this process unless the options name another runner. For a dry run or
    a template (`beam_options.job_purpose`), only build it.

    Args:
        options: Of `beam_options.beam_options`.

    Raises:
        RecordmillError: The error of a step, or a JobError that names the step and the cause.
        KeyboardInterrupt: Ctrl-C.
    """
    try:
        with lean_buffers(options) if is_entered() else nullcontext():
            pipeline = beam.Pipeline(options=options)
            build(pipeline)
            if chosen_runner(options) is Runner.PORTABLE:
                progress.set_step("waiting for the job server")
            result = submit(pipeline, options)
            if job_purpose(options) == "run":
                wait(result, options)
    except Exception as error:
        _LOGGER.debug("The pipeline failed", exc_info=True)
        if _INTERRUPTED.search(str(error)):
            raise KeyboardInterrupt from error
        raise explain(error) from error


def run_for_report(
    build: Callable[[beam.Pipeline, str], object], options: PipelineOptions, kind: type[Report], folder: str = ""
) -> Report:
    """Run a pipeline that writes a report as JSON to a temporary file, and return the report. Errors as for `run`.

    Args:
        build: Adds the steps to a pipeline, and takes the path of the report.
        folder: Folder of the file, if workers elsewhere write it and have no temporary folder of Dataflow.
    """

    def report(path: str) -> Report:
        run(lambda p: build(p, path), options)
        return msgspec.json.decode(storage_for(path).read(path), type=kind)

    if chosen_runner(options) is Runner.LOCAL:
        with TemporaryDirectory(prefix="recordmill-") as temporary:
            return report(os.path.join(temporary, "report.json"))
    folder = options.view_as(GoogleCloudOptions).temp_location or folder
    path = join_path(folder, f".recordmill-report-{uuid4().hex}.json")
    try:
        return report(path)
    finally:
        with suppress(OSError):
            storage_for(path).delete(path)


class LeftRunning(KeyboardInterrupt):
    """Ctrl-C or SIGTERM ended the watch, and the job continues. The message has the command that stops it."""


def submit(pipeline: beam.Pipeline, options: PipelineOptions) -> Any:
    """Run or submit a pipeline.

    Raises:
        LeftRunning: Ctrl-C, and Dataflow may have the job.
    """
    runner = chosen_runner(options)
    try:
        with kill_workers_on_signal() if runner is Runner.LOCAL else nullcontext():
            return pipeline.run()
    except KeyboardInterrupt as interrupt:
        if runner is not Runner.DATAFLOW:
            raise
        cloud = options.view_as(GoogleCloudOptions)
        raise LeftRunning(
            f"interrupted while job {cloud.job_name} was submitted; to see whether Dataflow has it: gcloud "
            f"dataflow jobs list --filter=name={cloud.job_name} --project={cloud.project} --region={cloud.region}"
        ) from interrupt


def wait(result: Any, options: PipelineOptions) -> None:
    """Wait until a job has ended.

    Raises:
        KeyboardInterrupt: Ctrl-C, and the job was stopped; or LeftRunning.
        Exception: Beam's exception if the job failed.
    """
    runner = chosen_runner(options)
    if runner is Runner.LOCAL:
        result.wait_until_finish()
        return
    job = _DataflowJob(result, options) if runner is Runner.DATAFLOW else _PortableJob(result)
    with (
        polling(lambda: progress.update_from_counters(job.step(), job.counts())),
        _quiet_threads(),
        _print_service_log(),
    ):
        try:
            result.wait_until_finish()
        except KeyboardInterrupt as interrupt:
            job.interrupted(interrupt)
            raise


class _PortableJob:
    """Job of Flink, Spark or Prism. It ends with this process, which may contain its workers."""

    def __init__(self, result: Any):
        self._result = result

    def counts(self) -> dict[str, int]:
        self._result._metrics = None  # makes Beam request them again
        return _job_counts(self._result)

    def step(self) -> str:
        return f"the job is {self._result.state.lower()}"

    def interrupted(self, interrupt: KeyboardInterrupt) -> None:
        try:
            self._result.cancel()
        except (grpc.RpcError, ValueError) as error:  # Ctrl-C has also ended the job server
            _LOGGER.debug("The job server is gone: %r", error)


class _DataflowJob:
    def __init__(self, result: Any, options: PipelineOptions):
        self._result = result
        cloud = options.view_as(GoogleCloudOptions)
        self._where = f"--project={cloud.project} --region={cloud.region}"
        self.id = result.job_id()
        _print_message(f"Created job with id: [{self.id}]")
        _print_message(
            f"  https://console.cloud.google.com/dataflow/jobs/{cloud.region}/{self.id}?project={cloud.project}\n"
            f"  Ctrl-C asks whether to cancel it"
        )

    def counts(self) -> dict[str, int]:
        return _job_counts(self._result)

    def step(self) -> str:
        return f"Dataflow: {self._result.state.lower().replace('_', ' ')}"

    def interrupted(self, interrupt: KeyboardInterrupt) -> None:
        how = f"gcloud dataflow jobs cancel {self.id} {self._where}"
        if isinstance(interrupt, Terminated) or not _wants_cancel(self.id):
            raise LeftRunning(f"job {self.id} continues without this process; to stop it: {how}") from interrupt
        self._result.cancel()
        _print_message(f"Cancelled job {self.id}")


def _wants_cancel(job_id: str) -> bool:
    """Return True if the user wants to cancel. Without a terminal, the job continues, because it can still be
    stopped."""
    if not (sys.stdin and sys.stdin.isatty()):
        return False
    try:
        with pause_progress():
            _print_message(f"\nJob {job_id} runs on Dataflow. Cancel it (c), or leave it running and exit (Enter)?")
            answer = input()
    except (KeyboardInterrupt, EOFError):
        return False
    return answer.strip().lower().startswith("c")


def _job_counts(result: Any) -> dict[str, int]:
    """Return our counters of a job by name."""
    counts: dict[str, int] = {}
    for counter in result.metrics().query(MetricsFilter().with_namespace(progress.NAMESPACE))["counters"]:
        number = counter.committed if counter.committed is not None else counter.attempted
        counts[counter.key.metric.name] = counts.get(counter.key.metric.name, 0) + (number or 0)
    return counts


@contextmanager
def polling(ask: Callable[[], None]) -> Iterator[None]:
    """Context manager: a thread calls `ask` every few seconds to update the progress line."""
    ended = threading.Event()

    def ask_on() -> None:
        while not ended.wait(_ASK_EVERY_S):
            try:
                ask()
            except Exception as error:  # only the line is outdated: `wait` reports a failed job
                _LOGGER.debug("The progress of the job is unknown: %r", error)

    asking = threading.Thread(target=ask_on, name="asking", daemon=True)
    asking.start()
    try:
        yield
    finally:
        ended.set()
        asking.join(_ASK_EVERY_S)


@contextmanager
def _quiet_threads() -> Iterator[None]:
    """Context manager: threads that lose the job server print no traceback. The main thread reports the loss."""
    before = threading.excepthook

    def hook(raised: threading.ExceptHookArgs) -> None:
        if issubclass(raised.exc_type, grpc.RpcError):
            _LOGGER.debug("A connection ended", exc_info=raised.exc_value)
        else:
            before(raised)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before


class _PrintOnce(logging.Handler):
    """Log handler that prints one line per distinct message. A failing worker's traceback comes four times."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._seen: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        lines = _MESSAGE_HEAD.sub("", record.getMessage()).strip().splitlines() or [""]
        line = lines[-1 if lines[0].startswith("Traceback") else 0][:_LINE_CHARACTERS]
        if line not in self._seen and not line.startswith("Console URL"):  # _DataflowJob prints it
            self._seen.add(line)
            _print_message(f"Dataflow: {line}")


@contextmanager
def _print_service_log() -> Iterator[None]:
    """Context manager: print Dataflow's warnings and errors."""
    service = logging.getLogger("apache_beam.runners.dataflow.dataflow_runner")
    before, handler = service.level, _PrintOnce()
    service.setLevel(min(service.getEffectiveLevel(), logging.WARNING))
    service.addHandler(handler)
    try:
        yield
    finally:
        service.removeHandler(handler)
        service.setLevel(before)


def _print_message(text: str) -> None:
    print(text, file=error_stream(), flush=True)


# Beam passes on a worker's exception as the text of its traceback. The last line is `module.Class: message [while
# running 'step']`.
_RUNNING = " [while running '"
_RAISED = re.compile(r"^(?:[\w.]+\.)?(\w+): (.+?)(?: \[while running '([^']+)'\])?$", re.MULTILINE)

_CANCELLED = re.compile(r"\b[Ss]tate:? CANCELLED\b")
_OURS = r"named 'recordmill\b"


def explain(error: Exception) -> errors.RecordmillError:
    """Return the root of a pipeline's exception as one line."""
    if isinstance(error, grpc.RpcError | grpc.FutureTimeoutError):
        # gRPC's text has many lines
        why = f"{error.code().name}: {error.details()}" if isinstance(error, grpc.Call) else type(error).__name__
        return errors.JobError(f"the connection to the job server was lost ({why}); the job may have ended, too")
    google_exceptions = sys.modules.get("google.api_core.exceptions")  # imported if one of its exceptions was raised
    if google_exceptions and isinstance(error, google_exceptions.GoogleAPICallError):
        if error.code == 409:
            return errors.JobError(_active_job_message(error.message))
        advice = " (docs/dataflow.md has the roles)" if error.code in (401, 403) else ""
        return errors.JobError(f"the service refused the job: {error.code} {error.message}{advice}")
    if type(error).__name__ == "DataflowJobAlreadyExistsError":  # the message names the running job
        return errors.JobError(_active_job_message(str(error)))
    _, _, invalid = str(error).partition("Pipeline has validations errors: ")
    if invalid:
        return errors.ConfigError("; ".join(line.strip() for line in invalid.splitlines() if line.strip()))
    text = f"{type(error).__name__}: {error}"
    matches = [*_RAISED.finditer(text)]
    if not matches:
        return errors.JobError(f"the job failed: {text}")
    for head in [match for match in matches if _our_class(match[1])][-1:]:
        # A name in the message may have line breaks, which are shown as escapes.
        message, running, _ = text[head.start(2) :].partition(_RUNNING)
        is_of_worker = running and "\n\n" not in message and "\nTraceback" not in message
        if is_of_worker or isinstance(error, errors.RecordmillError):
            return _our_class(head[1])(printable(message))
        if head is matches[-1]:
            return _our_class(head[1])(head[2])
    return errors.JobError(_failure_message(error, *matches[-1].groups(default="")))


def _our_class(name: str) -> Any:
    """Return the class of our errors with this name; None if there is none."""
    kind = getattr(errors, name, None)
    return kind if isinstance(kind, type) and issubclass(kind, errors.RecordmillError) else None


def _failure_message(error: Exception, name: str, message: str, step: str) -> str:
    if name == "ModuleNotFoundError" and re.search(_OURS, message):
        return (
            f"the workers do not have Recordmill ({message}). Install this version on them, or ship it by "
            "--setup_file=./setup.py or --extra_package=recordmill-….whl"
        )
    if _CANCELLED.search(str(error)):
        return "the job was cancelled. Finished shards are kept. Run the same command again to resume"
    if type(error).__name__ == "DataflowRuntimeException" and "Traceback" not in str(error):
        return " ".join(str(error).split())
    if name == "BrokenProcessPool" or message.startswith("Channel closed prematurely"):
        return (
            "a worker process died, perhaps because memory ran out. Finished shards are kept. Run the same "
            "command again to resume"
        )
    if message.startswith("Service failed to start up"):
        return (
            f"the job server that Beam started exited at once ({message}): is the file a job server, and can this "
            "machine run it? --debug shows its output"
        )
    if "java.net.ConnectException" in message:
        return (
            f"{message.rstrip('.')}: is there a worker pool at --environment_config, and a cluster where the job "
            "server looks for one?"
        )
    if sentence := explain_text(message):
        return sentence
    # Beam wraps an error whose class needs more than a message: `RuntimeError: ThatError: …`.
    failure = message if name == "RuntimeError" else f"{name}: {message}"
    where = f" in step {step}" if step else ""
    return f"the job failed{where}: {failure} (--debug shows the traceback)"


def _active_job_message(message: str) -> str:
    return (
        f"a job with this name is already running: {message.rstrip('.')}. It writes the same splits into the same "
        "folder. Wait for it, or cancel it (gcloud dataflow jobs list --status=active); --job_name after -- is for a "
        "different job"
    )
