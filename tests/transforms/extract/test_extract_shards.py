import hashlib
from pathlib import Path

import apache_beam as beam
import tensorflow as tf
from apache_beam.testing.util import assert_that, equal_to
from PIL import Image

from recordmill.schemas.dataset.checks import Fault, Faults
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import LAYOUTS
from recordmill.schemas.shards import ShardInfo
from recordmill.transforms.containers.read_shards import ManifestShard
from recordmill.transforms.extract.extract_pieces import read_piece_records, read_shard_piece
from recordmill.transforms.extract.extract_shards import ExtractShard
from recordmill.transforms.sample.draw_scene import encoded
from tests.beam_pipeline import Pipeline

PNG = encoded(Image.new("L", (40, 30)), "PNG")


def keras_record(id_: int, path: bytes) -> bytes:
    example = tf.train.Example()
    feature = example.features.feature
    feature["image"].bytes_list.value.append(PNG)
    feature["path"].bytes_list.value.append(path)
    for name, value in {"id": id_, "image_id": 4, "category_id": 3, "class_index": 0}.items():
        feature[name].int64_list.value.append(value)
    feature["area"].float_list.value.append(50.37)
    feature["bbox"].float_list.value.extend([1.5, 2, 3, 4.01])
    return example.SerializeToString()


def json_of(id_: int) -> bytes:
    return b'{"id":%d,"image_id":4,"category_id":3,"bbox":[1.5,2.0,3.0,4.01],"area":50.37,"iscrowd":0}' % id_


def write_shard(folder: Path, name: str, *records: bytes) -> ManifestShard:
    path = folder / name
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return shard_of(folder, ShardInfo(name, len(records), path.stat().st_size, "crc", sha256))


def shard_of(folder: Path, info: ShardInfo) -> ManifestShard:
    return ManifestShard(
        str(folder / info.file),
        "val",
        info,
        LAYOUTS["keras"].with_parts(()),
        LabelMap((Category(3, "cat"),)),
        "tfrecord",
    )


def extract(folder: Path, *shards: ManifestShard) -> None:
    with Pipeline() as p:
        extracted = p | beam.Create(shards) | beam.ParDo(ExtractShard(str(folder), 2, "coco", len(shards)))
        assert_that(extracted, equal_to([("val", shard.info.file) for shard in shards]))


def test_records_become_rows_and_file(tmp_path):
    """Two objects of one image, one with a name that must not be used, and a shard that is not there."""
    records = keras_record(7, b"a/b.png"), keras_record(8, b"a/b.png"), keras_record(9, b"../b.png")
    gone = shard_of(tmp_path, ShardInfo("two", 3, 1, "", ""))
    extract(tmp_path / "dir", write_shard(tmp_path, "one", *records), gone)
    piece, lost = (read_shard_piece(str(tmp_path / "dir"), name) for name in ("one", "two"))
    assert piece.faults.listed == (Fault("one", 2, "file_name", "the file name '../b.png' has .. in it"),)
    assert (lost.faults.listed, lost.is_damaged) == ((Fault("two", None, "missing", "no such file"),), True)
    records = read_piece_records(str(tmp_path / "dir"), piece)
    assert [(each.number, row.json) for each in records for row in each.rows.instances] == [
        (0, json_of(7)),
        (1, json_of(8)),
    ]
    assert [path.relative_to(tmp_path / "dir") for path in (tmp_path / "dir").rglob("*.png")] == [
        Path("images/val/a/b.png")
    ]
    assert (tmp_path / "dir" / "images" / "val" / "a" / "b.png").read_bytes() == PNG


def test_shard_is_extracted_again_where_file_of_it_is_gone(tmp_path):
    """And no other; also where it was damaged, and is whole now."""
    records = [(keras_record(n, b"%d.png" % n), keras_record(10 + n, b"1%d.png" % n)) for n in range(4)]
    shards = [write_shard(tmp_path, f"s{n}", *records[n]) for n in range(4)]
    whole = Path(shards[3].path).read_bytes()
    Path(shards[3].path).write_bytes(whole[:-1])
    images = tmp_path / "dir" / "images" / "val"
    extract(tmp_path / "dir", *shards)
    Path(shards[0].path).unlink()
    (images / "1.png").unlink()
    (images / "2.png").write_bytes(b"another")
    Path(shards[3].path).write_bytes(whole)
    before = (images / "0.png").stat().st_mtime_ns
    extract(tmp_path / "dir", *shards)
    assert {path.name: path.read_bytes() for path in images.iterdir()} == {
        f"{n}.png": PNG for n in (*range(4), *range(10, 14))
    }
    assert (images / "0.png").stat().st_mtime_ns == before
    assert [read_shard_piece(str(tmp_path / "dir"), f"s{n}").faults for n in range(4)] == [Faults()] * 4
