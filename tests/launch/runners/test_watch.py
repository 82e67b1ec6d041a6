"""A job that runs elsewhere, as far as it can be watched without one: tests/engines has the whole of it."""

import logging
import threading
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from apache_beam.metrics.execution import MetricKey, MetricResult
from apache_beam.metrics.metricbase import MetricName
from apache_beam.options.pipeline_options import GoogleCloudOptions

from recordmill.launch.runners import run as watch
from recordmill.launch.runners.beam_options import beam_options
from recordmill.launch.runners.signals import Terminated
from recordmill.transforms.runtime import progress

OPTIONS = beam_options(["--runner=DataflowRunner", "--project=my-project", "--region=europe-west4"])
PORTABLE = beam_options(["--runner=PrismRunner"])
SERVICE = logging.getLogger("apache_beam.runners.dataflow.dataflow_runner")


class Job:
    """A job's result as Beam gives it: its counters, and what waiting for its end does."""

    state = "RESOURCE_CLEANING_UP"

    def __init__(self, ends: Any = lambda: None, counters: Sequence[tuple[str, int, int]] = ()):
        self._ends = ends
        self._counters = counters
        self.cancelled = 0

    def job_id(self) -> str:
        return "2026-11-21_1"

    def wait_until_finish(self) -> None:
        self._ends()

    def cancel(self) -> None:
        self.cancelled += 1

    def metrics(self) -> Any:
        results = [
            MetricResult(MetricKey(f"step{number}", MetricName(progress.NAMESPACE, name)), committed, attempted)
            for number, (name, committed, attempted) in enumerate(self._counters)
        ]
        return SimpleNamespace(query=lambda _: {"counters": results})


def interrupted() -> None:
    raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def from_zero():
    progress.reset()
    yield
    progress.reset()


@pytest.fixture
def answer(monkeypatch):
    """A person at a terminal who says something when asked."""

    def says(text: str | BaseException) -> None:

        def answer() -> str:
            if isinstance(text, BaseException):
                raise text
            return text

        monkeypatch.setattr("builtins.input", answer)
        monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))

    return says


def test_dataflow_jobs_id_and_link_are_named(capsys):
    watch.wait(Job(), OPTIONS)
    told = capsys.readouterr().err
    assert "Created job with id: [2026-11-21_1]\n" in told
    assert "https://console.cloud.google.com/dataflow/jobs/europe-west4/2026-11-21_1?project=my-project" in told


def test_counters_and_state_become_progress(monkeypatch):
    monkeypatch.setattr(watch, "_ASK_EVERY_S", 0.01)
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
    watch.wait(Job(lambda: waited.wait(0.5), counters), OPTIONS)
    now = progress.snapshot()
    assert (now.step, now.images_planned, now.shards_planned) == ("Dataflow: resource cleaning up", 10, 2)
    assert (now.images_skipped, now.images_done, now.bytes_done, now.shards_done, now.rejected) == (1, 7, 700, 1, 9)


class AskedOnce(Job):
    """As Beam's own results of job servers: they keep the first answer."""

    _metrics: Any = None

    def metrics(self) -> Any:
        if self._metrics is None:
            self._counters = [("images_written", self.asked, self.asked)]
            self.asked += 1
            self._metrics = super().metrics()
        return self._metrics

    asked = 1


def test_job_server_is_asked_again_and_again(monkeypatch):
    monkeypatch.setattr(watch, "_ASK_EVERY_S", 0.001)

    def until_three() -> None:
        end_s = time.monotonic() + 60
        while progress.snapshot().images_done < 3 and time.monotonic() < end_s:
            time.sleep(0.001)

    watch.wait(AskedOnce(until_three), PORTABLE)
    assert progress.snapshot().images_done >= 3


@pytest.mark.parametrize("said", ["c", " C "])
def test_ctrl_c_may_cancel(said, answer):
    answer(said)
    job = Job(interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        watch.wait(job, OPTIONS)
    assert (job.cancelled, str(caught.value)) == (1, "")


def test_ctrl_c_while_job_is_submitted_tells_how_to_find_it():
    name = OPTIONS.view_as(GoogleCloudOptions).job_name
    with pytest.raises(watch.LeftRunning) as caught:
        watch.submit(SimpleNamespace(run=interrupted), OPTIONS)
    assert f"gcloud dataflow jobs list --filter=name={name} --project=my-project" in str(caught.value)
    with pytest.raises(KeyboardInterrupt) as plain:
        watch.submit(SimpleNamespace(run=interrupted), beam_options([]))
    assert type(plain.value) is KeyboardInterrupt


@pytest.mark.parametrize("said", ["", "no", KeyboardInterrupt(), EOFError()])
def test_ctrl_c_may_leave_job_running(said, answer):
    answer(said)
    job = Job(interrupted)
    with pytest.raises(watch.LeftRunning) as caught:
        watch.wait(job, OPTIONS)
    assert job.cancelled == 0
    assert "jobs cancel 2026-11-21_1 --project=my-project --region=europe-west4" in str(caught.value)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, Terminated])
def test_without_terminal_job_is_left_running(kind, answer, monkeypatch):
    """`docker stop` of a command on a terminal would wait for an answer until it is killed."""
    answer(AssertionError("asked"))
    if kind is KeyboardInterrupt:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: False))

    def ended() -> None:
        raise kind

    job = Job(ended)
    with pytest.raises(watch.LeftRunning):
        watch.wait(job, OPTIONS)
    assert job.cancelled == 0


def test_job_of_job_server_is_cancelled_with_command():
    job = Job(interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        watch.wait(job, PORTABLE)
    assert (job.cancelled, type(caught.value)) == (1, KeyboardInterrupt)


@pytest.mark.parametrize("error", [grpc.RpcError(), ValueError("Cannot invoke RPC on closed channel!")])
def test_ctrl_c_that_has_reached_job_server_as_well_is_ctrl_c(error):
    class WithoutServer(Job):
        def cancel(self) -> None:
            raise error

    with pytest.raises(KeyboardInterrupt):
        watch.wait(WithoutServer(interrupted), PORTABLE)


def test_what_dataflow_says_is_named_in_line_once(capsys):
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

        watch.wait(Job(says), OPTIONS)
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

    def fails() -> None:
        raise error

    def loses() -> None:
        thread = threading.Thread(target=fails)
        thread.start()
        thread.join()

    watch.wait(Job(loses), PORTABLE)
    assert told == ([error] if is_told else [])
    assert threading.excepthook is hook
