"""`recordmill imagefolder` from end to end."""

import json
import shutil
from collections import Counter, defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import (
    SHARED_DATA,
    draw_jpeg,
    manifest_of,
    read_examples,
    rejects_of,
    shard_bytes,
)
from tests.jobs.folders import write_table

REAL = SHARED_DATA / "formats"
needs_real_data = pytest.mark.skipif(not REAL.exists(), reason="the real data sets are not on this machine")
OBJECTS = {"bbox": [[5, 5, 10, 10], [0, 0, 20, 10]], "category": [1, 0], "area": [90, 200]}


def row_of(name: str, **more) -> dict:
    return {"file_name": name, "objects": OBJECTS, "text": f"picture {name}"} | more


def write_rows(path: Path, rows: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.fixture
def folder(tmp_path) -> Path:
    """Three images of 40x30 in train, one in validation, each with two objects and a caption."""
    data = tmp_path / "data"
    for name in ("train/1.jpg", "train/deep/2.jpg", "train/3.jpg", "validation/4.jpg"):
        draw_jpeg(data / name)
    write_rows(data / "train/metadata.jsonl", [row_of("1.jpg"), row_of("deep/2.jpg"), row_of("3.jpg", source="web")])
    write_rows(data / "validation/metadata.jsonl", [row_of("4.jpg")])
    return tmp_path


def flags(folder: Path, *more: object, data: str = "data", out: str = "out") -> list[object]:
    names = () if "--class-names" in more else ("--class-names", "cat,dog")
    return ["imagefolder", "--data", folder / data, "--output", folder / out, "--max-rejects", 0.5, *names, *more]


def converted(folder: Path, split: str = "train", out: str = "out") -> dict[str, dict[str, list]]:
    return {example["image/filename"][0].decode(): example for example in read_examples(folder / out, split)}


def test_all_splits_in_one_run(folder, recordmill):
    done = recordmill(*flags(folder))
    assert done.code == 0, done
    train = converted(folder)
    assert sorted(train) == ["train/1.jpg", "train/3.jpg", "train/deep/2.jpg"]
    first = train["train/1.jpg"]
    assert first["image/object/bbox/xmin"] == [0.125, 0]
    assert first["image/object/bbox/ymax"] == pytest.approx([0.5, 1 / 3])
    assert (first["image/object/class/text"], first["image/object/area"]) == ([b"dog", b"cat"], [90, 200])
    assert first["image/caption"] == [b"picture 1.jpg"]
    assert [*converted(folder, "val")] == ["validation/4.jpg"]
    assert "source" in done.out + done.err
    (rows,) = manifest_of(folder / "out")["splits"]["train"]["inputs"]
    assert (rows["images"], rows["annotations"]) == (3, 9)


def test_other_places_give_the_same_images(folder, recordmill):
    """A .zip, a .zip for each split, a metadata file above the splits, and one in another folder than the images."""
    data = folder / "data"
    shutil.make_archive(str(folder / "whole"), "zip", data)
    for split in ("train", "validation"):
        shutil.make_archive(str(folder / "zips" / split), "zip", data / split)
    shutil.copytree(data, folder / "above")
    rows = []
    for split in ("train", "validation"):
        path = folder / "above" / split / "metadata.jsonl"
        rows += [json.loads(line) | {"split": split} for line in path.read_text().splitlines()]
        path.unlink()
    for row in rows:
        row["file_name"] = f"{row.pop('split')}/{row['file_name']}"
    write_rows(folder / "above" / "metadata.jsonl", rows)
    shutil.copytree(data, folder / "apart" / "images")
    write_rows(folder / "apart" / "labels.jsonl", [row for row in rows if row["file_name"].startswith("train")])
    assert recordmill(*flags(folder)).code == 0
    places = {"whole": "whole.zip", "zips": "zips", "above": "above"}
    for out, path in places.items():
        assert recordmill(*flags(folder, data=path, out=f"out-{out}")).code == 0
        assert shard_bytes(folder / f"out-{out}") == shard_bytes(folder / "out")
    images = "--images", folder / "apart" / "images"
    assert recordmill(*flags(folder, *images, data="apart/labels.jsonl", out="out-apart")).code == 0
    assert converted(folder, out="out-apart") == converted(folder)


def test_rejects_with_file_and_line(folder, recordmill):
    odd = [
        row_of("1.jpg"),
        row_of("1.jpg", objects={"bbox": [[1, 1, 5, 5]], "category": [0]}, text="again"),
        row_of("deep/2.jpg", objects=OBJECTS | {"category": [1, 7]}),
        row_of("../validation/4.jpg"),
        row_of("missing.jpg"),
        {"text": "no name"},
    ]
    path = write_rows(folder / "data/train/metadata.jsonl", odd)
    path.write_text(path.read_text() + "{broken\n")
    done = recordmill(*flags(folder, "--max-rejects", 1))
    assert done.code == 0, done
    reasons = Counter(reject["reason"] for reject in rejects_of(folder / "out"))
    assert reasons == {"unknown_category": 1, "unsafe_file_name": 1, "image_missing": 1, "malformed_image": 2}
    details = " ".join(reject["detail"] for reject in rejects_of(folder / "out"))
    assert all(f"line {number}" in details for number in (3, 6, 7))
    found = converted(folder)
    assert {name: len(example["image/object/id"]) for name, example in found.items()} == {
        "train/1.jpg": 3,
        "train/deep/2.jpg": 1,
    }
    assert found["train/1.jpg"]["image/caption"] == [b"picture 1.jpg", b"again"]
    assert "1 in" in done.out  # train/3.jpg, which no row names


@pytest.mark.parametrize(
    ("objects", "cure"),
    [
        ({"bbox": [[10, 10, 30, 25], [20, 15, 38, 29]], "category": [0, 0]}, "--bbox-format xyxy"),
        ({"bbox": [[0.5, 0.5, 0.9, 0.9], [0.2, 0.3, 0.3, 0.9]], "category": [0, 0]}, "--bbox-format rel-xyxy"),
    ],
)
def test_boxes_of_another_convention(objects, cure, folder, recordmill):
    rows = [row_of(name, objects=objects) for name in ("1.jpg", "deep/2.jpg", "3.jpg")]
    write_rows(folder / "data/train/metadata.jsonl", rows)
    shutil.rmtree(folder / "data/validation")
    done = recordmill(*flags(folder))
    assert done.code == 2
    assert cure in done.err
    assert recordmill(*flags(folder, *cure.split())).code == 0
    xs = converted(folder)["train/1.jpg"]["image/object/bbox/xmax"]
    assert xs == pytest.approx([0.75, 0.95] if "rel" not in cure else [0.9, 0.3])


def fill(folder: Path, what: str) -> None:
    data = folder / "data"
    rows = data / "train/metadata.jsonl"
    if what == "no metadata":
        rows.unlink()
        (data / "validation/metadata.jsonl").unlink()
    elif what == "two of a split":
        (data / "train/metadata.csv").write_text("file_name,text\n1.jpg,a\n")
    elif what == "two names of a split":
        shutil.copytree(data / "validation", data / "val")
    elif what == "no file_name":
        write_rows(rows, [{"image": "1.jpg", "text": "a"}])
    elif what == "classes of images":
        write_rows(rows, [{"file_name": "1.jpg", "label": "cat"}])
    elif what == "a json array":
        rows.write_text("[{}]")
    elif what == "Parquet":
        shutil.rmtree(data)
        (data / "data").mkdir(parents=True)
        table = pa.Table.from_pylist([{"image": {"bytes": b"", "path": "1.jpg"}, "objects": OBJECTS}])
        pq.write_table(table, data / "data" / "train-00000-of-00001.parquet")
    else:
        assert what == "half a Parquet file"
        pq.write_table(pa.Table.from_pylist([row_of("1.jpg")]), data / "train/metadata.parquet")
        half = (data / "train/metadata.parquet").read_bytes()[:-20]
        (data / "train/metadata.parquet").write_bytes(half)
        rows.unlink()


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("no metadata", "recordmill folder --images"),
        ("two of a split", "train/metadata.csv, train/metadata.jsonl"),
        ("two names of a split", "val/metadata.jsonl, validation/metadata.jsonl"),
        ("no file_name", "image, text"),
        ("classes of images", "--label-column label"),
        ("a json array", "is one JSON array"),
        ("Parquet", "recordmill table --rows"),
        ("half a Parquet file", "cut short"),
    ],
)
def test_what_cannot_be_read(what, said, folder, recordmill):
    fill(folder, what)
    done = recordmill(*flags(folder))
    assert done.code != 0
    assert said in done.err
    assert "Traceback" not in done.err


def test_numbers_without_names(folder, recordmill):
    done = recordmill("imagefolder", "--data", folder / "data", "--output", folder / "out")
    assert done.code == 2
    assert "--class-names" in done.err
    rows = [row_of("1.jpg", objects={"bbox": [[1, 1, 5, 5]], "category": ["cat"]})] * 9000 + [row_of("3.jpg")]
    write_rows(folder / "data/train/metadata.jsonl", rows)  # beyond the rows that are looked at before the job
    shutil.rmtree(folder / "data/validation")
    done = recordmill("imagefolder", "--data", folder / "data", "--output", folder / "out")
    assert done.code == 2
    assert "--class-names" in done.err


def test_objects_of_coco(sample, tmp_path, recordmill):
    """COCO's objects as metadata.csv give the boxes that `coco` gives."""
    file = json.loads(Path(sample.instances).read_text())
    names = {category["id"]: category["name"] for category in file["categories"]}
    rows = {image["id"]: {"file_name": image["file_name"], "objects": defaultdict(list)} for image in file["images"]}
    for each in file["annotations"]:
        objects = rows[each["image_id"]]["objects"]
        for key in ("bbox", "area", "iscrowd", "id"):
            objects[key].append(each[key])
        objects["category"].append(names[each["category_id"]])
    table = [(row["file_name"], json.dumps(row["objects"])) for row in rows.values()]
    write_table(tmp_path / "metadata.csv", [("file_name", "objects"), *table])
    images = "--images", sample.images, "--max-rejects", 0.2
    coco = "coco", *images, "--instances", sample.instances, "--output", tmp_path / "plain"
    assert recordmill(*coco).code == 0
    rows = "--data", tmp_path / "metadata.csv", "--output", tmp_path / "out"
    assert recordmill("imagefolder", *rows, *images).code == 0
    keys = [f"image/object/{key}" for key in ("bbox/xmin", "bbox/ymax", "class/text", "area", "is_crowd", "id")]
    found, expected = (
        {name: [example[key] for key in keys] for name, example in converted(tmp_path, out=out).items()}
        for out in ("out", "plain")
    )
    assert found == expected
    assert sum(len(of_image[0]) for of_image in found.values()) > 20


@needs_real_data
def test_real_objects(tmp_path, recordmill):
    rows = [json.loads(line) for line in (REAL / "hf_objects/data/train/metadata.jsonl").read_text().splitlines()]
    data = "--data", REAL / "hf_objects", "--class-names", "vest,other"
    assert recordmill("imagefolder", *data, "--output", tmp_path / "out").code == 0
    found = converted(tmp_path)
    assert len(found) == len(rows) == 68
    for row in rows:
        example = found[f"data/train/{row['file_name']}"]
        width, height = example["image/width"][0], example["image/height"][0]
        left = [x / width for x, *_ in row["objects"]["bbox"]]
        bottom = [(y + h) / height for _, y, _, h in row["objects"]["bbox"]]
        assert example["image/object/bbox/xmin"] == pytest.approx(left, abs=1e-6)
        assert example["image/object/bbox/ymax"] == pytest.approx(bottom, abs=1e-6)
        assert example["image/object/category_id"] == row["objects"]["category"]


@needs_real_data
def test_pointers_of_git_lfs(tmp_path, recordmill):
    done = recordmill("imagefolder", "--data", REAL / "hf_lfs_pointers", "--output", tmp_path, "--max-rejects", 1)
    reasons = Counter(reject["reason"] for reject in rejects_of(tmp_path))
    assert reasons == {"image_missing": 9980, "unsupported_format": 20}
    assert done.code == 2, "nothing is left to write"
    assert any("git lfs pull" in reject["detail"] for reject in rejects_of(tmp_path))
