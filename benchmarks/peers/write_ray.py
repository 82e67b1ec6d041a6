"""Ray Data: rows become .tar files of webdataset, on two cores."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import ray
from rows import Row, rows


def record(item: dict[str, Row]) -> dict[str, Any]:
    row = item["item"]
    boxes, labels, areas, crowds, ids = row.objects
    facts = {"height": row.height, "width": row.width, "id": ids, "bbox": boxes}
    facts |= {"label": labels, "area": areas, "is_crowd": crowds}
    return {"__key__": f"{row.id:012d}", "jpg": Path(row.path).read_bytes(), "json": json.dumps(facts).encode()}


def main(data: str, output: str, shards: str) -> None:
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parent)  # for its workers
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    items = [{"item": row} for row in rows(data)]
    # Its own encoder would ask for a decoded image.
    ray.data.from_items(items, override_num_blocks=int(shards)).map(record).write_webdataset(output, encoder=None)


if __name__ == "__main__":
    main(*sys.argv[1:])
