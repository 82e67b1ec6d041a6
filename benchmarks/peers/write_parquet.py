"""Hugging Face's datasets: from_generator (which writes Arrow first), then Parquet files as its Hub has them."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, Image, List, Value, disable_progress_bars
from rows import rows

OBJECTS = {
    "id": List(Value("int64")),
    "bbox": List(List(Value("float32"), 4)),
    "label": List(Value("int64")),
    "area": List(Value("float32")),
    "is_crowd": List(Value("int64")),
}
FEATURES = {"image": Image(decode=False), "id": Value("int64"), "height": Value("int64"), "width": Value("int64")}


def records(data: str) -> Iterator[dict[str, Any]]:
    for row in rows(data):
        boxes, labels, areas, crowds, ids = row.objects
        yield {
            "image": {"bytes": Path(row.path).read_bytes(), "path": row.file_name},
            "id": row.id,
            "height": row.height,
            "width": row.width,
            "objects": {"id": ids, "bbox": boxes, "label": labels, "area": areas, "is_crowd": crowds},
        }


def main(data: str, output: str, shards: str) -> None:
    disable_progress_bars()
    features = Features(FEATURES | {"objects": OBJECTS})
    Path(output).mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=Path(output).parent) as cache:
        written = Dataset.from_generator(records, features=features, cache_dir=cache, gen_kwargs={"data": data})
        for index in range(int(shards)):
            part = written.shard(int(shards), index, contiguous=True)
            part.to_parquet(f"{output}/train-{index:05d}-of-{int(shards):05d}.parquet")


if __name__ == "__main__":
    main(*sys.argv[1:])
