"""optimize() of LitData: chunks of 150 MB."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from litdata import optimize
from rows import Row, rows


def record(row: Row) -> dict[str, Any]:
    boxes, labels, areas, crowds, ids = row.objects
    return {
        "image": Path(row.path).read_bytes(),
        "file_name": row.file_name,
        "id": row.id,
        "height": row.height,
        "width": row.width,
        "bbox": np.asarray(boxes, np.float32).reshape(-1, 4),
        "label": np.asarray(labels, np.int64),
        "area": np.asarray(areas, np.float32),
        "is_crowd": np.asarray(crowds, np.int64),
        "objects_id": np.asarray(ids, np.int64),
    }


def main(data: str, output: str, _: str) -> None:
    optimize(record, list(rows(data)), output, chunk_bytes="150MB", num_workers=2)


if __name__ == "__main__":
    main(*sys.argv[1:])
