"""A stand-in for BigQuery on loopback: tables, queries and exports, as google-cloud-bigquery asks for them.

    with running(gcs) as bigquery:
        monkeypatch.setenv("BIGQUERY_EMULATOR_HOST", bigquery.url)
        bigquery.tables["p.d.t"] = Table(pa.table({"id": [1, 2]}))

A query gives the table that `queries` has for its text. Exports are written into the buckets of a `GcsStandIn`, in
files of two rows.
"""

import contextlib
import io
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from tests.gcs_stand_in import GcsStandIn

_LOCATION = "europe-west1"
_ROWS = 2
_TEMPORARY = "project._temporary.result"


@dataclass
class Table:
    rows: pa.Table
    version: int = 1
    kind: str = "TABLE"


@dataclass
class BigQueryStandIn:
    """What it has, and what it was asked.

    Attributes:
        queries: by their text: the tables that they read, and the one that they give.
        exporting, exported: called before and after an export is written.
        jobs: of all, the requests, oldest first.
    """

    gcs: GcsStandIn
    url: str = ""
    tables: dict[str, Table] = field(default_factory=dict)
    queries: dict[str, tuple[list[str], pa.Table]] = field(default_factory=dict)
    exporting: Callable[[], None] = lambda: None
    exported: Callable[[], None] = lambda: None
    fault: str = ""
    jobs: list[dict] = field(default_factory=list)
    _answers: dict[str, dict] = field(default_factory=dict)

    def exports(self) -> list[str]:
        """The sources of exports that were asked for."""
        found = [job["configuration"]["extract"] for job in self.jobs if "extract" in job["configuration"]]
        return [_name(extract["sourceTable"]) for extract in found]

    def table(self, name: str) -> tuple[int, dict]:
        if name not in self.tables:
            return _refusal(404, f"Not found: Table {name}")
        table = self.tables[name]
        return 200, {
            "tableReference": _reference(name),
            "id": name.replace(".", ":", 1),
            "etag": f"e{table.version}",
            "type": table.kind,
            "numBytes": str(table.rows.nbytes),
            "numRows": str(len(table.rows)),
            "location": _LOCATION,
        }

    def start(self, job: dict) -> tuple[int, dict]:
        self.jobs.append(job)
        configuration = job["configuration"]
        answer = {**job, "status": {"state": "DONE"}, "statistics": {}}
        if "query" in configuration:
            text = configuration["query"]["query"]
            if text not in self.queries:
                return _refusal(400, f"Syntax error: {text}")
            read, result = self.queries[text]
            if configuration.get("dryRun"):
                answer["statistics"] = {"query": {"referencedTables": list(map(_reference, read))}}
                return 200, answer
            self.tables[_TEMPORARY] = Table(result)
            configuration["query"]["destinationTable"] = _reference(_TEMPORARY)
        else:
            extract = configuration["extract"]
            assert (extract["destinationFormat"], extract["compression"]) == ("PARQUET", "SNAPPY")
            if job["jobReference"].get("location") != _LOCATION:
                return _refusal(404, "Not found: Dataset, as it is in another location")
            self.exporting()
            if self.fault:
                answer["status"]["errorResult"] = {"reason": "invalid", "message": self.fault}
            else:
                files = self._write(self.tables[_name(extract["sourceTable"])].rows, extract["destinationUris"][0])
                self.exported()
                answer["statistics"] = {"extract": {"destinationUriFileCounts": [str(files)]}}
        self._answers[job["jobReference"]["jobId"]] = answer
        return 200, {**answer, "status": {"state": "RUNNING"}}  # it is done when it is asked for again

    def job(self, job_id: str) -> tuple[int, dict]:
        return 200, self._answers[job_id]

    def _write(self, rows: pa.Table, uri: str) -> int:
        bucket, _, pattern = uri.removeprefix("gs://").partition("/")
        starts = range(0, max(len(rows), 1), _ROWS)
        for number, start in enumerate(starts):
            data = io.BytesIO()
            pq.write_table(rows.slice(start, _ROWS), data)
            self.gcs.put(pattern.replace("*", f"{number:012}"), data.getvalue(), bucket)
        return len(starts)


def _reference(name: str) -> dict[str, str]:
    return dict(zip(("projectId", "datasetId", "tableId"), name.split("."), strict=True))


def _name(reference: dict[str, str]) -> str:
    return ".".join(reference[part] for part in ("projectId", "datasetId", "tableId"))


def _refusal(status: int, message: str) -> tuple[int, dict]:
    return status, {"error": {"code": status, "message": message, "errors": [{"reason": "invalid"}]}}


@contextlib.contextmanager
def running(gcs: GcsStandIn) -> Iterator[BigQueryStandIn]:
    stand_in = BigQueryStandIn(gcs)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            if match := re.fullmatch(r"/bigquery/v2/projects/(.+)/datasets/(.+)/tables/(.+)", path):
                self._answer(*stand_in.table(".".join(match.groups())))
            elif match := re.fullmatch(r"/bigquery/v2/projects/.+/jobs/(.+)", path):
                self._answer(*stand_in.job(match[1]))
            else:
                self._answer(*_refusal(501, f"the stand-in knows no GET {path}"))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._answer(*stand_in.start(body))

        def _answer(self, status: int, body: dict) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stand_in.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield stand_in
    finally:
        server.shutdown()
        server.server_close()
