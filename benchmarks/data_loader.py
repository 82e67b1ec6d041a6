"""`.torch()` in a DataLoader of two workers, against torchvision's CocoDetection on the folder: time and memory.

    python benchmarks/data_loader.py [--images 5000] [--few 1000] [--runs 3] [--folder DIR]

JPEGs of 640x480 pixels and about 190 kB, which the system has in memory. An epoch in random order, in batches of eight
pairs of an image, uint8 [3, height, width], and a dict of tensors; CocoDetection has torchvision's pil_to_tensor and a
function that makes tensors of the annotations. Each row is a process in the environment of `make bench-readers`, all in
turn, round after round; medians of the epochs with all images. Wall time wants two idle cores. Memory is the largest
proportional set size of the main process and of a worker, of ten samples each; with --few images, too.
"""

import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from arguments import read_arguments
from measure import proportional_mb
from read_images import draw, processor_s

PYTHON = Path(__file__).resolve().parent.parent / ".consumers" / "torchvision" / "bin" / "python"
WORKERS, BATCH, SAMPLES = 2, 8, 10
OURS, OURS_WITH_KEYS, FOLDER = ".torch()", '.torch(keys=["image", "boxes", "labels"])', "CocoDetection"
FOLDER_WITH_ALL = "CocoDetection, the same values as .torch()"


class Epoch(NamedTuple):
    """Measures of an epoch: milliseconds per image, processor time of all workers together, and MB."""

    wall_ms: float
    main_ms: float
    workers_ms: float
    main_mb: float
    worker_mb: float


def data_set(row: str, folder: Path) -> Any:
    if row in (OURS, OURS_WITH_KEYS):
        import recordmill

        split = recordmill.open(folder / "ours")["train"]
        return split.torch(keys=["image", "boxes", "labels"] if row == OURS_WITH_KEYS else None)
    import torch
    from torchvision.datasets import CocoDetection
    from torchvision.transforms.functional import pil_to_tensor

    def target(annotations: list[dict[str, Any]]) -> dict[str, Any]:
        boxes = torch.tensor([annotation["bbox"] for annotation in annotations])
        boxes[:, 2:] += boxes[:, :2]
        tensors = {"boxes": boxes, "labels": torch.tensor([annotation["category_id"] for annotation in annotations])}
        if row == FOLDER_WITH_ALL:
            tensors["image_id"] = torch.tensor(annotations[0]["image_id"])
            for name in ("area", "iscrowd", "id"):
                tensors[name] = torch.tensor([annotation[name] for annotation in annotations])
        return tensors

    return CocoDetection(str(folder / "images"), str(folder / "instances.json"), pil_to_tensor, target)


def measure(row: str, folder: Path) -> None:
    """Print the measures of an epoch."""
    import torch

    records = data_set(row, folder)
    loader = torch.utils.data.DataLoader(records, BATCH, shuffle=True, num_workers=WORKERS, collate_fn=list)
    began, main_began = time.perf_counter(), processor_s()
    main_mb = worker_mb = sampling_s = 0.0
    number = 0
    for at, batch in enumerate(loader):
        number += len(batch)
        if at % (len(loader) // SAMPLES) == len(loader) // SAMPLES - 1:
            sampling_began = processor_s()
            main_mb = max(main_mb, proportional_mb(os.getpid()))
            worker_mb = max(
                worker_mb, *(proportional_mb(child.pid or 0) for child in multiprocessing.active_children())
            )
            sampling_s += processor_s() - sampling_began
    wall_s = time.perf_counter() - began
    main_s = processor_s() - main_began - sampling_s
    if number != len(records):
        raise SystemExit(f"{row}: {number} of {len(records)} images")
    of_image = [1000 * seconds / number for seconds in (wall_s, main_s, processor_s(resource.RUSAGE_CHILDREN))]
    print(json.dumps([*of_image, main_mb, worker_mb]))


def measured(row: str, folder: Path) -> Epoch:
    """Run `measure` in the environment that has torchvision."""
    command = [str(PYTHON), __file__, "--row", row, str(folder)]
    return Epoch(*json.loads(subprocess.check_output(command, text=True).splitlines()[-1]))


def main() -> None:
    arguments, folder = read_arguments(__doc__ or "", images=5000, few=1000, runs=3)
    folders = {count: folder / str(count) for count in (arguments.few, arguments.images)}
    for count, data in folders.items():
        if not (data / "ours").exists():
            draw(data, count)
    rows = OURS, OURS_WITH_KEYS, FOLDER, FOLDER_WITH_ALL
    few = {row: measured(row, folders[arguments.few]) for row in rows}
    epochs: dict[str, list[Epoch]] = {row: [] for row in rows}
    for _ in range(arguments.runs):
        for row in rows:
            epochs[row].append(measured(row, folders[arguments.images]))
            print(f"{row}: {epochs[row][-1]}", file=sys.stderr)
    medians = {row: Epoch(*map(statistics.median, zip(*epochs[row], strict=True))) for row in rows}
    memory = f"{arguments.few:,} and {arguments.images:,} images"
    print(f"| ms per image | wall | main process | workers | MB of main, {memory} | MB of a worker |")
    print("|---|---|---|---|---|---|")
    for row, epoch in medians.items():
        times = " | ".join(f"{milliseconds:.2f}" for milliseconds in epoch[:3])
        main_mb = f"{few[row].main_mb:.0f}, {epoch.main_mb:.0f}"
        print(f"| {row} | {times} | {main_mb} | {few[row].worker_mb:.0f}, {epoch.worker_mb:.0f} |")
    for ours, folder_row in ((OURS_WITH_KEYS, FOLDER), (OURS, FOLDER_WITH_ALL)):
        shares = zip(Epoch._fields, medians[ours], medians[folder_row], strict=True)
        print(f"{ours} of {folder_row}: " + ", ".join(f"{name} {our / other:.2f}" for name, our, other in shares))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--row"]:
        measure(sys.argv[2], Path(sys.argv[3]))
    else:
        main()
