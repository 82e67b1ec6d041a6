"""Images, boxes and labels as arrays: our reader, and loops over the folder and its COCO JSON.

    python benchmarks/read_images.py [--images 2000] [--runs 5] [--folder DIR]

JPEGs of 640x480 pixels and about 190 kB, which the system has in memory. Each row is a process on one core. Processor
seconds without imports and opening, medians, rows in turn, round after round; and the share of the rows that it is held
against. A loop holds each array until it has the next.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import simplejpeg
from arguments import read_arguments
from PIL import Image

import recordmill

WIDTH, HEIGHT, OBJECTS = 640, 480, 8
KEYS = ["image", "boxes", "labels"]
ROWS = {  # name: rows that it is compared with
    "ours": ("Pillow loop", "simplejpeg loop"),
    "ours, at random": ("ours",),
    "ours, labels only": (),
    "ours, without simplejpeg": ("Pillow loop",),
    "Pillow loop": (),
    "simplejpeg loop": (),
}


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
        num_shards=4,
    )


def read(row: str, folder: Path) -> Iterator[Any]:
    """Yield what a row of the table reads for each image. The first item is None, before any image is read."""
    if row.startswith("ours"):
        split = recordmill.open(folder / "ours")["train"]
        if row == "ours, without simplejpeg":
            from recordmill.transforms.images import decode_jpeg

            decode_jpeg.simplejpeg = None
        if row == "ours, at random":
            source = split.grain(keys=KEYS)
            numbers = np.random.default_rng(5).permutation(len(split)).tolist()
            yield None
            yield from (source[number] for number in numbers)
            return
        examples = split.numpy(keys=KEYS[1:] if row == "ours, labels only" else KEYS)
        yield None
        yield from examples
        return
    document = json.loads((folder / "instances.json").read_text())
    rows: dict[int, list[Any]] = {}
    for annotation in document["annotations"]:
        rows.setdefault(annotation["image_id"], []).append((annotation["bbox"], annotation["category_id"]))
    yield None
    for image in document["images"]:
        data = (folder / "images" / image["file_name"]).read_bytes()
        boxes, labels = zip(*rows[image["id"]], strict=True)
        is_pillow = row == "Pillow loop"
        pixels = np.asarray(Image.open(BytesIO(data)).convert("RGB")) if is_pillow else simplejpeg.decode_jpeg(data)
        yield pixels, np.array(boxes, np.float32), np.array(labels)


def processor_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measure(row: str, folder: Path) -> None:
    """Print the processor seconds of a row."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    values = read(row, folder)
    next(values)
    began = processor_s()
    for held in values:  # noqa: B007 - a training loop holds it, too
        pass
    print(processor_s() - began)


def main() -> None:
    arguments, folder = read_arguments(__doc__ or "", images=2000, runs=5)
    if not (folder / "ours").exists():
        draw(folder, arguments.images)
    seconds: dict[str, list[float]] = {row: [] for row in ROWS}
    for _ in range(arguments.runs):
        for row in ROWS:
            command = [sys.executable, __file__, "--row", row, str(folder)]
            seconds[row].append(float(subprocess.check_output(command, text=True)))
    medians = {row: statistics.median(runs) for row, runs in seconds.items()}
    for row, others in ROWS.items():
        shares = "".join(f"  {medians[row] / medians[other]:.2f} of {other}" for other in others)
        print(f"{row:26} {medians[row]:6.2f} s ({min(seconds[row]):.2f} to {max(seconds[row]):.2f}){shares}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--row"]:
        measure(sys.argv[2], Path(sys.argv[3]))
    else:
        main()
