"""Start of training: seconds from opening a data set to its first batch, and memory per rank.

    python benchmarks/first_batch.py [--images 118000] [--runs 3] [--latency-ms 30] [--only NAME,NAME] [--folder DIR]
        [--chart FILE.svg]

`make bench-first-batch` installs what it needs into .peers/first_batch. The same JPEGs of 248x186 pixels and 21 kB,
with seven boxes each, as a folder with COCO JSON, TFRecords, .tar, Parquet and ArrayRecord: they are drawn once, 16 GB
of 118,000 images in five minutes, and stay with --folder. Then they are read from a local disk, where the system has
the files in memory, and from drawn_bucket.py, with a latency added to every request.

Each reader, with 1, 2 and 4 workers of PyTorch's DataLoader, reads one batch of 32 images in a process of its own
(peers/read_first_batch.py), rows in turn, round after round; medians. Time is from the call that opens the data set
until the batch is there, imports excluded. Memory is what this adds to the process and its workers, without pages of
files.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from arguments import read_arguments
from drawn_bucket import running
from make_coco import make

HERE = Path(__file__).resolve().parent
PYTHON = HERE.parent / ".peers" / "first_batch" / "bin" / "python"
SIZE, DISTINCT = (248, 186), 300
WORKERS = (1, 2, 4)
LIMIT_S = 600


class Row(NamedTuple):
    """A reader of peers/read_first_batch.py; without a DataLoader it has no workers."""

    reader: str
    order: str
    has_workers: bool = True
    is_remote: bool = True


ROWS = {
    "folder and COCO JSON: CocoDetection": Row("folder", "random"),
    "Recordmill .torch()": Row("ours_torch", "random"),
    "Recordmill .torch(iterable=True)": Row("ours_iterable", "random"),
    "Recordmill .grain() in Grain": Row("ours_grain", "random", has_workers=False),
    "Recordmill .numpy()": Row("ours_numpy", "in order", has_workers=False),
    "Recordmill .tensorflow(shuffle=True)": Row("ours_tensorflow", "buffer", has_workers=False, is_remote=False),
    "webdataset": Row("webdataset", "buffer"),
    "Parquet streamed by datasets": Row("parquet_streamed", "buffer"),
    "Parquet cached by datasets": Row("parquet_cached", "random", is_remote=False),
    "array_record": Row("array_record", "random", is_remote=False),
    "a DataLoader of zeros": Row("nothing", "random", is_remote=False),
}
PLACES = ("local", "bucket")


class Cell(NamedTuple):
    """A measured cell of the table: row, place, number of workers (0 without a DataLoader)."""

    row: str
    place: str
    workers: int


# Data


def draw(folder: Path, images: int) -> None:
    """Write what is not in the folder yet."""

    def convert(output: Path) -> None:
        flags = ["--instances", folder / "instances.json", "--check", "none", "-o", output]
        run("-m", "recordmill.launch.cli", "convert", folder / "images", *flags)

    def peer(name: str) -> Callable[[Path], None]:
        shards = len(list((folder / "ours").glob("*.tfrecord-*")))
        return lambda output: run(HERE / "peers" / f"write_{name}.py", folder, output, shards)

    if not (folder / "instances.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        make(folder, images, SIZE, DISTINCT, has_outlines=False)
    write(folder / "ours", convert)
    for name in ("webdataset", "parquet", "array_record"):
        write(folder / name, peer(name))
    write(folder / "parquet_cache", lambda _: None)  # read_first_batch.py fills it in the first round


def write(output: Path, writer: Callable[[Path], None]) -> None:
    """Have `writer` write a folder, unless it is there; one that was interrupted is written again."""
    if not output.exists():
        print(f"writing {output}", file=sys.stderr)
        part = output.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        writer(part)
        if part.exists():
            part.rename(output)


def run(*words: Any) -> None:
    subprocess.run([str(PYTHON), *map(str, words)], env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL)


ENVIRONMENT = os.environ | {
    "CUDA_VISIBLE_DEVICES": "",
    "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # the stand-in speaks no gRPC, which would be tried for a minute
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_OFFLINE": "1",
    "NO_GCE_CHECK": "true",
    "PYTHONPATH": os.pathsep.join(map(str, (HERE.parent, HERE, HERE / "peers"))),
    "PYTHONWARNINGS": "ignore",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


# Measures


def measured(cell: Cell, folder: Path) -> tuple[float, float]:
    """Seconds and MB of a cell."""
    words = [str(HERE / "peers" / "read_first_batch.py"), ROWS[cell.row].reader, str(cell.workers), str(folder)]
    words += ["--bucket"] * (cell.place == "bucket")
    ran = subprocess.run(
        [str(PYTHON), *words], env=ENVIRONMENT | server_of(cell), capture_output=True, text=True, timeout=LIMIT_S
    )
    if ran.returncode:
        raise SystemExit(f"{' '.join(words)} failed:\n{ran.stderr[-3000:]}")
    values = json.loads(ran.stdout.splitlines()[-1])
    return values["seconds"], values["mb"]


def server_of(cell: Cell) -> dict[str, str]:
    return {"STORAGE_EMULATOR_HOST": os.environ["STORAGE_EMULATOR_HOST"]} if cell.place == "bucket" else {}


def cells_of(names: list[str], place: str) -> list[Cell]:
    rows = {name: ROWS[name] for name in names if place == "local" or ROWS[name].is_remote}
    return [Cell(name, place, count) for name, row in rows.items() for count in (WORKERS if row.has_workers else (0,))]


def main() -> None:
    defaults: dict[str, int | str] = {"images": 118_000, "runs": 3, "latency-ms": 30, "only": "", "chart": ""}
    arguments, folder = read_arguments(__doc__ or "", **defaults)
    names = arguments.only.split(",") if arguments.only else list(ROWS)
    if unknown := sorted({*names} - ROWS.keys()):
        raise SystemExit(f"--only: no row is called {', '.join(map(repr, unknown))}; there are {', '.join(ROWS)}")
    if not PYTHON.exists():
        raise SystemExit(f"{PYTHON} is missing; make bench-first-batch installs it")
    data = folder / f"coco-{arguments.images}"
    draw(data, arguments.images)
    values: dict[Cell, list[tuple[float, float]]] = {}
    for place in PLACES:
        with running(0, 0, arguments.latency_ms / 1000, folder=data) if place == "bucket" else nullcontext():
            for _ in range(arguments.runs):
                for cell in cells_of(names, place):
                    values.setdefault(cell, []).append(measured(cell, data))
                    print(f"{', '.join(map(str, cell))}: {values[cell][-1]}", file=sys.stderr)
    medians = {cell: tuple(map(statistics.median, zip(*runs, strict=True))) for cell, runs in values.items()}
    print(table(names, medians))
    chart = arguments.chart or str(folder / "first_batch.svg")
    (folder / "first_batch.json").write_text(json.dumps([[*cell, *values] for cell, values in medians.items()]))
    run(HERE / "peers" / "chart_first_batch.py", folder / "first_batch.json", chart, arguments.latency_ms)
    print(f"\n{chart}")


def table(names: list[str], medians: dict[Cell, Any]) -> str:
    lines = [
        "| reader | order | local: s, 1/2/4 workers | MB | bucket: s, 1/2/4 workers | MB |",
        "|---|---|---|---|---|---|",
    ]
    for name in names:
        texts = []
        for place in PLACES:
            cells = [medians[cell] for cell in cells_of([name], place)]
            texts.append(" / ".join(f"{seconds:.2f}" for seconds, _ in cells) or "–")
            texts.append(" / ".join(f"{mb:,.0f}" for _, mb in cells) or "–")
        lines.append(f"| {name} | {ROWS[name].order} | {' | '.join(texts)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
