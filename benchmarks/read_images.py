"""Images, boxes and labels as arrays: our reader, loops over the folder and its COCO JSON, and readers of other tools.

    python benchmarks/read_images.py [--images 2000] [--runs 5] [--chart FILE.svg] [--folder DIR] [--base TREE]

JPEGs of 640x480 pixels and about 190 kB, which the system has in memory; each tool reads its own files with the same
JPEGs (benchmarks/peers/write_*.py), tf.data our shards. Each row and way is a process on one core. Processor time
without imports and opening, medians, all in turn, round after round. A loop holds arrays until it has the next.
Two rows with `all cores` have elapsed time: without threads, and with `threads=2`. `--base TREE` adds a row of another
checkout's reader of the same shards.
`make bench-readers` installs the other tools first, and draws the chart; rows of tools that are not there are left out.
"""

import datetime
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, os.environ.get("TREE", str(Path(__file__).resolve().parent.parent)))

import numpy as np
import simplejpeg
from arguments import read_arguments
from chart import draw_bars
from peers import readers
from PIL import Image

import recordmill

HERE = Path(__file__).resolve().parent
ENVIRONMENT = os.environ | {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
WIDTH, HEIGHT, OBJECTS = 640, 480, 8
LABELS = ["boxes", "labels"]
IN_ORDER, AT_RANDOM, LABELS_ONLY = WAYS = "in order", "at random", "labels only"
ALL_CORES = "in order, all cores, elapsed"
THREADS = 2
_BASE = "Recordmill of "
SHARDS = "4"


def draw(folder: Path, number: int) -> None:
    """Write images and COCO JSON, and convert them."""
    rng = np.random.default_rng(1)
    bases = [np.kron(rng.integers(0, 256, (60, 80, 3), np.uint8), np.ones((8, 8, 1), np.uint8)) for _ in range(8)]
    images, annotations = [], []
    (folder / "images").mkdir(parents=True)
    for id_ in range(number):
        noise = rng.integers(-14, 15, (HEIGHT, WIDTH, 1), np.int16)
        turned = np.asarray(Image.fromarray(bases[id_ % len(bases)]).rotate(id_ % 360)).astype(np.int16)
        pixels = (turned + noise).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"images/{id_:06}.jpg", quality=90)
        images.append({"id": id_, "file_name": f"{id_:06}.jpg", "width": WIDTH, "height": HEIGHT})
        boxes = rng.integers(1, 200, (OBJECTS, 4)).tolist()
        annotations += [
            {"id": id_ * OBJECTS + at, "image_id": id_, "category_id": 1 + at % 5, "bbox": box, "area": 1, "iscrowd": 0}
            for at, box in enumerate(boxes)
        ]
    categories = [{"id": id_, "name": f"c{id_}"} for id_ in range(1, 6)]
    document = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "instances.json").write_text(json.dumps(document))
    recordmill.convert(
        images=folder / "images",
        instances=folder / "instances.json",
        output=folder / "ours",
        check="none",
        num_shards=int(SHARDS),
    )


def ours(
    folder: Path, keys: Sequence[str], order: readers.Order, by_pillow: bool = False, **decoding: int
) -> readers.Arrays:
    if by_pillow:
        from recordmill.transforms.images import decode_jpeg

        decode_jpeg.simplejpeg = None
    split = recordmill.open(folder / "ours")["train"]
    source = split.grain(keys=keys)
    examples = split.numpy(keys=keys, **decoding) if order is None else (source[number] for number in order)
    yield None
    for example in examples:
        yield tuple(example.values())


def loop(folder: Path, keys: Sequence[str], order: readers.Order, by_pillow: bool) -> readers.Arrays:
    document = json.loads((folder / "instances.json").read_text())
    rows: dict[int, list[dict]] = {}
    for annotation in document["annotations"]:
        rows.setdefault(annotation["image_id"], []).append(annotation)
    yield None
    for image in document["images"]:
        data = (folder / "images" / image["file_name"]).read_bytes()
        pixels = np.asarray(Image.open(BytesIO(data)).convert("RGB")) if by_pillow else simplejpeg.decode_jpeg(data)
        objects = rows[image["id"]]
        yield pixels, np.array([row["bbox"] for row in objects], np.float32), readers.category_ids(objects)


class Row(NamedTuple):
    read: Callable[[Path, Sequence[str], readers.Order], readers.Arrays]
    ways: tuple[str, ...] = WAYS
    environment: str = ".venv"
    writer: str = ""
    """Script of benchmarks/peers, which writes what the row reads."""
    tree: Path = HERE.parent
    """Checkout of Recordmill."""

    @property
    def python(self) -> Path:
        return Path(sys.executable) if self.environment == ".venv" else HERE.parent / self.environment / "bin/python"


_WEBDATASET = (IN_ORDER, LABELS_ONLY), ".peers/webdataset", "write_webdataset"
ROWS = {
    "Recordmill": Row(ours, (*WAYS, ALL_CORES)),
    f"Recordmill, threads={THREADS}": Row(partial(ours, threads=THREADS), (ALL_CORES,)),
    "Recordmill, JPEGs by Pillow": Row(partial(ours, by_pillow=True), (IN_ORDER,)),
    "loop over the folder, Pillow": Row(partial(loop, by_pillow=True), (IN_ORDER,)),
    "loop over the folder, simplejpeg": Row(partial(loop, by_pillow=False), (IN_ORDER,)),
    "torchvision CocoDetection": Row(readers.coco_detection, (IN_ORDER, AT_RANDOM), ".consumers/torchvision"),
    "tf.data, our shards": Row(readers.tf_data, (IN_ORDER, LABELS_ONLY)),
    "webdataset": Row(readers.webdataset_by_pillow, *_WEBDATASET),
    "webdataset, JPEGs by simplejpeg": Row(readers.webdataset_by_simplejpeg, (IN_ORDER,), *_WEBDATASET[1:]),
    "Hugging Face datasets, Parquet": Row(readers.parquet, WAYS, ".peers/datasets", "write_parquet"),
    "array_record": Row(readers.array_record, WAYS, ".peers/array_record", "write_array_record"),
}


def write(folder: Path, row: Row) -> None:
    """Write what a row reads, unless it is there."""
    output = folder / row.writer.removeprefix("write_")
    if row.writer and not output.exists():
        script = HERE / "peers" / f"{row.writer}.py"
        subprocess.run([str(row.python), str(script), str(folder), str(output), SHARDS], check=True)


def processor_s(who: int = resource.RUSAGE_SELF) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def measure(row: str, way: str, folder: Path) -> None:
    """Print the processor milliseconds per image of a row, or with ALL_CORES the elapsed ones.

    Raises:
        SystemExit: It read something else than all images.
    """
    if way != ALL_CORES:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    clock_s = time.perf_counter if way == ALL_CORES else processor_s
    count = len(list((folder / "images").iterdir()))
    order = np.random.default_rng(5).permutation(count).tolist() if way == AT_RANDOM else None
    examples = ROWS[row].read(folder, LABELS if way == LABELS_ONLY else ["image", *LABELS], order)
    next(examples)
    began = clock_s()
    number, arrays = 0, None
    for number, arrays in enumerate(examples, start=1):  # noqa: B007 - a training loop holds arrays until the next, too
        pass
    spent = clock_s() - began
    shapes = [array.shape for array in arrays or ()]
    if number != count or shapes != [(HEIGHT, WIDTH, 3), (OBJECTS, 4), (OBJECTS,)][way == LABELS_ONLY :]:
        raise SystemExit(f"{row}, {way}: {number} of {count} images, the last {shapes}")
    print(1000 * spent / count)


def measured_ms(name: str, row: Row, way: str, folder: Path) -> float:
    """Run `measure` in the row's environment."""
    known = name if name in ROWS else "Recordmill"  # another checkout's has the same code
    command = [str(row.python), __file__, "--row", known, way, str(folder)]
    environment = ENVIRONMENT | {"TREE": str(row.tree)}
    process = subprocess.run(command, env=environment, capture_output=True, text=True)
    if process.returncode:
        raise SystemExit(f"{name}, {way}:\n{process.stderr}")
    return float(process.stdout.split()[-1])


def main() -> None:
    arguments, folder = read_arguments(__doc__ or "", images=2000, runs=5, chart="", base="")
    rows = {name: row for name, row in ROWS.items() if row.python.exists()}
    if arguments.base:
        rows[_BASE + arguments.base] = Row(ours, tree=Path(arguments.base).resolve())
    if not (folder / "ours").exists():
        draw(folder, arguments.images)
    for row in rows.values():
        write(folder, row)
    runs: dict[tuple[str, str], list[float]] = {
        (name, way): [] for way in (*WAYS, ALL_CORES) for name in rows if way in rows[name].ways
    }
    for _ in range(arguments.runs):
        for (name, way), milliseconds in runs.items():
            milliseconds.append(measured_ms(name, rows[name], way, folder))
            print(f"{name}, {way}: {milliseconds[-1]:.2f} ms", file=sys.stderr)
    medians = {row: statistics.median(milliseconds) for row, milliseconds in runs.items()}
    report(runs, medians)
    if arguments.chart:
        draw_chart(Path(arguments.chart), medians, len(list((folder / "images").iterdir())))


def report(runs: dict[tuple[str, str], list[float]], medians: dict[tuple[str, str], float]) -> None:
    """Print a table, and how our reader stands to its aims."""
    print("| reader | way | ms per image | fastest, slowest | relative to Recordmill |\n|---|---|---|---|---|")
    for (name, way), median in medians.items():
        spread = f"{min(runs[name, way]):.2f}, {max(runs[name, way]):.2f}"
        print(f"| {name} | {way} | {median:.2f} | {spread} | {median / medians['Recordmill', way]:.2f} |")
    our = medians["Recordmill", IN_ORDER]
    for name in ("loop over the folder, Pillow", "loop over the folder, simplejpeg"):
        print(f"Recordmill in order: {our / medians[name, IN_ORDER]:.2f} of the {name}")
    for way in (AT_RANDOM, LABELS_ONLY):
        print(f"Recordmill {way}: {medians['Recordmill', way] / our:.2f} of in order")
    faster = medians["Recordmill", ALL_CORES] / medians[f"Recordmill, threads={THREADS}", ALL_CORES]
    print(f"Recordmill, threads={THREADS}: {faster:.2f} times as fast")
    for name, way in medians:
        if name.startswith(_BASE):
            print(f"Recordmill {way}: {medians['Recordmill', way] / medians[name, way]:.2f} of {name}")


def draw_chart(path: Path, medians: dict[tuple[str, str], float], count: int) -> None:
    groups: dict[str, dict[str, float]] = {}
    for (name, way), median in medians.items():
        if way != ALL_CORES and not name.startswith(_BASE):
            groups.setdefault(way, {})[name] = median / medians["Recordmill", way]
    note = f"{count:,} JPEGs of 640x480 pixels, 190 kB; processor time on one core, medians; {datetime.date.today()}"
    draw_bars(path, "Processor time per image, relative to Recordmill: less is better", note, groups, "{:.2f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--row"]:
        measure(sys.argv[2], sys.argv[3], Path(sys.argv[4]))
    else:
        main()
