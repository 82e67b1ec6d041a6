"""Loading images: how much each --check costs, and what a second thread gains.

    python benchmarks/pictures.py [--images 1500] [--runs 5] [--folder DIR]

Images/s of the step alone (read, checked, hashed) with threads that are handed batches as the writer does it; and of
whole jobs, imports apart. Rows in turn, round after round, medians.
"""

import contextlib
import io
import shutil
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from recordmill.schemas.inputs.files import ImageFile

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from arguments import read_arguments
from make_coco import make

from recordmill.launch.cli import main as recordmill
from recordmill.schemas.inputs.images import ImageRules, ImageTask
from recordmill.transforms.images.load_images import load_image

BATCH = 8


def load(paths: list[Path], check: str, threads: int) -> None:
    """All images, with `threads` threads."""
    rules = ImageRules(check)
    tasks = [
        ImageTask(id_, path.name, 640, 480, ImageFile(str(path), path.stat().st_size), "train", ())
        for id_, path in enumerate(paths)
    ]
    batches = [tasks[start : start + BATCH] for start in range(0, len(tasks), BATCH)]
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(lambda batch: [load_image(task, rules) for task in batch], batches):
            pass


def job(data: Path, output: Path, check: str, workers: int) -> None:
    """The whole job, in this process."""
    flags = ["--images", data / "images", "--instances", data / "instances.json", "--output", output, "--num-shards", 4]
    with contextlib.redirect_stdout(io.StringIO()):
        code = recordmill(
            ["convert", *map(str, flags), "--progress", "none", "--check", check, "--workers", str(workers)]
        )
    if code:
        raise SystemExit(f"the job ended with {code}")


def main() -> None:
    arguments, folder = read_arguments(__doc__, images=1500, runs=5)
    data, output = folder / f"coco-{arguments.images}", folder / "output"
    if not data.exists():
        make(data, arguments.images)
    paths = sorted((data / "images").iterdir())
    rows = [(check, threads) for check in ("none", "header", "decode") for threads in (1, 2)]
    seconds: dict[tuple[str, str, int], list[float]] = {}
    for turn in range(arguments.runs + 1):
        for check, threads in rows:
            for way in ("step", "job"):
                shutil.rmtree(output, ignore_errors=True)
                began = time.perf_counter()
                load(paths, check, threads) if way == "step" else job(data, output, check, threads)
                if turn:  # the first round warms up
                    seconds.setdefault((way, check, threads), []).append(time.perf_counter() - began)
    rates = {row: len(paths) / statistics.median(times) for row, times in seconds.items()}
    print(f"{'images/s':10}{'1 thread':>10}{'2 threads':>11}{'gain':>8}")
    for way in ("step", "job"):
        for check in ("none", "header", "decode"):
            one, two = rates[way, check, 1], rates[way, check, 2]
            print(f"{way} {check:6}{one:10,.0f}{two:11,.0f}{two / one:7.2f}x")
        cost = rates[way, "none", 2] / rates[way, "header", 2] - 1
        print(f"{way}: --check header costs {cost:.0%} over none")


if __name__ == "__main__":
    main()
