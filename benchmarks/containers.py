"""One table of containers: the same COCO data set written and read as each of them.

    python benchmarks/containers.py [--images 5000] [--shards 8] [--runs 3] [--folder DIR]

Processor time of all processes relative to TFRecord's, medians, containers in turn, round after round: `convert --check
header` after imports; `Split.raw` of records in random order, in batches of 32, and all records in order, each in a
process of its own after the first batch. Files are in the page cache. Records are those bytes that every container
returns: they are checked, and not decoded. Size is that of all shards, relative to TFRecord's.
"""

import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from arguments import read_arguments
from compare_peers import ENVIRONMENT, imports_of, ours, timed
from make_coco import make

from recordmill.schemas.containers import CONTAINERS, TFRECORD

BATCH = 32
READ = "--read"
COLUMNS = "written", "size", "read in order", "read by number"


def read(folder: str) -> dict[str, float]:
    """Return the processor time of reading all records in order, and by number, in seconds."""
    import numpy as np

    import recordmill
    from recordmill.transforms.containers.container import Contents, container_of
    from recordmill.transforms.dataset.dataset_folder import require_manifest

    split, manifest = recordmill.open(folder)["train"], require_manifest(folder)
    container, contents = container_of(manifest.container), Contents(manifest.table, manifest.labels)
    files = [container.open(f"{folder}/{shard.file}", contents, shard) for shard in manifest.splits["train"].shards]
    order = np.random.default_rng(0).permutation(len(split)).tolist()

    def in_order() -> Iterator[int]:
        yield from map(len, itertools.chain.from_iterable(file.in_order() for file in files))

    def by_number() -> Iterator[int]:
        for start in range(0, len(order), BATCH):
            yield from map(len, split.read(order[start : start + BATCH]))

    times = {}
    for name, records in zip(COLUMNS[2:], (in_order, by_number), strict=True):
        next(records())
        begun = time.process_time()
        times[name] = (sum(records()), time.process_time() - begun)[1]
    return times


def main() -> None:
    arguments, folder = read_arguments(__doc__, images=5000, shards=8, runs=3)
    data = folder / f"coco-{arguments.images}"
    if not data.exists():
        make(data, arguments.images)
    values: dict[tuple[str, str], list[float]] = {}
    names = [name for name, row in CONTAINERS.items() if row.is_installed]
    for _ in range(arguments.runs):
        for name in names:
            output, writer = folder / f"container-{name}", ours("header", name)
            importing = imports_of(writer, folder / "imports")
            writing = timed(writer, data, output, arguments.shards)
            values.setdefault((name, "written"), []).append(writing.processor_s - importing.processor_s)
            shards = [path for path in output.iterdir() if path.name.startswith("coco-train")]
            values.setdefault((name, "size"), []).append(sum(path.stat().st_size for path in shards))
            command = [sys.executable, __file__, READ, str(output)]
            times = json.loads(subprocess.run(command, env=ENVIRONMENT, check=True, stdout=subprocess.PIPE).stdout)
            for column, seconds in times.items():
                values.setdefault((name, column), []).append(seconds)
            print(f"{name}: {writing}, {times}", file=sys.stderr)
    median = {key: statistics.median(numbers) for key, numbers in values.items()}
    print(f"| `--container` | {' | '.join(COLUMNS)} |", "|---" * (1 + len(COLUMNS)) + "|", sep="\n")
    for name in names:
        ratios = [f"{median[name, column] / median[TFRECORD, column]:.2f}" for column in COLUMNS]
        print(f"| `{name}` | {' | '.join(ratios)} |")
    per_image = {column: median[TFRECORD, column] / arguments.images for column in COLUMNS}
    print(", ".join(f"{column} {value:,.6f}" for column, value in per_image.items()), "s or bytes per image (tfrecord)")


if __name__ == "__main__":
    if READ in sys.argv:
        print(json.dumps(read(str(Path(sys.argv[-1])))))
    else:
        main()
