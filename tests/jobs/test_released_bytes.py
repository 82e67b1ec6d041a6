"""Shards and indexes keep their bytes from release to release. No job here has Pillow encode an image."""

from pathlib import Path

import pytest

from tests.literal_data import csv_rows, hash_files, write_coco_set, write_files, write_yolo_labels

COCO = "convert images --instances instances.json"
SHA256 = {  # 32 digits of it, over the shards and indexes of a job
    f"{COCO} --keypoints points.json --masks rle --num-shards 2": "e2060196affa89d68c06db4e1f76fe2c",
    f"{COCO} --layout keras --gzip --examples-per-shard 5": "178b494067ab5208af94be454f24164a",
    "convert images --format folder --split train=0.5,val=0.5 --stratify --seed 3": "758cf132efa08d125c9ae994d545cf1f",
    "convert rows.csv --format table --label class --num-shards 2": "7d4ffb5f62d0e21d9f53caa6e0c96f1f",
    "convert . --format yolo --layout tfds": "05b07857e536ef68710c978747ab8109",
}


@pytest.mark.parametrize("job", SHA256)
def test_released_bytes(job, recordmill, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_yolo_labels(tmp_path, write_coco_set(tmp_path))
    write_files(tmp_path, {"rows.csv": csv_rows()})
    assert recordmill(*job.split(), "--output", "out").code == 0
    assert hash_files([*Path("out").glob("*.tfrec*"), *Path("out").glob(".index/*")]) == SHA256[job]
