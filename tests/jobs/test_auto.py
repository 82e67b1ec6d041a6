"""`recordmill auto`: which command it finds, and what that writes."""

import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.pipelines.recognise import recognise
from tests.conftest import SHARED_DATA, manifest_of
from tests.jobs.folders import draw_all
from tests.jobs.test_picture_table import file_rows

FORMATS = SHARED_DATA / "formats"


def test_coco_beside_its_images(tmp_path, recordmill, sample):
    data = tmp_path / "data"
    (data / "annotations").mkdir(parents=True)
    shutil.copy(sample.instances, data / "annotations" / "instances_val2017.json")
    (data / "val2017").symlink_to(sample.images)
    found = recordmill("auto", "--data", data, "--output", tmp_path / "out", "--max-rejects", 0.1)
    assert (found.code, "read by recordmill coco" in found.out) == (0, True)
    assert manifest_of(tmp_path / "out")["splits"].keys() == {"val"}


def test_class_folders_below_folders_of_splits(tmp_path, recordmill):
    names = [f"{split}/{kind}/{n}.jpg" for split in ("valid", "train") for kind in ("cat", "dog") for n in range(3)]
    data = draw_all(tmp_path / "data", names)
    found = recordmill("auto", "--data", data, "--output", tmp_path / "out", "--num-shards", 1)
    assert found.code == 0
    assert [line for line in found.out.splitlines() if line.startswith("recordmill folder")] == [
        f"recordmill folder --images {data}/{top} --split {split} --output {tmp_path}/out --num-shards 1"
        for top, split in (("train", "train"), ("valid", "val"))
    ]
    assert {name: split["class_counts"] for name, split in manifest_of(tmp_path / "out")["splits"].items()} == {
        "train": [3, 3],
        "val": [3, 3],
    }
    shutil.rmtree(data / "valid")
    assert recordmill("auto", "--data", data / "train", "--output", tmp_path / "two", "--dry-run").code == 0
    assert not (tmp_path / "two").exists()


def test_images_in_parquet_files_of_splits(tmp_path, recordmill):
    for name in ("train-0", "train-1", "test-0"):
        pq.write_table(pa.Table.from_pylist(file_rows(4)), tmp_path / f"{name}.parquet")
    assert recordmill("auto", "--data", tmp_path, "--output", tmp_path / "out").code == 0
    written = {name: split["images"]["written"] for name, split in manifest_of(tmp_path / "out")["splits"].items()}
    assert written == {"train": 10, "test": 5}


def test_table_of_images_and_classes(tmp_path, recordmill):
    data = draw_all(tmp_path / "data", ["a.jpg", "b.jpg"])
    (data / "labels.csv").write_text("file,label\na.jpg,cat\nb.jpg,dog\n")
    assert recordmill("auto", "--data", data, "--output", tmp_path / "out").code == 0
    assert manifest_of(tmp_path / "out")["splits"]["train"]["class_counts"] == [1, 1]


def test_what_is_ambiguous_or_unknown_is_refused(tmp_path, recordmill):
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
            "--format-in 'yollo' is not a format; did you mean yolo? they are",
        ),
        (("--data", "flat", "--format-in", "embed"), "--format-in 'embed' is not a format; they are yolo, "),
    ):
        refused = recordmill("auto", *words, "--output", tmp_path / "no")
        assert (refused.code, said in refused.err) == (2, True), refused.err


@pytest.mark.skipif(not FORMATS.is_dir(), reason="needs shared/data")
def test_real_data_sets():
    found = {
        name: [each.verb for each in recognise(str(SHARED_DATA / name))]
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
