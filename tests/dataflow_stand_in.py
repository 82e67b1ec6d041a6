"""Stand-in for the jobs API of Google Cloud Dataflow on loopback, which runs the submitted jobs.

A job is taken, its pipeline fetched from where it was staged (the bucket's stand-in), and run by Beam's FnApiRunner in
this process, as a worker would run it; states, counters and messages have the form of the service.

    with running(gcs) as dataflow:
        … recordmill convert … -- --runner=DataflowRunner --dataflow_endpoint={dataflow.url} --no_auth …
        assert dataflow.job["name"] == "…"
"""

import contextlib
import json
import re
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import common_urns, python_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from tests.gcs_stand_in import BUCKET, GcsStandIn

PROJECT = "recordmill-test"
REGION = "europe-west4"
JOB_ID = "2026-11-21_00_00_00-1234567890"

_JOBS = re.compile(r"/v1b3/projects/([^/]+)/locations/([^/]+)/jobs(?:/([^/?]+))?(?:/(messages|metrics))?(?:\?.*)?$")
_REFUSED = {400: "INVALID_ARGUMENT", 403: "PERMISSION_DENIED", 409: "ALREADY_EXISTS"}


@dataclass
class DataflowStandIn:
    """Requests so far, and the answers to come.

    Attributes:
        url: to be given as --dataflow_endpoint; Beam knows a service for tests by `localhost`.
        job: the last one that was created, as it was sent.
        requests: method, path without the query, for each request.
        refuse_create: (status, message) that the creation of a job is answered with.
        messages: (importance, text) that the service says of the job.
        is_held: whether the job stays RUNNING when its work is done, until it is cancelled.
        waits_for_counting: whether it stays so until it has been asked for its counters.
    """

    gcs: GcsStandIn
    url: str = ""
    job: dict[str, Any] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    refuse_create: tuple[int, str] | None = None
    messages: list[tuple[str, str]] = field(default_factory=list)
    is_held: bool = False
    waits_for_counting: bool = False
    _state: str = "JOB_STATE_PENDING"
    _counters: dict[str, int] = field(default_factory=dict)
    _work: threading.Thread | None = None
    _counted: threading.Event = field(default_factory=threading.Event)

    @property
    def state(self) -> str:
        return self._state

    @property
    def pipeline(self) -> beam_runner_api_pb2.Pipeline:
        """The job's, as it was staged."""
        url = self.job["environment"]["sdkPipelineOptions"]["options"]["pipelineUrl"]
        name = url.split(f"{BUCKET}/", 1)[1]
        return beam_runner_api_pb2.Pipeline.FromString(self.gcs.objects()[name])

    def create(self, job: dict[str, Any]) -> dict[str, Any]:
        self.job = job
        self._state = "JOB_STATE_RUNNING"
        self._work = threading.Thread(target=self._run, name="Dataflow's stand-in")
        self._work.start()
        return {"id": JOB_ID, "name": job["name"], "projectId": PROJECT, "location": REGION}

    def cancel(self) -> None:
        self._state = "JOB_STATE_CANCELLED"

    def end(self) -> None:
        if self._work:
            self._work.join()

    def _run(self) -> None:
        pipeline = self.pipeline
        for environment in pipeline.components.environments.values():
            assert environment.urn == common_urns.environments.DOCKER.urn
            environment.urn, environment.payload = python_urns.EMBEDDED_PYTHON, b""
            del environment.dependencies[:]
        try:
            result = FnApiRunner().run_via_runner_api(pipeline, PipelineOptions([]))
            result.wait_until_finish()
        except Exception:
            self.messages.append(("JOB_MESSAGE_ERROR", traceback.format_exc()))
            self.messages.append(("JOB_MESSAGE_ERROR", "Workflow failed. Causes: a work item was attempted 4 times"))
            self._state = "JOB_STATE_FAILED"
            return
        for counter in result.metrics().query()["counters"]:
            name = counter.key.metric.name
            if counter.key.metric.namespace == "recordmill":
                self._counters[name] = self._counters.get(name, 0) + counter.committed
        self._counted.clear()
        if self.waits_for_counting:
            self._counted.wait(120)
        if not self.is_held and self._state == "JOB_STATE_RUNNING":
            self._state = "JOB_STATE_DONE"

    def described(self) -> dict[str, Any]:
        return {
            "id": JOB_ID,
            "name": self.job["name"],
            "projectId": PROJECT,
            "location": REGION,
            "type": "JOB_TYPE_BATCH",
            "currentState": self._state,
        }

    def told(self) -> dict[str, Any]:
        return {
            "jobMessages": [
                {
                    "id": str(number),
                    "time": f"2026-11-21T00:00:{number:02}Z",
                    "messageImportance": importance,
                    "messageText": text,
                }
                for number, (importance, text) in enumerate(self.messages)
            ]
        }

    def counted(self) -> dict[str, Any]:
        return {
            "metrics": [
                {"name": {"origin": "user", "name": name, "context": context}, "scalar": number}
                for name, number in self._counters.items()
                for context in (
                    {"namespace": "recordmill", "step": "s1"},
                    {"namespace": "recordmill", "step": "s1", "tentative": "true"},
                )
            ]
        }


@contextlib.contextmanager
def running(gcs: GcsStandIn) -> Iterator[DataflowStandIn]:
    """A server on a free port; the job that it has in hand is done when it ends."""
    stand_in = DataflowStandIn(gcs)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_POST(self) -> None:
            self._note()
            job = json.loads(self._body())
            if stand_in.refuse_create:
                status, message = stand_in.refuse_create
                error = {"code": status, "message": message, "status": _REFUSED[status]}
                self._answer({"error": error}, status)
            else:
                self._answer(stand_in.create(job))

        def do_GET(self) -> None:
            self._note()
            match = _JOBS.match(self.path)
            assert match, self.path
            answers = {None: stand_in.described, "messages": stand_in.told, "metrics": stand_in.counted}
            self._answer(answers[match[4]]())
            if match[4] == "metrics":
                stand_in._counted.set()

        def do_PUT(self) -> None:
            self._note()
            if json.loads(self._body()).get("requestedState") in ("JOB_STATE_CANCELLED", 5):
                stand_in.cancel()
            self._answer(stand_in.described())

        def _note(self) -> None:
            stand_in.requests.append((self.command, self.path.partition("?")[0]))

        def _body(self) -> bytes:
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))

        def _answer(self, value: dict[str, Any], status: int = 200) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever, name="Dataflow's API")
    serving.start()
    stand_in.url = f"http://localhost:{server.server_port}"
    try:
        yield stand_in
    finally:
        stand_in.end()
        server.shutdown()
        server.server_close()
        serving.join()
