"""A stand-in for Google Cloud Storage on loopback: what google-cloud-storage asks, and what goes wrong.

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
    read    bytes of an object, or a range       copy    an object, within this server
    delete  an object
"""

import base64
import contextlib
import json
import os
import random
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import google_crc32c


class Kind(Enum):
    """Faults."""

    NONE = "none"
    STATUS = "the answer is `status`, with `message` if given"
    RESET = "the connection is reset, before an answer"
    LOST = "the request is carried out and the connection reset before the answer"
    TRUNCATED = "the connection ends half way through the answer's body"
    CORRUPTED = "a byte of what is read or stored is wrong, and no checksum tells the server"
    PARTIAL = "the server keeps half of a chunk and says so"
    STALL = "nothing more comes for `seconds`, from half way through the answer's body"
    REPLACED = "just before, somebody writes `data` as the object's new generation"


@dataclass
class Call:
    """A request in the log.

    Attributes:
        range: the Range header; of chunks, Content-Range.
        status: of the answer; 0 while there is none.
    """

    operation: str
    bucket: str
    name: str
    query: Mapping[str, str]
    range: str
    status: int = 0


@dataclass
class Fault:
    """A fault of the requests that match all of `operation`, `name` and `when`.

    Attributes:
        operation, name: patterns like those of file names; the name is the object's.
        first: the number of the first matching request that is hit, from 1.
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


_BUCKET = r"/storage/v1/b/(?P<bucket>[^/]+)"
_OBJECT = rf"{_BUCKET}/o/(?P<name>[^/]+)"
_TARGETS = [
    ("GET", _BUCKET, "bucket"),
    ("GET", rf"{_BUCKET}/o", "list"),
    ("GET", _OBJECT, "stat"),
    ("GET", rf"/download{_OBJECT}", "read"),
    ("DELETE", _OBJECT, "delete"),
    ("POST", rf"{_OBJECT}/rewriteTo/b/(?P<to_bucket>[^/]+)/o/(?P<to_name>[^/]+)", "copy"),
    ("POST", rf"(/resumable)?/upload{_BUCKET}/o", "upload"),
    ("PUT", rf"(/resumable)?/upload{_BUCKET}/o", "chunk"),
    ("DELETE", rf"(/resumable)?/upload{_BUCKET}/o", "cancel"),
]


def call_of(method: str, target: str, headers: Mapping[str, str]) -> Call:
    """Return the call that a request makes."""
    url = urlsplit(target)
    query = dict(parse_qsl(url.query, keep_blank_values=True))
    range_ = headers.get("Range") or headers.get("Content-Range") or ""
    for known_method, pattern, operation in _TARGETS:
        if method == known_method and (match := re.fullmatch(pattern, url.path)):
            names = {"name": query.get("name", "")}
            names |= {name: unquote(value) for name, value in match.groupdict().items()}
            if operation == "upload" and query.get("uploadType") == "resumable":
                operation = "start"
            return Call(operation, names.pop("bucket"), names.pop("name"), query | names, range_)
    return Call("unknown", "", "", query, range_)


BUCKET = "bucket"
ACCOUNT = "worker@project.iam.gserviceaccount.com"
REQUESTER_PAYS = "Bucket is a requester pays bucket but no user project provided."
_CHUNK_UNIT_BYTES = 256 * 1024
_NEVER = threading.Event()  # tests replace time.sleep


class Answer(NamedTuple):
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}


class RefusedError(Exception):
    """A request is answered with an error of this status and message."""


class StoredObject(NamedTuple):
    """An object's bytes, and its resource in the JSON API, which has no MD5, like those of composed objects."""

    data: bytes
    resource: dict[str, str]


class GcsStandIn:
    """The buckets, and what tests set and look at.

    Attributes:
        url: for STORAGE_EMULATOR_HOST.
        latency_s: added to each request.
        page_size: most names one page of a listing holds.
        rewrite_requests: how many a copy takes.
        bucket_place: fields of buckets that say where they are.
        protection: fields of new objects that say why they cannot be deleted or replaced.
        log: the requests so far, oldest first.
        connections: that have been made; `open_connections` of them are open.
    """

    def __init__(self) -> None:
        self.url = ""
        self.root = f"gs://{BUCKET}"
        self.lock = threading.RLock()
        self.open_connections = 0
        self.reset()

    def reset(self) -> None:
        """Forget all but the generations, which are never used again."""
        self.latency_s = 0.0
        self.page_size = 1000
        self.rewrite_requests = 1
        self.bucket_place: dict[str, object] = {"location": "US", "storageClass": "STANDARD"}
        self.protection: dict[str, object] = {}
        self.faults: list[Fault] = []
        self.log: list[Call] = []
        self.connections = 0
        self._buckets: dict[str, dict[str, StoredObject]] = {BUCKET: {}}
        self._uploads: dict[str, tuple[Call, dict, bytearray]] = {}
        self._uploaded: dict[str, Answer] = {}
        self._generation = time.time_ns() // 1000

    # For tests

    @property
    def environment(self) -> dict[str, str]:
        """Variables that lead clients here."""
        return {"STORAGE_EMULATOR_HOST": self.url}

    def put(self, name: str, data: bytes, bucket: str = BUCKET, **metadata: object) -> StoredObject:
        """Store an object, in a bucket made for it if need be."""
        with self.lock:
            self._buckets.setdefault(bucket, {})
            return self._store(bucket, {"name": name, **metadata}, data)

    def objects(self, bucket: str = BUCKET) -> dict[str, bytes]:
        with self.lock:
            return {name: stored.data for name, stored in self._buckets[bucket].items()}

    def calls(self, *operations: str) -> list[Call]:
        """The log, or its requests of some operations."""
        return [call for call in self.log if not operations or call.operation in operations]

    def wait_until_all_hung_up(self, seconds: float = 60) -> None:
        """Wait until the server has carried out what ended clients had sent."""
        last = time.monotonic() + seconds
        while self.open_connections:
            assert time.monotonic() < last, f"{self.open_connections} connections are open after {seconds} s"
            time.sleep(0.01)

    # For the server

    def answer(self, call: Call, headers: Mapping[str, str], body: bytes, fault: Fault) -> Answer:
        try:
            with self.lock:
                if fault.kind is Kind.STATUS:
                    raise RefusedError(fault.status, fault.message)
                if fault.kind is Kind.REPLACED:
                    self.put(call.name, fault.data, call.bucket)
                return self._answer(call, headers, body, fault.kind)
        except RefusedError as error:
            status, message = error.args
            message = message or f"{ACCOUNT} does not have storage.objects access to {call.operation} {call.name}."
            if call.operation == "read":
                return Answer(status, message.encode(), {"Content-Type": "text/html; charset=UTF-8"})
            return json_answer({"error": {"code": status, "message": message}}, status)

    def _answer(self, call: Call, headers: Mapping[str, str], body: bytes, kind: Kind) -> Answer:
        corrupt = kind is Kind.CORRUPTED
        match call.operation:
            case "bucket":
                self._objects(call.bucket)
                return json_answer({"name": call.bucket, **self.bucket_place})
            case "list":
                return json_answer(self._listed(call.bucket, call.query))
            case "stat":
                return json_answer(self._find(call).resource)
            case "read":
                return media(self._find(call), headers, corrupt)
            case "delete":
                check_protection(self._find(call))
                del self._buckets[call.bucket][call.name]
                return Answer(204)
            case "copy":
                return self._copy(call)
            case "upload":
                return json_answer(self._store(call.bucket, *parts(headers, body), call.query, corrupt).resource)
            case "start":
                return self._start(call, json.loads(body))
            case "chunk":
                return self._chunk(call, headers, body[: len(body) // 2] if kind is Kind.PARTIAL else body, corrupt)
            case "cancel":  # Google's client does not name the upload, whose id is in the other URL
                raise RefusedError(404, "Not Found")
        raise RefusedError(501, "the stand-in knows no such request")

    def _objects(self, bucket: str) -> dict[str, StoredObject]:
        if bucket not in self._buckets:
            raise RefusedError(404, "The specified bucket does not exist.")
        return self._buckets[bucket]

    def _find(self, call: Call) -> StoredObject:
        stored = self._objects(call.bucket).get(call.name)
        if stored is None or call.query.get("generation") not in (None, stored.resource["generation"]):
            raise RefusedError(404, f"No such object: {call.bucket}/{call.name}")
        check_conditions(stored, call.query)
        return stored

    def _store(
        self, bucket: str, metadata: Mapping, data: bytes, query: Mapping[str, str] = {}, corrupt: bool = False
    ) -> StoredObject:
        objects, name = self._objects(bucket), metadata["name"]
        check_conditions(objects.get(name), query)
        check_protection(objects.get(name))
        computed = crc32c(data)
        if metadata.get("crc32c", computed) != computed:
            raise RefusedError(400, f"Provided crc32c {metadata['crc32c']!r} doesn't match calculated {computed!r}.")
        self._generation += 1
        kept = damaged(data) if corrupt else data
        numbers = {"size": str(len(kept)), "generation": str(self._generation)}
        told = {"bucket": bucket, "crc32c": crc32c(kept), "updated": "2026-01-01T00:00:00Z"}
        objects[name] = StoredObject(kept, {**metadata, **self.protection, **numbers, **told})
        return objects[name]

    def _listed(self, bucket: str, query: Mapping[str, str]) -> dict:
        objects, prefix = self._objects(bucket), query.get("prefix", "")
        first, end = query.get("startOffset", ""), query.get("endOffset", "")
        after = base64.b64decode(query.get("pageToken", "")).decode()
        most = min(int(query.get("maxResults", self.page_size)), self.page_size)
        names = sorted(name for name in objects if name.startswith(prefix) and name >= first and name > after)
        names = [name for name in names if not end or name < end]
        page = names[:most]  # with names below folders, of which nothing is told
        below = [name for name in page if query.get("delimiter", "\0") in name.removeprefix(prefix)]
        folders = {prefix + name.removeprefix(prefix).partition("/")[0] + "/" for name in below}
        items = [objects[name].resource for name in page if name not in below]
        listed: dict[str, object] = {"items": items, "prefixes": sorted(folders)}
        if len(names) > most:
            listed["nextPageToken"] = base64.b64encode(names[most - 1].encode()).decode()
        return trimmed(listed, query["fields"]) if "fields" in query else listed

    def _copy(self, call: Call) -> Answer:
        source = self._find(call)
        size = str(len(source.data))
        request = int(call.query.get("rewriteToken", 0)) + 1
        if request < self.rewrite_requests:
            unfinished = {"done": False, "rewriteToken": str(request)}
            return json_answer({**unfinished, "totalBytesRewritten": "0", "objectSize": size})
        metadata = {**source.resource, "name": call.query["to_name"]}
        copied = self._store(call.query["to_bucket"], metadata, source.data, call.query).resource
        return json_answer({"done": True, "totalBytesRewritten": size, "objectSize": size, "resource": copied})

    def _start(self, call: Call, metadata: dict) -> Answer:
        check_conditions(self._objects(call.bucket).get(metadata["name"]), call.query)
        upload_id = f"s{len(self._uploads)}"
        self._uploads[upload_id] = call, metadata, bytearray()
        query = urlencode({"uploadType": "resumable", "name": metadata["name"], "upload_id": upload_id})
        return Answer(200, headers={"Location": f"{self.url}/upload/storage/v1/b/{call.bucket}/o?{query}"})

    def _chunk(self, call: Call, headers: Mapping[str, str], body: bytes, corrupt: bool) -> Answer:
        upload_id = call.query["upload_id"]
        if upload_id in self._uploaded:
            return self._uploaded[upload_id]
        begun, metadata, data = self._uploads[upload_id]
        match = re.fullmatch(r"bytes (?:\*|(\d+)-(?:\d+|\*))/(\d+|\*)", call.range)
        if match is None or int(match[1] or 0) > len(data):
            raise RefusedError(400, f"Content-Range is {call.range}, but {len(data)} bytes are here")
        start = int(match[1] or len(data))
        end = start + len(body)
        is_last = match[2] == str(end)
        kept = end if is_last else end // _CHUNK_UNIT_BYTES * _CHUNK_UNIT_BYTES
        data += body[len(data) - start : max(0, kept - start)]
        if not is_last:
            return Answer(308, headers={"Range": f"bytes=0-{len(data) - 1}"} if data else {})
        checksum = re.search(r"crc32c=([^,]+)", headers.get("X-Goog-Hash", ""))
        metadata |= {"crc32c": checksum[1]} if checksum else {}
        stored = self._store(begun.bucket, metadata, bytes(data), begun.query, corrupt)
        return self._uploaded.setdefault(upload_id, json_answer(stored.resource))


def check_conditions(stored: StoredObject | None, query: Mapping[str, str]) -> None:
    generation = stored.resource["generation"] if stored else "0"
    if query.get("ifGenerationMatch", generation) != generation or query.get("ifGenerationNotMatch") == generation:
        raise RefusedError(412, "At least one of the pre-conditions you specified did not hold.")


def check_protection(stored: StoredObject | None) -> None:
    if stored and {"retentionExpirationTime", "eventBasedHold"} & stored.resource.keys():
        raise RefusedError(403, "the object cannot be deleted or overwritten")


def json_answer(value: object, status: int = 200) -> Answer:
    return Answer(status, json.dumps(value).encode(), {"Content-Type": "application/json; charset=UTF-8"})


def media(stored: StoredObject, headers: Mapping[str, str], corrupt: bool) -> Answer:
    """An object's bytes, or the range that was asked for, which has no checksum."""
    told = {"X-Goog-Generation": stored.resource["generation"]}
    if "contentEncoding" in stored.resource:
        told["Content-Encoding"] = stored.resource["contentEncoding"]
    data = damaged(stored.data) if corrupt else stored.data
    match = re.fullmatch(r"bytes=(\d+)-(\d*)", headers.get("Range") or "")
    if not match:
        return Answer(200, data, {**told, "X-Goog-Hash": f"crc32c={stored.resource['crc32c']}"})
    size = len(data)
    start, end = int(match[1]), min(int(match[2] or size - 1), size - 1)
    if start >= size:
        raise RefusedError(416, "The requested range cannot be satisfied.")
    return Answer(206, data[start : end + 1], {**told, "Content-Range": f"bytes {start}-{end}/{size}"})


def parts(headers: Mapping[str, str], body: bytes) -> tuple[dict, bytes]:
    """Metadata and bytes of an upload in one request."""
    match = re.fullmatch(r'multipart/related; boundary="?([^"]+)"?', headers["Content-Type"])
    assert match, headers["Content-Type"]
    marker = b"--" + match[1].encode()
    _, first, rest = body.split(marker, 2)
    second = rest[: rest.rindex(b"\r\n" + marker + b"--")]
    return json.loads(first.partition(b"\r\n\r\n")[2]), second.partition(b"\r\n\r\n")[2]


def trimmed(resource: dict, fields: str) -> dict:
    """Return the fields that `fields` names, like `items(name,size),nextPageToken`."""
    kept = {name: value for name, value in resource.items() if name in re.split(r"\W", fields)}
    return kept | {"items": [trimmed(item, fields) for item in kept["items"]]} if "items" in kept else kept


def damaged(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def crc32c(data: bytes) -> str:
    return base64.b64encode(google_crc32c.Checksum(data).digest()).decode()


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
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # idle connections of clients that live on
    request_queue_size = 512
    stand_in: GcsStandIn

    def process_request_thread(self, request, client_address) -> None:
        with self.stand_in.lock:
            self.stand_in.connections += 1
            self.stand_in.open_connections += 1
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self.stand_in.lock:
                self.stand_in.open_connections -= 1

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
        call = call_of(self.command, self.path, self.headers)
        with stand_in.lock:
            stand_in.log.append(call)
            fault = next((fault for fault in stand_in.faults if fault.hits(call)), Fault(Kind.NONE))
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size)
        if len(body) < size:
            raise ConnectionError("the client hung up")
        _NEVER.wait(stand_in.latency_s)
        if fault.kind is not Kind.RESET:
            answer = stand_in.answer(call, self.headers, body, fault)
            call.status = answer.status
        if fault.kind in (Kind.RESET, Kind.LOST):
            self._reset()
        else:
            self._send(answer, fault)

    do_GET = do_POST = do_PUT = do_DELETE = serve  # noqa: N815  http.server's names

    def _reset(self) -> None:
        """Close with RST, as a middlebox does."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        os.close(self.connection.detach())

    def _send(self, answer: Answer, fault: Fault) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        body, half = memoryview(answer.body), len(answer.body) // 2
        self.wfile.write(body[:half])
        if fault.kind is Kind.TRUNCATED:
            self.close_connection = True
            return
        if fault.kind is Kind.STALL:
            self.wfile.flush()
            _NEVER.wait(fault.seconds)
        self.wfile.write(body[half:])
