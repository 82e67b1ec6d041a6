"""Processor time of statistics, fingerprints and the page in a job, in one sitting.

    python benchmarks/report.py [--images 2000] [--runs 5] [--folder DIR]

The same job with and without them (by fingerprints duplicates are found), in turn, round after round: the table gives
medians of user and system time of whole processes, and of rounds' ratios; and the peak memory of the process. Other
work on the machine changes these little.
"""

import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

from arguments import read_arguments
from make_coco import make

HERE = Path(__file__).resolve().parent
WITHOUT_REPORT = """
from recordmill.transforms.insight import write_report
write_report.try_to_report = lambda output: None
"""
WITHOUT_STATISTICS = """
from recordmill.transforms.insight import count_images
count_images.ImageCounter.add = lambda *_: None
"""
WITHOUT_FINGERPRINTS = """
from recordmill.transforms.insight import fingerprint_images
from recordmill.transforms.images import measure_pixels
fingerprint_images.ImageFingerprints.add = lambda *_: None
measure_pixels.hashable = lambda grey: b""
"""
RUN = "import sys; from recordmill.launch.cli import main; sys.exit(main(sys.argv[1:]))"


def processor_seconds(program: str, *arguments: str) -> tuple[float, float]:
    """User and system time of a process, and its peak memory in MB."""
    command = [sys.executable, "-c", program, *arguments]
    process = subprocess.Popen(command, cwd=HERE.parent, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"a job failed with status {status}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


def main() -> None:
    arguments, folder = read_arguments(__doc__, images=2000, runs=5)
    data, output = folder / "data", folder / "out"
    make(data, arguments.images)
    ways = {
        "none": WITHOUT_STATISTICS + WITHOUT_FINGERPRINTS + WITHOUT_REPORT,
        "statistics": WITHOUT_FINGERPRINTS + WITHOUT_REPORT,
        "statistics and fingerprints": WITHOUT_REPORT,
        "all, with the page": "",
    }
    for check in ("decode", "header"):
        found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
        for _ in range(arguments.runs):
            for way, patch in ways.items():
                shutil.rmtree(output, ignore_errors=True)
                flags = ("--images", str(data / "images"), "--instances", str(data / "instances.json"))
                more = ("--output", str(output), "--num-shards", "8", "--progress", "none", "--check", check)
                found[way].append(processor_seconds(patch + RUN, "convert", *flags, *more))
        for way, runs in found.items():
            ratio = statistics.median(one[0] / none[0] for one, none in zip(runs, found["none"], strict=True))
            seconds, memory = (statistics.median(each[part] for each in runs) for part in (0, 1))
            print(f"--check {check}, {way}: {seconds:.2f} s, {ratio:.3f} times, {memory:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
