"""Images from a bucket: images/s and requests per image, compared with Beam's own reading.

    python benchmarks/buckets.py [--images 2000] [--runs 5] [--latency-ms 30]

The bucket is benchmarks/drawn_bucket.py, in a process of its own on this machine, with a latency added to every
request: this compares ways of asking, and forecasts no network. Objects are of 100 kB. Ways in turn, round after round,
medians.
"""

import argparse
import os
import statistics
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from drawn_bucket import running

from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.images import ImageTask
from recordmill.transforms.images.load_images import fetch_file
from recordmill.transforms.storage.resolve import storage_for
from recordmill.transforms.storage.zip_storage import open_archive

BYTES = 100_000
BEAM = "FileSystems.open().read()"
BEAM_IMAGES = 100  # of Beam's way, which takes 70 ms each


@contextmanager
def bucket_of(images: int, latency_s: float) -> Iterator[None]:
    """Objects, and a .zip of as many."""
    with tempfile.NamedTemporaryFile(suffix=".zip") as archive:
        with zipfile.ZipFile(archive, "w") as file:
            for number in range(images):
                file.writestr(f"images/{number:06d}.jpg", os.urandom(BYTES))
        archive.flush()
        with running(images, BYTES, latency_s, Path(archive.name)):
            yield


def requests_so_far() -> int:
    with urlopen(f"{os.environ['STORAGE_EMULATOR_HOST']}/requests") as answer:
        return int(answer.read())


def processor_s() -> float:
    """Processor time of this process, the client."""
    return sum(os.times()[:2])


def tasks_of(folder: str) -> list[ImageTask]:
    return [
        ImageTask(number, file.name, None, None, ImageFile(file.path, file.size_bytes, file.version), "train", ())
        for number, file in enumerate(sorted(storage_for(folder).walk(folder), key=lambda file: hash(file.name)))
    ]


def by_beam(tasks: Sequence[ImageTask]) -> int:
    from apache_beam.io.filesystems import FileSystems

    for task in tasks[:BEAM_IMAGES]:
        with FileSystems.open(task.ref.path) as file:
            assert len(file.read()) == BYTES
    return min(BEAM_IMAGES, len(tasks))


def by_threads(tasks: Sequence[ImageTask], threads: int) -> int:
    open_archive.cache_clear()  # it keeps the bytes of a small archive
    with ThreadPoolExecutor(threads) as pool:
        assert all(len(data) == BYTES for data in pool.map(fetch_file, [task.ref for task in tasks]))
    return len(tasks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--latency-ms", type=float, default=30)
    arguments = parser.parse_args()
    os.environ["NO_GCE_CHECK"] = "true"  # Beam's client would look for credentials for half a minute
    with bucket_of(arguments.images, arguments.latency_ms / 1000):
        measure(arguments.runs)


def measure(runs: int) -> None:
    objects, members = tasks_of("gs://bucket/images"), tasks_of("gs://bucket/images.zip")
    ways: dict[str, Callable[[], int]] = {BEAM: lambda: by_beam(objects)}
    for threads in (1, 8, 32, 64):
        ways[f"objects, {threads} threads"] = lambda threads=threads: by_threads(
            objects if threads > 1 else objects[:BEAM_IMAGES], threads
        )
    for threads in (4, 32, 64):
        ways[f"members of a .zip, {threads} threads"] = lambda threads=threads: by_threads(members, threads)
    by_beam(objects[:1])  # the first time it looks for credentials for a while
    found: dict[str, list[tuple[float, float, float]]] = {way: [] for way in ways}
    for _ in range(runs):
        for way, run in ways.items():
            before, start, used = requests_so_far(), time.perf_counter(), processor_s()
            images = run()
            seconds, used = time.perf_counter() - start, processor_s() - used
            found[way].append((images / seconds, 1000 * used / images, (requests_so_far() - before) / images))
    medians = {
        way: [statistics.median(values) for values in zip(*rounds, strict=True)] for way, rounds in found.items()
    }
    print(f"{'way':32}{'images/s':>10}{'ratio':>8}{'processor ms/image':>20}{'requests/image':>16}")
    for way, (rate, used, asked) in medians.items():
        print(f"{way:32}{rate:10.0f}{rate / medians[BEAM][0]:8.1f}{used:20.2f}{asked:16.3f}")


if __name__ == "__main__":
    main()
