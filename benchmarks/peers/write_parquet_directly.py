"""ParquetWriter of Hugging Face's datasets in a loop, as its builders use it: without an Arrow file before."""

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from datasets import Features
from datasets.arrow_writer import ParquetWriter
from write_parquet import FEATURES, OBJECTS, records


def main(data: str, output: str, shards: str) -> None:
    features = Features(FEATURES | {"objects": OBJECTS})
    Path(output).mkdir(parents=True)
    images = len(list(Path(data, "images").iterdir()))
    rest: Iterator[dict[str, Any]] = records(data)
    for index in range(int(shards)):
        path = f"{output}/train-{index:05d}-of-{int(shards):05d}.parquet"
        with ParquetWriter(path=path, features=features) as writer:
            for record in islice(rest, images * (index + 1) // int(shards) - images * index // int(shards)):
                writer.write(record)
            writer.finalize()


if __name__ == "__main__":
    main(*sys.argv[1:])
