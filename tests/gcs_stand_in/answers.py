"""What the stand-in answers, in the words of the server."""

import email
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.gcs_stand_in.objects import StoredObject, damaged
from tests.gcs_stand_in.requests import Call, Headers

ACCOUNT = "worker@project.iam.gserviceaccount.com"
"""Whom refusals name."""
PERMISSIONS = {"list": "list", "stat": "get", "read": "get", "delete": "delete"}
"""The `storage.objects` permission an operation needs; `create` for others."""
REQUESTER_PAYS = "Bucket is a requester pays bucket but no user project provided."
NO_BUCKET = "The specified bucket does not exist."


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


def refusal(call: Call, error: RefusedError, headers: Mapping[str, str] = {}) -> Answer:
    """An error as the server words it: JSON, but plain text where bytes were asked for."""
    message = error.message
    if not message and error.status == 403:
        permission = f"storage.objects.{PERMISSIONS.get(call.operation, 'create')}"
        message = f"{ACCOUNT} does not have {permission} access to the Google Cloud Storage object. "
        message += f"Permission '{permission}' denied on resource (or it may not exist)."
    if call.operation == "read":
        return Answer(error.status, message.encode(), {"Content-Type": "text/html; charset=UTF-8", **headers})
    fault = {"code": error.status, "message": message, "errors": [{"message": message, "domain": "global"}]}
    return json_answer({"error": fault}, error.status, headers)


def json_answer(value: object, status: int = 200, headers: Mapping[str, str] = {}) -> Answer:
    return Answer(status, json.dumps(value).encode(), {"Content-Type": "application/json; charset=UTF-8", **headers})


def media(stored: StoredObject, headers: Headers, corrupt: bool) -> Answer:
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
    data = damaged(stored.data) if corrupt else stored.data
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


def parts(headers: Headers, body: bytes) -> tuple[dict, bytes]:
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


def trimmed(resource: dict, fields: str | None) -> dict:
    """What `fields` leaves of a resource: `items(name,size),nextPageToken`."""
    if not fields:
        return resource
    kept = {}
    for name, inner in re.findall(r"([^,()]+)(?:\(([^)]*)\))?", fields):
        if name in resource:
            kept[name] = [trimmed(item, inner) for item in resource[name]] if inner else resource[name]
    return kept
