"""Sending files to a bucket, large ones while they are being written."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import BinaryIO
from weakref import finalize

import google_crc32c

from recordmill.transforms.storage import gcs_client
from recordmill.transforms.storage.gcs_client import blob_at, retry, retry_at_once, split_object, translate_errors
from recordmill.transforms.storage.growing_file import GrowingFile
from recordmill.transforms.storage.interface import crc32c_text

CHUNK_BYTES = 16 * 1024 * 1024
"""How much of an upload of more than 8 MB one request sends; this much is held in memory. When there is more of a file,
sending it begins."""


class GcsUpload:
    """A temporary file of this machine, sent by a thread of its own while it is written; the server makes an object of
    it when the last byte has come, which is never sent before `commit`. The file is kept until then, as sending may
    have to begin anew.

    Args:
        move: gives an object another name.
    """

    def __init__(self, path: str, move: Callable[[str, str], None]):
        split_object(path)
        self._path = path
        self._move = move
        self._file = GrowingFile()
        self._size = 0
        self._checksum = google_crc32c.Checksum()
        self._sent: Future[None] | None = None
        self._close = finalize(self, self._file.close)

    def write(self, data: bytes) -> None:
        """Raises:
        OSError: the temporary file cannot be written, or what was written before not be sent.
        """
        self._file.append(data)
        self._size += len(data)
        self._checksum.update(data)
        if self._sent is None and self._size > CHUNK_BYTES:
            self._sent = _in_thread(upload, self._path, self._file, None, self._checksum)
        elif self._sent is not None and self._sent.done():
            self._sent.result()

    def commit(self, path: str | None = None) -> None:
        path = path or self._path
        self._file.end()
        if self._sent is None:
            upload(path, self._file, self._size, self._checksum)
        else:
            self._sent.result()
            if path != self._path:
                self._move(self._path, path)
        self.abandon()

    def abandon(self) -> None:
        self._close()


def upload(path: str, file: BinaryIO | GrowingFile, size_bytes: int | None, checksum: google_crc32c.Checksum) -> None:
    """Send a whole file to its name; once more from its beginning, where the server has lost what it had.

    Args:
        size_bytes: None where it is not known yet; the file is then sent until it ends.
        checksum: of the whole file, when it has ended.
    """
    split_object(path)
    with translate_errors(path):
        retry_at_once(lambda: _send(path, file, size_bytes, checksum), _is_lost)


def _send(path: str, file: BinaryIO | GrowingFile, size_bytes: int | None, checksum: google_crc32c.Checksum) -> None:
    from google.api_core.exceptions import NotFound, PreconditionFailed
    from google.cloud.storage.exceptions import DataCorruption

    blob = blob_at(path)
    blob.chunk_size = CHUNK_BYTES
    blob.upload_from_file(
        file, rewind=True, size=size_bytes, checksum="crc32c", retry=retry(path), timeout=gcs_client.TIMEOUT_S
    )
    crc32c = crc32c_text(checksum)
    if blob.crc32c != crc32c:
        with suppress(NotFound, PreconditionFailed):  # another run has replaced it already
            blob.delete(if_generation_match=blob.generation, retry=retry(path), timeout=gcs_client.TIMEOUT_S)
        raise DataCorruption(None, f"the checksum of what was written is {blob.crc32c}, where it should be {crc32c}")


def _is_lost(error: Exception) -> bool:
    """Whether an upload that ended so may succeed if it is started again."""
    from google.cloud.storage.exceptions import DataCorruption

    match getattr(error, "code", None):
        case 404:
            return not gcs_client.is_of_bucket(error)
        case 308 | 410:  # the former: it has kept nothing of what was sent
            return True
        case 400:
            return "match calculated" in gcs_client.words_of(error)  # of the checksum
    # The client raises a ValueError where the server kept a part of a chunk only.
    return isinstance(error, DataCorruption | ValueError)


def _in_thread(function: Callable[..., None], *arguments: object) -> Future[None]:
    """A thread for which a process that ends does not wait, as it may be trying for minutes."""
    future: Future[None] = Future()

    def run() -> None:
        try:
            function(*arguments)
            future.set_result(None)
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="upload", daemon=True).start()
    return future
