"""`recordmill convert` of COCO against its stock writer, a loop over tf.io.TFRecordWriter and `cp -r`, in one sitting.

    python benchmarks/coco.py [--images 5000] [--small 1000] [--large 20000] [--shards 8] [--runs 5] [--folder DIR]

Whole commands are timed; the table gives medians, the time that importing takes apart, and the most memory that the
command had, with the processes that it forks. The rows are run in turn, round after round, so that a slow minute of a
shared machine falls on all of them.
"""

import shutil
import statistics
import sys
from pathlib import Path

from arguments import read_arguments
from make_coco import make
from measure import Measure, measured

HERE = Path(__file__).resolve().parent
RECORDMILL = [sys.executable, "-m", "recordmill.launch.cli"]
IMPORTS = """
import atexit, gc
from recordmill.launch.local_engine.engine import importing, local_engine
atexit.register(gc.freeze)
with local_engine(), importing():
    import recordmill.launch.cli, recordmill.launch.verbs.convert, recordmill.launch.runners.run
    import recordmill.launch.preflight.check_inputs, recordmill.launch.terminal.progress
    import recordmill.pipelines.choose_format, recordmill.pipelines.coco, recordmill.pipelines.dataset_options
    import recordmill.transforms.insight.page, recordmill.transforms.insight.read_examples
    import apache_beam.runners.portability.fn_api_runner, numpy.ma
"""
"""Imports of the command as it does them: without garbage collection, which would take 0.2 s more."""
LOOP = HERE / "peers" / "write_tensorflow.py"


def coco(data: Path, output: Path, shards: int, *flags: str) -> list[str]:
    inputs = ["--images", str(data / "images"), "--instances", str(data / "instances.json")]
    return [
        *RECORDMILL,
        "convert",
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
    arguments, folder = read_arguments(__doc__, small=1000, images=5000, large=20000, shards=8, runs=5)
    counts = {"": arguments.images, "small": arguments.small, "large": arguments.large}
    data = {size: folder / f"coco-{count}" for size, count in counts.items()}
    for size, count in counts.items():
        if not data[size].exists():
            make(data[size], count)
    output, shards = folder / "output", arguments.shards

    def job(size: str, *flags: str) -> list[str]:
        return coco(data[size], output, shards, *flags)

    def loop(size: str) -> list[str]:
        return [sys.executable, str(LOOP), str(data[size]), str(output), str(shards)]

    header = "--check", "header"
    commands = {
        "import": [sys.executable, "-c", IMPORTS],
        "import, loop": [sys.executable, "-c", "import tensorflow"],
        "header": job("", *header),
        "loop": loop(""),
        "decode": job("", "--check", "decode"),
        "stock writer": job("", *header, "--writer", "beam"),
        "keras": job("", *header, "--layout", "keras"),
        "cp -r": ["cp", "-r", str(data[""] / "images"), str(output)],
        "header, small": job("small", *header),
        "header, large": job("large", *header),
        "loop, large": loop("large"),
        "decode, large": job("large", "--check", "decode"),
    }
    runs: dict[str, list[Measure]] = {name: [] for name in commands}
    for _ in range(arguments.runs):
        for name, command in commands.items():
            shutil.rmtree(output, ignore_errors=True)
            runs[name].append(measured(command))
    report(runs, arguments.images, arguments.large)


def report(runs: dict[str, list[Measure]], images: int, large: int) -> None:
    median = {name: Measure(*map(statistics.median, zip(*of, strict=True))) for name, of in runs.items()}
    seconds = {name: of.seconds for name, of in median.items()}
    after = {
        name: seconds[name] - seconds["import, loop" if name.startswith("loop") else "import"]
        for name in runs
        if name != "cp -r" and not name.startswith("import")
    }
    columns = ("seconds", "fastest", "slowest", "after imports", "processor", "peak MB")
    print(" " * 20, *(f"{column:>14}" for column in columns), sep="")
    for name, of in runs.items():
        times = (seconds[name], min(of).seconds, max(of).seconds, after.get(name, ""), median[name].processor_s)
        print(f"{name:20}", *(f"{time:14.2f}" if time != "" else " " * 14 for time in times), sep="", end="")
        print(f"{median[name].peak_mb:14.0f}")
    print(f"header: {after['header'] / after['loop']:.2f} x the loop after imports", end="; ")
    print(f"large, {after['header, large'] / after['loop, large']:.2f} x")
    for name in ("header", "loop", "decode"):
        each_ms = (seconds[f"{name}, large"] - seconds[name]) / (large - images) * 1000
        print(
            f"{name}: {each_ms:.3f} ms for each image between {images:,} and {large:,}, {1000 / each_ms:,.0f} a second"
        )
    slower = after["stock writer"] / after["header"]
    larger = median["stock writer"].peak_mb / median["header"].peak_mb
    print(f"stock writer: {slower:.1f} x our time, {larger:.1f} x our memory")
    print(f"memory: large, {median['header, large'].peak_mb / median['header, small'].peak_mb:.2f} x small")


if __name__ == "__main__":
    main()
