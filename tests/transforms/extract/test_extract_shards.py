"""Finished shards are taken apart."""

import hashlib
import io

import apache_beam as beam
import numpy as np
import tensorflow as tf
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from PIL import Image

from recordmill.schemas.annotations import Category
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.layouts import LAYOUTS
from recordmill.schemas.plan_report import Fault
from recordmill.schemas.shards import ShardInfo
from recordmill.transforms.extract.extract_files import WrittenFile
from recordmill.transforms.extract.extract_rows import EncodedRow, ImageRow, RecordRows, row_line
from recordmill.transforms.extract.extract_shards import ExtractedRecord, ExtractedShard, ExtractShards
from recordmill.transforms.records.read_shards import ManifestShard
from recordmill.transforms.runtime.line_blocks import cut_blocks


def png() -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.zeros((30, 40), np.uint8)).save(stream, "PNG")
    return stream.getvalue()


def keras_record(id_: int, path: bytes) -> bytes:
    example = tf.train.Example()
    feature = example.features.feature
    feature["image"].bytes_list.value.append(png())
    feature["path"].bytes_list.value.append(path)
    for name, value in {"id": id_, "image_id": 4, "category_id": 3, "class_index": 0}.items():
        feature[name].int64_list.value.append(value)
    feature["area"].float_list.value.append(50.37)
    feature["bbox"].float_list.value.extend([1.5, 2, 3, 4.01])
    return example.SerializeToString()


def row(id_: int) -> EncodedRow:
    json = b'{"id":%d,"image_id":4,"category_id":3,"bbox":[1.5,2.0,3.0,4.01],"area":50.37,"iscrowd":0}'
    return EncodedRow(id_, 4, json % id_)


def test_records_become_rows_and_a_file(tmp_path):
    """Two objects of one image, one with a name that must not be used, and a shard that is not there."""
    path = tmp_path / "one"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in (keras_record(7, b"a/b.png"), keras_record(8, b"a/b.png"), keras_record(9, b"../b.png")):
            writer.write(record)
    table, labels = LAYOUTS["keras"], LabelMap((Category(3, "cat"),))
    info = ShardInfo("one", 3, path.stat().st_size, "crc", hashlib.sha256(path.read_bytes()).hexdigest())
    gone = ShardInfo("two", 3, 1, "", "")
    shards = [ManifestShard(str(tmp_path / each.file), "val", each, table, labels) for each in (info, gone)]
    image = ImageRow(4, "a/b.png", 40, 30)
    files = (WrittenFile("images/val/a/b.png", len(png()), hashlib.sha256(png()).hexdigest()),)
    records = tuple(ExtractedRecord(n, RecordRows(image), files) for n in range(2))
    instances = tuple(cut_blocks([row_line(row(7 + n), "one", n) for n in range(2)]))
    unsafe = Fault("one", 2, "file_name", "the file name '../b.png' leads out of the image folder")
    expected = [
        ("val", ExtractedShard("val", "one", records, (unsafe,), instances)),
        ("val", ExtractedShard("val", "two", (), (Fault("two", None, "missing", "no such file"),))),
    ]
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        extracted = p | beam.Create(shards) | ExtractShards(str(tmp_path / "dir"), threads=2)
        assert_that(extracted, equal_to(expected))
    assert [path.relative_to(tmp_path) for path in (tmp_path / "dir").rglob("*.png")] == [
        (tmp_path / "dir" / "images" / "val" / "a" / "b.png").relative_to(tmp_path)
    ]
    assert (tmp_path / "dir" / "images" / "val" / "a" / "b.png").read_bytes() == png()
