"""Processor time and memory of `Split.repeated`: of the first call, which reads all records, and of a further one.

    python benchmarks/repeat_factors.py [--records 100000] [--bytes 24000] [--folder DIR]

Drawn records of the layout `detection` with the classes of LVIS: 1,203 classes, 12 objects per record. 100,000 records
of 24 kB need 2.4 GB in the folder and take half a minute. Files are in the page cache.
"""

import resource
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path

import google_crc32c
import numpy as np
from arguments import read_arguments

from recordmill._data_set import Split
from recordmill._split_records import RecordContents
from recordmill.schemas.features import FeatureKind
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import LAYOUTS
from recordmill.schemas.shards import ShardInfo
from recordmill.transforms.records.example import ExampleWriter
from recordmill.transforms.records.tfrecord import frame
from recordmill.transforms.storage.interface import crc32c_text

_CLASSES, _OBJECTS, _PER_SHARD, _THRESHOLD = 1203, 12, 5000, 0.001
_TABLE = LAYOUTS["detection"].with_parts(())


def _draw_records(records: int, size: int) -> Iterator[bytes]:
    generator, writer = np.random.default_rng(0), ExampleWriter(_TABLE)
    shares = 1 / np.arange(1, _CLASSES + 1) ** 1.2
    image = generator.bytes(size)
    for _ in range(records):
        classes = generator.choice(_CLASSES, _OBJECTS, p=shares / shares.sum()).tolist()
        values = {
            feature.source: classes if feature.source == "objects.class_index" else [0] * _OBJECTS
            for feature in _TABLE.features
        }
        texts = [feature for feature in _TABLE.features if feature.kind is FeatureKind.BYTES]
        values |= {feature.source: [b"cat"] * _OBJECTS if feature.is_list else b"cat" for feature in texts}
        numbers = [feature for feature in _TABLE.features if feature.kind is not FeatureKind.BYTES]
        values |= {feature.source: 1 for feature in numbers if not feature.is_list}
        yield writer.write(values | {"image.encoded": image})


def _write_split(folder: Path, records: int, size: int) -> Split:
    folder.mkdir(parents=True, exist_ok=True)
    drawn, shards, number_of_shards = _draw_records(records, size), [], -(-records // _PER_SHARD)
    for number in range(number_of_shards):
        own = list(islice(drawn, _PER_SHARD))
        data = b"".join(part for record in own for part in (frame(record)[0], record, frame(record)[1]))
        path = folder / f"coco-train.tfrecord-{number:05d}-of-{number_of_shards:05d}"
        path.write_bytes(data)
        shards.append(ShardInfo(path.name, len(own), len(data), crc32c_text(google_crc32c.Checksum(data)), ""))
    labels = LabelMap(tuple(Category(id_, f"class {id_}") for id_ in range(1, _CLASSES + 1)))
    return Split("train", str(folder), shards, RecordContents(_TABLE, labels))


def main() -> None:
    arguments, folder = read_arguments(__doc__, records=100_000, bytes=24_000)
    with ProcessPoolExecutor(1) as pool:  # so that the memory of writing does not count
        split = pool.submit(_write_split, folder / "drawn", arguments.records, arguments.bytes).result()
    size = sum(shard.bytes for shard in split.shards)
    print(f"{len(split):,} records, {size / 1e9:.1f} GB")
    for what in ("first", "further"):
        before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        repeated = split.repeated(_THRESHOLD)
        seconds, peak = time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        more = (peak - before) / 1024
        print(f"{what} call: {seconds:.3f} s, {more:,.0f} MB more; {len(repeated) / len(split):.2f} times the records")
    start = time.process_time()
    for _ in split.numpy(keys=["boxes"]):
        pass
    print(f"for comparison, all boxes in order: {time.process_time() - start:.3f} s")


if __name__ == "__main__":
    main()
