"""What a job's planning takes by the row, and what N workers would make of the whole job.

    python benchmarks/plan_scale.py [--images 1000000] [--block 100000] [--folder DIR]

Images of ten boxes each, without a picture, in COCO files of --block images, are read, joined and planned by the steps
of `recordmill coco`, up to where shards are written: block after block, each in a process of its own, as one machine
would not bear all. It tells seconds of processor and memory by the image, and the steps' shares of that time; and of a
run that only counts, the elements and bytes that each GroupByKey is given, with its largest element and group.
"""

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.coders import Coder, registry
from apache_beam.metrics import Metrics
from apache_beam.metrics.monitoring_infos import extract_counter_value
from apache_beam.options.pipeline_options import PipelineOptions
from arguments import read_arguments
from make_coco import HEIGHT, WIDTH
from measure import Measure, measured

from recordmill.pipelines import coco, convert
from recordmill.schemas.images import USUAL_IMAGE_BYTES, ImageRef, JoinSide
from recordmill.transforms.shards.plan_shards import PlanShards

BOXES = 10
_HERE = Path(__file__).resolve()
_EXECUTION = "beam:metric:pardo_execution_time:process_bundle_msecs:v1"


def draw_block(path: Path, first: int, images: int) -> None:
    """A COCO file of so many images, whose ids begin with `first`, of ten boxes each."""
    rng = random.Random(first)
    with path.open("w") as file:
        file.write('{"categories": [')
        file.write(", ".join(json.dumps({"id": id_, "name": f"class {id_}"}) for id_ in range(1, 91)))
        file.write('],\n"images": [\n')
        ids = range(first, first + images)
        rows = (f'{{"id": {id_}, "file_name": "{id_:012}.jpg", "width": {WIDTH}, "height": {HEIGHT}}}' for id_ in ids)
        _write_rows(file, rows)
        file.write('],\n"annotations": [\n')
        _write_rows(file, (_box(rng, image * BOXES + number, image) for image in ids for number in range(BOXES)))
        file.write("]}\n")


def _write_rows(file: Any, rows: Iterator[str]) -> None:
    file.write(next(rows))
    file.writelines(f",\n{row}" for row in rows)


def _box(rng: random.Random, id_: int, image: int) -> str:
    x, y, w, h = rng.uniform(0, 500), rng.uniform(0, 380), rng.uniform(8, 130), rng.uniform(8, 90)
    return (
        f'{{"id": {id_}, "image_id": {image}, "category_id": {rng.randint(1, 90)}, "bbox": '
        f'[{x:.2f}, {y:.2f}, {w:.2f}, {h:.2f}], "area": {w * h:.2f}, "iscrowd": 0}}'
    )


# What a child process does: planning alone


class DrawnFiles(beam.PTransform):
    """In the place of ListImages: a file for each image of the block."""

    def __init__(self, _: str):
        super().__init__()

    def expand(self, folders: beam.PCollection[str]) -> beam.PCollection[tuple[str, JoinSide]]:
        return folders | "DrawFiles" >> beam.FlatMap(_files).with_output_types(tuple[str, JoinSide])


def _files(folder: str) -> Iterator[tuple[str, JoinSide]]:
    first, images = json.loads(Path(folder, "range.json").read_text())
    for id_ in range(first, first + images):
        file = ImageRef(f"{folder}/{id_:012}.jpg", USUAL_IMAGE_BYTES + id_ % 1000, "1795400000000000000")
        yield f"{id_:012}.jpg", JoinSide(file=file)


def plan(path: str, counts: bool) -> dict[str, Any]:
    """Run the steps before writing; with `counts`, by GroupByKey what it was given, else by step its seconds."""
    options = coco.CocoOptions(images=(str(Path(path).parent),), instances=(path,), output=f"{path}-out")
    coco.ListImages = DrawnFiles
    if counts:
        beam.GroupByKey = CountedGroupByKey
    pipeline = beam.Pipeline("FnApiRunner", PipelineOptions([]))
    contents = convert.pictures(options)
    tasks = coco.gather(pipeline, options).tasks
    planned = tasks | "PlanShards" >> PlanShards(options.sizing, options.seed, contents.maker.estimate(contents.table))
    _ = planned.placed | "GroupByShard" >> beam.GroupByKey() | "Images" >> beam.Map(_length)
    began = time.process_time()
    result = pipeline.run()
    result.wait_until_finish()
    return _counted(result) if counts else {"run": time.process_time() - began} | _seconds(result)


def _seconds(result: Any) -> dict[str, float]:
    """By the outermost step, as sampled."""
    found: Counter[str] = Counter()
    for info in result.monitoring_infos():
        if info.urn == _EXECUTION:
            found[info.labels["PTRANSFORM"].partition("/")[0]] += extract_counter_value(info) / 1000
    return {name: seconds for name, seconds in found.most_common() if seconds}


def _counted(result: Any) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for metric in result.metrics().query()["distributions"]:
        name, _, what = metric.key.metric.name.partition("|")
        if what not in ("element", "group"):
            continue
        of = found.setdefault(name, {})
        if what == "element":
            of |= {"elements": metric.result.count, "bytes": metric.result.sum}
        of[f"largest {what}"] = metric.result.max
    return found


def _length(group: tuple[Any, Any]) -> int:
    return sum(1 for _ in group[1])


class CountedGroupByKey(beam.PTransform):
    """GroupByKey that counts the bytes of what it is given and gives."""

    def expand(self, elements: beam.PCollection) -> beam.PCollection:
        name, kind = elements.pipeline._current_transform().full_label, elements.element_type
        counted = elements | "CountElements" >> beam.Map(_count, name, kind).with_output_types(kind)
        return counted | "Group" >> GROUP_BY_KEY() | "CountGroups" >> beam.Map(_count_group, name, kind)


GROUP_BY_KEY = beam.GroupByKey


@cache
def _coder(kind: Any) -> Coder:
    return registry.get_coder(kind)


def _count(element: Any, name: str, kind: Any) -> Any:
    Metrics.distribution("scale", f"{name}|element").update(len(_coder(kind).encode(element)))
    return element


def _count_group(group: tuple[Any, Any], name: str, kind: Any) -> tuple[Any, Any]:
    size = sum(len(_coder(kind).encode((group[0], value))) for value in group[1])
    Metrics.distribution("scale", f"{name}|group").update(size)
    return group


# What the parent does


def child(path: Path, *more: str) -> list[str]:
    return [sys.executable, str(_HERE), "--plan", str(path), *more]


def run_child(log: Path, path: Path, *more: str) -> tuple[Measure, dict[str, Any]]:
    with log.open("w") as file:
        found = measured(child(path, *more), log=file)
    return found, json.loads(log.read_text().splitlines()[-1])


def drawn(folder: Path, first: int, images: int) -> Path:
    path = folder / "block.json"
    draw_block(path, first, images)
    (folder / "range.json").write_text(json.dumps([first, images]))
    return path


def measure(folder: Path, images: int, block: int) -> None:
    """Blocks of images, one after the other; before them, a tenth of the first."""
    log = folder / "child.log"
    part = max(block // 10, 1)
    small, _ = run_child(log, drawn(folder, 1, part))
    print_shuffles(part, run_child(log, folder / "block.json", "--counts", "1")[1])
    total, memory, steps = 0.0, 0.0, Counter[str]()
    for first in range(1, images + 1, block):
        number = min(block, images + 1 - first)
        found, seconds = run_child(log, drawn(folder, first, number))
        total, memory = total + found.processor_s, max(memory, found.peak_mb)
        steps.update(seconds)
        print(f"images from {first:,}: {found.processor_s:.1f} s of processor, {found.peak_mb:,.0f} MB", flush=True)
    blocks = -(-images // block)
    start = small.processor_s - (total - blocks * small.processor_s) / (images - blocks * part) * part
    print(
        f"{images:,} images, {images * BOXES:,} boxes: {total:.0f} s of processor, of which "
        f"starting {blocks} processes {blocks * start:.0f}: {(total - blocks * start) / images * 1e6:.0f} µs an image; "
        f"{(memory - small.peak_mb) / (block - part) * 1e6:,.0f} B of memory an image of a block"
    )
    del steps["run"]
    print("shares:", ", ".join(f"{name} {seconds / steps.total():.0%}" for name, seconds in steps.most_common(6)))


def print_shuffles(images: int, shuffles: dict[str, dict[str, float]]) -> None:
    print("| shuffle | elements an image | bytes an image | largest element | largest group |\n|---|---|---|---|---|")
    for name, of in sorted(shuffles.items()):
        print(
            f"| {name} | {of['elements'] / images:.2f} | {of['bytes'] / images:,.0f} "
            f"| {of['largest element']:,.0f} | {of['largest group']:,.0f} |"
        )


def main() -> None:
    arguments, folder = read_arguments(__doc__, images=1_000_000, block=100_000, plan="", counts=0)
    if arguments.plan:
        print(json.dumps(plan(arguments.plan, bool(arguments.counts))))
        return
    folder.mkdir(parents=True, exist_ok=True)
    measure(folder, arguments.images, arguments.block)


if __name__ == "__main__":
    import plan_scale  # so that workers find its functions by name

    plan_scale.main()
