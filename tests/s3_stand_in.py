"""A stand-in for Amazon S3 on loopback: moto's, and what goes wrong. See tests/gcs_stand_in for how it is used.

Operations, as the log and the faults name them:

    list    names of a bucket            upload    an object in one request
    stat    metadata of an object        start     of an upload in parts
    read    bytes of an object           part      of such an upload
    delete  an object                    complete  such an upload, which makes the object visible
    copy    an object                    abort     such an upload
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, unquote
from urllib.request import Request, urlopen

import boto3
from botocore.config import Config
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.test import run_wsgi_app

from recordmill.transforms.storage import fsspec_storage, resolve, zip_storage
from tests.gcs_stand_in import BUCKET, Call, Fault, Kind

_TESTS = "recordmill-tests"
_CODES = {403: "AccessDenied", 404: "NoSuchKey", 503: "SlowDown"}


class S3StandIn:
    """One bucket, and the log of what clients asked."""

    root = f"s3://{BUCKET}"

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.open_connections = 0
        self.faults: list[Fault] = []
        self.log: list[Call] = []
        self._app = DomainDispatcherApplication(create_backend_app)

    def begin(self, url: str) -> None:
        self.environment = {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": "tests",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_MAX_ATTEMPTS": "2",
        }
        self._url = url
        keys = {"aws_access_key_id": "tests", "aws_secret_access_key": "tests", "region_name": "us-east-1"}
        self._client = boto3.client("s3", endpoint_url=url, config=Config(user_agent=_TESTS), **keys)

    def reset(self) -> None:
        self.faults = []
        with urlopen(Request(f"{self._url}/moto-api/reset", method="POST")):
            pass
        self._client.create_bucket(Bucket=BUCKET)
        self.log.clear()

    def put(self, name: str, data: bytes) -> None:
        self._client.put_object(Bucket=BUCKET, Key=name, Body=data)

    def objects(self) -> dict[str, bytes]:
        """As moto holds them: to ask for each takes as long as the job that wrote them."""
        held = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[BUCKET].keys
        return {name: key.value for name, key in sorted(held.items())}

    def unfinished(self) -> list[str]:
        """Names of uploads in parts that are neither completed nor aborted."""
        return [row["Key"] for row in self._client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", ())]

    def calls(self, *operations: str) -> list[Call]:
        return [call for call in self.log if call.operation in operations]

    def wait_until_all_hung_up(self, seconds: float = 60) -> None:
        last = time.monotonic() + seconds
        while self.open_connections > 1:  # one is that of `_client`
            assert time.monotonic() < last, f"{self.open_connections} connections are open after {seconds} s"
            time.sleep(0.01)

    def __call__(self, environ: dict[str, Any], start: Callable) -> Iterable[bytes]:
        if _TESTS in environ.get("HTTP_USER_AGENT", "") or environ["PATH_INFO"].startswith("/moto-api"):
            return self._app(environ, start)
        call = _call_of(environ)
        with self.lock:
            self.log.append(call)
            fault = next((fault for fault in self.faults if fault.hits(call)), None)
        if fault is None:
            return self._app(environ, start)
        if fault.kind is Kind.RESET:
            raise ConnectionResetError
        if fault.kind is Kind.STATUS:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))  # or it would be the next request
            body = f"<Error><Code>{_CODES[fault.status]}</Code><Message>{fault.message}</Message></Error>".encode()
            start(f"{fault.status} Refused", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
            return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]
        assert fault.kind is Kind.TRUNCATED
        pieces, status, headers = run_wsgi_app(self._app, environ, buffered=True)
        start(status, list(headers))
        return _halved(b"".join(pieces))


def _halved(body: bytes) -> Iterator[bytes]:
    yield body[: len(body) // 2]
    raise ConnectionResetError


def _call_of(environ: Mapping[str, Any]) -> Call:
    bucket, _, name = environ["PATH_INFO"].encode("latin-1").decode().lstrip("/").partition("/")
    query = dict(parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True))
    by_query = {"partNumber": "part", "uploads": "start"}
    match environ["REQUEST_METHOD"]:
        case "GET":
            operation = "read" if name else "list"
        case "HEAD":
            operation = "stat"
        case "DELETE":
            operation = "abort" if "uploadId" in query else "delete"
        case "POST":
            operation = next((by_query[key] for key in query if key in by_query), "complete")
        case _:
            operation = "copy" if "HTTP_X_AMZ_COPY_SOURCE" in environ else "part" if "partNumber" in query else "upload"
    return Call(operation, bucket, unquote(name), query, environ.get("HTTP_RANGE", ""))


def emptied(server: S3StandIn, monkeypatch) -> S3StandIn:
    """Return the stand-in without objects, and lead the clients of this process to it."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    fsspec_storage.connect.cache_clear()
    resolve._is_remote_file.cache_clear()
    monkeypatch.setattr(zip_storage, "_listed", {})
    server.reset()
    return server


@contextmanager
def running() -> Iterator[S3StandIn]:
    stand_in = S3StandIn()

    class Handler(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle(self) -> None:
            with stand_in.lock:
                stand_in.open_connections += 1
            try:
                super().handle()
            finally:
                with stand_in.lock:
                    stand_in.open_connections -= 1

        def log(self, *_: object) -> None:
            return

        def connection_dropped(self, *_: object) -> None:
            self.close_connection = True

    server = make_server("127.0.0.1", 0, stand_in, threaded=True, request_handler=Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        stand_in.begin(f"http://127.0.0.1:{server.server_port}")
        stand_in.reset()
        yield stand_in
    finally:
        server.shutdown()
        server.server_close()
