import re

import pytest

from recordmill.schemas.containers import CONTAINERS, ContainerRow
from recordmill.schemas.features import ShardNaming
from recordmill.schemas.shards import ShardKey, ShardNames

ROWS = {
    "count": ContainerRow("count", "", "{prefix}.array_record-{index:05d}-of-{count:05d}"),
    "end": ContainerRow("end", "", "{prefix}-{index:05d}-of-{count:05d}.parquet"),
    "number": ContainerRow("number", "", "{prefix}-{index:06d}.tar"),
}


@pytest.mark.parametrize(
    ("row", "file"),
    [
        ("count", "coco-train.array_record-00003-of-00128"),
        ("end", "coco-train-00003-of-00128.parquet"),
        ("number", "coco-train-000003.tar"),
    ],
)
def test_names_of_container(monkeypatch, row, file):
    monkeypatch.setitem(CONTAINERS, row, ROWS[row])
    names = ShardNames("coco", "train", container=row)
    assert names.file(ShardKey("train", 3, 128), 17, gzip=False) == names.stable(ShardKey("train", 3, 128)) == file
    for other in (file, file.replace("3", "1234567")):
        assert names.is_one(other)
        assert names.is_one_of_any_split(other.replace("train", "val"))
    for other in (f"{file}.gz", f"x{file}", f"{file}.json", file.replace("train", "val"), file.replace("000", "0")):
        assert not names.is_one(other)


def test_layout_keras_names_only_tfrecord_files(monkeypatch):
    monkeypatch.setitem(CONTAINERS, "number", ROWS["number"])
    keras, other = (ShardNames("coco", "train", ShardNaming.KERAS, container) for container in ("tfrecord", "number"))
    key = ShardKey("train", 0, 1)
    assert (keras.file(key, 4096, gzip=False), other.file(key, 4096, gzip=False)) == (
        "file_00-4096.tfrec",
        "coco-train-000000.tar",
    )
    assert not other.is_one("file_00-4096.tfrec")


def test_patterns_have_groups():
    match = re.fullmatch(CONTAINERS["tfrecord"].file_pattern("coco-train"), "coco-train.tfrecord-00003-of-00128.gz")
    assert (match["index"], match["count"]) == ("00003", "00128")
