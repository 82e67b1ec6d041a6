"""Steps that run in one process or hold one element with any number of workers, measured for many images.

    python benchmarks/scale_bends.py [--images 1000000000] [--shards 1000] [--folder DIR]

Each in a process of its own: seconds of processor and memory above what its imports take, with what it is then, for
docs/scaling.md. What takes too long at the full size is run smaller, and its line says at which. Last, two jobs whose
images are tiny: as many images in --shards shards as in one, from which follows what a shard costs.
"""

import multiprocessing
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from arguments import read_arguments
from coco import coco
from make_coco import make
from measure import measured

IMAGE_BYTES, SHARD_BYTES = 163_000, 150_000_000
"""Sizes of an image of train2017 and of a shard."""


def shards_of(images: int) -> int:
    return -(-images * IMAGE_BYTES // SHARD_BYTES)


def manifest(images: int) -> str:
    """Listing every shard."""
    from recordmill.schemas.dataset.manifest import encode_json
    from recordmill.schemas.shards import IndexInfo, ShardInfo

    number = shards_of(images)
    shards = [
        ShardInfo(
            f"coco-train.tfrecord-{each:05d}-of-{number:05d}",
            920,
            SHARD_BYTES,
            f"{each:06d}==",
            f"{each:064x}",
            IndexInfo(16_000, f"{each:06d}=="),
        )
        for each in range(number)
    ]
    return f"{number:,} shards, {len(encode_json(shards)):,} B of JSON"


def fingerprints(images: int) -> str:
    """Compared in one process; at a thousandth, at the most 2 million."""
    from duplicates import drawn_fingerprints

    from recordmill.transforms.insight.find_duplicates import find_duplicates

    number = min(max(images // 1000, 1), 2_000_000)
    drawn = drawn_fingerprints(number)
    size = sum(len(of.names) + len(of.rows) for split in drawn.values() for of in split)
    found = find_duplicates(drawn, has_classes=False)
    return f"{number:,} images, {size / number:.0f} B each, {len(found.groups):,} groups"


BENDS: tuple[Callable[[int], str], ...] = (manifest, fingerprints)


def measure_one(bend: Callable[[int], str], images: int) -> str:
    import recordmill.pipelines.coco  # noqa: F401  so that it is not counted

    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    said = bend(images)
    seconds, peak = time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return f"{bend.__name__}: {said}: {seconds:.1f} s, {peak / 1000:,.0f} MB"


def measure_shards(folder: Path, number: int) -> str:
    """Memory with all images in one shard, and with one image per shard."""
    data, output = folder / f"coco-{number}", folder / "shards"
    if not data.exists():
        make(data, number)
    found = {}
    for shards in (1, number):
        found[shards] = measured(coco(data, output, shards, "--check", "header", "--overwrite"))
    more = (found[number].processor_s - found[1].processor_s) / (number - 1)
    memory = (found[number].peak_mb - found[1].peak_mb) / (number - 1)
    files = {name: (output / name).stat().st_size / number for name in ("manifest.json", "fingerprints-train.jsonl")}
    sizes = ", ".join(f"{size:,.0f} B of {name}" for name, size in files.items())
    return f"a shard: {1000 * more:.2f} ms of processor, {1e6 * memory:,.0f} B of memory, {sizes}"


def main() -> None:
    arguments, folder = read_arguments(__doc__, images=1_000_000_000, shards=1000)
    if arguments.shards < 2:
        raise SystemExit("--shards: give two at least, which one shard is held against")
    folder.mkdir(parents=True, exist_ok=True)
    for bend in BENDS:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            print(pool.submit(measure_one, bend, arguments.images).result(), flush=True)
    print(measure_shards(folder, arguments.shards))


if __name__ == "__main__":
    main()
