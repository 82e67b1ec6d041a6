"""ShardWriter of webdataset: .tar files of at most 150 MB."""

import sys
from pathlib import Path

from rows import rows
from webdataset import ShardWriter


def main(data: str, output: str, _: str) -> None:
    Path(output).mkdir(parents=True)
    with ShardWriter(f"{output}/coco-%06d.tar", maxsize=150e6, verbose=0) as writer:
        for row in rows(data):
            boxes, labels, areas, crowds, ids = row.objects
            facts = {"height": row.height, "width": row.width, "id": ids, "bbox": boxes}
            facts |= {"label": labels, "area": areas, "is_crowd": crowds}
            writer.write({"__key__": f"{row.id:012d}", "jpg": Path(row.path).read_bytes(), "json": facts})


if __name__ == "__main__":
    main(*sys.argv[1:])
