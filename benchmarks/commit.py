"""Measure the end of a job with many images: the sum of Facts, and the commit.

    python benchmarks/commit.py [--images 10000000] [--shards 1000] [--no-images]

Writes made-up notes of shards, adds up their Facts, and commits the split, in one process. The shards themselves are
empty files. Prints seconds of processor, and the peak memory of the sum and of the commit. --no-images makes records
without images, which have no fingerprints.
"""

import argparse
import resource
import tempfile
import time

import msgspec
import numpy as np

from recordmill.schemas.dataset.dataset_files import state_folder
from recordmill.schemas.dataset.manifest import FORMAT, InputRows
from recordmill.schemas.dataset.recipes import Recipe
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import DETECTION, shard_names
from recordmill.schemas.names import NameSources
from recordmill.schemas.problems import FINGERPRINT, FINGERPRINT_VERSION, Fingerprints
from recordmill.schemas.rejects import Metric, Reason, Rejected
from recordmill.schemas.shards import ShardInfo, ShardKey, ShardResult
from recordmill.schemas.statistics import Statistics
from recordmill.transforms.dataset.facts import Facts
from recordmill.transforms.shards.check_findings import JobLimits
from recordmill.transforms.shards.shard_file import FinishedShards
from recordmill.transforms.shards.write_metadata import write_metadata
from recordmill.transforms.storage.resolve import join_path, storage_for

_CLASSES = 1203
_NO_BYTES = "AAAAAA=="
"""The CRC-32C of an empty file."""


def fingerprints(file: str, images: int, first: int) -> Fingerprints:
    rows = np.zeros(images, FINGERPRINT)
    drawn = np.random.default_rng(first).integers(0, 1 << 63, (3, images), dtype=np.uint64)
    rows["sha256"], rows["hash"] = drawn[:2].T, drawn[2]
    names = [f"{first + number:012}.jpg" for number in range(images)]
    return Fingerprints(file, msgspec.Raw(msgspec.json.encode(names)), rows.tobytes(), FINGERPRINT_VERSION)


def shard_result(key: ShardKey, images: int, has_images: bool) -> ShardResult:
    file = shard_names("made", key.split, "detection", "tfrecord").file(key, images, gzip=False)
    first = key.index * images
    rejected = tuple(Rejected("image", first + each, Reason.IMAGE_UNREADABLE, "cut short") for each in range(5))
    classes = {index: images // _CLASSES + (index < images % _CLASSES) for index in range(_CLASSES)}
    prints = fingerprints(file, images, first) if has_images else None
    counted = {Metric.IMAGES: images, Metric.OBJECTS: images}
    info = ShardInfo(file, images, 0, _NO_BYTES, "")
    return ShardResult(key, "", {}, info, counted, rejected, Statistics(images), classes, prints)


def peak() -> str:
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB at the most"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=10_000_000)
    parser.add_argument("--shards", type=int, default=1000)
    parser.add_argument("--no-images", action="store_true")
    args = parser.parse_args()
    images = args.images // args.shards
    with tempfile.TemporaryDirectory() as output:
        finished = FinishedShards(output, "made", "detection", "tfrecord")
        storage, facts, notes, lists = storage_for(output), Facts(), [], []
        for index in range(args.shards):
            result = shard_result(ShardKey("train", index, args.shards), images, not args.no_pictures)
            storage.write(join_path(output, f"{state_folder('train')}/{result.info.file}"), b"")
            written = finished.note(result)
            facts.merge(written.facts)
            notes.append((written.key, written.note))
            lists += written.facts.rejects.items()
        facts.add_rows("train", InputRows("made.json", "instances", args.shards * (images + 5), args.shards * images))
        print(f"{args.shards:,} notes of {images:,} images each made and their Facts added: {peak()}")
        recipe = Recipe(FORMAT, "made", "train", "detection", (), (), (), {"gzip": False})
        labels = LabelMap(tuple(Category(index, f"class {index}") for index in range(_CLASSES)))
        started = time.process_time()
        limits = JobLimits(("train",), NameSources((), (), ""), 0.1, output, is_exact=True)
        table = DETECTION.with_parts(())
        manifest = write_metadata([recipe], limits, facts, notes, lists, labels, table)
        examples = manifest.splits["train"].examples
        print(f"{examples:,} records committed: {time.process_time() - started:.1f} s of processor, {peak()}")


if __name__ == "__main__":
    main()
