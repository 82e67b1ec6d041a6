"""Hugging Face's imagefolder from end to end."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import SHARED_DATA, draw_jpeg, examples_by_name, manifest_of, rejects_of, shard_bytes

REAL = SHARED_DATA / "formats"
needs_real_data = pytest.mark.skipif(not REAL.exists(), reason="the real data sets are not on this machine")
OBJECTS = {"bbox": [[5, 5, 10, 10], [0, 0, 20, 10]], "category": [1, 0], "area": [90, 200]}


def row_of(name: str, **more) -> dict:
    return {"file_name": name, "objects": OBJECTS, "text": f"image {name}"} | more


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
    return [
        "convert",
        folder / data,
        "--format",
        "imagefolder",
        "--output",
        folder / out,
        "--max-rejects",
        0.5,
        *names,
        *more,
    ]


def test_all_splits_in_one_run(folder, recordmill):
    done = recordmill(*flags(folder))
    assert done.code == 0, done
    train = examples_by_name(folder / "out")
    assert sorted(train) == ["train/1.jpg", "train/3.jpg", "train/deep/2.jpg"]
    first = train["train/1.jpg"]
    assert first["image/object/bbox/xmin"] == [0.125, 0]
    assert first["image/object/bbox/ymax"] == pytest.approx([0.5, 1 / 3])
    assert (first["image/object/class/text"], first["image/object/area"]) == ([b"dog", b"cat"], [90, 200])
    assert first["image/caption"] == [b"image 1.jpg"]
    assert [*examples_by_name(folder / "out", "val")] == ["validation/4.jpg"]
    assert "source" in done.out + done.err
    (rows,) = manifest_of(folder / "out")["splits"]["train"]["inputs"]
    assert (rows["images"], rows["annotations"]) == (3, 9)


def test_other_places_give_the_same_images(folder, recordmill):
    """A .zip for each split, a metadata file above the splits, and one in another folder than the images."""
    data = folder / "data"
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
    for place in ("zips", "above"):
        assert recordmill(*flags(folder, data=place, out=f"out-{place}")).code == 0
        assert shard_bytes(folder / f"out-{place}") == shard_bytes(folder / "out")
    images = "--images", folder / "apart" / "images"
    assert recordmill(*flags(folder, *images, data="apart/labels.jsonl", out="out-apart")).code == 0
    assert examples_by_name(folder / "out-apart") == examples_by_name(folder / "out")


def test_zip_of_one_split(folder, recordmill):
    shutil.rmtree(folder / "data" / "validation")
    shutil.make_archive(str(folder / "data"), "zip", folder / "data")
    assert recordmill(*flags(folder)).code == 0
    assert recordmill(*flags(folder, data="data.zip", out="out-zip")).code == 0
    assert shard_bytes(folder / "out-zip") == shard_bytes(folder / "out")


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
    found = examples_by_name(folder / "out")
    assert {name: len(example["image/object/id"]) for name, example in found.items()} == {
        "train/1.jpg": 3,
        "train/deep/2.jpg": 1,
    }
    assert found["train/1.jpg"]["image/caption"] == [b"image 1.jpg", b"again"]
    assert "1 not converted: no row names them (train/3.jpg)" in done.out


def test_images_in_parquet_files(folder, recordmill):
    """Bytes of images, classes and splits of Parquet files; a row without an image, and one whose image is broken."""
    data, drawn = folder / "hub" / "data", []
    for red in (10, 90, 200):
        draw_jpeg(folder / "drawn.jpg", colour=(red, 60, 50))
        drawn.append((folder / "drawn.jpg").read_bytes())
    write_shard(data / "train-00000-of-00002.parquet", [drawn[0], drawn[1], b""])
    write_shard(data / "train-00001-of-00002.parquet", [drawn[2], drawn[0][:99]])
    write_shard(data / "validation-00000-of-00001.parquet", [drawn[0]])
    done = recordmill("convert", folder / "hub", "--output", folder / "out", "--max-rejects", 0.5)
    assert done.code == 0, done
    assert "--format imagefolder" in done.out
    assert "fields that are not written. Add --fields mood" in done.out + done.err
    found = examples_by_name(folder / "out")
    names = [f"train-0000{shard}-of-00002/{row}-1.jpg" for shard, row in ((0, 1), (0, 2), (1, 1))]
    assert sorted(found) == names
    assert [found[name]["image/encoded"][0] for name in names] == drawn
    assert [*examples_by_name(folder / "out", "val")] == ["validation-00000-of-00001/1-1.jpg"]
    first = found[names[0]]
    assert first["image/object/bbox/xmin"] == [0.125, 0]
    assert (first["image/object/class/text"], first["image/object/category_id"]) == ([b"dog", b"cat"], [1, 0])
    rejects = {reject["reason"]: reject["detail"] for reject in rejects_of(folder / "out")}
    assert set(rejects) == {"malformed_image", "image_unreadable"}
    assert "line 3: the row has no bytes in the column image" in rejects["malformed_image"]
    assert not [*(folder / "out").glob(".recordmill*")]
    one = data / "train-00000-of-00002.parquet"
    done = recordmill(
        "convert",
        one,
        "--format",
        "imagefolder",
        "--output",
        folder / "one",
        "--class-names",
        "a,b",
        "--max-rejects",
        1,
    )
    assert (done.code, len(examples_by_name(folder / "one"))) == (0, 2)
    flags = [
        "convert",
        one,
        "--format",
        "imagefolder",
        "--output",
        folder / "two",
        "--max-rejects",
        1,
        "--duplicates",
        "drop",
    ]
    assert (recordmill(*flags).code, len(examples_by_name(folder / "two"))) == (0, 2)
    done = recordmill("convert", one, "--format", "imagefolder", "--output", folder / "one", "--images", folder)
    assert (done.code, "Omit --images" in done.err) == (2, True)


def test_boxes_of_another_convention(folder, recordmill):
    objects = {"bbox": [[10, 10, 30, 25], [20, 15, 38, 29]], "category": [0, 0]}
    write_rows(
        folder / "data/train/metadata.jsonl",
        [row_of(name, objects=objects) for name in ("1.jpg", "deep/2.jpg", "3.jpg")],
    )
    done = recordmill(*flags(folder))
    assert (done.code, "--bbox-format xyxy" in done.err) == (2, True)


def without_metadata(data: Path) -> None:
    for split in ("train", "validation"):
        (data / split / "metadata.jsonl").unlink()


HUGGING_FACE = {
    "info": {"features": {"objects": {"feature": {"category": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}}
}


def write_shard(path: Path, pictures: list[bytes], described: object = HUGGING_FACE, **more: object) -> None:
    """Write rows with images as Hugging Face's Parquet files have them. A column is left out by None."""
    rows = [
        {"image": {"bytes": each, "path": "img/1.jpg"}, "objects": OBJECTS, "mood": "calm", **more} for each in pictures
    ]
    table = pa.Table.from_pylist([{key: value for key, value in row.items() if value is not None} for row in rows])
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps(described)}), path)


def test_splits_with_different_names_of_classes(folder, recordmill):
    for name, described in (("train", HUGGING_FACE), ("validation", {})):
        write_shard(folder / "hub" / f"{name}.parquet", [b"-"], described)
    done = recordmill("convert", folder / "hub", "--format", "imagefolder", "--output", folder / "out")
    assert (done.code, "have different names of classes. Add --class-names" in done.err) == (2, True)


def only_shards(*names: str, **more: object) -> Callable[[Path], None]:
    def change(data: Path) -> None:
        shutil.rmtree(data)
        for name in names:
            write_shard(data / "data" / name, [b"-"], **more)

    return change


def half_a_file(data: Path) -> None:
    path = data / "train" / "metadata.parquet"
    (data / "train" / "metadata.jsonl").rename(path)
    pq.write_table(pa.Table.from_pylist([row_of("1.jpg")]), path)
    path.write_bytes(path.read_bytes()[:-20])


def train_rows(text: str, name: str = "metadata.jsonl") -> Callable[[Path], object]:
    return lambda data: (data / "train" / name).write_text(text)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without_metadata, "--format folder"),
        (train_rows("file_name,text\n1.jpg,a\n", "metadata.csv"), "train/metadata.csv, train/metadata.jsonl"),
        (
            lambda data: shutil.copytree(data / "validation", data / "val"),
            "val/metadata.jsonl, validation/metadata.jsonl",
        ),
        (train_rows('{"image": "1.jpg", "text": "a"}'), "image, text"),
        (train_rows('{"file_name": "1.jpg", "label": "cat"}'), "--label label"),
        (train_rows("[{}]"), "is one JSON array"),
        (train_rows(""), "metadata.jsonl has no rows"),
        (train_rows('{"file_name"'), "metadata.jsonl, row 1: not JSON"),
        (only_shards("train-0.parquet", objects=None), "--image-column image --label LABEL"),
        (only_shards("train-0.parquet", image=None), "has neither file_name nor images"),
        (only_shards("part-0.parquet", "train-0.parquet"), "part-0.parquet, train-0.parquet"),
        (half_a_file, "truncated"),
    ],
)
def test_unreadable_files(change, said, folder, recordmill):
    change(folder / "data")
    done = recordmill(*flags(folder))
    assert (done.code > 0, said in done.err, "Traceback" in done.err) == (True, True, False)


def test_numbers_without_names(folder, recordmill):
    done = recordmill("convert", folder / "data", "--format", "imagefolder", "--output", folder / "out")
    assert done.code == 2
    assert "--class-names" in done.err
    rows = [row_of("1.jpg", objects={"bbox": [[1, 1, 5, 5]], "category": ["cat"]})] * 9000 + [row_of("3.jpg")]
    write_rows(folder / "data/train/metadata.jsonl", rows)  # beyond the rows that are looked at before the job
    shutil.rmtree(folder / "data/validation")
    done = recordmill("convert", folder / "data", "--format", "imagefolder", "--output", folder / "out")
    assert done.code == 2
    assert "--class-names" in done.err


@needs_real_data
def test_real_objects(tmp_path, recordmill):
    rows = [json.loads(line) for line in (REAL / "hf_objects/data/train/metadata.jsonl").read_text().splitlines()]
    data = REAL / "hf_objects", "--format", "imagefolder", "--class-names", "vest,other"
    assert recordmill("convert", *data, "--output", tmp_path / "out").code == 0
    found = examples_by_name(tmp_path / "out")
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
    done = recordmill(
        "convert", REAL / "hf_lfs_pointers", "--format", "imagefolder", "--output", tmp_path, "--max-rejects", 1
    )
    reasons = Counter(reject["reason"] for reject in rejects_of(tmp_path))
    assert reasons == {"image_missing": 9980, "unsupported_format": 20}
    assert done.code == 2, "nothing is left to write"
    assert any("git lfs pull" in reject["detail"] for reject in rejects_of(tmp_path))
