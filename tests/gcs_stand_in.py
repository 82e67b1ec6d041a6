"""A stand-in for Google Cloud Storage on loopback: what google-cloud-storage and Beam's GcsIO ask, and what goes wrong.

    with running() as gcs:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.url)
        gcs.put("images/1.jpg", data)
        gcs.faults.append(Fault(Kind.STATUS, operation="read", name="*.jpg", status=503, times=2))
        ...
        assert [call.range for call in gcs.calls("read")] == ["", "", ""]

It keeps everything in memory and knows nothing of credentials. Operations, as the log and the faults name them:

    bucket  metadata of a bucket                 upload  an object in one request, metadata first or not
    list    names of a bucket                    start   of an upload in chunks (a session)
    stat    metadata of an object                chunk   of such an upload, or the question how far it is
    read    bytes of an object, or a range       batch   several requests in one, each logged by itself too
    delete  an object                            copy    an object, within this server
"""

import base64
import contextlib
import email
import email.policy
import hashlib
import json
import os
import random
import re
import socket
import struct
import threading
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.message import Message
from enum import Enum
from fnmatch import fnmatchcase
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import google_crc32c

BUCKET = "bucket"
"""The bucket that is there from the beginning."""
ACCOUNT = "worker@project.iam.gserviceaccount.com"
"""Whom refusals name."""
PERMISSIONS = {"list": "list", "stat": "get", "read": "get", "delete": "delete"}
"""The `storage.objects` permission an operation needs; `create` for others."""
REQUESTER_PAYS = "Bucket is a requester pays bucket but no user project provided."
NO_BUCKET = "The specified bucket does not exist."

Headers = Mapping[str, str] | Message

_PERSISTED_BYTES = 256 * 1024
"""Of a chunk that is not the last, whole multiples of this are kept."""


class Kind(Enum):
    """What goes wrong."""

    STATUS = "the answer is `status`, with `message` if given and `headers`"
    RESET = "the connection is reset, before an answer"
    LOST = "the request is carried out and the connection reset before the answer"
    TRUNCATED = "the connection ends half way through the answer's body"
    CORRUPTED = "a byte of what is read or stored is wrong, and no checksum tells the server"
    PARTIAL = "the server keeps half of a chunk and says so"
    STALL = "nothing more comes for `seconds`, from half way through the answer's body"
    SLOW = "each 64 kB of the request's body take `seconds`"
    REPLACED = "just before, somebody writes `data` as the object's new generation"


@dataclass
class Call:
    """A request, as the log keeps it.

    Attributes:
        range: the Range header; of chunks, Content-Range.
        at_s: when it came, on the monotonic clock.
        in_flight: requests under way, with this one.
        status: of the answer; 0 while there is none.
    """

    method: str
    operation: str
    bucket: str
    name: str
    query: Mapping[str, str]
    range: str
    at_s: float
    in_flight: int = 0
    status: int = 0


@dataclass
class Fault:
    """Something that goes wrong with some requests: those that match all of `operation`, `name` and `when`.

    Attributes:
        operation, name: patterns as of file names; the name is the object's.
        first: of the matching requests, the number of the first that is hit; 1 is the first one.
        times: how many are hit from there on.
        probability: with which a request is hit; the same requests in each run, whatever the order threads make.
    """

    kind: Kind
    operation: str = "*"
    name: str = "*"
    when: Callable[[Call], bool] = lambda call: True
    first: int = 1
    times: float = 1
    probability: float = 1.0
    seed: int = 0
    status: int = 503
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    data: bytes = b"replaced"
    _matched: int = 0
    _seen: Counter = field(default_factory=Counter)

    def hits(self, call: Call) -> bool:
        if not (fnmatchcase(call.operation, self.operation) and fnmatchcase(call.name, self.name) and self.when(call)):
            return False
        request = (call.operation, call.name, call.range)
        self._seen[request] += 1
        if random.Random(f"{self.seed} {request} {self._seen[request]}").random() >= self.probability:
            return False
        self._matched += 1
        return self.first <= self._matched < self.first + self.times


@dataclass(frozen=True)
class StoredObject:
    bucket: str
    name: str
    data: bytes
    generation: int
    content_type: str = "application/octet-stream"
    content_encoding: str = ""
    is_composite: bool = False

    def resource(self) -> dict:
        """As the JSON API tells of it: numbers are strings."""
        resource = {
            "kind": "storage#object",
            "id": f"{self.bucket}/{self.name}/{self.generation}",
            "bucket": self.bucket,
            "name": self.name,
            "size": str(len(self.data)),
            "generation": str(self.generation),
            "metageneration": "1",
            "contentType": self.content_type,
            "crc32c": self.crc32c,
            "etag": f"e{self.generation}",
            "storageClass": "STANDARD",
            "timeCreated": "2026-01-01T00:00:00.000Z",
            "updated": "2026-01-01T00:00:00.000Z",
        }
        if self.content_encoding:
            resource["contentEncoding"] = self.content_encoding
        if not self.is_composite:
            resource["md5Hash"] = self.md5
        return resource

    @cached_property
    def crc32c(self) -> str:
        return crc32c(self.data)

    @cached_property
    def md5(self) -> str:
        return md5(self.data)


@dataclass
class Session:
    """An upload in chunks."""

    bucket: str
    metadata: dict
    query: Mapping[str, str]
    data: bytearray = field(default_factory=bytearray)
    done: StoredObject | None = None


@dataclass
class Answer:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class RefusedError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status
        self.message = message


class GcsStandIn:
    """The buckets, and what tests set and look at.

    Attributes:
        url: for STORAGE_EMULATOR_HOST.
        latency_s: added to each request.
        page_size: most names one page of a listing holds.
        rewrite_requests: how many a copy takes.
        log: the requests so far, oldest first.
        connections: that have been made.
    """

    def __init__(self) -> None:
        self.url = ""
        self.stopping = threading.Event()
        self._in_flight = 0
        self._open = 0
        self._lock = threading.RLock()
        self.reset()

    def reset(self) -> None:
        """As it was in the beginning, but for generations: those are never the same again."""
        self.latency_s = 0.0
        self.page_size = 1000
        self.rewrite_requests = 1
        self.faults: list[Fault] = []
        self.log: list[Call] = []
        self.connections = 0
        self._buckets: dict[str, dict[str, StoredObject]] = {BUCKET: {}}
        self._sorted_names: dict[str, list[str]] = {}
        self._sessions: dict[str, Session] = {}
        self._generation = time.time_ns() // 1000

    # For tests

    def put(self, name: str, data: bytes, bucket: str = BUCKET, **metadata: object) -> StoredObject:
        """Store an object, in a bucket made for it if need be."""
        with self._lock:
            self._buckets.setdefault(bucket, {})
            return self._store(bucket, {"name": name, **metadata}, data)

    def objects(self, bucket: str = BUCKET) -> dict[str, bytes]:
        with self._lock:
            return {name: stored.data for name, stored in self._buckets[bucket].items()}

    def generation(self, name: str, bucket: str = BUCKET) -> int:
        return self._buckets[bucket][name].generation

    def calls(self, *operations: str) -> list[Call]:
        """The log, or its requests of some operations."""
        return [call for call in self.log if not operations or call.operation in operations]

    def wait_until_all_hung_up(self, seconds: float = 60) -> None:
        """What clients that have ended had sent is carried out by then."""
        last = time.monotonic() + seconds
        while self._open:
            assert time.monotonic() < last, f"{self._open} connections are open after {seconds} s"
            time.sleep(0.01)

    # For the handler

    @contextlib.contextmanager
    def under_way(self, call: Call) -> Iterator[None]:
        with self._lock:
            self._in_flight += 1
            call.in_flight = self._in_flight
            self.log.append(call)
        try:
            yield
        finally:
            with self._lock:
                self._in_flight -= 1

    def fault_of(self, call: Call) -> Fault | None:
        with self._lock:
            return next((fault for fault in self.faults if fault.hits(call)), None)

    def wait(self, seconds: float) -> None:
        """Sleep, no longer than the server runs."""
        if seconds:
            self.stopping.wait(seconds)

    def answer(self, call: Call, headers: Headers, body: bytes, fault: Fault | None) -> Answer:
        kind = fault.kind if fault else None
        if fault and kind is Kind.REPLACED:
            self.put(call.name, fault.data, call.bucket)
        if fault and kind is Kind.STATUS:
            return _refusal(call, RefusedError(fault.status, fault.message), fault.headers)
        try:
            with self._lock:
                return self._answer(call, headers, body, kind)
        except RefusedError as error:
            return _refusal(call, error)

    def _answer(self, call: Call, headers: Headers, body: bytes, kind: Kind | None) -> Answer:
        corrupt = kind is Kind.CORRUPTED
        match call.operation:
            case "bucket":
                self._objects(call.bucket)
                return _json({"kind": "storage#bucket", "name": call.bucket, "projectNumber": "1", "location": "US"})
            case "list":
                return _json(trimmed(self._listed(call.bucket, call.query), call.query.get("fields")))
            case "stat":
                return _json(trimmed(self._find(call).resource(), call.query.get("fields")))
            case "read":
                return _media(self._find(call), headers, corrupt)
            case "delete":
                self._find(call)
                self._forget(call.bucket, call.name)
                return Answer(204)
            case "copy":
                return self._copy(call)
            case "upload":
                metadata, data = _parts(headers, body)
                metadata.setdefault("name", call.query.get("name"))
                return _json(self._store(call.bucket, metadata, data, call.query, corrupt).resource())
            case "start":
                return self._start(call, headers, json.loads(body or b"{}"))
            case "chunk":
                return self._chunk(call, headers, body[: len(body) // 2] if kind is Kind.PARTIAL else body, corrupt)
            case "batch":
                return self._batch(headers, body)
        raise RefusedError(501, f"the stand-in knows no {call.method} like this")

    def _objects(self, bucket: str) -> dict[str, StoredObject]:
        if bucket not in self._buckets:
            raise RefusedError(404, NO_BUCKET)
        return self._buckets[bucket]

    def _find(self, call: Call) -> StoredObject:
        stored = self._objects(call.bucket).get(call.name)
        if stored is None or call.query.get("generation", str(stored.generation)) != str(stored.generation):
            raise RefusedError(404, f"No such object: {call.bucket}/{call.name}")
        _check_conditions(stored, call.query)
        return stored

    def _store(
        self, bucket: str, metadata: Mapping, data: bytes, query: Mapping[str, str] = {}, corrupt: bool = False
    ) -> StoredObject:
        objects = self._objects(bucket)
        _check_conditions(objects.get(metadata["name"]), query)
        for name, computed in (("crc32c", crc32c(data)), ("md5Hash", md5(data))):
            if metadata.get(name, computed) != computed:
                raise RefusedError(400, f"Provided {name} {metadata[name]!r} doesn't match calculated {computed!r}.")
        self._generation += 1
        stored = StoredObject(
            bucket,
            metadata["name"],
            _damaged(data) if corrupt else bytes(data),
            self._generation,
            metadata.get("contentType") or "application/octet-stream",
            metadata.get("contentEncoding", ""),
            "componentCount" in metadata,
        )
        objects[stored.name] = stored
        self._sorted_names.pop(bucket, None)
        return stored

    def _forget(self, bucket: str, name: str) -> None:
        del self._buckets[bucket][name]
        self._sorted_names.pop(bucket, None)

    def _listed(self, bucket: str, query: Mapping[str, str]) -> dict:
        objects = self._objects(bucket)
        if bucket not in self._sorted_names:
            self._sorted_names[bucket] = sorted(objects)
        names = self._sorted_names[bucket]
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        most = min(int(query.get("maxResults", self.page_size)), self.page_size)
        after = base64.b64decode(query.get("pageToken", "")).decode()
        items: list[dict] = []
        prefixes: list[str] = []
        last = ""
        for name in names[max(bisect_left(names, prefix), bisect_right(names, after)) :]:
            if not name.startswith(prefix):
                break
            below, is_below, _ = name[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
            folder = prefix + below + delimiter if is_below else ""
            if folder and (folder <= after or folder == last):
                continue
            if len(items) + len(prefixes) == most:
                token = base64.b64encode(last.encode()).decode()
                return {"items": items, "prefixes": prefixes, "nextPageToken": token}
            if folder:
                prefixes.append(folder)
            else:
                items.append(objects[name].resource())
            last = folder or name
        return {"items": items, "prefixes": prefixes}

    def _copy(self, call: Call) -> Answer:
        source = self._find(call)
        request = int(call.query.get("rewriteToken", 0)) + 1
        if request < self.rewrite_requests:
            sizes = {"totalBytesRewritten": "0", "objectSize": str(len(source.data))}
            return _json({"done": False, "rewriteToken": str(request), **sizes})
        metadata = {"name": call.query["to_name"], "contentType": source.content_type}
        resource = self._store(call.query["to_bucket"], metadata, source.data, call.query).resource()
        if call.query["how"] == "copyTo":
            return _json(resource)
        size = resource["size"]
        return _json({"done": True, "totalBytesRewritten": size, "objectSize": size, "resource": resource})

    def _start(self, call: Call, headers: Headers, metadata: dict) -> Answer:
        metadata.setdefault("name", call.query.get("name"))
        metadata.setdefault("contentType", headers.get("X-Upload-Content-Type"))
        _check_conditions(self._objects(call.bucket).get(metadata["name"]), call.query)
        session = f"s{len(self._sessions)}"
        self._sessions[session] = Session(call.bucket, metadata, call.query)
        name = quote(metadata["name"], safe="")
        target = f"/upload/storage/v1/b/{call.bucket}/o?uploadType=resumable&name={name}&upload_id={session}"
        return Answer(200, headers={"Location": self.url + target})

    def _chunk(self, call: Call, headers: Headers, body: bytes, corrupt: bool) -> Answer:
        session = self._sessions.get(call.query["upload_id"])
        if session is None:
            raise RefusedError(404, "No such upload session")
        if session.done:
            return _json(session.done.resource())
        match = re.fullmatch(r"bytes (?:\*|(\d+)-(?:\d+|\*))/(\d+|\*)", headers.get("Content-Range", ""))
        if match is None:
            raise RefusedError(400, "Content-Range is missing or malformed")
        start = int(match[1] or len(session.data))
        end = start + len(body)
        is_last = match[2] == str(end)
        if start > len(session.data):
            raise RefusedError(400, f"the chunk begins at {start}, but {len(session.data)} bytes are here")
        kept = end if is_last else end // _PERSISTED_BYTES * _PERSISTED_BYTES
        session.data += body[len(session.data) - start : max(0, kept - start)]
        if is_last:
            checksum = re.search(r"crc32c=([^,]+)", headers.get("X-Goog-Hash", ""))
            metadata = session.metadata | ({"crc32c": checksum[1]} if checksum else {})
            session.done = self._store(session.bucket, metadata, bytes(session.data), session.query, corrupt)
            session.data.clear()
            return _json(session.done.resource())
        return Answer(308, headers={"Range": f"bytes=0-{len(session.data) - 1}"} if session.data else {})

    def _batch(self, headers: Headers, body: bytes) -> Answer:
        head = f"Content-Type: {headers['Content-Type']}\r\n\r\n".encode()
        message = email.message_from_bytes(head + body, policy=email.policy.HTTP)
        parts = []
        for part in message.iter_parts():
            method, target = part.get_content().decode().split()[:2]
            call = _call(method, target, {})
            with self.under_way(call):
                answer = self.answer(call, {}, b"", self.fault_of(call))
                call.status = answer.status
            lines = ["--part", "Content-Type: application/http", "", f"HTTP/1.1 {answer.status} -"]
            lines += [f"{name}: {value}" for name, value in answer.headers.items()]
            parts.append("\r\n".join([*lines, "", ""]).encode() + answer.body)
        return Answer(200, b"\r\n".join([*parts, b"--part--"]), {"Content-Type": "multipart/mixed; boundary=part"})


@contextlib.contextmanager
def running() -> Iterator[GcsStandIn]:
    """A stand-in that serves on a free port of loopback until the block ends."""
    stand_in = GcsStandIn()
    server = _Server(("127.0.0.1", 0), _Handler)
    server.stand_in = stand_in
    stand_in.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield stand_in
    finally:
        stand_in.stopping.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # idle connections of clients that live on
    request_queue_size = 512
    stand_in: GcsStandIn

    def process_request(self, request, client_address) -> None:
        with self.stand_in._lock:
            self.stand_in.connections += 1
            self.stand_in._open += 1
        super().process_request(request, client_address)

    def process_request_thread(self, request, client_address) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self.stand_in._lock:
                self.stand_in._open -= 1

    def handle_error(self, request, client_address) -> None:
        """Say nothing of clients that hang up: faults make them."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 64 * 1024
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *arguments: object) -> None:
        """The log is `GcsStandIn.log`."""

    def serve(self) -> None:
        stand_in = self.server.stand_in
        call = _call(self.command, self.path, self.headers)
        with stand_in.under_way(call):
            fault = stand_in.fault_of(call)
            kind = fault.kind if fault else None
            body = self._body(fault.seconds if fault and kind is Kind.SLOW else 0)
            stand_in.wait(stand_in.latency_s)
            if kind is not Kind.RESET:
                answer = stand_in.answer(call, self.headers, body, fault)
                call.status = answer.status
        if kind in (Kind.RESET, Kind.LOST):
            self._reset()
        else:
            self._send(answer, fault)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = serve  # noqa: N815  http.server's names

    def _body(self, seconds_each: float) -> bytes:
        left = int(self.headers.get("Content-Length") or 0)
        pieces = []
        while left:
            self.server.stand_in.wait(seconds_each)
            piece = self.rfile.read(min(left, 64 * 1024))
            if not piece:
                raise ConnectionError("the client hung up")
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    def _reset(self) -> None:
        """Close with RST, as a middlebox does: at once, and without a word to close the connection with."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        os.close(self.connection.detach())

    def _send(self, answer: Answer, fault: Fault | None) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        half = len(answer.body) // 2
        if fault and fault.kind is Kind.TRUNCATED:
            self.wfile.write(answer.body[:half])
            self.close_connection = True
        elif fault and fault.kind is Kind.STALL:
            self.wfile.write(answer.body[:half])
            self.wfile.flush()
            self.server.stand_in.wait(fault.seconds)
            self.wfile.write(answer.body[half:])
        else:
            self.wfile.write(answer.body)


_OBJECT = r"/b/(?P<bucket>[^/]+)/o/(?P<name>[^/]+)"
_TARGETS = [
    ("POST", r"/batch(/storage/v1)?", "batch"),
    ("GET", r"/storage/v1/b/(?P<bucket>[^/]+)", "bucket"),
    ("GET", r"/storage/v1/b/(?P<bucket>[^/]+)/o", "list"),
    ("GET", rf"(?P<media>/download)?/storage/v1{_OBJECT}", "stat"),
    ("DELETE", rf"/storage/v1{_OBJECT}", "delete"),
    ("POST", rf"/storage/v1{_OBJECT}/(?P<how>copyTo|rewriteTo)/b/(?P<to_bucket>[^/]+)/o/(?P<to_name>[^/]+)", "copy"),
    ("POST", r"(/resumable)?/upload/storage/v1/b/(?P<bucket>[^/]+)/o", "upload"),
    ("PUT", r"(/resumable)?/upload/storage/v1/b/(?P<bucket>[^/]+)/o", "chunk"),
    ("(GET|HEAD)", r"/(?P<bucket>[^/]+)/(?P<name>.+)", "read"),  # the XML API
]


def _target(method: str, path: str) -> tuple[str, dict[str, str]]:
    """The operation, and the names within a path."""
    for methods, pattern, operation in _TARGETS:
        if re.fullmatch(methods, method) and (match := re.fullmatch(pattern, path)):
            return operation, {name: unquote(value) for name, value in match.groupdict().items() if value}
    return "unknown", {}


def _call(method: str, target: str, headers: Headers) -> Call:
    """What a request is."""
    url = urlsplit(target)
    query = dict(parse_qsl(url.query, keep_blank_values=True))
    operation, groups = _target(method, url.path)
    if operation == "stat" and (groups.pop("media", "") or query.get("alt") == "media"):
        operation = "read"
    if operation == "upload" and query.get("uploadType") == "resumable":
        operation = "start"
    bucket, name = groups.pop("bucket", ""), groups.pop("name", query.get("name", ""))
    range_ = headers.get("Range") or headers.get("Content-Range") or ""
    return Call(method, operation, bucket, name, query | groups, range_, time.monotonic())


def _refusal(call: Call, error: RefusedError, headers: Mapping[str, str] = {}) -> Answer:
    """An error as the server words it: JSON, but plain text where bytes were asked for."""
    message = error.message
    if not message and error.status == 403:
        permission = f"storage.objects.{PERMISSIONS.get(call.operation, 'create')}"
        message = f"{ACCOUNT} does not have {permission} access to the Google Cloud Storage object. "
        message += f"Permission '{permission}' denied on resource (or it may not exist)."
    if call.operation == "read":
        return Answer(error.status, message.encode(), {"Content-Type": "text/html; charset=UTF-8", **headers})
    fault = {"code": error.status, "message": message, "errors": [{"message": message, "domain": "global"}]}
    return _json({"error": fault}, error.status, headers)


def _json(value: object, status: int = 200, headers: Mapping[str, str] = {}) -> Answer:
    return Answer(status, json.dumps(value).encode(), {"Content-Type": "application/json; charset=UTF-8", **headers})


def _media(stored: StoredObject, headers: Headers, corrupt: bool) -> Answer:
    """An object's bytes, or the range that was asked for, which has no checksum."""
    told = {
        "Content-Type": stored.content_type,
        "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT",
        "ETag": f"e{stored.generation}",
        "X-Goog-Generation": str(stored.generation),
        "X-Goog-Metageneration": "1",
        "X-Goog-Stored-Content-Length": str(len(stored.data)),
        "X-Goog-Stored-Content-Encoding": stored.content_encoding or "identity",
    }
    if stored.content_encoding:
        told["Content-Encoding"] = stored.content_encoding
    data = _damaged(stored.data) if corrupt else stored.data
    match = re.fullmatch(r"bytes=(?:(\d+)-(\d*)|-(\d+))", headers.get("Range") or "")
    if not match:
        hashes = f"crc32c={stored.crc32c}" + ("" if stored.is_composite else f",md5={stored.md5}")
        return Answer(200, data, {**told, "X-Goog-Hash": hashes})
    size = len(data)
    start = max(0, size - int(match[3])) if match[3] else int(match[1])
    end = min(int(match[2] or size - 1), size - 1)
    if start >= size:
        raise RefusedError(416, "The requested range cannot be satisfied.")
    return Answer(206, data[start : end + 1], {**told, "Content-Range": f"bytes {start}-{end}/{size}"})


def _parts(headers: Headers, body: bytes) -> tuple[dict, bytes]:
    """Metadata and bytes of an upload in one request."""
    content_type = headers.get("Content-Type", "")
    if not content_type.startswith("multipart/"):
        return {"contentType": content_type}, body
    match = re.search(r'boundary="?([^";]+)', content_type)
    assert match, content_type
    marker = b"--" + match[1].encode()
    _, first, rest = body.split(marker, 2)
    second = rest[: rest.rindex(b"\r\n" + marker + b"--")]
    head, _, data = second.partition(b"\r\n\r\n")
    data_type = email.message_from_bytes(head.strip()).get_content_type()
    return {"contentType": data_type, **json.loads(first.partition(b"\r\n\r\n")[2])}, data


def _check_conditions(stored: StoredObject | None, query: Mapping[str, str]) -> None:
    generation = str(stored.generation) if stored else "0"
    if query.get("ifGenerationMatch", generation) != generation or query.get("ifGenerationNotMatch") == generation:
        raise RefusedError(412, "At least one of the pre-conditions you specified did not hold.")


def trimmed(resource: dict, fields: str | None) -> dict:
    """What `fields` leaves of a resource: `items(name,size),nextPageToken`."""
    if not fields:
        return resource
    kept = {}
    for name, inner in re.findall(r"([^,()]+)(?:\(([^)]*)\))?", fields):
        if name in resource:
            kept[name] = [trimmed(item, inner) for item in resource[name]] if inner else resource[name]
    return kept


def _damaged(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def crc32c(data: bytes) -> str:
    return base64.b64encode(google_crc32c.Checksum(data).digest()).decode()


def md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data).digest()).decode()
