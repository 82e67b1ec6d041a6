"""Formats of label files in a bucket, as folders and as archives, give the same shards as local folders."""

from pathlib import Path

import pytest

from tests.conftest import draw_jpeg
from tests.engines.buckets.jobs import OUT, ROOT, files_of, objects_of, shards_of, shown, upload, zipped
from tests.jobs.test_voc import write_image, write_lists, write_mask


def write_yolo(folder: Path) -> None:
    """A segmentation file of polygons, a file without objects, an image without a file, and a list of images."""
    for name in ("train/1", "train/2", "train/3", "val/4"):
        draw_jpeg(folder / "images" / f"{name}.jpg")
        (folder / "labels" / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / "labels" / "train" / "1.txt").write_text("0 0.1 0.1 0.5 0.1 0.5 0.9\n1 0.5 0.5 0.2\n")
    (folder / "labels" / "train" / "2.txt").write_text("")
    (folder / "labels" / "val" / "4.txt").write_text("1 0.1 0.1 0.5 0.1 0.5 0.9")
    (folder / "val.txt").write_text("./images/val/4.jpg\n")
    (folder / "data.yaml").write_text("train: images/train\nval: val.txt\nnames: {0: cat, 1: dog}\n")


def write_voc(folder: Path) -> None:
    """An XML file with masks, one that states the name of its image, one without masks, and lists of splits."""
    for stem, names in {"a": ["cat", "dog"], "b": ["dog"], "c": []}.items():
        write_image(folder, stem, *names)
    write_mask(folder, "a", [[1, 2, 255]])
    (folder / "JPEGImages" / "b.jpg").rename(folder / "JPEGImages" / "other.jpg")
    path = folder / "Annotations" / "b.xml"
    path.write_text(path.read_text().replace("<annotation>", "<annotation><filename>other.jpg</filename>"))
    write_lists(folder, train="a other", val="c")


@pytest.mark.parametrize(("name", "write"), [("yolo", write_yolo), ("voc", write_voc)])
def test_formats(gcs, recordmill, tmp_path, name, write):
    write(tmp_path / "data")
    upload(gcs, tmp_path / "data", "data")
    gcs.put("data.zip", zipped(files_of(tmp_path / "data")))
    shards = {}
    for data, out in {
        str(tmp_path / "data"): str(tmp_path / "out"),
        f"{ROOT}/data": OUT,
        f"{ROOT}/data.zip": f"{OUT}-zip",
    }.items():
        done = recordmill("convert", data, "--format", name, "--output", out, "--masks", "png", "--max-rejects", 0.9)
        assert done.code == 0, done.err
        written = objects_of(gcs, out.removeprefix(f"{ROOT}/")) if out.startswith("gs") else files_of(Path(out))
        shards[data] = shards_of(written)
    local, in_bucket, in_archive = shards.values()
    assert sorted(name.split("-")[1].partition(".")[0] for name in local) == ["train", "val"]
    assert in_bucket == local
    assert in_archive == local


def test_class_map_in_bucket(gcs, recordmill, tmp_path):
    write_yolo(tmp_path / "data")
    upload(gcs, tmp_path / "data", "data")
    (tmp_path / "map.yaml").write_text("cat: pet\ndog: pet\n")
    gcs.put("maps/map.yaml", (tmp_path / "map.yaml").read_bytes())
    for data, path, out in (
        (str(tmp_path / "data"), str(tmp_path / "map.yaml"), str(tmp_path / "out")),
        (f"{ROOT}/data", f"{ROOT}/maps/map.yaml", OUT),
    ):
        done = recordmill("convert", data, "--format", "yolo", "-o", out, "--class-map", path, "--max-rejects", 0.9)
        assert done.code == 0, done.err
    assert shards_of(objects_of(gcs, "out")) == shards_of(files_of(tmp_path / "out")) != {}
    manifest = shown(gcs)
    assert [category["name"] for category in manifest["categories"]] == ["pet"]
    inputs = manifest["splits"]["train"]["recipe"]["inputs"]
    assert [file["path"] for file in inputs if file["kind"] == "class_map"] == [f"{ROOT}/maps/map.yaml"]
    gone = recordmill("convert", f"{ROOT}/data", "--format", "yolo", "-o", f"{OUT}2", "--class-map", f"{ROOT}/gone.csv")
    assert gone.code == 2
    assert f"--class-map {ROOT}/gone.csv" in gone.err
