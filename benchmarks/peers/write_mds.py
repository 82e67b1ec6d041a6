"""MDSWriter of MosaicML's streaming: shards of 150 MB."""

import sys
from pathlib import Path

import numpy as np
from rows import rows
from streaming import MDSWriter

COLUMNS = {"image": "bytes", "file_name": "str", "id": "int", "height": "int", "width": "int"}
ARRAYS = {"bbox": "<f4", "label": "<i8", "area": "<f4", "is_crowd": "<i8", "objects_id": "<i8"}
"""Types of arrays, which are written as bytes because MDS refuses empty arrays."""


def main(data: str, output: str, _: str) -> None:
    columns = COLUMNS | dict.fromkeys(ARRAYS, "bytes")
    with MDSWriter(out=output, columns=columns, size_limit=150_000_000) as writer:
        for row in rows(data):
            arrays = zip(ARRAYS.items(), row.objects, strict=True)
            writer.write(
                {
                    "image": Path(row.path).read_bytes(),
                    "file_name": row.file_name,
                    "id": row.id,
                    "height": row.height,
                    "width": row.width,
                    **{name: np.asarray(values, kind).tobytes() for (name, kind), values in arrays},
                }
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
