"""Uploads to a bucket, large ones while they are being written."""

import errno
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from weakref import finalize

import google_crc32c

from recordmill.transforms.storage import gcs_client, gcs_requests
from recordmill.transforms.storage.gcs_client import (
    LostUploadError,
    connection,
    retry,
    retry_at_once,
    split_object,
    translate_errors,
    words_of,
)
from recordmill.transforms.storage.interface import crc32c_text

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
        found = gcs_requests.read_metadata(path)
        if found.crc32c != crc32c:
            gcs_requests.delete_object(path, found.generation)


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
