"""Seconds of a job on each engine, and the peak memory of all processes of the engine.

    python benchmarks/engines.py [--images 2000] [--shards 8] [--runs 3] [--folder DIR]

`make bench-engines` fetches the engines first. Engines are run in turn, round after round; all write the same bytes,
which is checked. A cluster runs all its jobs, as in production, and is started once.
"""

import contextlib
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from arguments import read_arguments
from coco import coco
from make_coco import make
from measure import Measure, measured

from tests.engines import fetch
from tests.engines.conftest import PARTS, in_pool, of_job_server
from tests.engines.flink import LOCAL, FlinkCluster, running_job_server
from tests.engines.output import files_of
from tests.engines.worker_pool import build_wheel, running_pool, worker_environment


@contextlib.contextmanager
def engines(folder: Path) -> Iterator[dict[str, tuple[list[str], set[int]]]]:
    """Flags after `--` and process ids of the servers, by the name of the engine."""
    jars = fetch.job_server("flink", fetch.FLINK).folder(PARTS) / fetch.JOB_SERVER_JAR
    worker = worker_environment(folder / "worker", build_wheel(folder / "wheel"))
    logs = [folder / name for name in ("local", "cluster", "server")]
    for log in logs:
        log.mkdir()
    with (
        running_job_server(jars, LOCAL, logs[0]) as local,
        FlinkCluster(fetch.flink(fetch.FLINK).folder(PARTS), logs[1]) as cluster,
        running_job_server(jars, cluster.master, logs[2]) as server,
        running_pool(worker, folder / "pool.log") as pool,
    ):
        of_cluster = {server.process.pid, pool.process.pid, *(each.pid for each in cluster.processes)}
        yield {
            "one process": ([], set()),
            "2 processes": (["--direct_running_mode=multi_processing", "--direct_num_workers=2"], set()),
            "Prism": (["--runner=PrismRunner", f"--prism_location={fetch.PRISM.folder(PARTS) / 'prism'}"], set()),
            "Flink, local": (
                [*of_job_server(local), "--environment_type=LOOPBACK", "--parallelism=2"],
                {local.process.pid},
            ),
            "Flink, cluster": ([*of_job_server(server), *in_pool(pool)], of_cluster),
        }


def main() -> None:
    arguments, folder = read_arguments(__doc__, images=2000, shards=8, runs=3)
    data = folder / f"coco-{arguments.images}"
    if not data.exists():
        make(data, arguments.images)
    runs: dict[str, list[Measure]] = {}
    first = None
    with tempfile.TemporaryDirectory() as temporary, engines(Path(temporary)) as running:
        for _ in range(arguments.runs):
            for name, (engine, servers) in running.items():
                output = folder / "output"
                shutil.rmtree(output, ignore_errors=True)
                beam = ["--", *engine] if engine else []
                runs.setdefault(name, []).append(measured([*coco(data, output, arguments.shards), *beam], servers))
                written = files_of(output)
                first = first or written
                if written != first:
                    raise SystemExit(f"{name} wrote other bytes")
    print("| engine | seconds | fastest … slowest | peak MB |\n|---|---|---|---|")
    for name, measures in runs.items():
        seconds, peaks = [each.seconds for each in measures], [each.peak_mb for each in measures]
        print(
            f"| {name} | {statistics.median(seconds):.1f} | {min(seconds):.1f} … {max(seconds):.1f} "
            f"| {statistics.median(peaks):,.0f} |"
        )


if __name__ == "__main__":
    main()
