"""Listing a bucket's folder: in one chain of pages, and in ranges of names by several workers; memory of each.

    python benchmarks/list_bucket.py [--objects 1000000] [--latency-ms 30] [--workers 8]

The bucket is benchmarks/drawn_bucket.py, in a process of its own on this machine, whose pages of 1,000 names are of one
flat folder. Workers are threads here; on an engine they are machines.
"""

import argparse
import os
import resource
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from drawn_bucket import running

from recordmill.transforms.images.listing import ListedPart, Listing, join_parts
from recordmill.transforms.storage.interface import ALL_NAMES, NameRange
from recordmill.transforms.storage.resolve import storage_for

FOLDER = "gs://bucket/images"


def list_part(part: NameRange) -> ListedPart:
    listing = Listing(FOLDER, part.start)
    for _ in listing.count(storage_for(FOLDER).walk(FOLDER, part)):
        pass
    return listing.found()


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(name: str, list_all: Callable[[], list[ListedPart]]) -> str:
    start_s, used_s, before_mb = time.perf_counter(), sum(os.times()[:2]), peak_mb()
    parts = list_all()
    seconds, used_s = time.perf_counter() - start_s, sum(os.times()[:2]) - used_s
    print(f"{name:24}{len(parts):8}{seconds:10.1f}{used_s:13.1f}{peak_mb() - before_mb:8.0f}", flush=True)
    return join_parts(FOLDER, parts).crc32c


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--latency-ms", type=float, default=30)
    parser.add_argument("--workers", type=int, default=8)
    arguments = parser.parse_args()
    with running(arguments.objects, 0, arguments.latency_ms / 1000), ThreadPoolExecutor(arguments.workers) as pool:
        next(storage_for(FOLDER).walk(FOLDER))
        print(f"{'way':24}{'parts':>8}{'seconds':>10}{'processor s':>13}{'MB':>8}")
        cut: list[NameRange] = []

        def cut_names() -> list[ListedPart]:
            cut.extend(storage_for(FOLDER).parts(FOLDER))
            return []

        measure("cutting the names", cut_names)
        found = measure(f"{arguments.workers} workers", lambda: list(pool.map(list_part, cut)))
        assert found == measure("one chain of pages", lambda: [list_part(ALL_NAMES)])


if __name__ == "__main__":
    main()
