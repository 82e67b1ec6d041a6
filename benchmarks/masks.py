"""Drawing and encoding real COCO masks against the straightforward way.

    python benchmarks/masks.py [--data ../../shared/data/coco_mini] [--runs 5]

`straightforward` is what Model Garden's create_coco_tf_record does: pycocotools rasterises and decodes each polygon,
numpy takes the maximum, Pillow writes the PNG at its default level. It is given JSON that is already parsed; `ours`
begins at the raw text of `segmentation`, so its parsing counts. `rle` is compressed run lengths in place of a PNG.
Before anything is timed, both PNGs of every mask are read by Pillow and compared. The ways alternate in one process,
and each run begins with an empty cache of blank rows, as a new worker does; medians of the runs.
"""

import argparse
import io
import statistics
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from PIL import Image
from pycocotools import mask as coco_mask

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from recordmill.transforms.images import masks
from recordmill.transforms.images.decode_segmentation import compress_segmentation, decode_counts
from recordmill.transforms.images.masks import mask_png

DATA = Path(__file__).resolve().parent / "../../shared/data/coco_mini"


class Case(NamedTuple):
    """A real annotation's segmentation, as text and parsed, and its image's size in pixels."""

    text: bytes
    parsed: Any
    width: int
    height: int


def read_cases(data: Path) -> list[Case]:
    cases = []
    for split in ("train", "val"):
        file = msgspec.json.decode((data / "annotations" / f"instances_{split}2017.json").read_bytes())
        sizes = {row["id"]: (row["width"], row["height"]) for row in file["images"]}
        for row in file["annotations"]:
            text = msgspec.json.encode(row["segmentation"])
            cases.append(Case(text, row["segmentation"], *sizes[row["image_id"]]))
    return cases


def straightforward(case: Case) -> bytes:
    bitmap = coco_mask.decode(coco_mask.frPyObjects(case.parsed, case.height, case.width))
    if isinstance(case.parsed, list):
        bitmap = np.amax(bitmap, axis=2)
    file = io.BytesIO()
    Image.fromarray(bitmap).save(file, "PNG")
    return file.getvalue()


def ours(case: Case) -> bytes:
    return mask_png(decode_counts(rle(case), case.width, case.height), case.width, case.height)


def rle(case: Case) -> bytes:
    return compress_segmentation(case.text, case.width, case.height)


WAYS = (straightforward, ours, rle)


def pixels(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="a folder with annotations/instances_*2017.json")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    cases = read_cases(arguments.data)
    different = sum(not np.array_equal(pixels(straightforward(case)), pixels(ours(case))) for case in cases)
    print(f"{len(cases):,} masks, {different} differ")
    sizes = {way: statistics.mean(len(way(case)) for case in cases) for way in WAYS}
    runs: dict[Any, list[float]] = {way: [] for way in WAYS}
    for _ in range(arguments.runs):
        for way in WAYS:
            masks._periodic_zero_blocks.cache_clear()
            began = time.process_time()
            for case in cases:
                way(case)
            runs[way].append(time.process_time() - began)
    baseline = statistics.median(runs[straightforward])
    for way, seconds in runs.items():
        median = statistics.median(seconds)
        rate, ratio = len(cases) / median, baseline / median
        print(f"{way.__name__:15} {rate:7,.0f} masks/s   {ratio:5.2f} x   {sizes[way]:5.0f} bytes a mask")
    if different:
        sys.exit(1)


if __name__ == "__main__":
    main()
