"""Requests to Cloud Storage's JSON API: https://cloud.google.com/storage/docs/json_api/v1; and uploads.

A large upload is sent while it is being written."""

import errno
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urlencode
from weakref import finalize

import google_crc32c
import msgspec

from recordmill.transforms.storage import gcs_client
from recordmill.transforms.storage.gcs_client import (
    LostUploadError,
    connection,
    retry,
    retry_at_once,
    split_object,
    split_path,
    translate_errors,
    words_of,
)
from recordmill.transforms.storage.interface import crc32c_text, too_large

if TYPE_CHECKING:
    from google.api_core.exceptions import GoogleAPICallError


class Answer(NamedTuple):
    """Attributes:
    data: as stored: nothing is unpacked.
    """

    headers: Mapping[str, str]
    data: bytes


class Metadata(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Metadata of an object; fields that were not requested have their defaults."""

    name: str
    size: int = 0
    generation: str = ""
    crc32c: str = ""
    content_encoding: str = ""
    event_based_hold: bool = False
    retention_expiration_time: datetime | None = None


class Page(msgspec.Struct, rename="camel"):
    """A page of a listing. `prefixes` are the sub-folders, where the query has a delimiter."""

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


def read_object(path: str, version: str, range_: str = "", most_bytes: int | None = None) -> Answer:
    """Read an object's generation, or a range of it, `bytes=0-99`, by one request without tries. The bytes are not
    compared with their checksum.

    Raises:
        FileTooLargeError: there are more than `most_bytes`; they have not been read.
        GoogleAPICallError: what the server would not do; or urllib3's errors, of the connection.
    """
    query = f"?alt=media{f'&generation={version}' if version else ''}"
    return _ask(path, "GET", f"/download{_target(path)}{query}", {"Range": range_} if range_ else {}, most_bytes)


def read_metadata(path: str) -> Metadata:
    with translate_errors(path):
        return msgspec.json.decode(retry(path)(_ask)(path, "GET", _target(path)).data, type=Metadata, strict=False)


def delete_object(path: str, version: str = "") -> None:
    """Delete an object; with `version`, only that generation. An object that is gone is no error."""
    query = f"?ifGenerationMatch={version}" if version else ""
    target = f"{_target(path)}{query}"
    with suppress(FileNotFoundError), translate_errors(path):
        retry(path)(_ask)(path, "DELETE", target)


def copy_object(path: str, copy: str) -> None:
    """Have the server copy an object."""
    target, token = f"{_target(path)}/rewriteTo{_target(copy).removeprefix(_API)}", ""
    with translate_errors(path):
        while True:  # of a large object, or to another place, a request copies a part
            query = f"?rewriteToken={quote(token, safe='')}" if token else ""
            token = msgspec.json.decode(
                retry(path)(_ask)(path, "POST", target + query).data, type=_Rewritten
            ).rewrite_token
            if not token:
                return


def read_place(path: str) -> BucketPlace:
    """Ask where the bucket of `path` is."""
    with translate_errors(path):
        answer = retry(path)(_ask)(path, "GET", f"{_API}/b/{split_path(path)[0]}")
        return msgspec.json.decode(answer.data, type=BucketPlace)


def list_pages(path: str, bucket: str, query: Mapping[str, str | int]) -> Iterator[Page]:
    """The pages of a listing, some of which may be empty; each is asked for again after errors that may pass.

    Args:
        query: parameters of Cloud Storage's `objects.list`; what is empty is left out.
    """
    token: str | None = ""
    while token is not None:
        asked = {name: value for name, value in {**query, "pageToken": token}.items() if value}
        page = _PAGE.decode(retry(path)(_ask)(path, "GET", f"{_API}/b/{bucket}/o?{urlencode(asked)}").data)
        yield page
        token = page.next_page_token or None


_API = "/storage/v1"
_PAGE = msgspec.json.Decoder(Page, strict=False)  # numbers of 64 bits are strings in the API's JSON


def _target(path: str) -> str:
    bucket, name = split_object(path)
    return f"{_API}/b/{bucket}/o/{quote(name, safe='')}"


def _ask(path: str, method: str, target: str, headers: Mapping[str, str] = {}, most_bytes: int | None = None) -> Answer:
    from urllib3 import Timeout

    http, client = connection()
    response = http.urlopen(
        method,
        client.api_endpoint + target,
        # What is stored with gzip encoding comes so only to who says so, and its checksum is of that.
        headers={"Accept-Encoding": "gzip", "User-Agent": "recordmill", **headers},
        retries=False,
        redirect=False,
        timeout=Timeout(*gcs_client.TIMEOUT_S),
        preload_content=False,
        decode_content=False,
    )
    if response.status >= 300:
        raise _error(response.status, response.read())
    left = response.length_remaining  # None where the server does not say
    if most_bytes is None or (left is not None and left <= most_bytes):
        return Answer(response.headers, response.read())
    data = response.read(most_bytes + 1) if left is None else b""
    if left is not None or len(data) > most_bytes:
        response.close()
        raise too_large(path, None, most_bytes)
    return Answer(response.headers, data)


def _error(status: int, body: bytes) -> "GoogleAPICallError":
    """Return an error of the client's class."""
    from google.api_core.exceptions import from_http_status

    words = body.decode(errors="replace")
    with suppress(msgspec.DecodeError, KeyError, TypeError):  # it is plain text where bytes were asked for
        words = msgspec.json.decode(body)["error"]["message"]
    return from_http_status(status, words)


CHUNK_BYTES = 8 << 20
"""Bytes that one request sends. Up to so many, an upload is held in memory, and sent again if the server loses it."""
_QUEUED = 2
"""Chunks that wait while another is sent."""


class AbandonedError(Exception):
    """The upload was abandoned."""


class GcsUpload:
    """An object that is being written. A thread sends it in chunks; a small one is sent by `commit`.

    Args:
        move: Gives an object another name.
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
        """Raises:
        OSError: What was written before cannot be sent.
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
    """Chunks on their way from the thread that writes to the one that sends; at most _QUEUED wait."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()  # may be put to while garbage is collected
        self._room = threading.Semaphore(_QUEUED)
        self._is_abandoned = False

    def put(self, data: bytes) -> None:
        self._room.acquire()
        self._queue.put(data)

    def end(self) -> None:
        self._queue.put(None)

    def abandon(self) -> None:
        """After `end`, without effect."""
        self._is_abandoned = True
        self._queue.put(None)

    def __iter__(self) -> Iterator[bytes]:
        """Raises:
        AbandonedError: The upload was abandoned.
        """
        while (data := self._queue.get()) is not None:
            self._room.release()
            yield data
        if self._is_abandoned:
            raise AbandonedError


def upload(path: str, data: bytes) -> None:
    """Write an object; send it again if the server has lost or damaged it."""
    with translate_errors(path):
        retry_at_once(lambda: _send(path, (data,)), lambda error: isinstance(error, LostUploadError))


def _send(path: str, pieces: Iterable[bytes]) -> None:
    """Write an object, which is visible when the last piece has been sent, and never if there is an error.

    Raises:
        LostUploadError: It may succeed if it is started again.
    """
    from google.cloud.storage.exceptions import DataCorruption
    from google.cloud.storage.fileio import BlobWriter

    class Writer(BlobWriter):
        def __del__(self) -> None:
            """Do nothing: the base class would finish the upload, and publish what has been sent."""

        def terminate(self) -> None:
            with suppress(Exception):  # or it would hide why; the server forgets an upload within a week
                super().terminate()

    bucket, name = split_object(path)
    blob = connection().client.bucket(bucket).blob(name)
    checksum = google_crc32c.Checksum()
    try:
        with Writer(blob, CHUNK_BYTES, retry=retry(path), timeout=gcs_client.TIMEOUT_S, checksum="crc32c") as writer:
            for data in pieces:
                checksum.update(data)
                writer.write(data)
    except Exception as error:  # any: those of requests, urllib3, google.auth and the client
        if isinstance(error, DataCorruption):
            _delete_damaged(path, crc32c_text(checksum))
        if not _is_lost(error):
            raise
        what = f"the server lost or damaged what was sent ({words_of(error)}); run the same command again"
        raise LostUploadError(errno.EIO, what, path) from error


def _delete_damaged(path: str, crc32c: str) -> None:
    with suppress(OSError):  # another run has replaced it already
        found = read_metadata(path)
        if found.crc32c != crc32c:
            delete_object(path, found.generation)


def _is_lost(error: Exception) -> bool:
    from google.cloud.storage.exceptions import DataCorruption

    match gcs_client.status_of(error):
        case 404:
            return not gcs_client.is_of_bucket(error)
        case 308 | 410:  # the former: it has kept nothing of what was sent
            return True
        case 400:
            return "match calculated" in words_of(error)  # of the checksum
    # The client raises a ValueError where the server kept a part of a chunk only.
    return isinstance(error, DataCorruption | ValueError)


def _send_in_thread(path: str, chunks: _Chunks) -> Future[None]:
    """Send chunks in a thread for which a process that ends does not wait, as it may be trying for minutes."""
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
                for _ in pieces:  # or who writes them would wait for room
                    pass

    threading.Thread(target=send, name="upload", daemon=True).start()
    return future
