"""Processor time of digests of records in a conversion, and of the one read that adds them to a data set without them.

    python benchmarks/digests.py INSTANCES.json IMAGES [--copies 10] [--runs 5] [--folder DIR]

Copies of each image, with other names and its objects, make the data set larger. The same job with and without digests,
in turn: medians of user and system time of whole processes, and of the pairs' ratios. 80 images, 10 copies and 5 runs
take five minutes of processor time.
"""

import argparse
import json
import os
import shutil
import statistics
from pathlib import Path
from tempfile import TemporaryDirectory

from report import RUN, processor_seconds

WITHOUT = """
from recordmill.transforms.shards import write_shards
write_shards.ImageRecords = lambda table: None
"""
READ = """
import sys
from recordmill.launch.runners.beam_options import beam_options
from recordmill.launch.verbs.add_image_records import add_image_records
from recordmill.transforms.shards import read_image_records
read_image_records.has_images = lambda *_: False
add_image_records(sys.argv[1], beam_options([]))
"""
JOBS = (
    ("detection", "decode"),
    ("detection", "header"),
    ("keras", "decode"),
    ("keras", "header"),
)


def make(folder: Path, instances: Path, images: Path, copies: int) -> None:
    """Write the annotations of all copies, and links to the images."""
    document = json.loads(instances.read_bytes())
    rows, annotations = document["images"], document["annotations"]
    document["images"], document["annotations"] = [], []
    step_image, step = max(row["id"] for row in rows) + 1, max(row["id"] for row in annotations) + 1
    (folder / "images").mkdir(parents=True)
    for copy in range(copies):
        for row in rows:
            name = f"{copy}_{row['file_name']}"
            os.symlink((images / row["file_name"]).resolve(), folder / "images" / name)
            document["images"].append(row | {"id": row["id"] + copy * step_image, "file_name": name})
        for row in annotations:
            ids = {"id": row["id"] + copy * step, "image_id": row["image_id"] + copy * step_image}
            document["annotations"].append(row | ids)
    (folder / "instances.json").write_text(json.dumps(document))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("instances", type=Path)
    parser.add_argument("images", type=Path)
    parser.add_argument("--copies", type=int, default=10)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--folder", default=None)
    arguments = parser.parse_args()
    with TemporaryDirectory(dir=arguments.folder) as temporary:
        data, output = Path(temporary, "data"), Path(temporary, "out")
        make(data, arguments.instances, arguments.images, arguments.copies)
        for layout, check in JOBS:
            flags = ["--images", str(data / "images"), "--instances", str(data / "instances.json"), "--layout", layout]
            flags += ["--check", check, "--output", str(output), "--progress", "none"]
            seconds: dict[str, list[float]] = {"with": [], "without": [], "read": []}
            for run in range(arguments.runs):
                for way in ("with", "without") if run % 2 else ("without", "with"):
                    shutil.rmtree(output, ignore_errors=True)
                    program = RUN if way == "with" else WITHOUT + RUN
                    seconds[way].append(processor_seconds(program, "convert", *flags)[0])
                seconds["read"].append(processor_seconds(READ, str(output))[0])
            ratio = statistics.median(map(float.__truediv__, seconds["with"], seconds["without"]))
            read = statistics.median(map(float.__truediv__, seconds["read"], seconds["without"]))
            median = statistics.median(seconds["without"])
            print(
                f"{layout}, --check {check}: {median:.2f} s, with digests {ratio:.3f} times; one read {read:.3f} times"
            )


if __name__ == "__main__":
    main()
