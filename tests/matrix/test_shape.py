"""Drawn data sets with drawn options that shape them become the records that a few lines of NumPy make of them."""

import contextlib
import io
import math
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
import yaml
from PIL import Image

from recordmill.beam import JoinDatasets, LimitImages, MapClasses, ReadDataset, Tile, WriteDataset
from recordmill.launch.cli import main
from tests.conftest import leave_pages_empty, manifest_of
from tests.engines.command import Command
from tests.engines.output import files_of
from tests.matrix.drawn_shapes import (
    BOX_FORMATS,
    STUFF,
    DrawnSet,
    Picture,
    draw_class_map,
    draw_picture,
    draw_set,
    join_classes,
    keep_things,
    map_classes,
    mapped,
    tiles_of,
    write_set,
)
from tests.matrix.drawn_shapes import (
    Tile as TrueTile,
)
from tests.matrix.generated_sets import HEIGHT, WIDTH

SEEDS = range(6)
READ = ("data", "format", "images", "instances", "keypoints", "captions", "panoptic", "panoptic_masks", "split")
"""Options of a set that `ReadDataset` gets."""
_FAULT = re.compile("Traceback|please report")


@pytest.mark.parametrize("seed", SEEDS)
def test_drawn_job(seed, tmp_path, monkeypatch):
    leave_pages_empty(monkeypatch)
    check_job(seed, tmp_path)


class DrawnJob:
    """Data sets, and options of the job."""

    def __init__(self, seed: int, folder: Path):
        draw = self.draw = random.Random(seed)
        self.folder = folder
        number = draw.choice((1, 2, 2, 3))
        kinds = [draw.choice(("coco", "coco", *BOX_FORMATS)) for _ in range(number)]
        sets: list[DrawnSet] = []
        for at, kind in enumerate(kinds):
            earlier = [picture for one in sets for picture in one.pictures]
            one = draw_set(draw, f"set{at}" if draw.random() < 0.8 else f"n ä{at}", kind, earlier)
            if draw.random() < (0.3 if number > 1 else 0.6):
                one = one._replace(class_map=draw_class_map(draw, one.classes, STUFF))
            if draw.random() < 0.25:
                names = [n for n in map_classes(one.classes, one.class_map, ()) if n not in STUFF and n != "ground"]
                if names and not one.read["has_map"]:
                    one = one._replace(categories=tuple(draw.sample(names, draw.randint(1, len(names)))))
            if draw.random() < 0.25:
                one = one._replace(exclude=(one.name_of(draw.choice(one.pictures)),))
            if draw.random() < 0.3 and not one.names_splits and number > 1:
                one = one._replace(split=draw.choice(("val", "train", "train=0.5,val=0.5")))
            if draw.random() < 0.2 and number > 1:
                one = one._replace(limit=draw.randint(1, 5))
            sets.append(one)
        self.sets = sets
        self.is_joined = number > 1
        self.class_map: dict[str, str] = {}
        self.categories: tuple[str, ...] = ()
        self.exclude: tuple[str, ...] = ()
        self.has_masks = draw.random() < 0.6 and all(k in ("coco", "yolo", "labelme", "voc", "cvat") for k in kinds)
        classes = join_classes([map_classes(s.classes, s.class_map, s.categories) for s in sets])
        has_map = any(one.read["has_map"] for one in sets)
        if self.is_joined and draw.random() < 0.4:
            self.class_map = draw_class_map(draw, classes, (*STUFF, "ground"))
        if self.is_joined and draw.random() < 0.2 and not has_map:
            names = [*map_classes(classes, self.class_map, ())]
            if names:
                self.categories = tuple(draw.sample(names, draw.randint(1, len(names))))
        self.classes = map_classes(classes, self.class_map, self.categories)
        if self.is_joined and draw.random() < 0.3:
            one = draw.choice(sets)
            self.exclude = (f"{one.name}/{one.name_of(draw.choice(one.pictures))}",)
        self.tile = draw.choice((0, 0, 7, 16, 33, 200))
        self.overlap, self.least = draw.choice((0, 0.2, 0.5)), draw.choice((0, 0.3, 0.3, 1))
        self.keep_empty = draw.choice((0, 0.3, 1))
        self.limit = draw.choice((0, 0, 0, 2, 5))
        self.per_class = draw.choice((0, 0, 0, 1, 3))
        self.drops_copies = draw.random() < 0.3
        self.container = draw.choice(("tfrecord", "tfrecord", "parquet", "webdataset", "arrayrecord"))
        self.layout = draw.choice(("detection", "detection", "tfds"))
        if self.layout == "tfds" and self.container not in ("tfrecord", "arrayrecord"):
            self.layout = "detection"
        self.split = draw.choice(("", "", "train=0.6,val=0.4", "test"))
        # Tars have no empty shards.
        self.more: dict[str, Any] = {"num_shards": 1 if self.container == "webdataset" else draw.randint(1, 3)}
        if self.container in ("tfrecord",) and draw.random() < 0.3:
            self.more["gzip"] = True
        if draw.random() < 0.2 and "," in self.split:
            self.more |= draw.choice(({"stratify": True}, {"split_by": "rank"}, {"group_from": "^(.)"}))
        if draw.random() < 0.2 and "yolo" not in kinds:
            self.more["fields"] = ["all"]

    def write(self) -> list[str]:
        """Write the data sets and a file of options. Return flags of `convert`."""
        options: dict[str, Any] = {**self.more, "max_rejects": 0.9, "layout": self.layout, "allow_empty": True}
        sets = []
        for one in self.sets:
            read = write_set(self.folder / one.name, one)
            own: dict[str, Any] = read | ({"name": one.name} if self.is_joined else {})
            if one.class_map:
                own["class_map"] = self._file(f"{one.name}.csv", _csv(one.class_map))
            if one.categories:
                own["categories"] = [*one.categories]
            if one.exclude:
                lines = "".join(n + "\n" for n in one.exclude)
                own["exclude"] = [self._file(f"{one.name}.txt", lines)]
            if one.split:
                own["split"] = one.split
            if one.limit:
                own["limit"] = one.limit
            sets.append(own)
        if self.is_joined:
            options["sets"] = sets
        else:
            options |= sets[0]
        if self.class_map:
            options["class_map"] = self._file("job.csv", _csv(self.class_map))
        if self.categories:
            options["categories"] = [*self.categories]
        if self.exclude:
            lines = "".join(n + "\n" for n in self.exclude)
            options["exclude"] = [self._file("job.txt", lines)]
        if self.tile:
            options |= {"tile": self.tile, "tile_overlap": self.overlap, "tile_min_visible": self.least}
            options["keep_empty"] = self.keep_empty
        options |= {"masks": "rle" if self.container != "tfrecord" else "both"} if self.has_masks else {}
        options |= {"limit": self.limit} if self.limit else {}
        options |= {"max_per_class": self.per_class} if self.per_class else {}
        options |= {"duplicates": "drop"} if self.drops_copies else {}
        if self.split and not all(one.names_splits or one.split for one in self.sets):
            options["split"] = self.split
        if "split" not in options:
            for name in ("stratify", "split_by", "group_from"):
                options.pop(name, None)
        options["progress"] = "none"
        self.options = options
        return ["convert", "--config", self._file("job.yaml", yaml.safe_dump(options, allow_unicode=True))]

    def _file(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def pictures(self) -> dict[str, Picture]:
        """Return what records may have, before limits, by name."""
        result: dict[str, Picture] = {}
        for one in self.sets:
            for picture in one.pictures:
                name = one.name_of(picture)
                if name in one.exclude:
                    continue
                name = f"{one.name}/{name}" if self.is_joined else name
                if name in self.exclude:
                    continue
                own = keep_things(picture, one.class_map, one.categories)
                own = keep_things(own, self.class_map, self.categories) if self.is_joined else own
                result[name] = own._replace(name=name)
        return result


def _csv(class_map: Mapping[str, str]) -> str:
    return "from,to\n" + "".join(f'"{old}","{new}"\n' for old, new in class_map.items())


def run(*arguments: object) -> tuple[int, str]:
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        code = main([str(argument) for argument in arguments])
    return code, text.getvalue()


def check_job(seed: int, folder: Path) -> str:
    """Convert, read the records back by TensorFlow, and compare. Return how the job ended."""
    job = DrawnJob(seed, folder)
    flags = job.write()
    out = folder / "out"
    code, text = run(*flags, "-o", out)
    if code:
        assert not _FAULT.search(text), text
        return text
    summary = text
    check_records(job, out)
    check_manifest(out)
    code, text = run("verify", out, "--check", "decode")
    assert code == 0, text
    check_plan(flags, folder, summary)
    check_containers(job, flags, folder)
    return ""


def read_records(folder: Path) -> dict[str, list[dict[str, list]]]:
    """Return the records of each split, as TensorFlow parses them, in order."""
    import tensorflow as tf

    records = {}
    for split in manifest_of(folder)["splits"]:
        records[split] = []
        for path in sorted(folder.glob(f"*-{split}.tfrecord-*")):
            if path.name.endswith(".idx"):
                continue
            compression = "GZIP" if path.suffix == ".gz" else ""
            for record in tf.data.TFRecordDataset(str(path), compression).as_numpy_iterator():
                features = tf.train.Example.FromString(record).features.feature
                values = {
                    n: list(getattr(f, f.WhichOneof("kind")).value) for n, f in features.items() if f.WhichOneof("kind")
                }
                records[split].append(defaultdict(list, values))
    return records


def check_records(job: DrawnJob, out: Path) -> None:
    expected = job.pictures()
    manifest = manifest_of(out)
    records = read_records(out)
    has_tiles = bool(job.tile)
    sources: dict[str, str] = {}
    by_name = {}
    ids, object_ids = set(), set()
    for split, of_split in records.items():
        order = []
        for record in of_split:
            name = record["image/filename"][0].decode()
            source = record["image/tile/file_name"][0].decode() if has_tiles else name
            assert name not in by_name
            by_name[name] = record
            assert sources.setdefault(source, split) == split
            order.append(source)
            key = record["image/source_id"] or record["image/id"]
            assert str(key) not in ids
            ids.add(str(key))
            own_ids = record["image/object/id"] or record["objects/id"]
            assert not object_ids.intersection(own_ids)
            assert len(set(own_ids)) == len(own_ids)
            object_ids.update(own_ids)
        neighbours = [source for at, source in enumerate(order) if at == 0 or order[at - 1] != source]
        assert len(neighbours) == len(set(neighbours)), neighbours
    classes = {category["name"]: category["id"] for category in manifest["categories"]}
    classes |= {category["name"]: category["id"] for category in manifest["segments"]}
    assert classes == job.classes, (classes, job.classes)
    _check_chosen(job, expected, sources)
    for source in sources:
        picture = expected[source]
        if not has_tiles:
            crop = TrueTile(source, 0, 0, picture.pixels, picture.things, (), picture.segments, False)
            _check_record(job, by_name[source], crop, picture)
        else:
            tiles = tiles_of(picture, job.tile, job.overlap, job.least, job.has_masks)
            names = [name for name, record in by_name.items() if record["image/tile/file_name"][0].decode() == source]
            assert set(names) <= {tile.name for tile in tiles}
            for tile in tiles:
                is_labelled = not tile.is_empty or (picture.captions and not job.classes)
                if job.keep_empty == 1 or is_labelled:
                    assert tile.name in names, (tile.name, names)
                if not is_labelled and not job.keep_empty:
                    assert tile.name not in names
                if tile.name in names:
                    _check_record(job, by_name[tile.name], tile, picture)


def _check_chosen(job: DrawnJob, expected: Mapping[str, Picture], sources: Mapping[str, str]) -> None:
    """Check which images are written, and their splits."""
    assert sources.keys() <= expected.keys()
    splits = set(sources.values())
    sets = {one.name: one for one in job.sets}
    for source, split in sources.items():
        one = sets[source.split("/")[0]] if job.is_joined else job.sets[0]
        (picture,) = [p for p in one.pictures if source in (one.name_of(p), f"{one.name}/{one.name_of(p)}")]
        if one.split and "," not in one.split:
            assert split == one.split
        elif one.split:
            assert split in ("train", "val")
        elif picture.split:
            assert split == picture.split
        elif "split" not in job.options:
            assert split == "train"
        else:
            assert split in (("train", "val") if "," in job.split else ("test",))
    if job.limit:
        assert max(Counter(sources.values()).values()) <= job.limit
    contents = Counter(expected[source].data for source in sources)
    if job.drops_copies:
        assert max(contents.values()) == 1
    can_skip = job.limit or job.per_class or any(one.limit for one in job.sets)
    tiles_drop = job.tile and job.keep_empty < 1
    if not can_skip and not job.drops_copies and not tiles_drop:
        assert sources.keys() == expected.keys()
    if not can_skip and job.drops_copies and not tiles_drop:
        assert contents.keys() == {picture.data for picture in expected.values()}
    if not can_skip and tiles_drop and not job.drops_copies:
        for name in expected.keys() - sources.keys():
            tiles = tiles_of(expected[name], job.tile, job.overlap, job.least, job.has_masks)
            assert all(tile.is_empty for tile in tiles), name
    if (
        job.per_class
        and not tiles_drop
        and not job.limit
        and not any(one.limit for one in job.sets)
        and not job.drops_copies
    ) and len(splits) == 1:
        numbers = Counter(t.label for s in sources for t in expected[s].things)
        for name in expected.keys() - sources.keys():
            assert expected[name].things
            assert all(numbers[t.label] >= job.per_class for t in expected[name].things)


def _check_record(job: DrawnJob, record: Mapping[str, list], tile: TrueTile, picture: Picture) -> None:
    is_tfds = job.layout == "tfds"
    height, width = tile.pixels.shape[:2]
    data = (record["image"] if is_tfds else record["image/encoded"])[0]
    image = Image.open(io.BytesIO(data))
    pixels = np.asarray(image)
    assert pixels.shape[:2] == (height, width)
    np.testing.assert_array_equal(pixels, tile.pixels)
    if job.tile:
        assert (record["image/tile/x"], record["image/tile/y"]) == ([tile.x], [tile.y])
    if is_tfds:
        boxes = np.array(record["objects/bbox"]).reshape(-1, 4)[:, [1, 0, 3, 2]]
        by_id = {v: k for k, v in job.classes.items()}
        labels = [by_id[i] for i in record["objects/category_id"]]
        areas = record["objects/area"]
    else:
        edges = [record[f"image/object/bbox/{edge}"] for edge in ("xmin", "ymin", "xmax", "ymax")]
        boxes = np.array(edges).T.reshape(-1, 4)
        labels = [text.decode() for text in record["image/object/class/text"]]
        areas = record["image/object/area"]
    boxes = boxes * [width, height, width, height]
    boxes[:, 2:] -= boxes[:, :2]
    read = sorted(zip(labels, boxes.round(3).tolist(), range(len(labels)), strict=True))
    things = sorted(zip(tile.things, range(len(tile.things)), strict=True), key=lambda t: (t[0].label, t[0].box, t[1]))
    assert [label for label, *_ in read] == [thing.label for thing, _ in things]
    for (_, box, row), (thing, at) in zip(read, things, strict=True):
        np.testing.assert_allclose(box, thing.box, atol=2e-3)
        if tile.area:
            area = math.floor(tile.area[at]) if is_tfds else tile.area[at]
            np.testing.assert_allclose(areas[row], area, rtol=1e-5, atol=1 if is_tfds else 0)
    # Objects of one class and box differ in their masks: these are compared without their order.
    if job.has_masks and not is_tfds and record["image/object/mask"]:
        read_masks = Counter(_mask(m).tobytes() for m in record["image/object/mask"])
        none = np.zeros((height, width), bool)
        true = Counter((none if t.mask is None else t.mask).astype(np.uint8).tobytes() for t in tile.things)
        assert read_masks == true
        from pycocotools import mask as coco

        runs = [{"counts": c, "size": [height, width]} for c in record["image/object/mask/rle"]]
        assert Counter(np.ascontiguousarray(coco.decode(one)).tobytes() for one in runs) == true
    if not is_tfds and record["image/object/keypoint/x"]:
        found = np.stack(
            [
                np.array(record["image/object/keypoint/x"]) * width,
                np.array(record["image/object/keypoint/y"]) * height,
                record["image/object/keypoint/visibility"],
            ],
            1,
        )
        found = found.reshape(len(labels), -1).round(2)
        truth = [np.array(t.points or [(0, 0, 0)] * 2).ravel() for t in tile.things]
        assert Counter(tuple(row + 0.0) for row in found) == Counter(tuple(row + 0.0) for row in truth)
    if not is_tfds:
        assert [c.decode() for c in record["image/caption"]] == [*picture.captions]
    if not is_tfds and record["image/panoptic/category_mask"]:
        semantic = _mask(record["image/panoptic/category_mask"][0])
        true = np.zeros((height, width), np.uint8)
        for label, area in tile.segments:
            true[area] = job.classes[label]
        np.testing.assert_array_equal(semantic, true)


def _mask(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)))


def check_manifest(out: Path) -> None:
    for name, split in manifest_of(out)["splits"].items():
        images, annotations = defaultdict(int, split["images"]), defaultdict(int, split["annotations"])
        rest = (
            "written",
            "without_record",
            "without_tile",
            "of_other_classes",
            "over_limit",
            "over_class_limit",
            "removed",
        )
        assert images["rows"] == sum(images[key] for key in rest) + sum(images["rejected"].values()), (
            name,
            split["images"],
        )
        kept = (
            sum(annotations[k] for k in ("objects", "captions", "stuff", "panoptic", "joined"))
            - annotations["tile_copies"]
        )
        left = sum(annotations["rejected"].values()) + sum(annotations["filtered"].values())
        left += sum(annotations[k] for k in ("of_rejected_images", "of_limited_images", "removed", "in_no_tile"))
        assert annotations["rows"] == kept + left, (name, split["annotations"])
        assert (images["tiles"] or images["written"]) == sum(shard["examples"] for shard in split["shards"])


def check_plan(flags: list[str], folder: Path, summary: str) -> None:
    """The numbers of a dry run are those of the summary."""
    code, plan = run(*flags, "-o", folder / "planned", "--dry-run")
    assert code == 0, plan
    assert plan_lines(plan) == plan_lines(summary)


def plan_lines(text: str) -> list[str]:
    lines = []
    for line in text.splitlines():
        words = line.split()
        if (
            line.startswith("  ")
            and words
            and (words[0] in ("images", "rows", "tiles", "annotations", "classes", "class"))
        ):
            lines.append(line)
    return lines


def check_containers(job: DrawnJob, flags: list[str], folder: Path) -> None:
    """Another number of workers writes the same bytes; another container, and back, has the same records."""
    if job.container == "tfrecord":
        return
    there, back = folder / "there", folder / "back"
    gzip = ["--gzip"] if job.options.get("gzip") else []
    for arguments in (
        ("repack", folder / "out", there, "--container", job.container),
        ("repack", there, back, "--container", "tfrecord", *gzip),
    ):
        code, text = run(*arguments, "--progress", "none")
        assert code == 0, text
    assert shards(back) == shards(folder / "out")


def shards(folder: Path) -> dict[str, str]:
    return {name: digest for name, digest in files_of(folder).items() if ".tfrecord-" in name}


@pytest.mark.parametrize("seed", range(3))
def test_drawn_classes(seed, tmp_path, monkeypatch):
    leave_pages_empty(monkeypatch)
    check_classes(seed, tmp_path)


def check_classes(seed: int, folder: Path) -> str:
    """Images of a class each, in folders or in a table."""
    draw = random.Random(seed)
    is_table, number = draw.random() < 0.5, draw.choice((1, 2))
    number = 1 if is_table else number
    # Order of ids: that of names.
    names = draw.sample(("cat", "dög", "a b", "007", "Cat"), draw.randint(2, 4))
    truth: dict[str, tuple[str, bytes, str]] = {}
    options: dict[str, Any] = {"max_rejects": 0.9, "progress": "none", "num_shards": draw.randint(1, 2)}
    sets = []
    for at in range(number):
        root, rows = folder / f"set{at}", ["id,file,kind,part"]
        used = [draw.choice(names) for _ in range(draw.randint(6, 20))] + names
        for count, name in enumerate(used):
            picture = draw_picture(draw, "", (WIDTH, HEIGHT))
            path = f"{name}/{count}.png"
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(picture.data)
            rows.append(f"{count},{path},{name},p{count % 5}")
            truth[f"set{at}/{path}" if number > 1 else path] = name, picture.data, f"p{count % 5}"
        (folder / "rows.csv").write_text("\n".join(rows) + "\n")
        sets.append({"data": str(root), "format": "folder"})
    class_map = draw_class_map(draw, dict.fromkeys(names, 0), ()) if draw.random() < 0.6 else {}
    if is_table:
        options |= {"format": "table", "data": str(folder / "rows.csv"), "images": [str(folder / "set0")]}
        options |= {"image_column": "file", "label": "kind", "key": "id"}
    else:
        options |= {"sets": sets} if number > 1 else sets[0]
    if class_map:
        (folder / "m.csv").write_text(_csv(class_map))
        options["class_map"] = str(folder / "m.csv")
    new = {name: mapped(class_map, name) for name in names}
    classes = [*dict.fromkeys(name for old in sorted(names) if (name := new[old]))]
    if classes and not is_table and draw.random() < 0.4:
        classes = draw.sample(classes, draw.randint(1, len(classes)))
        options["classes"] = classes
    split = draw.choice(("", "train=0.5,val=0.5", "train=0.6,val=0.2,test=0.2"))
    options |= {"split": split} if split else {}
    limit, per_class = draw.choice((0, 0, 3, 8)), draw.choice((0, 0, 2, 4))
    options |= {"limit": limit} if limit else {}
    options |= {"max_per_class": per_class} if per_class else {}
    how = draw.choice(("", "", "stratify", "rank", "groups")) if split else ""
    grouped = how == "groups"
    options |= {"stratify": {"stratify": True}, "rank": {"split_by": "rank"}}.get(how, {})
    if grouped:
        options |= {"group_column": "part"} if is_table else {"group_from": r"([0-9])\.png"}
    tile = draw.choice((0, 16)) if not is_table else 0
    options |= {"tile": tile} if tile else {}
    (folder / "job.yaml").write_text(yaml.safe_dump(options, allow_unicode=True))
    flags = ["convert", "--config", folder / "job.yaml"]
    code, text = run(*flags, "-o", folder / "out")
    if code:
        assert not _FAULT.search(text), text
        return text
    manifest = manifest_of(folder / "out")
    assert [category["name"] for category in manifest["categories"]] == classes
    expected = {name: new[old] for name, (old, *_) in truth.items() if new[old] in classes}
    written, groups = {}, defaultdict(set)
    for name, records in read_records(folder / "out").items():
        images = Counter()
        for record in records:
            source = (record["image/tile/file_name"] or record["image/filename"])[0].decode()
            images[source] += 1
            label = record["kind"] if is_table else record["image/class/label"]
            assert classes[label[0]] == expected[source], source
            assert written.setdefault(source, name) == name
            key = truth[source][2] if is_table else source[-5]
            groups[key if number == 1 else (source[:4], key)].add(name)
        assert set(images.values()) <= {6 if tile else 1}
        assert not limit or len(images) <= limit
        numbers = Counter(expected[source] for source in images)
        assert not per_class or max(numbers.values(), default=0) <= per_class
    if not (limit or per_class):
        assert written.keys() == expected.keys()
    if per_class and not limit and not split:
        numbers = Counter(expected[source] for source in written)
        assert numbers == {n: min(per_class, c) for n, c in Counter(expected.values()).items()}
    if limit and not per_class and not split:
        assert len(written) == min(limit, len(expected))
    if grouped:
        assert all(len(of) == 1 for of in groups.values()), groups
    if how == "rank" and number == 1 and not (limit or per_class):
        shares = [float(part.split("=")[1]) for part in split.split(",")]
        counts = Counter(written.values())
        for part, share in zip(split.split(","), shares, strict=True):
            assert abs(counts[part.split("=")[0]] - share * len(expected)) <= 1
    if how == "stratify" and number == 1 and not (limit or per_class):
        for name in classes:
            of_class = Counter(written[source] for source, label in expected.items() if label == name)
            for part in split.split(","):
                split_name, share = part.split("=")
                assert abs(of_class[split_name] - float(share) * sum(of_class.values())) <= 1.5
    check_manifest(folder / "out")
    code, verified = run("verify", folder / "out", "--check", "decode")
    assert code == 0, verified
    check_plan(flags, folder, text)
    return ""


ENGINES = {
    "workers": ["--workers", "1"],
    "processes": ["--", "--direct_running_mode=multi_processing", "--direct_num_workers=2"],
}


@pytest.mark.parametrize("seed", range(1))
def test_each_way_to_run_writes_same_bytes(seed, tmp_path):
    check_ways(seed, tmp_path)


def check_ways(seed: int, folder: Path) -> str:
    """Other workers, two processes, and a job that was killed and resumed write the same bytes."""
    job = DrawnJob(seed, folder)
    job.more["num_shards"] = 3
    flags = job.write()
    code, text = run(*flags, "-o", folder / "out")
    if code:
        return text
    whole = _all_but_page(folder / "out")
    for name, more in ENGINES.items():
        ended = Command([*flags[:1], "-o", folder / name, *flags[1:], *more], folder / f"log {name}").end()
        assert ended.code == 0, ended
        assert _all_but_page(folder / name) == whole, name
    killed = Command([*flags, "-o", folder / "killed"], folder / "log killed")
    while killed.code is None and not [*(folder / "killed").glob(".recordmill-*/*.tfrec*")]:
        time.sleep(0.002)
    killed.process.kill()
    killed.end()
    code, text = run(*flags, "-o", folder / "killed")
    assert code == 0, text
    assert _all_but_page(folder / "killed") == whole
    return "" if killed.code else "was not killed"


def _all_but_page(folder: Path) -> dict[str, str]:
    return {name: digest for name, digest in files_of(folder).items() if name != "report.html"}


@pytest.mark.parametrize("seed", range(2))
def test_samples_become_same_records(seed, tmp_path, monkeypatch):
    leave_pages_empty(monkeypatch)
    check_samples(seed, tmp_path)


def check_samples(seed: int, folder: Path) -> str:
    """A pipeline of the transforms of `recordmill.beam` writes the records that the command writes."""
    job = DrawnJob(seed, folder)
    job.sets = [one._replace(categories=(), exclude=(), limit=0) for one in job.sets]
    job.categories, job.exclude, job.drops_copies, job.split = (), (), False, ""
    job.more.pop("fields", None)  # Samples of XML have texts
    known = join_classes([map_classes(one.classes, one.class_map, ()) for one in job.sets])
    job.class_map = {old: new for old, new in job.class_map.items() if old in known or old == "*"}
    if not (job.class_map or job.limit or job.per_class or job.tile):
        job.tile, job.limit = 16, 5
    flags = job.write()
    code, text = run(*flags, "-o", folder / "out")
    if code:
        return text
    shared = {"masks": job.options["masks"]} if job.has_masks else {}
    shared |= {"allow_empty": True} if any(one.class_map for one in job.sets) or job.class_map else {}
    with beam.Pipeline() as p:
        sets = {}
        for one, own in zip(job.sets, job.options.get("sets", [job.options]), strict=True):
            read = {name: own[name] for name in READ if name in own}
            samples = p | f"Read {one.name}" >> ReadDataset(**read | shared)
            if own.get("class_map"):
                samples |= f"Map {one.name}" >> MapClasses(own["class_map"])
            sets[one.name] = samples
        samples = sets | JoinDatasets() if job.is_joined else sets[one.name]
        if job.class_map:
            samples |= MapClasses({old: new or None for old, new in job.class_map.items()})
        if job.limit or job.per_class:
            samples |= LimitImages(job.limit or None, job.per_class or None)
        if job.tile:
            samples |= Tile(job.tile, job.overlap, job.least, job.keep_empty)
        written = {name: job.options[name] for name in ("num_shards", "gzip", "layout") if name in job.options}
        samples | WriteDataset(str(folder / "beam"), max_rejects=0.9, **written)
    check_manifest(folder / "beam")
    expected, found = read_records(folder / "out"), read_records(folder / "beam")
    assert expected.keys() == found.keys()
    for split, records in expected.items():
        assert [r["image/filename"] for r in found[split]] == [r["image/filename"] for r in records]
        assert found[split] == records
    return ""
