"""Time to read an annotation file of train2017's size, compared with msgspec's split into raw slices.

    python benchmarks/read_coco.py [--images 118287] [--annotations 860001] [--runs 5]

All read the file from disk. `cut` finds the blocks; `whole` also reads each again, decodes its rows and boxes, groups
them by image id, and describes the file. Each run is a process of its own.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

WAYS = ("raw", "cut", "whole")


def write_file(path: Path, images: int, annotations: int) -> None:
    """A file like COCO's instances_train2017.json, in size and shape."""
    rng = random.Random(0)
    image_rows = [
        {
            "license": 3,
            "file_name": f"{id_:012}.jpg",
            "coco_url": f"http://images.cocodataset.org/train2017/{id_:012}.jpg",
            "height": 480,
            "width": 640,
            "date_captured": "2013-11-14 11:18:45",
            "id": id_,
        }
        for id_ in range(images)
    ]
    with open(path, "w") as file:
        file.write(f'{{"info": {{}}, "licenses": [], "images": {json.dumps(image_rows)}, "annotations": [')
        for id_ in range(annotations):
            row = {
                "segmentation": [[round(rng.random() * 600, 2) for _ in range(2 * rng.randint(8, 45))]],
                "area": round(rng.random() * 5000, 4),
                "iscrowd": 0,
                "image_id": rng.randrange(images),
                "bbox": [round(rng.random() * 500, 2), round(rng.random() * 400, 2), 50.5, 60.25],
                "category_id": rng.randint(1, 90),
                "id": id_,
            }
            file.write((", " if id_ else "") + json.dumps(row))
        file.write('], "categories": [{"id": 1, "name": "person"}]}')


def measure(way: str, path: str) -> None:
    """One way of reading, in this process; prints seconds and the peak of its memory in MB."""
    import resource
    import time

    from recordmill.schemas.inputs.coco import AnnotationKind, AnnotationSource
    from recordmill.transforms.coco import decode_coco
    from recordmill.transforms.coco.describe_file import BlockSummary, describe_file
    from recordmill.transforms.coco.read_coco import cut_file, read_block

    source = AnnotationSource(AnnotationKind.INSTANCES, path)

    began = time.perf_counter()
    if way == "raw":
        decode_coco.RAW_FILE.decode(Path(path).read_bytes())
    elif way == "cut":
        for _ in cut_file(source):
            pass
    else:
        items = (item for block in cut_file(source) for item in read_block(block))
        describe_file(source, [item for item in items if isinstance(item, BlockSummary)])
    print(time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=118_287)
    parser.add_argument("--annotations", type=int, default=860_001)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--measure", nargs=2, metavar=("WAY", "FILE"), help="used by itself")
    arguments = parser.parse_args()
    if arguments.measure:
        measure(*arguments.measure)
        return
    with tempfile.TemporaryDirectory(prefix="recordmill-bench-") as folder:
        path = Path(folder) / "instances.json"
        write_file(path, arguments.images, arguments.annotations)
        print(
            f"{path.stat().st_size / 1e6:,.0f} MB, {arguments.images:,} images, {arguments.annotations:,} annotations"
        )
        runs: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
        for _ in range(arguments.runs):
            for way in WAYS:
                command = [sys.executable, __file__, "--measure", way, str(path)]
                seconds, peak = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
                runs[way].append((float(seconds), float(peak)))
    raw = statistics.median(seconds for seconds, _ in runs["raw"])
    for way, of in runs.items():
        seconds, peak = (statistics.median(values) for values in zip(*of, strict=True))
        print(f"{way:8} {seconds:6.2f} s   {seconds / raw:.2f} x raw   {peak:,.0f} MB")


if __name__ == "__main__":
    main()
