"""`recordmill auto`: which command it finds, and what that writes."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.pipelines.recognise import choose_format, recognise, unwrap_folder
from tests.conftest import CATEGORIES, SHARED_DATA, image_row, manifest_of, write_coco
from tests.jobs.folders import draw_all
from tests.jobs.test_image_table import file_rows

FORMATS = SHARED_DATA / "formats"


def commands(data: Path) -> list[tuple]:
    return [(verb, *(" ".join(flags) for flags in match.commands)) for verb, match in recognise(str(data))]


def test_recognised(tmp_path):
    coco = tmp_path / "coco"
    draw_all(coco / "val2017", ["a.jpg"])
    (coco / "annotations").mkdir()
    write_coco(coco / "annotations", [image_row(1, "a.jpg")], [], CATEGORIES).rename(
        coco / "annotations" / "instances_val2017.json"
    )
    assert commands(coco) == [("coco", f"--data {coco}")]

    classes = draw_all(tmp_path / "classes", ["cat/a.jpg", "dog/a.jpg"])
    assert commands(classes) == [("folder", f"--images {classes}")]

    named = draw_all(tmp_path / "named", ["a.jpg", "b.jpg"])
    (named / "labels.csv").write_text("file,label\na.jpg,cat\nb.jpg,dog\n")
    assert commands(named) == [("folder", f"--images {named} --labels {named}/labels.csv")]

    rows = tmp_path / "rows"
    rows.mkdir()
    for name in ("train-0", "train-1", "test-0"):
        pq.write_table(pa.Table.from_pylist(file_rows(1)), rows / f"{name}.parquet")
    files = f"--rows {rows}/train-0.parquet --rows {rows}/train-1.parquet", f"--rows {rows}/test-0.parquet"
    flags = "--image-column image --split"
    assert commands(rows) == [("table", f"{files[0]} {flags} train", f"{files[1]} {flags} test")]


VIA = '{"a.jpg7": {"filename": "a.jpg", "size": 7, "regions": []}}'


@pytest.mark.parametrize(
    ("files", "verbs"),
    [
        ({"boxes.csv": "filename,width,height,class,xmin,ymin,xmax,ymax\na.jpg,9,9,cat,1,1,2,2\n"}, ["tfcsv"]),
        ({"import.jsonl": '{"imageGcsUri": "gs://b/a.jpg", "boundingBoxAnnotations": []}\n'}, ["vertex"]),
        ({"import.csv": "TRAINING,gs://b/a.jpg,cat,0.1,0.2,,,0.5,0.6,,\n"}, ["vertex"]),
        ({"boxes.csv": "filename,class,xmin,ymin,xmax,ymax\na.jpg,cat,0.1,0.2,0.5,0.6\n"}, ["tfcsv", "vertex"]),
        ({"regions.json": VIA}, ["via"]),
        ({"regions.json": VIA, "classes.txt": "cat", "labels/a.txt": "", "images/a.jpg": ""}, ["yolo", "via"]),
    ],
)
def test_what_contents_show(tmp_path, files, verbs):
    for name, text in files.items():
        path = draw_all(tmp_path / "data", ["a.jpg"]) / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert [verb for verb, *_ in commands(tmp_path / "data")] == verbs


def test_class_folders_below_folders_of_splits(tmp_path, recordmill):
    names = [f"{split}/{kind}/{n}.jpg" for split in ("Valid", "Training") for kind in ("cat", "dog") for n in range(3)]
    data = draw_all(tmp_path / "data", names)
    found = recordmill("auto", "--data", data, "--output", tmp_path / "out", "--num-shards", 1)
    assert found.code == 0
    assert [line for line in found.out.splitlines() if line.startswith("recordmill folder")] == [
        f"recordmill folder --images {data}/{top} --split {split} --output {tmp_path}/out --num-shards 1"
        for top, split in (("Training", "train"), ("Valid", "val"))
    ]
    assert {name: split["class_counts"] for name, split in manifest_of(tmp_path / "out")["splits"].items()} == {
        "train": [3, 3],
        "val": [3, 3],
    }


def test_ambiguous_or_unknown_is_refused(tmp_path, recordmill):
    data = draw_all(tmp_path / "data", ["images/a.jpg"])
    (data / "annotations.xml").write_text("<annotations></annotations>")
    (data / "labels").mkdir()
    (data / "labels" / "a.txt").write_text("")
    (data / "classes.txt").write_text("cat\n")
    refused = recordmill("auto", "--data", data, "--output", tmp_path / "out")
    assert (refused.code, "2 ways: yolo (" in refused.err, "cvat (" in refused.err) == (2, True, True)
    chosen = recordmill("auto", "--data", data, "--format-in", "yolo", "--output", tmp_path / "out")
    assert (chosen.code, "recordmill yolo --data" in chosen.out) == (0, True)
    for data in (tmp_path / "gone", draw_all(tmp_path / "flat", ["a.jpg"])):
        assert recordmill("auto", "--data", data, "--output", tmp_path / "no").code == 2
    assert recordmill("auto", "--output", tmp_path / "no").code == 2
    for words, said in (
        (("--dta", "flat"), "unknown flag --dta; did you mean --data?"),
        (("--data", "flat", "--format_in=voc"), "unknown flag --format_in; did you mean --format-in?"),
        (
            ("--data", "flat", "--format-in", "yollo"),
            "(got 'yollo'). Did you mean yolo?",
        ),
        (("--data", "flat", "--format-in", "embed"), "--format-in must be one of coco, folder, "),
    ):
        refused = recordmill("auto", *words, "--output", tmp_path / "no")
        assert (refused.code, said in refused.err) == (2, True), refused.err


def test_coco_file_whose_images_are_elsewhere(tmp_path, recordmill):
    data = draw_all(tmp_path / "data", ["pics/a.jpg"])
    file = write_coco(data, [image_row(1, "a.jpg")], [], CATEGORIES)
    for name in ("instances.json", "labels.json"):
        file = file.rename(data / name)
        refused = recordmill("auto", "--data", data, "--output", tmp_path / "out")
        assert (refused.code, "names the image 'a.jpg'" in refused.err) == (2, True), refused.err
        assert f"(of recordmill coco --data {data})" in refused.err
    (data / "more").mkdir()
    file.rename(data / "more" / "export.json")
    refused = recordmill("auto", "--data", data, "--output", tmp_path / "out")
    assert ("no annotation file of a COCO export" in refused.err, "recordmill auto" in refused.err) == (True, False)


def test_folders_that_wrap_a_data_set(tmp_path):
    inner = draw_all(tmp_path / "a" / "sets" / "pets", ["cat/a.jpg", "dog/a.jpg"])
    for name in ("README.md", ".DS_Store", "__MACOSX/sets/._pets"):
        file = tmp_path / "a" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert unwrap_folder(str(tmp_path / "a")) == str(inner)
    shutil.make_archive(str(tmp_path / "a"), "zip", tmp_path / "a")
    assert choose_format(f"{tmp_path}/a.zip", None)[1].commands == (("--images", f"{tmp_path}/a.zip/sets/pets"),)

    (tmp_path / "a" / "sets" / "labels.csv").touch()
    assert unwrap_folder(str(tmp_path / "a")) == str(inner.parent)
    split = draw_all(tmp_path / "b", ["Train/cat/a.jpg", "Train/dog/a.jpg"])
    assert unwrap_folder(str(split)) == str(split)


def test_contradictory_annotations(tmp_path, recordmill):
    data = draw_all(tmp_path / "data", ["images/a.jpg", "maps/b.jpg"])
    (data / "annotations").mkdir()
    for name in ("instances.json", "instances.json.gz"):
        (data / "annotations" / name).write_text('{"images": [], "annotations": [], "categories": []}')
    refused = recordmill("auto", "--data", data, "--output", tmp_path / "out")
    assert (refused.code, "annotations/instances.json.gz" in refused.err) == (2, True), refused.err
    assert [verb for verb, _ in recognise(str(data), "folder")] == ["folder"]
    (data / "annotations").rename(data / "notes")  # so `images` and `maps` may be classes
    assert [verb for verb, _ in recognise(str(data))] == ["coco", "folder"]
    assert choose_format(str(data), "yolo")[1].commands == (("--data", str(data)),)
    (data / "notes" / "instances.json").write_text("{}")
    assert [verb for verb, _ in recognise(str(data))] == ["folder"]


@pytest.mark.skipif(not FORMATS.is_dir(), reason="needs shared/data")
def test_real_data_sets():
    found = {
        name: [verb for verb, *_ in commands(SHARED_DATA / name)]
        for name in (
            *("coco_mini", "facemask", "cbir_mixed_jpg_png", "formats/yolo_kayisi", "formats/voc_bccd/BCCD"),
            *("formats/hf_objects", "formats/via_kudzu", "formats/createml_anpr", "formats/cvat_missing_images"),
            *("formats/yolo_hub/example_datasets/imagenet10", "formats/labelme_examples/examples/tutorial", "pngsuite"),
        )
    }
    assert list(found.values()) == [
        *(["coco"], ["coco"], ["folder"], ["yolo"], ["voc"]),
        *(["imagefolder"], ["via"], ["createml"], ["cvat"]),
        *(["folder"], ["labelme"], []),
    ]
