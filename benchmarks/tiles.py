"""Memory and processor time of tiles.

    python -m benchmarks.tiles memory --side 13000 --folder DIR               # twenty minutes, 2 GB of disk
    python -m benchmarks.tiles speed --images 20 --rounds 3 --folder DIR      # fifteen minutes

`memory` converts two drawn images of `side` × `side` pixels, as JPEG and as PNG, with boxes, with masks, and with a
panoptic map, and prints the peak of resident memory of the process with the most. `speed` converts images of
4000 × 3000 pixels whole and as tiles, in turn, and prints the median ratio of processor time.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

_OBJECT_SIDES = (20, 300)
_SOFT = 24
"""Pixels per noise value: a PNG of 13,000 x 13,000 pixels then has nearly MAX_FILE_BYTES."""
_STRIP = 1000
"""Rows of an image that are drawn together."""
_FORMATS: dict[str, dict[str, int]] = {"jpeg": {"quality": 90}, "png": {"compress_level": 1}}


def draw_image(path: Path, width: int, height: int, format_: str) -> None:
    """Write an image of soft noise, which compresses like a photo."""
    rng = np.random.default_rng(7)
    image = Image.new("RGB", (width, height))
    for top in range(0, height, _STRIP):
        small = rng.integers(0, 256, (_STRIP // _SOFT, width // _SOFT, 3), np.uint8)
        image.paste(Image.fromarray(small).resize((width, _STRIP), Image.Resampling.BICUBIC), (0, top))
    image.save(path, format_.upper(), **_FORMATS[format_])


def draw_data(folder: Path, images: int, size: tuple[int, int], format_: str, objects: int = 500) -> None:
    """Write images with objects in COCO's format, and panoptic maps."""
    for name in ("images", "maps"):
        (folder / name).mkdir(parents=True)
    rng, (width, height) = np.random.default_rng(5), size
    rows, annotations, segments = [], [], []
    for number in range(1, images + 1):
        file_name = f"{number}.{format_}"
        draw_image(folder / "images" / file_name, width, height, format_)
        rows.append({"id": number, "file_name": file_name, "width": width, "height": height})
        for _ in range(objects):
            wide, high = rng.integers(*_OBJECT_SIDES, 2).tolist()
            x, y = int(rng.integers(0, width - wide)), int(rng.integers(0, height - high))
            corners = [x, y, x + wide, y, x + wide, y + high, x, y + high]
            more = {"id": len(annotations) + 1, "image_id": number, "category_id": 1, "iscrowd": 0}
            annotations.append(more | {"bbox": [x, y, wide, high], "area": wide * high, "segmentation": [corners]})
        segments.append(_draw_map(folder / "maps" / f"{number}.png", number, width, height))
    categories = [{"id": 1, "name": "thing", "isthing": 1}, {"id": 2, "name": "stuff", "isthing": 0}]
    for name, more in (("instances", annotations), ("panoptic", segments)):
        document = {"images": rows, "annotations": more, "categories": categories}
        (folder / f"{name}.json").write_text(json.dumps(document))


def _draw_map(path: Path, image_id: int, width: int, height: int) -> dict:
    """Write a panoptic PNG of two segments, and return its row."""
    image = Image.new("RGB", (width, height), (7, 0, 0))
    image.paste((9, 1, 0), (0, 0, width // 2, height))
    image.save(path)
    infos = [{"id": 7, "category_id": 1, "iscrowd": 0}, {"id": 265, "category_id": 2, "iscrowd": 0}]
    return {"image_id": image_id, "file_name": path.name, "segments_info": infos}


def convert(folder: Path, output: Path, *flags: str) -> tuple[float, float]:
    """Convert in a process of its own. Return seconds of processor time, and the peak memory in MB."""
    shutil.rmtree(output, ignore_errors=True)
    code = "import sys; from recordmill.launch.cli import main; sys.exit(main(sys.argv[1:]))"
    arguments = ["convert", "--instances", str(folder / "instances.json"), "--images", str(folder / "images")]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments, "-o", str(output), "--progress", "none", *flags],
        stdout=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"the job ended with status {status}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


def measure_memory(
    folder: Path, formats: Sequence[str], images: int, side: int, tile: int, overlap: float
) -> Iterator[str]:
    maps = ("--panoptic", str(folder / "panoptic.json"), "--panoptic-masks", str(folder / "maps"))
    kinds: dict[str, Sequence[str]] = {"boxes": (), "masks": ("--masks", "rle"), "maps": maps}
    for format_ in formats:
        shutil.rmtree(folder, ignore_errors=True)
        draw_data(folder, images, (side, side), format_)
        size = (folder / "images" / f"1.{format_}").stat().st_size / 1e6
        for kind, flags in kinds.items():
            tiles = ("--tile", str(tile), "--tile-overlap", str(overlap), "--keep-empty", "1")
            seconds, peak = convert(folder, folder / "output", *tiles, *flags)
            yield f"{format_} of {size:.0f} MB, {kind}: {peak:,.0f} MB, {seconds:.0f} s of processor time"


def measure_speed(
    folder: Path, formats: Sequence[str], images: int, tile: int, overlap: float, rounds: int
) -> Iterator[str]:
    for format_ in formats:
        shutil.rmtree(folder, ignore_errors=True)
        draw_data(folder, images, (4000, 3000), format_, 30)
        tiles = ("--tile", str(tile), "--tile-overlap", str(overlap), "--keep-empty", "1")
        pairs = [[convert(folder, folder / "output", *flags)[0] for flags in ((), tiles)] for _ in range(rounds)]
        ratio = statistics.median(tiled / whole for whole, tiled in pairs)
        yield f"{format_}: tiles take {ratio:.1f} times the processor time of whole images ({pairs})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("memory", "speed"))
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--formats", nargs="+", default=[*_FORMATS])
    parser.add_argument("--side", type=int, default=13_000)
    parser.add_argument("--images", type=int, help="default 2 for memory, 20 for speed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tile", type=int, default=1024)
    parser.add_argument("--overlap", type=float, default=0.2)
    options = parser.parse_args()
    folder, formats, images, tiles = options.folder, options.formats, options.images, (options.tile, options.overlap)
    measured = (
        measure_memory(folder, formats, images or 2, options.side, *tiles)
        if options.what == "memory"
        else measure_speed(folder, formats, images or 20, *tiles, options.rounds)
    )
    for line in measured:
        print(line, flush=True)


if __name__ == "__main__":
    main()
