"""Simulated time of a job on N workers, from the costs of its parts, compared with Flink on two slots.

    PYTHONPATH=. python benchmarks/simulate_workers.py [--images 1000] [--small 40] [--shards 16] [--runs 3]

`make bench-engines` fetches Flink. Two jobs of different sizes are run in this process with one thread, from which
follows what an image costs, and on a Flink cluster of one TaskManager with two slots, in turn, round after round. From
the small one on Flink comes what starting takes there; the large one on Flink is then predicted, and told with the
error. All is wall-clock of the same sitting, as others may use the machine.

Before that, the table of docs/scaling.md: whole jobs on Dataflow's default workers, from what metadata.py,
scale_bends.py and benchmarks/RESULTS.md have of each part, and what is assumed of the cloud. --runs 0 ends there.
"""

import heapq
import shutil
import statistics
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import NamedTuple

from arguments import read_arguments
from coco import coco
from make_coco import make
from measure import measured


class Step(NamedTuple):
    """Work between two shuffles: `bundles` of equal cost, which any worker may take.

    Attributes:
        processor_s: of a core.
        requests: to a bucket, of which `in_flight` are waited for at once.
        bytes: through the worker's network or disk.
    """

    name: str
    bundles: int
    processor_s: float
    requests: float = 0
    bytes: float = 0
    in_flight: int = 32


class Cluster(NamedTuple):
    """Workers that are alike.

    Attributes:
        start_s: until the first step begins, and after the last.
        step_s: that each step takes besides its bundles.
        bytes_a_second: of a worker, shared by its cores.
        latency_s: of a request.
    """

    workers: int
    cores: int
    start_s: float = 0
    step_s: float = 0
    bytes_a_second: float = float("inf")
    latency_s: float = 0


def simulate(steps: list[Step], cluster: Cluster) -> dict[str, float]:
    """Seconds of each step; a step begins when the one before has ended, and a free core takes the next bundle."""
    return {step.name: cluster.step_s + _makespan(step, cluster) for step in steps}


def _makespan(step: Step, cluster: Cluster) -> float:
    slots = cluster.workers * cluster.cores
    free = [0.0] * min(slots, step.bundles)
    at_once = -(-len(free) // cluster.workers)  # bundles of a worker, which share its network
    transfer = step.bytes * at_once / cluster.bytes_a_second
    seconds = max(step.processor_s, transfer) + step.requests * cluster.latency_s / step.in_flight
    for _ in range(step.bundles):
        heapq.heappush(free, heapq.heappop(free) + seconds)
    return max(free)


def predicted(steps: list[Step], cluster: Cluster) -> float:
    """Seconds of the whole job."""
    return cluster.start_s + sum(simulate(steps, cluster).values())


CUT_S, PLANNING_S, WRITING_S, SHARD_S = 2.5e-9, 180e-6, 2e-3, 3.4e-3
"""Seconds of a core: a byte of JSON cut into blocks; an image of ten boxes read, joined, placed; its image decoded,
checked, encoded and written; a shard written besides, and committed."""
PLANNING = {"read": 0.4, "join": 0.3, "match": 0.3}
"""Shares of PLANNING_S, roughly."""
SHUFFLED_BYTES = {"read": 620, "join": 710, "match": 670}
"""Bytes of an image after each step, without segmentations."""
DATAFLOW = Cluster(0, 2, start_s=300, step_s=5, bytes_a_second=100e6, latency_s=0.03)
"""Assumed, but for the cores of e2-standard-2."""
_BLOCK_BYTES, _ANNOTATION_BYTES, _IMAGE_BYTES, _SHARD_BYTES = 8 << 20, 4_200, 163_000, 150_000_000
_MOVES, _REQUESTS_A_MOVE = 16, 4
"""Moves at the same time in the commit, and requests for a shard and its index."""


def whole_job(images: int) -> list[Step]:
    """The steps of `recordmill convert` of COCO from a bucket, where images are as train2017's."""
    shards = -(-images * _IMAGE_BYTES // _SHARD_BYTES)
    bundles = {
        "read": -(-images * _ANNOTATION_BYTES // _BLOCK_BYTES),
        "join": 256,
        "match": 1000,  # as the engine likes
    }
    planning = [
        Step(name, number, PLANNING_S * PLANNING[name] * images / number, bytes=SHUFFLED_BYTES[name] * images / number)
        for name, number in bundles.items()
    ]
    per_shard = images / shards
    return [
        Step("cut", 1, CUT_S * _ANNOTATION_BYTES * images),
        *planning,
        Step("write", shards, WRITING_S * per_shard, requests=per_shard + 2, bytes=2 * _IMAGE_BYTES * per_shard),
        Step("commit", 1, SHARD_S * shards, requests=_REQUESTS_A_MOVE * shards, in_flight=_MOVES),
    ]


def print_jobs() -> None:
    names = [step.name for step in whole_job(1)]
    print(f"| images | workers | {' | '.join(names)} | hours | worker-hours |")
    print("|---" * (len(names) + 4) + "|")
    for images, workers in ((118_287, 3), (118_287, 10), (10**7, 20), (10**7, 200), (10**9, 200), (10**9, 1000)):
        steps, cluster = whole_job(images), DATAFLOW._replace(workers=workers)
        minutes = (f"{seconds / 60:,.1f}" for seconds in simulate(steps, cluster).values())
        hours = predicted(steps, cluster) / 3600
        print(f"| {images:,} | {workers} | {' | '.join(minutes)} | {hours:,.1f} | {hours * workers:,.0f} |")


def main() -> None:
    arguments, folder = read_arguments(__doc__, images=1000, small=40, shards=16, runs=3)
    print_jobs()
    if arguments.runs:
        hold_against_flink(arguments, folder)


def hold_against_flink(arguments: Namespace, folder: Path) -> None:
    from engines import engines

    sizes = (arguments.small, arguments.images)
    for size in sizes:
        if not (folder / f"coco-{size}").exists():
            make(folder / f"coco-{size}", size)
    runs: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory() as temporary, engines(Path(temporary)) as running:
        ways = {"one thread": (["--workers", "1"], frozenset()), "Flink": (["--", *running["Flink, cluster"][0]], ())}
        for _ in range(arguments.runs + 1):  # the first warms up
            for name, (flags, _) in ways.items():
                for size in sizes:
                    shutil.rmtree(folder / "output", ignore_errors=True)
                    command = coco(folder / f"coco-{size}", folder / "output", arguments.shards, *flags)
                    runs.setdefault((name, size), []).append(measured(command).seconds)
    median = {key: statistics.median(of[1:]) for key, of in runs.items()}
    image_s = (median["one thread", sizes[1]] - median["one thread", sizes[0]]) / (sizes[1] - sizes[0])
    bundle_s = [image_s * size / arguments.shards for size in sizes]
    small, large = ([Step("write", arguments.shards, seconds)] for seconds in bundle_s)
    flink = Cluster(1, 2)
    flink = flink._replace(start_s=median["Flink", sizes[0]] - predicted(small, flink))
    foreseen, found = predicted(large, flink), median["Flink", sizes[1]]
    print(f"one thread: {median['one thread', sizes[0]]:.1f} s and {median['one thread', sizes[1]]:.1f} s of "
          f"{sizes[0]} and {sizes[1]} images: {1000 * image_s:.2f} ms an image")  # fmt: skip
    print(f"Flink, {sizes[0]} images: {median['Flink', sizes[0]]:.1f} s, of which {flink.start_s:.1f} to start")
    print(f"Flink, {sizes[1]} images: {foreseen:.1f} s simulated, {found:.1f} s found: {foreseen / found - 1:+.0%}")


if __name__ == "__main__":
    main()
