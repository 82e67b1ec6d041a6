"""The buckets of the stand-in, and what its tests set and look at."""

import base64
import contextlib
import email
import email.policy
import json
import re
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from urllib.parse import quote

from tests.gcs_stand_in.answers import NO_BUCKET, Answer, RefusedError, json_answer, media, parts, refusal, trimmed
from tests.gcs_stand_in.objects import Session, StoredObject, crc32c, damaged, md5
from tests.gcs_stand_in.requests import Call, Fault, Headers, Kind, call_of

BUCKET = "bucket"
"""The bucket that is there from the beginning."""
_PERSISTED_BYTES = 256 * 1024
"""Of a chunk that is not the last, whole multiples of this are kept."""


class GcsStandIn:
    """The buckets, and what tests set and look at.

    Attributes:
        url: for STORAGE_EMULATOR_HOST.
        latency_s: added to each request.
        page_size: most names one page of a listing holds.
        rewrite_requests: how many a copy takes.
        bucket_place: fields of buckets that say where they are.
        kept_until: as by a bucket's retention policy, the time before which no new object can be deleted or replaced.
        held: whether new objects are given an event-based hold.
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
        self.bucket_place: dict[str, object] = {"location": "US", "storageClass": "STANDARD"}
        self.kept_until = ""
        self.held = False
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
            return refusal(call, RefusedError(fault.status, fault.message), fault.headers)
        try:
            with self._lock:
                return self._answer(call, headers, body, kind)
        except RefusedError as error:
            return refusal(call, error)

    def _answer(self, call: Call, headers: Headers, body: bytes, kind: Kind | None) -> Answer:
        corrupt = kind is Kind.CORRUPTED
        match call.operation:
            case "bucket":
                self._objects(call.bucket)
                return json_answer(
                    {"kind": "storage#bucket", "name": call.bucket, "projectNumber": "1", **self.bucket_place}
                )
            case "list":
                return json_answer(trimmed(self._listed(call.bucket, call.query), call.query.get("fields")))
            case "stat":
                return json_answer(trimmed(self._find(call).resource(), call.query.get("fields")))
            case "read":
                return media(self._find(call), headers, corrupt)
            case "delete":
                check_kept(self._find(call))
                self._forget(call.bucket, call.name)
                return Answer(204)
            case "copy":
                return self._copy(call)
            case "upload":
                metadata, data = parts(headers, body)
                metadata.setdefault("name", call.query.get("name"))
                return json_answer(self._store(call.bucket, metadata, data, call.query, corrupt).resource())
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
        check_conditions(stored, call.query)
        return stored

    def _store(
        self, bucket: str, metadata: Mapping, data: bytes, query: Mapping[str, str] = {}, corrupt: bool = False
    ) -> StoredObject:
        objects = self._objects(bucket)
        check_conditions(objects.get(metadata["name"]), query)
        check_kept(objects.get(metadata["name"]))
        for name, computed in (("crc32c", crc32c(data)), ("md5Hash", md5(data))):
            if metadata.get(name, computed) != computed:
                raise RefusedError(400, f"Provided {name} {metadata[name]!r} doesn't match calculated {computed!r}.")
        self._generation += 1
        stored = StoredObject(
            bucket,
            metadata["name"],
            damaged(data) if corrupt else bytes(data),
            self._generation,
            metadata.get("contentType") or "application/octet-stream",
            metadata.get("contentEncoding", ""),
            "componentCount" in metadata,
            self.kept_until,
            self.held,
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
        start, end = query.get("startOffset", ""), query.get("endOffset", "")
        items: list[dict] = []
        prefixes: list[str] = []
        last = ""
        for name in names[max(bisect_left(names, max(prefix, start)), bisect_right(names, after)) :]:
            if not name.startswith(prefix) or (end and name >= end):
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
            return json_answer({"done": False, "rewriteToken": str(request), **sizes})
        metadata = {"name": call.query["to_name"], "contentType": source.content_type}
        resource = self._store(call.query["to_bucket"], metadata, source.data, call.query).resource()
        if call.query["how"] == "copyTo":
            return json_answer(resource)
        size = resource["size"]
        return json_answer({"done": True, "totalBytesRewritten": size, "objectSize": size, "resource": resource})

    def _start(self, call: Call, headers: Headers, metadata: dict) -> Answer:
        metadata.setdefault("name", call.query.get("name"))
        metadata.setdefault("contentType", headers.get("X-Upload-Content-Type"))
        check_conditions(self._objects(call.bucket).get(metadata["name"]), call.query)
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
            return json_answer(session.done.resource())
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
            return json_answer(session.done.resource())
        return Answer(308, headers={"Range": f"bytes=0-{len(session.data) - 1}"} if session.data else {})

    def _batch(self, headers: Headers, body: bytes) -> Answer:
        head = f"Content-Type: {headers['Content-Type']}\r\n\r\n".encode()
        message = email.message_from_bytes(head + body, policy=email.policy.HTTP)
        parts = []
        for part in message.iter_parts():
            method, target = part.get_content().decode().split()[:2]
            call = call_of(method, target, {})
            with self.under_way(call):
                answer = self.answer(call, {}, b"", self.fault_of(call))
                call.status = answer.status
            lines = ["--part", "Content-Type: application/http", "", f"HTTP/1.1 {answer.status} -"]
            lines += [f"{name}: {value}" for name, value in answer.headers.items()]
            parts.append("\r\n".join([*lines, "", ""]).encode() + answer.body)
        return Answer(200, b"\r\n".join([*parts, b"--part--"]), {"Content-Type": "multipart/mixed; boundary=part"})


def check_conditions(stored: StoredObject | None, query: Mapping[str, str]) -> None:
    generation = str(stored.generation) if stored else "0"
    if query.get("ifGenerationMatch", generation) != generation or query.get("ifGenerationNotMatch") == generation:
        raise RefusedError(412, "At least one of the pre-conditions you specified did not hold.")


def check_kept(stored: StoredObject | None) -> None:
    if stored and stored.kept_until:
        raise RefusedError(
            403,
            f"Object '{stored.bucket}/{stored.name}' is subject to bucket's retention policy or object retention and "
            f"cannot be deleted or overwritten until {stored.kept_until}",
        )
    if stored and stored.held:
        raise RefusedError(
            403,
            f"Object '{stored.bucket}/{stored.name}' is under active Event-Based hold and cannot be deleted, "
            "overwritten or archived until hold is removed.",
        )
