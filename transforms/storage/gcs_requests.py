"""Requests to the JSON API of Cloud Storage (https://cloud.google.com/storage/docs/json_api/v1), and uploads.

A large object is sent while it is being written."""

import errno
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from queue import SimpleQueue
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode
from weakref import finalize

import google_crc32c
import msgspec

from recordmill.transforms.storage import gcs_client
from recordmill.transforms.storage.gcs_client import (
    LostUploadError,
    connection,
    error_text,
    retry,
    retry_at_once,
    split_object,
    split_path,
    translate_errors,
)
from recordmill.transforms.storage.interface import crc32c_text, too_large

if TYPE_CHECKING:
    from google.api_core.exceptions import GoogleAPICallError


class Metadata(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Metadata of an object; unrequested fields have their defaults."""

    name: str
    size: int = 0
    generation: str = ""
    crc32c: str = ""
    content_encoding: str = ""
    event_based_hold: bool = False
    retention_expiration_time: datetime | None = None


class Page(msgspec.Struct, rename="camel"):
    """Page of a listing. `prefixes` are the sub-folders if the query has a delimiter."""

    items: list[Metadata] = []
    prefixes: list[str] = []
    next_page_token: str = ""


class BucketPlace(msgspec.Struct, rename="camel"):
    """Location of a bucket."""

    location: str = ""
    location_type: str = ""
    custom_placement_config: dict[str, list[str]] = {}


class _Rewritten(msgspec.Struct, rename="camel"):
    rewrite_token: str = ""


def read_object(
    path: str, version: str, range_: str = "", most_bytes: int | None = None
) -> tuple[Mapping[str, str], bytes]:
    """Read a generation of an object (`version`; "" for the newest), or a range of it (such as `bytes=0-99`). It is one
    request without retries, and the checksum is not verified.

    Returns:
        Headers of the response, and its body, not decompressed.

    Raises:
        FileTooLargeError: The object has more than `most_bytes`. They have not been read.
        GoogleAPICallError: The server refuses the request. Connections raise urllib3's errors.
    """
    query = f"?alt=media{f'&generation={version}' if version else ''}"
    return _ask(path, "GET", f"/download{_target(path)}{query}", {"Range": range_} if range_ else {}, most_bytes)


def read_metadata(path: str) -> Metadata:
    with translate_errors(path):
        _, body = retry(path)(_ask)(path, "GET", _target(path))
        return msgspec.json.decode(body, type=Metadata, strict=False)


def delete_object(path: str, version: str = "") -> None:
    """Delete an object; with `version`, only that generation. A missing object is not an error."""
    query = f"?ifGenerationMatch={version}" if version else ""
    target = f"{_target(path)}{query}"
    with suppress(FileNotFoundError), translate_errors(path):
        retry(path)(_ask)(path, "DELETE", target)


def copy_object(path: str, copy: str) -> None:
    """Copy an object on the server."""
    target, token = f"{_target(path)}/rewriteTo{_target(copy).removeprefix(_API)}", ""
    with translate_errors(path):
        while True:  # a request copies only a part of a large object, or to another location
            query = f"?rewriteToken={quote(token, safe='')}" if token else ""
            _, body = retry(path)(_ask)(path, "POST", target + query)
            token = msgspec.json.decode(body, type=_Rewritten).rewrite_token
            if not token:
                return


def read_place(path: str) -> BucketPlace:
    """Return the location of the bucket of `path`."""
    with translate_errors(path):
        _, body = retry(path)(_ask)(path, "GET", f"{_API}/b/{split_path(path)[0]}")
        return msgspec.json.decode(body, type=BucketPlace)


def list_pages(path: str, bucket: str, query: Mapping[str, str | int]) -> Iterator[Page]:
    """Yield the pages of a listing. Pages may be empty. Requests are retried after transient errors.

    Args:
        query: Parameters of Cloud Storage's `objects.list`. Empty values are omitted.
    """
    token: str | None = ""
    while token is not None:
        asked = {name: value for name, value in {**query, "pageToken": token}.items() if value}
        _, body = retry(path)(_ask)(path, "GET", f"{_API}/b/{bucket}/o?{urlencode(asked)}")
        page = _PAGE.decode(body)
        yield page
        token = page.next_page_token or None


_API = "/storage/v1"
_PAGE = msgspec.json.Decoder(Page, strict=False)  # numbers of 64 bits are strings in the API's JSON


def _target(path: str) -> str:
    bucket, name = split_object(path)
    return f"{_API}/b/{bucket}/o/{quote(name, safe='')}"


def _ask(
    path: str, method: str, target: str, headers: Mapping[str, str] = {}, most_bytes: int | None = None
) -> tuple[Mapping[str, str], bytes]:
    from urllib3 import Timeout

    http, client = connection()
    response = http.urlopen(
        method,
        client.api_endpoint + target,
        # Objects stored with gzip encoding are sent unchanged only with this header. Their checksum is of those bytes.
        headers={"Accept-Encoding": "gzip", "User-Agent": "recordmill", **headers},
        retries=False,
        redirect=False,
        timeout=Timeout(*gcs_client.TIMEOUT_S),
        preload_content=False,
        decode_content=False,
    )
    if response.status >= 300:
        raise _response_error(response.status, response.read())
    left = response.length_remaining  # None without the header Content-Length
    if most_bytes is None or (left is not None and left <= most_bytes):
        return response.headers, response.read()
    data = response.read(most_bytes + 1) if left is None else b""
    if left is not None or len(data) > most_bytes:
        response.close()
        raise too_large(path, None, most_bytes)
    return response.headers, data


def _response_error(status: int, body: bytes) -> "GoogleAPICallError":
    """Return the exception of Google's client for a response."""
    from google.api_core.exceptions import from_http_status

    words = body.decode(errors="replace")
    with suppress(msgspec.DecodeError, KeyError, TypeError):  # downloads have errors in plain text
        words = msgspec.json.decode(body)["error"]["message"]
    return from_http_status(status, words)


CHUNK_BYTES = 8 << 20
"""Size of a chunk. An object up to this size is kept in memory, and sent again if the server loses it."""
_QUEUED = 2
"""Maximum number of chunks that wait while another chunk is sent."""


class AbandonedError(Exception):
    """The upload was abandoned."""


class GcsUpload:
    """Upload of an object. A thread sends a large object in chunks. `commit` sends a small object.

    Args:
        move: Function that renames an object.
    """

    def __init__(self, path: str, move: Callable[[str, str], None]):
        split_object(path)
        self._path = path
        self._move = move
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._chunks = _Chunks()
        self._sent: Future[None] | None = None
        self._abandon = finalize(self, self._chunks.abandon)

    def write(self, data: bytes) -> None:
        """Send bytes, later.

        Raises:
            OSError: Earlier bytes could not be sent.
        """
        if self._held and self._held_bytes + len(data) > CHUNK_BYTES:
            self._hand_over()
        self._held.append(data)
        self._held_bytes += len(data)

    def _hand_over(self) -> None:
        self._sent = self._sent or _send_in_thread(self._path, self._chunks)
        if self._sent.done():
            self._sent.result()
        self._chunks.put(b"".join(self._held))
        self._held, self._held_bytes = [], 0

    def commit(self, path: str | None = None) -> None:
        path = path or self._path
        if self._sent is None:
            upload(path, b"".join(self._held))
        else:
            self._hand_over()
            self._chunks.end()
            self._sent.result()
            if path != self._path:
                self._move(self._path, path)
        self._held = []

    def abandon(self) -> None:
        self._abandon()


class _Chunks:
    """Queue of at most _QUEUED chunks, from the thread that writes to the thread that sends."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()  # reentrant: garbage collection may call put()
        self._room = threading.Semaphore(_QUEUED)
        self._is_abandoned = False

    def put(self, data: bytes) -> None:
        self._room.acquire()
        self._queue.put(data)

    def end(self) -> None:
        self._queue.put(None)

    def abandon(self) -> None:
        """End the queue with AbandonedError. No-op after `end`."""
        self._is_abandoned = True
        self._queue.put(None)

    def __iter__(self) -> Iterator[bytes]:
        """Yield the chunks that were written.

        Raises:
            AbandonedError: The upload was abandoned.
        """
        while (data := self._queue.get()) is not None:
            self._room.release()
            yield data
        if self._is_abandoned:
            raise AbandonedError


def upload(path: str, data: bytes) -> None:
    """Write an object. Send it again if the server has lost or damaged it."""
    with translate_errors(path):
        retry_at_once(lambda: _send(path, (data,)), lambda error: isinstance(error, LostUploadError))


def _send(path: str, pieces: Iterable[bytes]) -> None:
    """Write an object. It becomes visible once all pieces have been sent, and never after an error.

    Raises:
        LostUploadError: The server lost the object. A repeated upload may succeed.
    """
    from google.cloud.storage.exceptions import DataCorruption
    from google.cloud.storage.fileio import BlobWriter

    class Writer(BlobWriter):
        def __del__(self) -> None:
            """Do nothing: the base class would finish the upload, and publish the incomplete object."""

        def terminate(self) -> None:
            with suppress(Exception):  # an error here would hide the cause; the server drops an upload within a week
                super().terminate()

    bucket, name = split_object(path)
    _, client = connection()
    blob = client.bucket(bucket).blob(name)
    checksum = google_crc32c.Checksum()
    try:
        with Writer(blob, CHUNK_BYTES, retry=retry(path), timeout=gcs_client.TIMEOUT_S, checksum="crc32c") as writer:
            for data in pieces:
                checksum.update(data)
                writer.write(data)
    except Exception as error:  # any: errors of requests, urllib3, google.auth and the client
        if isinstance(error, DataCorruption):
            _delete_damaged(path, crc32c_text(checksum))
        if not _is_lost(error):
            raise
        what = f"the server lost or damaged the upload ({error_text(error)}). Run the same command again"
        raise LostUploadError(errno.EIO, what, path) from error


def _delete_damaged(path: str, crc32c: str) -> None:
    with suppress(OSError):  # another run has replaced it already
        metadata = read_metadata(path)
        if metadata.crc32c != crc32c:
            delete_object(path, metadata.generation)


def _is_lost(error: Exception) -> bool:
    from google.cloud.storage.exceptions import DataCorruption

    match gcs_client.http_status(error):
        case 404:
            return not gcs_client.is_bucket_missing(error)
        case 308 | 410:  # 308: the server has kept none of the sent bytes
            return True
        case 400:
            return "match calculated" in error_text(error)  # checksum mismatch
    # The client raises a ValueError if the server kept only a part of a chunk.
    return isinstance(error, DataCorruption | ValueError)


def _send_in_thread(path: str, chunks: _Chunks) -> Future[None]:
    """Send chunks in a daemon thread: its retries of up to minutes must not delay the end of the process."""
    future: Future[None] = Future()
    pieces = iter(chunks)

    def send() -> None:
        try:
            with translate_errors(path):
                _send(path, pieces)
            future.set_result(None)
        except BaseException as error:
            future.set_exception(error)
            with suppress(AbandonedError):
                for _ in pieces:  # else the writing thread would wait for space in the queue
                    pass

    threading.Thread(target=send, name="upload", daemon=True).start()
    return future
