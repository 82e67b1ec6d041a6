"""Numbers of page, summary and manifest, against what plain Python counts in drawn data sets: splits that lack classes,
copies with and without other labels, thin and repeated boxes, missing images."""

import io
import json
import random
import re
from collections import Counter, defaultdict
from html import unescape
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

import recordmill as library
from recordmill.transforms.insight.write_report import write_report

CLASSES = ("<script>x<", '"quoted"', "a&b", "ü", "{{ 7 }}", *"fghijklmnopq")
SIDE = 48
SEEDS = 4
"""Number of drawn data sets; more were tried. Seed 31 draws a single class, which is refused."""

Box = tuple[int, int, int, int]
"""x, y, width and height in pixels."""


class Drawn(NamedTuple):
    """An image with its objects. In class folders it has one, without a box."""

    split: str
    name: str
    data: bytes
    objects: tuple[tuple[str, Box], ...]
    is_missing: bool = False


class Truth(NamedTuple):
    """Expected numbers of a data set.

    Attributes:
        images: Written images by split.
        gaps: Splits that lack a class, and its number in the others, by class.
        exact, leaked, conflicting: Copies by split: all, of images of other splits, and with other labels.
        leaks, conflicts: Number of different images among the leaked and conflicting copies.
        problems: Number of problems by split and kind.
        suspicious: Number of problems of boxes.
    """

    images: Counter[str]
    objects: int
    rejects: int
    gaps: dict[str, tuple[list[str], int]]
    unused: list[str]
    exact: Counter[str]
    leaked: Counter[str]
    leaks: int
    conflicting: Counter[str]
    conflicts: int
    problems: dict[str, Counter[str]]
    suspicious: int


def draw_image(of: random.Random) -> bytes:
    """Return a PNG of noise, which is near no other."""
    levels = np.random.default_rng(of.getrandbits(32)).integers(0, 256, (SIDE // 3, SIDE // 3, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(levels.repeat(3, axis=0).repeat(3, axis=1)).save(file, "PNG")
    return file.getvalue()


def draw_data_set(of: random.Random, has_boxes: bool) -> list[Drawn]:
    images: list[Drawn] = []
    classes = of.sample(CLASSES, of.randint(2, len(CLASSES)))
    for split in of.choice((["train"], ["train", "val"], ["test", "train", "val"])):
        present = of.sample(classes, of.randint(1, len(classes)))
        for number in range(of.randint(3, 14)):
            objects: list[tuple[str, Box]] = [(of.choice(present), (0, 0, 0, 0))]
            if has_boxes:
                sizes = [[of.randint(1, SIDE // 2) for _ in range(4)] for _ in range(of.randint(0, 4))]
                objects = [(of.choice(present), tuple(size)) for size in sizes]
                objects += [of.choice(objects) for _ in objects[:1] if of.random() < 0.3]
            image = Drawn(split, f"{number}.png", draw_image(of), tuple(objects))
            if images and of.random() < 0.4:
                copied = of.choice(images)
                has_labels = of.random() < 0.5 and {name for name, _ in copied.objects} <= {*present}
                image = image._replace(data=copied.data, objects=copied.objects if has_labels else image.objects)
            images.append(image._replace(is_missing=has_boxes and of.random() < 0.1))
    return images


def write_class_folders(folder: Path, images: list[Drawn]) -> list[str]:
    for image in images:
        path = folder / image.split / image.objects[0][0] / image.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image.data)
    return [str(folder), "--format", "folder"]


def write_coco(folder: Path, images: list[Drawn]) -> list[str]:
    names = sorted({name for image in images for name, _ in image.objects} | {"never"})
    (folder / "annotations").mkdir(parents=True)
    for split in {image.split for image in images}:
        (folder / split).mkdir()
        rows, annotations = [], []
        for image in (image for image in images if image.split == split):
            rows.append({"id": len(rows), "file_name": image.name, "width": SIDE, "height": SIDE})
            if not image.is_missing:
                (folder / split / image.name).write_bytes(image.data)
            for name, box in image.objects:
                ids = {"id": len(annotations) + 1, "image_id": rows[-1]["id"], "category_id": names.index(name) + 1}
                annotations.append({**ids, "bbox": box, "area": box[2] * box[3], "iscrowd": 0})
        categories = [{"id": number, "name": name} for number, name in enumerate(names, 1)]
        content = {"images": rows, "annotations": annotations, "categories": categories}
        (folder / "annotations" / f"instances_{split}.json").write_text(json.dumps(content))
    return [str(folder), "--format", "coco"]


def count_all(images: list[Drawn], has_boxes: bool) -> Truth:
    written = [image for image in images if not image.is_missing]
    splits = sorted({image.split for image in images})
    copies = defaultdict(list)
    for image in written:
        copies[image.data].append(image)
    groups = [group for group in copies.values() if len(group) > 1]
    leaks = [group for group in groups if len({image.split for image in group}) > 1]
    conflicts = [group for group in groups if len({tuple(sorted(image.objects)) for image in group}) > 1]
    counts = {split: Counter[str]() for split in splits}
    for image in written:
        counts[image.split].update(name for name, _ in image.objects)
    names = {name for image in images for name, _ in image.objects} | ({"never"} if has_boxes else set())
    absent = {name: [split for split in splits if not counts[split][name]] for name in names}
    problems = {split: Counter[str]() for split in splits}
    for group in groups:
        kept = min(group, key=lambda image: (image.split == "train", image.split, stored_name(image, has_boxes)))
        for image in group:
            if image is not kept:
                problems[image.split]["leakage" if image.split != kept.split else "exact_duplicates"] += 1
    boxes = Counter[str]()
    for image in written if has_boxes else ():
        thin = sum(min(box[2:]) < 4 for _, box in image.objects)
        found = Counter(thin_boxes=thin, repeated_boxes=len(image.objects) - len(set(image.objects)))
        problems[image.split] += found
        boxes += found
    return Truth(
        Counter(image.split for image in written),
        sum(len(image.objects) for image in written) if has_boxes else 0,
        len(images) - len(written),
        {
            name: (absent[name], sum(numbers[name] for numbers in counts.values()))
            for name in names
            if 0 < len(absent[name]) < len(splits)
        },
        [name for name in names if len(absent[name]) == len(splits)],
        Counter(image.split for group in groups for image in group),
        Counter(image.split for group in leaks for image in group),
        len(leaks),
        Counter(image.split for group in conflicts for image in group),
        len(conflicts),
        problems,
        boxes.total(),
    )


def stored_name(image: Drawn, has_boxes: bool) -> str:
    return image.name if has_boxes else f"{image.objects[0][0]}/{image.name}"


def tile_numbers(page: str) -> dict[str, int]:
    """Return the numbers at the top of a page by their title."""
    matches = re.findall(r'<li class="[a-z]+"><a href="#[a-z-]+">([^<]+)</a>\s*<strong>([\d,]+)</strong>', page)
    return {title: int(number.replace(",", "")) for title, number in matches}


def gap_rows(page: str) -> tuple[list[tuple[str, list[str], int]], int]:
    """Return the rows of the table of classes that are absent from a split, and the number of rows that are shown."""
    section = page.split('id="class-gaps"')[1].split("</section>")[0].split("Class shares that differ")[0]
    shown, _, folded = section.partition("<details>")
    row = re.compile(r'<th scope="row"><bdi>(.*?)</bdi></th><td>(.*?)</td><td>(.*?)</td></tr>')
    rows = [(unescape(name), absent.split(", "), int(number)) for name, absent, number in row.findall(shown + folded)]
    return rows, len(row.findall(shown))


def line_of(label: str, printed: str) -> str:
    return "".join(re.findall(rf"^  {label} +(.*)$", printed, re.MULTILINE))


def check_page(page: str, truth: Truth) -> None:
    tiles = {
        "Leakage": truth.leaked.total(),
        "Conflicting labels": truth.conflicting.total(),
        "Duplicates": truth.exact.total(),
        "Rejects": truth.rejects,
        **({"Suspicious boxes": truth.suspicious} if truth.objects else {}),
    }
    shown = tile_numbers(page)
    gaps = shown.pop("Class gaps")
    assert {title: shown[title] for title in tiles} == tiles
    rows, unfolded = gap_rows(page)
    assert {name: (sorted(absent), number) for name, absent, number in rows} == truth.gaps
    numbers = [number for _, _, number in rows]
    assert (numbers, unfolded) == (sorted(numbers, reverse=True), min(10, len(rows)))
    drifting = re.search(r"Class shares that differ between splits: (\d+)", page)
    assert gaps == len(rows) + len(truth.unused) + (int(drifting[1]) if drifting else 0)
    axes = [float(text) for text in re.findall(r'text-anchor="end">([\d.]+)%<', page)]
    assert max(axes) <= 100


def check_summary(printed: str, truth: Truth) -> None:
    leakage, conflicts = line_of("LEAKAGE", printed), line_of("CONFLICTING LABELS", printed)
    gaps = re.search(r"classes absent from a split (\d+): ", printed)
    assert int(gaps[1] if gaps else 0) == len(truth.gaps)
    assert bool(leakage) == bool(truth.leaks)
    assert bool(conflicts) == bool(truth.conflicts)
    if leakage:
        assert leakage.startswith(f"{truth.leaks} image")
        assert f"({by_split(truth.leaked)})" in leakage
    if conflicts:
        distinct = f"{truth.conflicts} distinct image{'s' * (truth.conflicts > 1)} ({by_split(truth.conflicting)})"
        assert conflicts.startswith(f"{truth.conflicting.total()} images are exact copies")
        assert distinct in conflicts


def by_split(numbers: Counter[str]) -> str:
    return ", ".join(f"{number} of {split}" for split, number in sorted(numbers.items()))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_numbers_shown(tmp_path, recordmill, seed):
    has_boxes = seed % 2 == 0
    images = draw_data_set(random.Random(seed), has_boxes)
    data = (write_coco if has_boxes else write_class_folders)(tmp_path / "data", images)
    done = recordmill("convert", *data, "-o", tmp_path / "out", "--max-rejects", 1)
    assert done.code == 0, done.err
    truth = count_all(images, has_boxes)
    check_page(Path(write_report(str(tmp_path / "out"))).read_text(), truth)
    check_summary(done.out, truth)
    opened = library.open(tmp_path / "out")
    for split, numbers in truth.problems.items():
        lines = map(json.loads, (tmp_path / "out" / f"problems-{split}.jsonl").read_text().splitlines())
        assert Counter(line["kind"] for line in lines) == Counter(numbers)
        assert f"{split}: {truth.images[split]} image" in repr(opened)
    total = sum(sum(numbers.values()) for numbers in truth.problems.values())
    assert f", {truth.rejects} reject{'s' * (truth.rejects != 1)}, {total} possible problem" in repr(opened)
    for split, statistics in json.loads((tmp_path / "out/statistics.json").read_text())["splits"].items():
        for finding in statistics["findings"].values():
            pixels = [opened[split][example["record"]]["image"].tobytes() for example in finding["examples"]]
            assert len({*pixels}) == len(pixels)
