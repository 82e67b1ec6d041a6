"""A pipeline is run, its job is watched as far as that can be done without one (tests/engines has the rest), and what
stops it is one line."""

import logging
import re
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import grpc
import pytest
from apache_beam.metrics.execution import MetricKey, MetricResult
from apache_beam.metrics.metricbase import MetricName
from apache_beam.options.pipeline_options import GoogleCloudOptions
from google.api_core.exceptions import Conflict, Forbidden, TooManyRequests

from recordmill.launch.runners import run as run_module
from recordmill.launch.runners.beam_options import beam_options
from recordmill.launch.runners.run import explain, run
from recordmill.launch.runners.signals import Terminated
from recordmill.schemas.errors import (
    CategoryError,
    ConfigError,
    JobError,
    RecordError,
    RecordmillError,
    TooManyRejectsError,
)
from recordmill.transforms.runtime import progress


def raising(error: BaseException | type[BaseException]) -> Callable[..., Any]:
    def fails(*_: object) -> None:
        raise error

    return fails


def failure(error: Exception) -> Exception:
    """Exception from `run` when a step raises `error`."""
    with pytest.raises(RecordmillError) as caught:
        run(lambda p: p | "Once" >> beam.Create([1]) | "Some" >> beam.ParDo(raising(error)), beam_options([]))
    return caught.value


def test_error_of_ours_comes_out_of_step_as_it_went_in():
    error = RecordError("the checksum is wrong", 3, "data_crc")
    told = failure(error)
    assert (type(told), str(told)) == (type(error), str(error))


def test_another_error_is_named_with_its_step():
    assert re.search("in step Some: .*ValueError: one: two", str(failure(ValueError("one: two"))))


@pytest.mark.parametrize("kind", [KeyboardInterrupt, Terminated])
def test_ctrl_c_within_step_is_ctrl_c_and_no_failure(kind):
    with pytest.raises(KeyboardInterrupt):
        run(lambda p: p | "Once" >> beam.Create([1]) | "Some" >> beam.Map(raising(kind)), beam_options([]))


def test_pipeline_that_cannot_be_built_is_named():
    with pytest.raises(JobError, match="the job failed: KeyError: "):
        run(lambda p: {}[p], beam_options([]))


# What stops a pipeline


TRACEBACK = """\
Traceback (most recent call last):
  File "apache_beam/runners/common.py", line 1498, in apache_beam.runners.common.DoFnRunner.process
  File "/somewhere/transforms/merge_categories.py", line 30, in merge_categories
    raise CategoryError(
{raised} [while running 'MergeCategories/Merge-ptransform-42']
"""


class _Ended(grpc.RpcError, grpc.Call):
    """Error of a closed gRPC stream; its text has many lines."""

    def code(self):
        return grpc.StatusCode.UNAVAILABLE

    def details(self):
        return "Socket closed"

    def __str__(self):
        return "<_MultiThreadedRendezvous of RPC that terminated with:\n\tstatus = StatusCode.UNAVAILABLE\n>"

    initial_metadata = trailing_metadata = is_active = time_remaining = cancel = add_callback = None


_Ended.__abstractmethods__ = frozenset()


class DataflowRuntimeException(Exception):  # noqa: N818
    """Named like Beam's."""


class DataflowJobAlreadyExistsError(Exception):
    """Named like Beam's."""


NOT_OURS = ValueError("see recordmill.schemas.errors.ConfigError: for more")
TRACED = [f"recordmill.schemas.errors.{name}: it: is [so] and 'so'" for name in ("CategoryError", "ConfigError")]
FAILED = "Dataflow pipeline failed. State: FAILED, Error:\n"


def traced(raised: str) -> RuntimeError:
    return RuntimeError(TRACEBACK.format(raised=raised))


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (traced(TRACED[0]), CategoryError, "^it: is \\[so\\] and 'so'$"),
        (traced(TRACED[1]), ConfigError, "^it: is \\[so\\] and 'so'$"),
        (traced("recordmill.schemas.errors.RecordError: record 3: x"), RecordError, "^record 3: x$"),
        (traced("OSError: [Errno 28] No space left on device"), JobError, "^no space is left"),
        (traced("RuntimeError: PermissionError: [Errno 13] Permission denied: 'a/b'"), JobError, "^a/b: permission"),
        (traced("KeyError: 'x'"), JobError, "in step MergeCategories/Merge-ptransform-42: KeyError: 'x'.*--debug"),
        (KeyError("x"), JobError, "KeyError: 'x'.*--debug"),
        (ValueError(), JobError, "ValueError: $"),
        (NOT_OURS, JobError, "ValueError: see"),
        # what other machines say
        (_Ended(), JobError, "job server was lost.*UNAVAILABLE: Socket closed"),
        (grpc.FutureTimeoutError(), JobError, "job server was lost.*FutureTimeoutError"),
        (Forbidden("Current user cannot act as x"), JobError, "refused .*403.* act as x.*docs/dataflow.md"),
        (Conflict("(a): There is already an active job named x."), JobError, "already running: .*named x\\. It"),
        (DataflowJobAlreadyExistsError("There is already active job x"), JobError, "already running: .*job x\\. It"),
        (TooManyRequests("quota"), JobError, "refused the job: 429 quota$"),
        (traced("ModuleNotFoundError: No module named 'recordmill.a'"), JobError, "workers do not have.*recordmill.a'"),
        (DataflowRuntimeException("State: CANCELLED, Error:\nNone"), JobError, "was cancelled"),
        (RuntimeError("Pipeline job-1 failed in state CANCELLED: unknown error"), JobError, "was cancelled"),
        (RuntimeError("Channel closed prematurely."), JobError, "worker process died"),
        (BrokenProcessPool("A process in the pool …"), JobError, "worker process died"),
        (RuntimeError("failed: java.net.ConnectException: refused"), JobError, "refused: .*--environment_config"),
        (DataflowRuntimeException(f"{FAILED}Workflow failed.\nCauses: x"), JobError, "Workflow failed. Causes: x$"),
        (
            DataflowRuntimeException(
                FAILED + TRACEBACK.format(raised="recordmill.schemas.errors.TooManyRejectsError: 9 of 10")
            ),
            TooManyRejectsError,
            "^9 of 10$",
        ),
        (
            DataflowRuntimeException(
                FAILED + TRACEBACK.format(raised="recordmill.schemas.errors.TooManyRejectsError: a\nb: 9 of 10")
            ),
            TooManyRejectsError,
            r"^a\\nb: 9 of 10$",
        ),
        (TooManyRejectsError("a\nb: 9 of 10 [while running 'Check']"), TooManyRejectsError, r"^a\\nb: 9 of 10$"),
        (ConfigError("a\nb is missing"), ConfigError, r"^a\\nb is missing$"),
        (
            ValueError("Pipeline has validations errors: \nMissing required option: x.\nInvalid y"),
            ConfigError,
            "^Missing required option: x.; Invalid y$",
        ),
    ],
)
def test_causes_of_stopped_pipelines(error, kind, words):
    told = explain(error)
    assert type(told) is kind
    assert re.search(words, str(told)), told
    assert "\n" not in str(told)


# The job of another machine


DATAFLOW = beam_options(["--runner=DataflowRunner", "--project=my-project", "--region=europe-west4"])
PORTABLE = beam_options(["--runner=PrismRunner"])
SERVICE = logging.getLogger("apache_beam.runners.dataflow.dataflow_runner")


class Job:
    """A job's result as Beam gives it: its counters, and what waiting for its end does."""

    state = "RESOURCE_CLEANING_UP"

    def __init__(
        self, ends: Any = lambda: None, counters: Sequence[tuple[str, int, int]] = (), gone: Exception | None = None
    ):
        self._ends = ends
        self._counters = counters
        self._gone = gone
        self.cancelled = 0

    def job_id(self) -> str:
        return "2026-11-21_1"

    def wait_until_finish(self) -> None:
        self._ends()

    def cancel(self) -> None:
        self.cancelled += 1
        if self._gone:
            raise self._gone

    def metrics(self) -> Any:
        results = [
            MetricResult(MetricKey(f"step{number}", MetricName(progress.NAMESPACE, name)), committed, attempted)
            for number, (name, committed, attempted) in enumerate(self._counters)
        ]
        return SimpleNamespace(query=lambda _: {"counters": results})


@pytest.fixture(autouse=True)
def from_zero():
    progress.reset()
    yield
    progress.reset()


def test_dataflow_jobs_id_and_link_are_named(capsys):
    run_module.wait(Job(), DATAFLOW)
    told = capsys.readouterr().err
    assert "Created job with id: [2026-11-21_1]\n" in told
    assert "https://console.cloud.google.com/dataflow/jobs/europe-west4/2026-11-21_1?project=my-project" in told


def test_counters_and_state_become_progress(monkeypatch):
    monkeypatch.setattr(run_module, "_ASK_EVERY_S", 0.01)
    counters = [
        ("images_planned", 10, 12),
        ("shards_planned", 2, 2),
        ("images_written", None, 3),
        ("images_written", 2, 9),
        ("images_skipped", 1, 1),
        ("planned_images_rejected", 1, 1),
        ("image_bytes_written", 700, 700),
        ("shards_written", 1, 1),
        ("rejected/image/image_missing", 4, 4),
        ("rejected/annotation/empty_box", 5, 5),
    ]
    waited = threading.Event()
    run_module.wait(Job(lambda: waited.wait(0.5), counters), DATAFLOW)
    now = progress.snapshot()
    assert (now.step, now.images_planned, now.shards_planned) == ("Dataflow: resource cleaning up", 10, 2)
    assert (now.images_skipped, now.images_done, now.bytes_done, now.shards_done, now.rejected) == (1, 7, 700, 1, 9)


class AskedOnce(Job):
    """Beam's result of a job server keeps the first answer."""

    _metrics: Any = None

    def metrics(self) -> Any:
        if self._metrics is None:
            self._counters = [("images_written", self.asked, self.asked)]
            self.asked += 1
            self._metrics = super().metrics()
        return self._metrics

    asked = 1


def test_job_server_is_asked_again_and_again(monkeypatch):
    monkeypatch.setattr(run_module, "_ASK_EVERY_S", 0.001)

    def until_three() -> None:
        end_s = time.monotonic() + 60
        while progress.snapshot().images_done < 3 and time.monotonic() < end_s:
            time.sleep(0.001)

    run_module.wait(AskedOnce(until_three), PORTABLE)
    assert progress.snapshot().images_done >= 3


def test_ctrl_c_while_job_is_submitted_tells_how_to_find_it():
    name = DATAFLOW.view_as(GoogleCloudOptions).job_name
    with pytest.raises(run_module.LeftRunning) as caught:
        run_module.submit(SimpleNamespace(run=raising(KeyboardInterrupt)), DATAFLOW)
    assert f"gcloud dataflow jobs list --filter=name={name} --project=my-project" in str(caught.value)
    with pytest.raises(KeyboardInterrupt) as plain:
        run_module.submit(SimpleNamespace(run=raising(KeyboardInterrupt)), beam_options([]))
    assert type(plain.value) is KeyboardInterrupt


@pytest.mark.parametrize(("options", "is_local"), [(beam_options([]), True), (DATAFLOW, False), (PORTABLE, False)])
def test_ctrl_c_kills_workers_of_the_local_runner_only(options, is_local):
    before = signal.getsignal(signal.SIGINT)
    pipeline = SimpleNamespace(run=lambda: signal.getsignal(signal.SIGINT) is not before)
    assert run_module.submit(pipeline, options) is is_local


ASKED = AssertionError("asked")


@pytest.mark.parametrize(
    ("answer", "is_terminal", "kind", "is_cancelled"),
    [
        *((answer, True, KeyboardInterrupt, True) for answer in ("c", " C ")),
        *((answer, True, KeyboardInterrupt, False) for answer in ("", "no", KeyboardInterrupt(), EOFError())),
        (ASKED, False, KeyboardInterrupt, False),
        (ASKED, True, Terminated, False),  # `docker stop` would wait for an answer until it kills
    ],
)
def test_ctrl_c_asks_whether_to_cancel(monkeypatch, answer, is_terminal, kind, is_cancelled):
    monkeypatch.setattr("builtins.input", raising(answer) if isinstance(answer, BaseException) else lambda: answer)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: is_terminal))
    job = Job(raising(kind))
    with pytest.raises(KeyboardInterrupt) as caught:
        run_module.wait(job, DATAFLOW)
    assert job.cancelled == is_cancelled
    if is_cancelled:
        assert str(caught.value) == ""
    else:
        assert isinstance(caught.value, run_module.LeftRunning)
        assert "jobs cancel 2026-11-21_1 --project=my-project --region=europe-west4" in str(caught.value)


@pytest.mark.parametrize("gone", [None, grpc.RpcError(), ValueError("Cannot invoke RPC on closed channel!")])
def test_ctrl_c_cancels_job_of_job_server(gone):
    """Ctrl-C may have reached the job server as well."""
    job = Job(raising(KeyboardInterrupt), gone=gone)
    with pytest.raises(KeyboardInterrupt) as caught:
        run_module.wait(job, PORTABLE)
    assert (job.cancelled, type(caught.value)) == (1, KeyboardInterrupt)


def test_message_of_dataflow_is_one_line(capsys):
    before = SERVICE.parent.level
    SERVICE.parent.setLevel(logging.CRITICAL)
    try:

        def says() -> None:
            head = "2026-11-21 00:00:00+00:00: JOB_MESSAGE_"
            for _ in range(2):
                SERVICE.warning(f"{head}WARNING: Quota CPUS exceeded.\nmore")
                SERVICE.error(f"{head}ERROR: Traceback (most recent call last):\n  File x\nOSError: no room")
            SERVICE.info(f"{head}BASIC: Worker pool started.")
            SERVICE.error("Console URL: https://console.cloud.google.com/")

        run_module.wait(Job(says), DATAFLOW)
        told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Dataflow: ")]
        assert told == ["Dataflow: Quota CPUS exceeded.", "Dataflow: OSError: no room"]
        SERVICE.warning("afterwards")
        assert capsys.readouterr().err == ""
    finally:
        SERVICE.parent.setLevel(before)  # it may be the root


class Lost(grpc.RpcError):
    pass


@pytest.mark.parametrize(("error", "is_told"), [(Lost(), False), (ValueError("a fault"), True)])
def test_threads_that_lose_their_connection_are_silent(error, is_told, monkeypatch):
    told: list[Any] = []

    def hook(raised: threading.ExceptHookArgs) -> None:
        told.append(raised.exc_value)

    monkeypatch.setattr(threading, "excepthook", hook)

    def loses() -> None:
        thread = threading.Thread(target=raising(error))
        thread.start()
        thread.join()

    run_module.wait(Job(loses), PORTABLE)
    assert told == ([error] if is_told else [])
    assert threading.excepthook is hook
