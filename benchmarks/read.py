"""Reading records: any of them, against ArrayRecord; and in order, against PyPI's tfrecord and tf.data.

    PYTHONPATH=.readers python benchmarks/read.py [--images 2000] [--runs 5] [--folder DIR]

`make bench` puts tfrecord into .readers. The same records for all: tf.Examples of 133 kB, in eight
files that the system has in memory. Records/s, medians, rows in turn, round after round; and how many times as many as
the rows that it is held against. Our checksums are checked; PyPI's tfrecord checks none. Then, how long it takes to
open a data set of a million records.
"""

import itertools
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from arguments import read_arguments
from array_record.python.array_record_module import ArrayRecordWriter

from recordmill.schemas.features import Feature, FeatureKind, FeatureTable
from recordmill.schemas.shards import ShardInfo
from recordmill.transforms.containers.record_files import RecordFiles
from recordmill.transforms.containers.tfrecord import TFRecordFile, open_records
from recordmill.transforms.records.example import ExampleWriter
from recordmill.transforms.records.parse_record import parse_example
from recordmill.transforms.records.shard_index import index_shard
from recordmill.transforms.records.tfrecord import frame

SHARDS, BATCH, MEAN_BYTES = 8, 32, 133_000
FEATURES = {
    "image/encoded": FeatureKind.BYTES,
    "image/height": FeatureKind.INT64,
    "image/object/bbox/xmin": FeatureKind.FLOAT,
}


def records(number: int) -> Iterator[bytes]:
    rng = np.random.default_rng(0)
    writer = ExampleWriter(
        FeatureTable("x", tuple(Feature(name, name, kind, ("N",), "", "") for name, kind in FEATURES.items()))
    )
    for _ in range(number):
        size = int(rng.integers(MEAN_BYTES // 2, MEAN_BYTES * 3 // 2))
        yield writer.write(dict(zip(FEATURES, ([rng.bytes(size)], [480], rng.random(7).tolist()), strict=True)))


def write(folder: Path, number: int) -> tuple[list[Path], list[Path]]:
    """TFRecords with their indexes, and ArrayRecords without compression, one record a group."""
    plain = [folder / f"x.tfrecord-{each:05d}-of-{SHARDS:05d}" for each in range(SHARDS)]
    arrays = [folder / f"x.array_record-{each:05d}-of-{SHARDS:05d}" for each in range(SHARDS)]
    if not arrays[-1].exists():
        source = records(number)
        for path, array in zip(plain, arrays, strict=True):
            writer = ArrayRecordWriter(str(array), "group_size:1,uncompressed")
            with path.open("wb") as file:
                for record in itertools.islice(source, number // SHARDS):
                    before, after = frame(record)
                    file.write(before + record + after)
                    writer.write(record)
            writer.close()
            index_shard(str(path), None, lambda passed: None)
    return plain, arrays


def used(items: Iterable[object]) -> int:
    return sum(1 for _ in items)


def batches(number: int) -> list[list[int]]:
    numbers = np.random.default_rng(1).permutation(number)
    return [numbers[start : start + BATCH].tolist() for start in range(0, number, BATCH)]


def by_array_record(paths: list[str]) -> int:
    from array_record.python.array_record_data_source import ArrayRecordDataSource

    source = _opened(ArrayRecordDataSource, tuple(paths))
    return sum(len(source.__getitems__(batch)) for batch in batches(len(source)))


def by_recordmill(paths: list[str]) -> int:
    files = _opened(record_files, tuple(paths))
    return sum(len(files.read(batch)) for batch in batches(len(files)))


def record_files(paths: list[str]) -> RecordFiles:
    return RecordFiles([TFRecordFile(path) for path in paths])


@cache
def _opened(make: Callable, paths: tuple[str, ...]) -> Any:
    return make(list(paths))


def in_tf_data(paths: list[str]) -> int:
    import tensorflow as tf

    return used(tf.data.TFRecordDataset(paths).as_numpy_iterator())


def in_tfrecord(paths: list[str]) -> int:
    from tfrecord.reader import tfrecord_iterator

    return sum(used(tfrecord_iterator(path)) for path in paths)


def parsed_by_tfrecord(paths: list[str]) -> int:
    from tfrecord.reader import tfrecord_loader

    return sum(used(tfrecord_loader(path, None)) for path in paths)


def in_recordmill(paths: list[str]) -> int:
    return sum(used(open_records(path)) for path in paths)


def parsed_by_recordmill(paths: list[str]) -> int:
    return sum(used(map(parse_example, open_records(path))) for path in paths)


def rate(run: Callable[[list[str]], int], paths: list[str]) -> float:
    begun = time.perf_counter()
    number = run(paths)
    return number / (time.perf_counter() - begun)


ROWS: dict[str, Callable[[list[str]], int]] = {
    "batches at random: ArrayRecord": by_array_record,
    "batches at random: Recordmill": by_recordmill,
    "in order: PyPI's tfrecord": in_tfrecord,
    "in order: tf.data": in_tf_data,
    "in order: Recordmill": in_recordmill,
    "in order, parsed: PyPI's tfrecord": parsed_by_tfrecord,
    "in order, parsed: Recordmill": parsed_by_recordmill,
}
AGAINST = {
    "batches at random: Recordmill": ("batches at random: ArrayRecord",),
    "in order: Recordmill": ("in order: PyPI's tfrecord", "in order: tf.data"),
    "in order, parsed: Recordmill": ("in order, parsed: PyPI's tfrecord",),
}


def million(folder: Path) -> None:
    """A million records of 16 bytes in eight shards: opened, and the first batch that is in all of them."""
    names = [folder / f"million-{each}" for each in range(SHARDS)]
    record = b"".join([frame(b"sixteen bytes !!")[0], b"sixteen bytes !!", frame(b"sixteen bytes !!")[1]])
    for name in names:
        if not name.exists():
            name.write_bytes(record * (1_000_000 // SHARDS))
            index_shard(str(name), None, lambda passed: None)
    infos = [ShardInfo(name.name, 1_000_000 // SHARDS, name.stat().st_size, "", "") for name in names]
    begun = time.perf_counter()
    files = RecordFiles([TFRecordFile(str(name), info) for name, info in zip(names, infos, strict=True)])
    assert len(files) == 1_000_000
    opened = time.perf_counter()
    files.read([number * 125_000 for number in range(SHARDS)])
    print(
        f"a million records: opened in {1000 * (opened - begun):.2f} ms; the first of each shard, with all indexes, "
        f"in {1000 * (time.perf_counter() - opened):.0f} ms more"
    )


def main() -> None:
    arguments, folder = read_arguments(__doc__, images=2000, runs=5)
    folder.mkdir(parents=True, exist_ok=True)
    plain, arrays = ([str(path) for path in paths] for paths in write(folder, arguments.images))
    rates: dict[str, list[float]] = {name: [] for name in ROWS}
    with ExitStack() as stack:  # a process each: TensorFlow and tfrecord cannot be in one
        spawn = multiprocessing.get_context("spawn")
        pools = {name: stack.enter_context(ProcessPoolExecutor(1, spawn)) for name in ROWS}
        for turn in range(arguments.runs + 1):
            for name, run in ROWS.items():
                measured = pools[name].submit(rate, run, arrays if run is by_array_record else plain).result()
                if turn:  # the first warms up
                    rates[name].append(measured)
    medians = {name: statistics.median(found) for name, found in rates.items()}
    for name, median in medians.items():
        times = ", ".join(
            f"{median / medians[other]:.2f} times {other.split(': ')[1]}" for other in AGAINST.get(name, ())
        )
        print(f"{name:40}{median:>10,.0f} records/s  {times}")
    million(folder)


if __name__ == "__main__":
    main()
