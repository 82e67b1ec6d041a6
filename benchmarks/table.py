"""Rows of a CSV file become records: this program beside a loop over tf.io.TFRecordWriter.

    python table.py [--rows 300000] [--runs 3]

Ratios of medians of one sitting. The loop is that of
https://www.tensorflow.org/tutorials/load_data/tfrecord with Python's csv module.
"""

import argparse
import csv
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COLUMNS = ("id", "age", "count", "large", "x", "y", "z", "flag", "day", "text")

LOOP = """
import csv, sys
import tensorflow as tf
def int64(value): return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
def float_(value): return tf.train.Feature(float_list=tf.train.FloatList(value=[value]))
def bytes_(value): return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode()]))
with open(sys.argv[1], newline="") as file, tf.io.TFRecordWriter(sys.argv[2]) as writer:
    for row in csv.DictReader(file):
        features = {name: int64(int(row[name])) for name in ("id", "age", "count", "large")}
        features |= {name: float_(float(row[name])) for name in ("x", "y", "z")}
        features |= {name: bytes_(row[name]) for name in ("flag", "day", "text")}
        writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
"""


def draw(path: Path, rows: int) -> None:
    rng = random.Random(0)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        for number in range(rows):
            table.writerow(
                [
                    *(number, rng.randint(0, 99), rng.randint(-1000, 1000), rng.getrandbits(40)),
                    *(f"{rng.random():.6f}", f"{rng.gauss(0, 1):.4f}", f"{rng.random() * 100:.2f}"),
                    *(rng.choice(["true", "false"]), f"2026-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"),
                    "word " * rng.randint(1, 8),
                ]
            )


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows, few = Path(folder) / "rows.csv", Path(folder) / "few.csv"
        draw(rows, given.rows)
        draw(few, 10)
        loops, ours, starts = [], [], []
        for run in range(given.runs):
            for times, path in ((ours, rows), (starts, few)):
                command = [sys.executable, "-m", "recordmill.launch.cli", "convert", str(path), "--format", "table"]
                times.append(seconds([*command, "--output", f"{folder}/out-{run}-{path.stem}"]))
            loops.append(seconds([sys.executable, "-c", LOOP, str(rows), f"{folder}/loop.tfrecord"]))
        own, loop, start = map(statistics.median, (ours, loops, starts))
        print(f"{given.rows:,} rows of {len(COLUMNS)} columns, medians of {given.runs}")
        print(f"recordmill        {own:6.1f} s  {given.rows / own:9,.0f} rows/s  ({start:.1f} s of it to start)")
        print(f"TFRecordWriter    {loop:6.1f} s  {given.rows / loop:9,.0f} rows/s")
        print(f"ratio             {loop / own:6.1f}")
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"largest process   {peak:6.0f} MB, of either")


if __name__ == "__main__":
    main()
