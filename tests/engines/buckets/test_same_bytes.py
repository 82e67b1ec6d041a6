"""From buckets and into them come the same bytes as from local folders."""

import csv
import gzip
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from recordmill.launch.cli import main
from tests.conftest import draw_jpeg, manifest_of
from tests.engines.buckets.jobs import (
    DEFLATED,
    OUT,
    ROOT,
    STORED,
    check_all_accounted,
    files_of,
    in_bucket,
    layout_flags,
    objects_of,
    shards_of,
    shown,
    upload,
    zipped,
)

COMPANIONS = ("rejects-train.jsonl", "labels.csv", "label_map.json", "label_map.pbtxt")


@pytest.mark.parametrize(
    ("layout", "gzip"), [("detection", False), ("detection", True), ("keras", False), ("tfds", False)]
)
def test_the_sample(gcs, sample, local_run, recordmill, layout, gzip):
    """From folders, and from archives of images and masks."""
    source = Path(sample.images).parent
    upload(gcs, source, "sample")
    flags = in_bucket(layout_flags(sample, layout, gzip), source, "sample")
    local = files_of(local_run(layout, gzip))
    assert recordmill(*flags, "--output", OUT).code == 0
    written = objects_of(gcs, "out")
    assert shards_of(written) == shards_of(local)
    assert len(shards_of(written)) == 3
    assert {name: written[name] for name in COMPANIONS} == {name: local[name] for name in COMPANIONS}
    if layout != "keras":  # whose shards TFDS would need links to
        assert set(written) == set(local)
    there = written["manifest.json"].decode().replace(f"{ROOT}/sample", str(source))
    assert {**json.loads(there), "sha256": ""} == {**json.loads(local["manifest.json"]), "sha256": ""}
    check_all_accounted(shown(gcs))
    archives = {}
    for name in ("images", "panoptic"):
        gcs.put(f"zips/{name}.zip", zipped(files_of(source / name), DEFLATED if gzip else STORED))
        archives[f"{ROOT}/sample/{name}"] = f"{ROOT}/zips/{name}.zip"
    assert recordmill(*(archives.get(flag, flag) for flag in flags), "--output", f"{OUT}-zip").code == 0
    assert shards_of(objects_of(gcs, "out-zip")) == shards_of(local)
    check_all_accounted(shown(gcs, "out-zip"))


def test_tiles(gcs, recordmill, tmp_path):
    """The sizes of images in class folders are read from the bucket before the plan."""
    for number, name in enumerate(("cat", "dog")):
        draw_jpeg(tmp_path / "source" / name / "1.jpg", colour=(99 * number, 0, 0))
    upload(gcs, tmp_path / "source", "source")
    flags = ["--format", "folder", "--tile", "20", "--tile-overlap", "0.5", "--num-shards", "3"]
    assert recordmill("convert", tmp_path / "source", *flags, "--output", tmp_path / "out").code == 0
    assert recordmill("convert", f"{ROOT}/source", *flags, "--output", OUT).code == 0
    assert shards_of(objects_of(gcs, "out")) == shards_of(files_of(tmp_path / "out"))
    assert manifest_of(tmp_path / "out")["splits"]["train"]["images"]["tiles"] > 4


@pytest.fixture(scope="module")
def classes(tmp_path_factory) -> Path:
    """Class folders in `images`, and tables of them: one with names, one with whole paths and splits."""
    folder = tmp_path_factory.mktemp("classes")
    rows = []
    for number in range(24):
        label = ("cat", "dog", "Öl")[number % 3]
        name = f"{label}/{number} #%?.jpg" if number % 5 == 0 else f"{label}/in/{number}.jpg"
        draw_jpeg(folder / "images" / name, colour=(number * 10, 0, 0))
        rows.append((name, label, ("train", "val")[number % 4 == 3]))
    write_table(folder / "names.csv", [("path", "label"), *(row[:2] for row in rows)])
    whole = [(f"{folder}/images/{name}", label, split) for name, label, split in rows]
    write_table(folder / "whole.csv", [("path", "label", "split"), *whole])
    return folder


def write_table(path: Path, rows: Iterable[Iterable[str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


@pytest.mark.parametrize(
    "flags",
    [("--format", "folder", "--split", "train=0.5,val=0.5", "--stratify"), ("--labels", "{}/whole.csv")],
    ids=["folders", "whole paths"],
)
def test_a_folder_of_classes(gcs, classes, tmp_path, recordmill, flags):
    upload(gcs, classes, "classes")
    there = f"{ROOT}/classes"
    gcs.put("classes/whole.csv", (classes / "whole.csv").read_bytes().replace(str(classes).encode(), there.encode()))
    gcs.put("images.zip", zipped(files_of(classes / "images"), DEFLATED))

    def convert(root: object, images: object, out: object) -> int:
        named = [flag.format(root) for flag in flags]
        return recordmill("convert", images, *named, "--num-shards", 2, "--output", out).code

    assert convert(classes, classes / "images", tmp_path) == 0
    assert convert(there, f"{there}/images", OUT) == 0
    written, local = objects_of(gcs, "out"), files_of(tmp_path)
    assert shards_of(written) == shards_of(local)
    assert len(shards_of(written)) == 4
    assert set(written) == set(local)
    if "whole.csv" not in flags[1]:  # which is another file there
        manifest = json.loads(written["manifest.json"].decode().replace(there, str(classes)))
        assert {**manifest, "sha256": ""} == {**manifest_of(tmp_path), "sha256": ""}
    check_all_accounted(shown(gcs))
    if "whole.csv" not in flags[1]:
        assert convert(there, f"{ROOT}/images.zip", f"{OUT}-zip") == 0
        assert shards_of(objects_of(gcs, "out-zip")) == shards_of(local)


def test_rows_of_a_table_in_a_bucket(gcs, sample, tmp_path):
    """Several objects, one of them compressed, give the bytes of one local file; verify reads them there."""
    head, *rows = Path(sample.objects).read_bytes().splitlines(keepends=True)
    gcs.put("rows/part-0.csv.gz", gzip.compress(head + b"".join(rows[:20])))
    gcs.put("rows/part-1.csv", head + b"".join(rows[20:]))
    flags = ["--format", "table", "--label", "shape", "--split", "train=0.7,val=0.3", "--num-shards", "2"]
    assert main(["convert", f"{ROOT}/rows/part-*", *flags, "--output", OUT]) == 0
    assert main(["convert", sample.objects, *flags, "--output", str(tmp_path / "out")]) == 0
    local = {name: data for name, data in files_of(tmp_path / "out").items() if "tfrecord" in name}
    assert len(shards_of(local)) == 4
    assert {name: gcs.objects()[f"out/{name}"] for name in local} == local
    assert not [name for name in gcs.objects() if ".recordmill" in name]
    assert main(["verify", OUT]) == 0
