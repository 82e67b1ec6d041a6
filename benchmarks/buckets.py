"""Fetching images from a bucket: images/s and requests an image, against Beam's own way.

    python benchmarks/buckets.py [--images 2000] [--runs 5] [--latency-ms 30]

The bucket is the tests' stand-in server, in a process of its own on this machine, with a latency added to every
request: this compares ways of asking, and forecasts no network. Objects are of 100 kB. Ways in turn, round after round,
medians.
"""

import argparse
import io
import os
import statistics
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from recordmill.schemas.images import ImageRef, ImageTask
from recordmill.transforms.images.fetch_images import Fetch, fetch_for
from recordmill.transforms.storage.resolve import storage_for

BYTES = 100_000
BEAM_IMAGES = 100  # of Beam's way, which takes 70 ms each
SERVER = """
import os, sys
from tests.gcs_stand_in import running
with running() as server:
    for number in range(int(sys.argv[1])):
        server.put(f"images/{number:06d}.jpg", os.urandom(int(sys.argv[2])))
    server.put("images.zip", sys.stdin.buffer.read(int(sys.argv[3])))
    server.latency_s = float(sys.argv[4])
    print(server.url, flush=True)
    for _ in sys.stdin.buffer:
        print(len(server.log), flush=True)
"""


class Bucket:
    """The server's process."""

    def __init__(self, images: int, latency_s: float):
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as file:
            for number in range(images):
                file.writestr(f"images/{number:06d}.jpg", os.urandom(BYTES))
        data = archive.getvalue()
        arguments = [sys.executable, "-c", SERVER, *map(str, (images, BYTES, len(data), latency_s))]
        root = Path(__file__).resolve().parent.parent
        self._process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root)
        self._say(data)
        os.environ["STORAGE_EMULATOR_HOST"] = self._answer()

    def _say(self, data: bytes) -> None:
        assert self._process.stdin
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def _answer(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().decode().strip()

    def requests(self) -> int:
        """So far."""
        self._say(b"?\n")
        return int(self._answer())

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def tasks_of(folder: str) -> list[ImageTask]:
    return [
        ImageTask(number, file.name, None, None, ImageRef(file.path, file.size_bytes, file.version), "train", ())
        for number, file in enumerate(sorted(storage_for(folder).walk(folder), key=lambda file: hash(file.name)))
    ]


def by_beam(tasks: Sequence[ImageTask]) -> int:
    from apache_beam.io.filesystems import FileSystems

    for task in tasks[:BEAM_IMAGES]:
        with FileSystems.open(task.ref.path) as file:
            assert len(file.read()) == BYTES
    return min(BEAM_IMAGES, len(tasks))


def by_threads(tasks: Sequence[ImageTask], threads: int) -> int:
    fetch: Fetch = fetch_for([task.ref for task in tasks])
    with ThreadPoolExecutor(threads) as pool:
        assert all(len(data) == BYTES for data in pool.map(fetch, [task.ref for task in tasks]))
    return len(tasks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--latency-ms", type=float, default=30)
    arguments = parser.parse_args()
    os.environ["NO_GCE_CHECK"] = "true"  # Beam's client would look for credentials for half a minute
    bucket = Bucket(arguments.images, arguments.latency_ms / 1000)
    try:
        objects, members = tasks_of("gs://bucket/images"), tasks_of("gs://bucket/images.zip")
        ways: dict[str, Callable[[], int]] = {"FileSystems.open().read()": lambda: by_beam(objects)}
        for threads in (1, 8, 32, 64):
            ways[f"objects, {threads} threads"] = lambda threads=threads: by_threads(
                objects if threads > 1 else objects[:BEAM_IMAGES], threads
            )
        for threads in (4, 32):
            ways[f"members of a .zip, {threads} threads"] = lambda threads=threads: by_threads(members, threads)
        by_beam(objects[:1])  # the first time it looks for credentials for a while
        rates: dict[str, list[float]] = {way: [] for way in ways}
        requests: dict[str, float] = {}
        for _ in range(arguments.runs):
            for way, run in ways.items():
                before, start = bucket.requests(), time.perf_counter()
                images = run()
                rates[way].append(images / (time.perf_counter() - start))
                requests[way] = (bucket.requests() - before) / images
        beam = statistics.median(rates["FileSystems.open().read()"])
        print(f"{'way':32}{'images/s':>10}{'ratio':>8}{'requests/image':>16}")
        for way, found in rates.items():
            rate = statistics.median(found)
            print(f"{way:32}{rate:10.0f}{rate / beam:8.1f}{requests[way]:16.3f}")
    finally:
        bucket.stop()


if __name__ == "__main__":
    main()
