"""`recordmill coco` against its stock writer, a plain loop and `cp -r`, in one sitting.

    python benchmarks/coco.py [--images 5000] [--small 1000] [--shards 8] [--runs 5] [--folder DIR]

Whole processes are timed; the table gives medians, the time that importing takes apart, and the peak memory of the
process. The rows are run in turn, round after round, so that a slow minute of a shared machine falls on all of them.
"""

import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from arguments import read_arguments
from make_coco import make

HERE = Path(__file__).resolve().parent
RECORDMILL = [sys.executable, "-m", "recordmill.launch.cli"]
IMPORTS = (
    "from recordmill.launch.light_beam import import_light_beam; import_light_beam([]); "
    "import recordmill.launch.verbs.coco, recordmill.launch.runners.run, recordmill.launch.terminal.progress, "
    "recordmill.pipelines.coco, apache_beam.runners.portability.fn_api_runner"
)
LOOP_IMPORTS = f"import sys; sys.path.insert(0, {str(HERE)!r}); import plain_loop"


class Run(NamedTuple):
    seconds: float
    peak_mb: float


def timed(command: list[str]) -> Run:
    """Wall-clock time and peak resident memory of a process, which must succeed."""
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=HERE.parent, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    if status:
        raise SystemExit(f"{' '.join(command)} failed with status {status}")
    return Run(seconds, usage.ru_maxrss / 1000)


def coco(data: Path, output: Path, shards: int, *flags: str) -> list[str]:
    inputs = ["--images", str(data / "images"), "--instances", str(data / "instances.json")]
    return [
        *RECORDMILL,
        "coco",
        *inputs,
        "--output",
        str(output),
        "--num-shards",
        str(shards),
        "--progress",
        "none",
        *flags,
    ]


def main() -> None:
    arguments, folder = read_arguments(__doc__, images=5000, small=1000, shards=8, runs=5)
    large, small, output = folder / f"coco-{arguments.images}", folder / f"coco-{arguments.small}", folder / "output"
    for data, count in ((large, arguments.images), (small, arguments.small)):
        if not data.exists():
            make(data, count)
    loop = [sys.executable, str(HERE / "plain_loop.py")]
    shards = str(arguments.shards)
    commands = {
        "import": [sys.executable, "-c", IMPORTS],
        "import, plain loop": [sys.executable, "-c", LOOP_IMPORTS],
        "header": coco(large, output, arguments.shards, "--check", "header"),
        "decode": coco(large, output, arguments.shards, "--check", "decode"),
        "stock writer": coco(large, output, arguments.shards, "--check", "header", "--writer", "beam"),
        "plain loop": [*loop, str(large), str(output), shards],
        "cp -r": ["cp", "-r", str(large / "images"), str(output)],
        "small": coco(small, output, arguments.shards, "--check", "header"),
        "small, keras": coco(small, output, arguments.shards, "--check", "header", "--layout", "keras"),
        "loop, keras": [*loop, str(small), str(output), shards, "keras"],
    }
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    for _ in range(arguments.runs):
        for name, command in commands.items():
            shutil.rmtree(output, ignore_errors=True)
            runs[name].append(timed(command))
    report(runs, arguments.images)


def report(runs: dict[str, list[Run]], images: int) -> None:
    seconds = {name: statistics.median(run.seconds for run in of) for name, of in runs.items()}
    peak = {name: statistics.median(run.peak_mb for run in of) for name, of in runs.items()}
    loops = dict.fromkeys(("plain loop", "loop, keras"), "import, plain loop")
    jobs = dict.fromkeys(("header", "decode", "stock writer", "small", "small, keras"), "import")
    job = {name: seconds[name] - seconds[imports] for name, imports in (jobs | loops).items()}
    print(f"{'':20}{'seconds':>9}{'fastest':>9}{'slowest':>9}{'after imports':>15}{'peak MB':>9}")
    for name, of in runs.items():
        after = f"{job[name]:.2f}" if name in job else ""
        fastest, slowest = min(of).seconds, max(of).seconds
        print(f"{name:20}{seconds[name]:9.2f}{fastest:9.2f}{slowest:9.2f}{after:>15}{peak[name]:9.0f}")
    for check in ("header", "decode"):
        print(
            f"--check {check}: {images / job[check]:,.0f} images/s, {job[check] / job['plain loop']:.2f} x plain loop"
        )
    print(f"keras layout, small data set: {job['small, keras'] / job['loop, keras']:.2f} x the loop that writes it")
    slower, larger = job["stock writer"] / job["header"], peak["stock writer"] / peak["header"]
    print(f"stock writer: {slower:.1f} x our time, {larger:.1f} x our memory")
    print(f"peak memory: {peak['header'] / peak['small']:.2f} x that of the small data set")


if __name__ == "__main__":
    main()
