"""Metadata in `recordmill convert` of COCO, without images: memory, processor time, and bytes through each shuffle.

    python benchmarks/metadata.py [--images 120000] [--boxes 10] [--points 0] [--fields 0] [--flags …] [--elements 1]
        [--folder DIR]

It draws an annotation file with `--images` images, `--boxes` boxes per image and polygons of `--points` points. With
`--fields 1`, images have a date, and objects a score and attributes; compare the times with and without
`--flags "--num-shards 64 --fields image.date_captured,score,attributes.occluded"`. The job
is the real one, in a separate process, with two exceptions: names of images come from the same drawing, not from a
folder, and no image is read, so that no record is made. At its end the job reports that no image has an object.

It prints the number of fused stages and the bytes per image that the shuffles group. `--elements 1` also prints the
largest element and the largest group of a shuffle; this decodes each element a second time, so the times are not valid.

    python benchmarks/metadata.py --formats 40000 [--rounds 3] [--folder DIR] [--base TREE] [--datumaro PYTHON]

With `--formats N`, it draws N images of 64 x 48 pixels with 8 boxes each as YOLO, converts them, and extracts each
format. A row per format has the processor seconds of `recordmill convert --check none` with all its processes, their
ratio to COCO's, and peak memory: medians of rounds, in which the formats take turns. `folders` are the images in
folders of classes, without boxes. `loop` reads each image and its label file, and splits the lines.

`--base TREE` adds rows of another checkout, whose formats may be verbs (revision 92be177e: `recordmill yolo`).
`--datumaro PYTHON`, the interpreter of an environment with Datumaro, adds its import of the folders of YOLO and COCO,
which writes nothing. It refuses the VOC folder: that has no labelmap.txt.
"""

import io
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from arguments import read_arguments
from PIL import Image

_TEMPLATE_IMAGES = 1000
_FORMATS = ("coco", "labelme", "yolo", "hf", "voc")
"""Formats of `extract --as`, each a folder; COCO is the first."""
_BASE_VERBS = {
    "coco": ["coco", "--images", "{}/images/train", "--instances", "{}/annotations/instances_train.json"],
    "labelme": ["labelme", "--data", "{}"],
    "yolo": ["yolo", "--data", "{}"],
    "hf": ["imagefolder", "--data", "{}"],
    "voc": ["voc", "--data", "{}"],
}
"""Commands of checkouts in which formats are verbs."""
_DATUMARO_FORMATS = {"coco": "coco", "yolo": "yolo"}
_DATUMARO = """
import sys
from datumaro import Dataset
print(len(Dataset.import_from(sys.argv[1], sys.argv[2])))
"""
_LOOP = """
import pathlib, sys
for path in sorted(pathlib.Path(sys.argv[1]).rglob("*.jpg")):
    path.read_bytes()
    label = path.as_posix().replace("/images/", "/labels/").replace(".jpg", ".txt")
    [line.split() for line in open(label)]
"""


def draw(path: Path, images: int, boxes: int, points: int, has_fields: bool) -> None:
    """Write the annotation file; objects of a thousand images are drawn, and repeated with other ids."""
    rng = random.Random(0)
    drawn = [_objects(rng, boxes, points, has_fields) for _ in range(_TEMPLATE_IMAGES)]
    with path.open("w") as file:
        file.write('{"images": [')
        for index in range(images):
            file.write(", " * bool(index) + json.dumps(_image(index, has_fields)))
        file.write('], "annotations": [')
        number = 0
        for index in range(images):
            for text in drawn[index % _TEMPLATE_IMAGES]:
                file.write(f'{", " * bool(number)}{{"id": {number}, "image_id": {_id(index)}, {text}')
                number += 1
        categories = [{"id": id_, "name": f"class {id_}"} for id_ in range(1, 91)]
        file.write(f'], "categories": {json.dumps(categories)}}}')


def _id(index: int) -> int:
    return index * 7 + 3


def _name(index: int) -> str:
    return f"{_id(index):012}.jpg"


def _image(index: int, has_fields: bool) -> dict[str, int | str]:
    fields = {"date_captured": f"2013-11-{index % 30 + 1:02} {index % 24:02}:00:00"} if has_fields else {}
    return {"id": _id(index), "file_name": _name(index), "width": 640, "height": 480, **fields}


def _objects(rng: random.Random, boxes: int, points: int, has_fields: bool) -> list[str]:
    """Texts of objects after their ids."""
    texts = []
    for _ in range(boxes):
        x, y, w, h = rng.uniform(0, 500), rng.uniform(0, 380), rng.uniform(8, 130), rng.uniform(8, 90)
        row = {
            "category_id": rng.randint(1, 90),
            "bbox": [round(v, 2) for v in (x, y, w, h)],
            "area": round(w * h, 2),
            "iscrowd": 0,
        }
        if points:
            corners = ((x + rng.uniform(0, w), y + rng.uniform(0, h)) for _ in range(points))
            row["segmentation"] = [[round(v, 2) for corner in corners for v in corner]]
        if has_fields:
            attributes = {"occluded": rng.random() < 0.5, "colour": rng.choice(["red", "green", "blue"])}
            row |= {"score": round(rng.random(), 4), "attributes": attributes}
        texts.append(json.dumps(row)[1:])
    return texts


def job(path: Path, images: int, with_elements: bool, output: Path, flags: list[str]) -> None:
    """The job, in this process, and a table of its stages and shuffles."""
    from apache_beam.runners.portability.fn_api_runner import execution, fn_runner

    from recordmill.launch import cli
    from recordmill.launch.local_engine.engine import local_engine
    from recordmill.schemas.errors import EmptyDatasetError
    from recordmill.schemas.inputs.files import ImageFile
    from recordmill.schemas.rejects import Metric
    from recordmill.transforms.dataset.rejects import rejects_path
    from recordmill.transforms.encoders.record_maker import EncodedRun
    from recordmill.transforms.join import list_images
    from recordmill.transforms.shards import encode_images

    def listed(folder: str, *_: object) -> Iterator[tuple[str, ImageFile]]:
        return ((_name(index), ImageFile(f"{folder}/{_name(index)}", 10_000, "1")) for index in range(images))

    def start(maker: object, of: object) -> Callable:
        return lambda block, split: iter([made(len(block), block.num_objects)])

    def made(images: int, objects: int) -> EncodedRun:
        counted = Counter({Metric.OBJECTS: objects, Metric.IMAGES_WITHOUT_RECORD: images})
        return EncodedRun((), None, np.zeros(0, np.int64), counted, [], {1: objects}, images, 0, [])

    list_images.list_images = listed
    encode_images.EncodeImages.start = start  # type: ignore[method-assign, assignment]
    shuffles = _Shuffles(fn_runner, execution, with_elements)
    (output.parent / "images").mkdir(exist_ok=True)
    (output.parent / "images" / _name(0)).write_bytes(b"")
    arguments = ["--images", str(output.parent / "images"), "--instances", str(path), "--output", str(output)]
    before = _processor_s()
    with local_engine():
        code = cli.main(["convert", *arguments, "--progress", "none", *flags])
    if code != EmptyDatasetError.exit_code or not Path(rejects_path(str(output), "train")).exists():
        sys.exit("the job did not come to its end")
    print("\n".join(shuffles.report))
    print(f"{len(shuffles.stages)} fused stages, {shuffles.total_bytes / images:,.0f} bytes per image through shuffles")
    if with_elements:
        element, group = shuffles.largest_element_bytes, shuffles.largest_group_bytes
        print(f"largest element of a shuffle {element / 1e6:.2f} MB, largest group {group / 1e6:.2f} MB")
    seconds = _processor_s()
    print(f"{seconds - before:.1f} s of processor after imports, {seconds:.1f} s in all, {_peak_mb():,.0f} MB")


def _processor_s() -> float:
    used = os.times()
    return used.user + used.system


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


class _Memory(threading.Thread):
    """The most memory that this process has had since it was last asked."""

    def __init__(self):
        super().__init__(daemon=True)
        self._most = 0.0
        self.start()

    def run(self) -> None:
        while True:
            self._most = max(self._most, _resident_mb())
            time.sleep(0.05)

    def most_mb(self) -> float:
        most, self._most = max(self._most, _resident_mb()), 0.0
        return most


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


class _Shuffles:
    """Measures each stage of Beam's local runner, and the elements that it groups."""

    def __init__(self, fn_runner: Any, execution: Any, with_elements: bool):
        self.report: list[str] = []
        self.stages: dict[int, Any] = {}
        self.total_bytes = self.largest_element_bytes = self.largest_group_bytes = 0
        self._groups: dict[object, Counter[bytes]] = {}  # bytes by key, of each shuffle
        append, run_bundle = execution.GroupingBuffer.append, fn_runner.FnApiRunner._execute_bundle
        memory = _Memory()

        def counted(buffer, data: bytes) -> None:
            self.total_bytes += len(data)
            if with_elements:
                self._measure_elements(buffer, execution.create_InputStream(data))
            append(buffer, data)

        def timed(runner, context, bundle_context, *rest):
            before, began = self.total_bytes, _processor_s()
            self.stages[id(bundle_context.stage)] = bundle_context.stage  # the last one ends with an error
            result = run_bundle(runner, context, bundle_context, *rest)
            seconds, most = _processor_s() - began, memory.most_mb()
            name = bundle_context.stage.name
            if seconds > 0.2:
                label, grouped = name.strip("(").split(")")[0][-60:], (self.total_bytes - before) / 1e6
                self.report.append(f"{seconds:7.1f} s, {grouped:7.1f} MB grouped, at most {most:6.0f} MB: from {label}")
            return result

        execution.GroupingBuffer.append = counted
        fn_runner.FnApiRunner._execute_bundle = timed

    def _measure_elements(self, buffer: Any, stream: Any) -> None:
        coder, key_coder = buffer._pre_grouped_coder.get_impl(), buffer._key_coder.get_impl()
        groups = self._groups.setdefault(buffer, Counter())
        while rest := stream.size():
            key, _ = coder.decode_from_stream(stream, True).value
            size = rest - stream.size()
            groups[encoded := key_coder.encode(key)] += size
            self.largest_element_bytes = max(self.largest_element_bytes, size)
            self.largest_group_bytes = max(self.largest_group_bytes, groups[encoded])


def draw_yolo(folder: Path, images: int) -> None:
    """Write a YOLO data set: images of 16 colours, with 8 boxes of 5 classes each."""
    for name in ("images", "labels"):
        (folder / name / "train").mkdir(parents=True)
    jpegs = []
    for number in range(16):
        Image.new("RGB", (64, 48), (number * 16, 90, 255 - number * 16)).save(jpeg := io.BytesIO(), "JPEG")
        jpegs.append(jpeg.getvalue())
    for index in range(images):
        lines = (f"{(index + box) % 5} {0.1 + box * 0.1:.4f} 0.5 0.08 0.2\n" for box in range(8))
        (folder / "images" / "train" / f"{index:07}.jpg").write_bytes(jpegs[index % 16])
        (folder / "labels" / "train" / f"{index:07}.txt").write_text("".join(lines))
    (folder / "data.yaml").write_text("train: images/train\nnames: [a, b, c, d, e]\n")


def draw_folders(drawn: Path, folder: Path) -> None:
    """Link the images of a drawn data set into folders of five classes."""
    for index, image in enumerate(sorted((drawn / "images" / "train").iterdir())):
        (folder / "abcde"[index % 5]).mkdir(parents=True, exist_ok=True)
        os.link(image, folder / "abcde"[index % 5] / image.name)


def compare_formats(folder: Path, images: int, rounds: int, base: str, datumaro: str) -> None:
    """Print a row per format. Data sets in `folder` are used again."""
    command, folder = [sys.executable, "-m", "recordmill.launch.cli"], folder.resolve()
    drawn, records = folder / f"drawn-{images}", folder / f"records-{images}"
    if not records.exists():
        draw_yolo(drawn, images)
        _run([*command, "convert", str(drawn), "-o", str(records), "--check", "none"])
        for name in _FORMATS:
            _run([*command, "extract", str(records), str(folder / f"{name}-{images}"), "--as", name])
    if not (folder / f"folders-{images}").exists():
        draw_folders(drawn, folder / f"folders-{images}")
    output = folder / "output"
    commands = {
        name: [*command, "convert", str(folder / f"{name}-{images}"), "-o", str(output), "--check", "none"]
        for name in (*_FORMATS, "folders")
    }
    for name, words in _BASE_VERBS.items() if base else ():
        data = [word.format(folder / f"{name}-{images}") for word in words]
        module = ["env", "-C", base, f"PYTHONPATH={base}", *command]  # Python looks in the current folder first
        commands[f"base {name}"] = [*module, *data, "--output", str(output), "--check", "none"]
    for name, kind in _DATUMARO_FORMATS.items() if datumaro else ():
        commands[f"datumaro {name}"] = [datumaro, "-c", _DATUMARO, str(folder / f"{name}-{images}"), kind]
    commands["loop"] = [sys.executable, "-c", _LOOP, str(drawn)]
    used: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, words in commands.items():
            shutil.rmtree(output, ignore_errors=True)
            used[name].append(_run(words))
    medians = {name: [statistics.median(numbers) for numbers in zip(*runs, strict=True)] for name, runs in used.items()}
    for name, (seconds, peak_mb) in medians.items():
        print(f"{name:13} {seconds:6.1f} s of processor, {seconds / medians['coco'][0]:.2f} of COCO, {peak_mb:,.0f} MB")


def _run(command: list[str]) -> tuple[float, float]:
    """Run a command; return the processor seconds and the peak memory, in MB, of its largest process."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


def main() -> None:
    if sys.argv[1:2] == ["--job"]:
        path, images, with_elements, output, *flags = sys.argv[2:]
        job(Path(path), int(images), with_elements == "1", Path(output), flags)
        return
    defaults = {"images": 120_000, "boxes": 10, "points": 0, "fields": 0, "elements": 0, "flags": "--num-shards 64"}
    arguments, folder = read_arguments(__doc__, **defaults, formats=0, rounds=3, base="", datumaro="")
    folder.mkdir(parents=True, exist_ok=True)
    if arguments.formats:
        compare_formats(folder, arguments.formats, arguments.rounds, arguments.base, arguments.datumaro)
        return
    has_fields = arguments.fields == 1
    path = folder / f"{arguments.images}-{arguments.boxes}-{arguments.points}{'-fields' * has_fields}.json"
    if not path.exists():
        draw(path, arguments.images, arguments.boxes, arguments.points, has_fields)
    print(f"{path.name}: {path.stat().st_size / 1e6:,.0f} MB")
    output = folder / f"output-{time.time_ns()}"
    command = [
        sys.executable,
        __file__,
        "--job",
        str(path),
        str(arguments.images),
        str(arguments.elements),
        str(output),
        *arguments.flags.split(),
    ]
    sys.exit(subprocess.run(command).returncode)


if __name__ == "__main__":
    main()
