"""How far threads carry: the share of work that holds the interpreter's lock, and what processes cost in their place.

    python benchmarks/threads.py [--images 800] [--few 100] [--runs 3] [--folder DIR]

It wants py-spy (`pip install py-spy`; tried with 0.4.3). The share is that of samples in loading, encoding and writing,
by one thread, with the lock held among all; the two are counted in runs of their own. Threads and processes are run
in turn, round after round; processor time is that of all processes. docs/decisions/0033-threads-before-processes.md
was decided by such numbers.
"""

import shutil
import statistics
import subprocess
from pathlib import Path

from arguments import read_arguments
from coco import coco
from make_coco import make
from measure import Measure, measured

SHARDS = 8
WORK = "transforms/images/", "transforms/encoders/", "transforms/shards/"
"""Rooms whose samples count; other samples are imports, metadata and the page."""

_PROCESSES = "--direct_running_mode=multi_processing"
WAYS = {
    "threads": [],
    "2 processes": ["--", _PROCESSES, "--direct_num_workers=2"],
    "2 processes, one thread each": ["--workers", "1", "--", _PROCESSES, "--direct_num_workers=2"],
    "4 processes, one thread each": ["--workers", "1", "--", _PROCESSES, "--direct_num_workers=4"],
}


def samples(stacks: str) -> int:
    """Samples in work, of py-spy's lines `frame;frame;… count`."""
    return sum(int(line.rpartition(" ")[2]) for line in stacks.splitlines() if any(where in line for where in WORK))


def locked_share(data: Path, folder: Path, check: str) -> float:
    counted = []
    for flags in (["--gil"], []):
        output, stacks = folder / "output", folder / "stacks.txt"
        shutil.rmtree(output, ignore_errors=True)
        command = coco(data, output, SHARDS, "--workers", "1", "--check", check)
        spy = [
            "py-spy",
            "record",
            *flags,
            "--full-filenames",
            "--rate",
            "500",
            "--format",
            "raw",
            "--output",
            str(stacks),
            "--",
        ]
        subprocess.run([*spy, *command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        counted.append(samples(stacks.read_text()))
    return counted[0] / counted[1]


def main() -> None:
    arguments, folder = read_arguments(__doc__, images=800, few=100, runs=3)
    for images in (arguments.few, arguments.images):
        if not (folder / f"coco-{images}").exists():
            make(folder / f"coco-{images}", images)
    data = folder / f"coco-{arguments.images}"
    for check in ("decode", "header"):
        shares = sorted(locked_share(data, folder, check) for _ in range(arguments.runs))
        print(f"--check {check}: the lock is held in {', '.join(f'{share:.0%}' for share in shares)} of samples")
    runs: dict[tuple[str, int], list[Measure]] = {}
    for _ in range(arguments.runs):
        for name, flags in WAYS.items():
            for images in (arguments.few, arguments.images):
                shutil.rmtree(folder / "output", ignore_errors=True)
                command = coco(folder / f"coco-{images}", folder / "output", SHARDS, "--check", "decode", *flags)
                runs.setdefault((name, images), []).append(measured(command))
    print(f"| processor time | {arguments.few} images | {arguments.images} images | peak MB |\n|---|---|---|---|")
    for name in WAYS:
        few, many = (runs[name, images] for images in (arguments.few, arguments.images))
        print(
            f"| {name} | {statistics.median(each.processor_s for each in few):.1f} s "
            f"| {statistics.median(each.processor_s for each in many):.1f} s "
            f"| {statistics.median(each.peak_mb for each in many):,.0f} |"
        )


if __name__ == "__main__":
    main()
