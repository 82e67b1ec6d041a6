"""A bucket on loopback for benchmarks: objects that are drawn, not kept, so that there may be ten million of them, by a
server that takes less processor time a request than what asks it (the tests' stand-in takes more).

It knows what reading asks of Cloud Storage: pages of a listing, an object's metadata, its bytes, a range of them. Drawn
objects are called `images/000000000.jpg` and so on, and are of the same bytes; an archive may stand beside them. Or it
serves the files of a folder.
"""

import argparse
import asyncio
import base64
import json
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import google_crc32c

_FOLDER, _DIGITS, _SUFFIX = "images/", 9, ".jpg"
PAGE = 1000
_PIECE_BYTES = 1 << 18
GENERATION = "1"


Data = bytes | memoryview


class DrawnBucket:
    """Contents of the bucket, and the number of requests."""

    def __init__(self, objects: int, size_bytes: int, kept: dict[str, bytes]):
        self.objects = objects
        self._data = os.urandom(size_bytes)
        self._kept = kept
        self._checksums: dict[int, str] = {}
        self.requests = 0

    def answer(self, target: str, range_: str) -> tuple[bytes, Data]:
        """Head and body of the answer to a GET."""
        url = urlsplit(target)
        if url.path == "/requests":
            return _json(self.requests)
        self.requests += 1
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        _, _, name = url.path.partition("/o/")
        if not name:
            return _json(self.page(query))
        name = unquote(name)
        data = self.read(name)
        if data is None:
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", b""
        if query.get("alt") == "media" or url.path.startswith("/download"):
            return self._media(data, range_)
        return _json(_resource(name, len(data)) | {"crc32c": self._crc32c(data), "contentType": "image/jpeg"})

    def read(self, name: str) -> Data | None:
        """Bytes of an object; None if it does not exist."""
        return self._kept.get(name, self._data if name.startswith(_FOLDER) else None)

    def _media(self, data: Data, range_: str) -> tuple[bytes, Data]:
        size, told = len(data), f"X-Goog-Generation: {GENERATION}\r\nX-Goog-Stored-Content-Length: {len(data)}"
        if not range_:
            told = f"{told}\r\nX-Goog-Hash: crc32c={self._crc32c(data)}"
            return f"HTTP/1.1 200 OK\r\n{told}\r\nContent-Length: {size}\r\n\r\n".encode(), data
        first, _, last = range_.removeprefix("bytes=").partition("-")
        start, end = (int(first), min(int(last or size), size - 1)) if first else (max(0, size - int(last)), size - 1)
        told = f"{told}\r\nContent-Range: bytes {start}-{end}/{size}\r\nContent-Length: {end + 1 - start}"
        return f"HTTP/1.1 206 Partial Content\r\n{told}\r\n\r\n".encode(), data[start : end + 1]

    def _crc32c(self, data: Data) -> str:
        if id(data) not in self._checksums:
            self._checksums[id(data)] = base64.b64encode(google_crc32c.Checksum(data).digest()).decode()
        return self._checksums[id(data)]

    def page(self, query: dict[str, str]) -> dict:
        """A page of the listing; numbers of a name stand for its place, as all have as many digits."""
        prefix = query.get("prefix", "")
        low = max(prefix, query.get("startOffset", ""), query.get("pageToken", ""))
        high = query.get("endOffset", "")
        first = self._not_below(low)
        end = min(self._not_below(prefix[:-1] + chr(ord(prefix[-1]) + 1)) if prefix else self.objects, self.objects)
        end = min(end, self._not_below(high)) if high else end
        most = min(int(query.get("maxResults", PAGE)), PAGE)
        numbers = range(first, min(end, first + most))
        page: dict = {"items": [_resource(_name(number), len(self._data)) for number in numbers]}
        if first + most < end:
            page["nextPageToken"] = _name(first + most)
        return page

    def _not_below(self, name: str) -> int:
        """How many drawn names are before `name`."""
        if not name.startswith(_FOLDER):
            return 0 if name <= _FOLDER else self.objects
        count = 0
        rest = name[len(_FOLDER) :]
        for place, character in enumerate(rest[:_DIGITS]):
            unit = 10 ** (_DIGITS - 1 - place)
            if not "0" <= character <= "9":
                return min(self.objects, count + (10 * unit if character > "9" else 0))
            count += int(character) * unit
        return min(self.objects, count + (len(rest) > _DIGITS and rest[_DIGITS:] > _SUFFIX))


class FolderBucket(DrawnBucket):
    """Files of a folder, without checksums: they would be read for their metadata."""

    def __init__(self, folder: Path):
        super().__init__(0, 0, {})
        self._folder = folder
        self._files: dict[str, memoryview] = {}

    def page(self, query: dict[str, str]) -> dict:
        """The files of one folder."""
        prefix = query.get("prefix", "")
        inside = prefix.rpartition("/")[0]
        entries = os.scandir(self._folder / inside) if (self._folder / inside).is_dir() else ()
        sizes = {f"{inside}/{entry.name}".lstrip("/"): entry.stat().st_size for entry in entries if entry.is_file()}
        return {"items": [_resource(name, sizes[name]) for name in sorted(sizes) if name.startswith(prefix)]}

    def read(self, name: str) -> memoryview | None:
        if name not in self._files:
            if not (self._folder / name).is_file():
                return None
            with (self._folder / name).open("rb") as file:
                self._files[name] = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        return self._files[name]

    def _crc32c(self, data: Data) -> str:
        return ""


def _name(number: int) -> str:
    return f"{_FOLDER}{number:0{_DIGITS}d}{_SUFFIX}"


def _resource(name: str, size: int) -> dict:
    return {"name": name, "size": str(size), "generation": GENERATION}


def _json(value: object) -> tuple[bytes, bytes]:
    body = json.dumps(value).encode()
    return f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode(), body


class _Connection(asyncio.Protocol):
    """Requests come one after the other; none has a body."""

    def __init__(self, bucket: DrawnBucket, latency_s: float):
        self._bucket = bucket
        self._latency_s = latency_s
        self._received = b""
        self._left: list[Data] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._can_write = True

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, self._received = self._received.partition(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            target = lines[0].split(" ")[1]
            range_ = next((line[6:].strip() for line in lines if line.lower().startswith("range:")), "")
            asyncio.get_running_loop().call_later(self._latency_s, self._send, target, range_)

    def _send(self, target: str, range_: str) -> None:
        head, body = self._bucket.answer(target, range_)
        self._left += [head, *(body[start : start + _PIECE_BYTES] for start in range(0, len(body), _PIECE_BYTES))]
        self._write()

    def _write(self) -> None:
        """Write pieces while the client takes them: a large object would be copied into a buffer first."""
        while self._left and self._can_write and not self._transport.is_closing():
            self._transport.write(self._left.pop(0))

    def pause_writing(self) -> None:
        self._can_write = False

    def resume_writing(self) -> None:
        self._can_write = True
        asyncio.get_running_loop().call_soon(self._write)  # the transport is in the middle of a write


async def _serve(bucket: DrawnBucket, latency_s: float) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(bucket, latency_s), "127.0.0.1", 0, backlog=512)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await loop.run_in_executor(None, sys.stdin.buffer.read)  # until who started it has ended


@contextmanager
def running(
    objects: int, size_bytes: int, latency_s: float, archive: Path | None = None, folder: Path | None = None
) -> Iterator[str]:
    """URL of a server in a separate process, which ends with the block. STORAGE_EMULATOR_HOST is set.

    Args:
        folder: Its files are the objects, in place of drawn ones.
    """
    arguments = [f"--objects={objects}", f"--bytes={size_bytes}", f"--latency-s={latency_s}"]
    arguments += [f"--archive={archive}"] if archive else []
    arguments += [f"--folder={folder}"] if folder else []
    command = [sys.executable, __file__, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        url = os.environ["STORAGE_EMULATOR_HOST"] = process.stdout.readline().decode().strip()
        try:
            yield url
        finally:
            process.stdin.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, required=True)
    parser.add_argument("--bytes", type=int, default=100_000)
    parser.add_argument("--latency-s", type=float, default=0.03)
    parser.add_argument("--archive", type=Path)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    kept = {"images.zip": arguments.archive.read_bytes()} if arguments.archive else {}
    drawn = DrawnBucket(arguments.objects, arguments.bytes, kept)
    asyncio.run(_serve(FolderBucket(arguments.folder) if arguments.folder else drawn, arguments.latency_s))


if __name__ == "__main__":
    main()
