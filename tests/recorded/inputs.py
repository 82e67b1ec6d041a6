"""Input data sets of the recorded jobs: the sample data set, and sets with what real data has and a sample lacks."""

import csv
import gzip
import json
import random
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

CATEGORIES = [(1, "a"), (3, "été"), (90, "dog"), (127, "x"), (128, "yy"), (300, "z" * 130), (1 << 40, "big")]


def draw_inputs(folder: Path, recordmill: Sequence[str]) -> None:
    """Write all inputs into an empty folder."""
    for arguments in (["sample", "sample", "--count", "60"], ["sample", "odd-sample", "--odd", "--count", "24"]):
        subprocess.run([*recordmill, *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    _pack(folder / "sample")
    _draw_odd(folder / "odd")
    _draw_shapes(folder / "shapes")
    _draw_lvis(folder / "lvis")
    _draw_many_rejects(folder / "rejects")
    _draw_classes(folder / "classes")
    _write_tables(folder / "tables")


def _write_json(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def _draw(path: Path, size: tuple[int, int], number: int, mode: str = "RGB", **save: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    colours = (number * 37 % 256, number * 91 % 256, 90, 200)[: len(mode)]
    image = Image.new(mode, size, colours if len(mode) > 1 else colours[0])
    image.putpixel((number % size[0], number % size[1]), colours[::-1] if len(mode) > 1 else 255 - colours[0])
    image.save(path, **save)


def _turned() -> Image.Exif:
    tags = Image.Exif()
    tags[0x0112] = 6
    return tags


def _pack(folder: Path) -> None:
    """Write the .zip of the images and the .gz of the instances beside them."""
    with zipfile.ZipFile(folder / "images.zip", "w") as archive:
        for path in sorted((folder / "images").rglob("*")):
            archive.write(path, path.relative_to(folder / "images"))
    text = (folder / "annotations" / "instances.json").read_bytes()
    (folder / "annotations" / "instances.json.gz").write_bytes(gzip.compress(text, mtime=0))


def _draw_odd(folder: Path) -> None:
    """500 images and some 6,000 objects in two blocks of JSON (more than 8 MB), and two more files to join with them.

    They have ids of 2^62, repeated ids, boxes over the edge, images without size, turned and grey images, PNGs, missing
    and broken files.
    """
    rng = random.Random(5)
    images, annotations = [], []
    for i in range(500):
        width, height = rng.randrange(20, 160), rng.randrange(20, 120)
        name = f"ü {i}.jpg" if i % 50 == 0 else f"in/{i}.png" if i % 11 == 0 else f"{i}.jpg"
        image_id = i * 7919 + (1 << 62) * (i % 4 == 0)
        row = {"id": image_id, "file_name": name, "width": width, "height": height}
        if i % 13 == 0:
            del row["width"], row["height"]
        images.append(row)
        is_turned = i % 17 == 0 and name.endswith(".jpg")
        size = (height, width) if is_turned else (width, height)
        options = {"quality": 60, "exif": _turned()} if is_turned else {} if name.endswith(".png") else {"quality": 60}
        if i % 97 != 5:  # the others are missing
            _draw(folder / "images" / name, size, i, "L" if i % 9 == 0 else "RGB", **options)
        for _ in range(rng.choice([0, 0, 1, 2, 3, 8, 20, 60])):
            x, y = round(rng.uniform(-30, width - 1), rng.randrange(4)), round(rng.uniform(-30, height - 1), 2)
            box = [x, y, max(32.5, round(rng.uniform(1, 150), 2)), max(32.25, round(rng.uniform(1, 150), 1))]
            annotation_id = rng.choice([len(annotations), len(annotations) + (1 << 40)])
            polygon = [round(rng.uniform(0, 20), 2) for _ in range(200)]
            row = {"id": annotation_id, "image_id": image_id, "category_id": rng.choice(CATEGORIES)[0], "bbox": box}
            row |= {"iscrowd": int(rng.random() < 0.05), "segmentation": [polygon]}
            annotations.append(row | ({"area": rng.uniform(1, 9000)} if rng.random() < 0.8 else {}))
    (folder / "images" / "13.jpg").write_bytes(b"\xff\xd8\xff\xe0broken")

    def of(number: int) -> int:
        return images[number]["id"]

    bad = [
        {"id": 900000001, "image_id": of(5), "category_id": 4444, "bbox": [1, 1, 5, 5]},
        {"id": 900000002, "image_id": 123, "category_id": 1, "bbox": [1, 1, 5, 5]},
        {"id": 900000003, "image_id": of(6), "category_id": 1, "bbox": [9999, 1, 5, 5]},
        {"id": 900000004, "image_id": of(6), "category_id": 1, "bbox": [1, 1, 0, 5]},
        {"id": 900000005, "image_id": of(6), "category_id": 1, "bbox": [1, 1, -4, 5]},
        {"id": 900000006, "image_id": of(6), "category_id": 1, "bbox": [1, 1, "4", 5]},
        {"id": "7", "image_id": of(6), "category_id": 1, "bbox": [1, 1, 4, 5]},
        {"id": annotations[40]["id"], "image_id": annotations[40]["image_id"], "category_id": 1, "bbox": [1, 1, 5, 5]},
    ]
    annotations += bad
    rng.shuffle(annotations)
    repeated = {key: value for key, value in annotations[0].items() if key != "segmentation"}
    annotations.append(repeated)  # the same object in the first and in the last block
    images.append(dict(images[7]))
    images.append(images[8] | {"file_name": "other.jpg"})
    categories = [{"id": id_, "name": name, "supercategory": name[:1]} for id_, name in CATEGORIES]
    _write_json(folder / "instances.json", {"annotations": annotations, "images": images, "categories": categories})
    assert (folder / "instances.json").stat().st_size > 8 << 20
    _write_json(folder / "second.json", _second_file(images, annotations, categories))
    captions = [{"id": i, "image_id": of(i % 400), "caption": f"Caption {i} of ü"} for i in range(600)]
    _write_json(folder / "captions.json", {"images": images[:450], "annotations": captions})
    names = [row["file_name"] for row in images[:500:3]]
    (folder / "groups.csv").write_text("file_name,group\n" + "".join(f"{n},{i // 4}\n" for i, n in enumerate(names)))


def _second_file(images: list, annotations: list, categories: list) -> dict:
    """Keypoints of some objects of the first file, some of them with other boxes, and images that it lacks."""
    points = {**categories[0], "keypoints": ["head", "tail"], "skeleton": [[1, 2]]}
    rows = []
    for row in annotations[:300]:
        if row.get("category_id") == 1 and isinstance(row["id"], int):
            rows.append(row | {"keypoints": [3, 4, 2, 9, 9, 1], "num_keypoints": 2, "segmentation": []})
    rows.append({**rows[0], "id": 910000001, "keypoints": [1, 2]})
    more = [{"id": 77000000 + i, "file_name": f"more {i}.jpg", "width": 9, "height": 9} for i in range(2)]
    return {"images": images[:400] + more, "annotations": rows, "categories": [points]}


def _draw_shapes(folder: Path) -> None:
    """The ten legal forms of a segmentation, with iscrowd 0 and 1, and malformed ones; category id 0."""
    square, compressed = [10, 10, 30, 10, 30, 25, 10, 25], "QQ16e51"
    forms: list[object] = [
        [square], [square, [2, 2, 8, 2, 8, 8]], [[5, 5, 9, 9]], [],
        {"size": [40, 50], "counts": [0, 400, 1600]}, {"size": [40, 50], "counts": [100, 20, 1880]},
        {"size": [40, 50], "counts": compressed}, {"size": [41, 50], "counts": [2050]},
        [[1, 2, 3]], "polygon", [[1, None, 3, 4, 5, 6]],
    ]  # fmt: skip
    images, annotations = [], []
    for i in range(8):
        _draw(folder / "images" / f"{i}.png", (50, 40), i)
        images.append({"id": i, "file_name": f"{i}.png", "width": 50, "height": 40})
        for j, form in enumerate(forms):
            row = {"id": 100 * i + j, "image_id": i, "category_id": j % 2, "bbox": [5, 5, 30 + i, 20], "area": 300}
            annotations.append(row | {"iscrowd": i % 2, "segmentation": form})
    categories = [{"id": 0, "name": "zero"}, {"id": 1, "name": "one"}]
    _write_json(folder / "instances.json", {"images": images, "annotations": annotations, "categories": categories})
    for format_ in ("xyxy", "rel-xywh"):
        boxes = [
            {**row, "bbox": [5, 5, 35, 25] if format_ == "xyxy" else [0.1, 0.125, 0.6, 0.5]} for row in annotations
        ]
        _write_json(folder / f"{format_}.json", {"images": images, "annotations": boxes, "categories": categories})


def _draw_lvis(folder: Path) -> None:
    """LVIS's image rows: coco_url in place of file_name, lists of negative and not exhaustive categories."""
    images, annotations = [], []
    for i in range(30):
        _draw(folder / "images" / "train2017" / f"{i:012}.jpg", (30 + i, 40), i)
        url = f"http://images.cocodataset.org/train2017/{i:012}.jpg"
        row = {"id": i, "coco_url": url, "width": 30 + i, "height": 40}
        images.append(row | {"neg_category_ids": [i % 5, 7], "not_exhaustive_category_ids": [i % 3] * (i % 2)})
        row = {"id": i, "image_id": i, "category_id": 1 + i % 5, "bbox": [1, 1, 9, 9], "area": 81}
        annotations.append(row | {"segmentation": [[1, 1, 10, 1, 10, 10, 1, 10]]})
    categories = [{"id": i, "name": f"c{i}", "synset": f"c{i}.n.01", "frequency": "rcf"[i % 3]} for i in range(1, 9)]
    _write_json(folder / "lvis.json", {"images": images, "annotations": annotations, "categories": categories})


def _draw_many_rejects(folder: Path) -> None:
    """More than 2,500 rejects of several reasons."""
    images, annotations = [], []
    for i in range(1500):
        if i < 40:
            _draw(folder / "images" / f"{i}.png", (12, 10), i)
        name = f"../{i}.png" if i % 9 == 0 and i > 40 else f"{i}.png"
        images.append({"id": i, "file_name": name, "width": 12, "height": 10})
        for j in range(2):
            box = [1, 1, 5, 5] if i < 40 and j else [1, 1, -1, 5]
            annotations.append({"id": 2 * i + j, "image_id": i, "category_id": 1 + i % 3, "bbox": box})
    categories = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    _write_json(folder / "instances.json", {"images": images, "annotations": annotations, "categories": categories})


def _draw_classes(folder: Path) -> None:
    """Class folders: JPEG and PNG of all modes, WebP, 16 bits; turned, empty and broken files, duplicates."""
    for i in range(48):
        class_ = ("Cat", "big dog", "Öl", "10", "9")[i * i % 5]
        mode = ("RGB", "L", "RGBA", "LA")[i % 4]
        ending = "png" if len(mode) != 3 and mode != "L" else ("jpg", "JPEG", "png", "webp")[i % 7 % 4]
        _draw(folder / "images" / class_ / f"{i % 24 // 2} {i}.{ending}", (16 + i, 70 - i), i, mode)
    _draw(folder / "images" / "Cat" / "turned.jpg", (30, 20), 3, exif=_turned())
    for i in range(3):
        _draw(folder / "images" / "9" / "in" / f"same {i}.png", (20, 20), 7)
    Image.new("I;16", (9, 9), 40000).save(folder / "images" / "Cat" / "sixteen.png")
    (folder / "images" / "Cat" / "empty.jpg").write_bytes(b"")
    (folder / "images" / "Cat" / "cut.jpg").write_bytes((folder / "images" / "Cat" / "turned.jpg").read_bytes()[:200])
    (folder / "images" / "Cat" / "notes.txt").write_text("not an image")
    names = sorted(path.relative_to(folder / "images").as_posix() for path in (folder / "images").rglob("*.*"))
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "label", "split"])
        rows.writerows([name, "ab"[i % 2], "train" if i % 3 else "val"] for i, name in enumerate(names))
        rows.writerow(["absent.jpg", "a", "train"])


def _write_tables(folder: Path) -> None:
    """CSV with quotes, missing values, lists and malformed rows; JSON Lines with nested values; Parquet."""
    import pyarrow
    from pyarrow import parquet

    folder.mkdir()
    rng = random.Random(3)
    with (folder / "rows.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["key", "whole", "part", "text", "flag", "class", "split", "list"])
        for i in range(700):
            text = f'say "{i}", ü\nnext' if i % 50 == 0 else f"the {rng.choice(['red', 'blue'])} word {i % 7}"
            split = "train" if i % 5 else "val"
            values = [f"k{i}", i - 300, rng.uniform(-5, 5), text, i % 2 == 0, f"c{i % 4}", split]
            rows.writerow([*values, f"[{i}, {i + 1}]"] if i % 71 else ["k", ""])
    with (folder / "rows.jsonl").open("w", encoding="utf-8") as file:
        for i in range(300):
            row = {
                "id": i,
                "name": f"n{i % 3}",
                "values": [i / 4] * (i % 4),
                "in": {"x": i, "y": None if i % 5 else "t"},
            }
            file.write(json.dumps(row if i % 6 else {"id": i, "name": "n0"}, ensure_ascii=False) + "\n")
        file.write("{broken\n")
    numbers = list(range(400))
    columns = {
        "small": pyarrow.array([n % 100 for n in numbers], pyarrow.int8()),
        "wide": pyarrow.array([n * 10**10 for n in numbers], pyarrow.int64()),
        "half": pyarrow.array([n / 8 for n in numbers], pyarrow.float32()),
        "text": pyarrow.array([f"t{n % 9}" if n % 7 else None for n in numbers]),
        "bytes": pyarrow.array([bytes([n % 256]) for n in numbers], pyarrow.binary()),
        "list": pyarrow.array([[n, n + 1][: n % 3] for n in numbers], pyarrow.list_(pyarrow.int32())),
        "when": pyarrow.array(numbers, pyarrow.timestamp("ms")),
        "class": pyarrow.array([f"c{n % 3}" for n in numbers]).dictionary_encode(),
    }
    parquet.write_table(pyarrow.table(columns), folder / "rows.parquet", row_group_size=150)
