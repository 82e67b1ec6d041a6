import msgspec
import tensorflow as tf
from PIL import Image

from recordmill.schemas.features import ColumnType, FeatureTable, RecordOf
from recordmill.schemas.inputs.annotations import Category, ImageLabels, TableRow
from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.images import ImageRules, ImageTask, StoredImage, Transcoding
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.tables import Column, TableSchema
from recordmill.schemas.layouts import TABLE, row_image_features
from recordmill.schemas.rejects import Metric, Reason, Rejected
from recordmill.transforms.encoders import record_maker
from recordmill.transforms.encoders.record_maker import ImageRowEncoder
from recordmill.transforms.records.example import ExampleWriter
from recordmill.transforms.sample.draw_scene import encoded
from recordmill.transforms.shards.encode_images import EncodeImages
from tests.transforms.encoders.drawn_tasks import expected_amount

JPEG = encoded(Image.new("RGB", (40, 30), (200, 60, 50)), "JPEG")
COLUMNS = TableSchema((Column("a", "a", ColumnType.INT64), Column("n", "image/name", ColumnType.BYTES))).features
LABELS = LabelMap((Category(0, "cat"), Category(1, "dog")))
RECORD = ExampleWriter(FeatureTable("table", COLUMNS)).write({"row.a": -3, "row.n": b"x"})
ROW = TableRow(RECORD, 4, "t.csv row 4: column p")
TASK = ImageTask(7, "a.jpg", None, None, ImageFile("a.jpg", 9), "train", (), ImageLabels(class_name="dog", row=ROW))


def table(raw_size: tuple[int, int] | None) -> FeatureTable:
    features = sorted((*COLUMNS, *row_image_features(raw_size)), key=lambda feature: feature.name)
    return FeatureTable("table", tuple(features), record_of=RecordOf.ROW)


def features_of(record: bytes) -> dict[str, list]:
    example = tf.train.Example.FromString(record)
    assert example.SerializeToString(deterministic=True) == record
    found = example.features.feature
    return {name: list(getattr(found[name], found[name].WhichOneof("kind")).value) for name in found}


def test_a_file_and_a_row():
    encoder = ImageRowEncoder(LABELS, table(None))
    made = encoder.encode(TASK, StoredImage(JPEG, "jpeg", 40, 30, "ab"))
    assert features_of(*made.records[0]) == {
        "a": [-3],
        "image/channels": [3],
        "image/encoded": [JPEG],
        "image/filename": [b"a.jpg"],
        "image/format": [b"jpeg"],
        "image/height": [30],
        "image/key/sha256": [b"ab"],
        "image/name": [b"x"],
        "image/source_id": [b"7"],
        "image/width": [40],
    }
    assert (made.counted, made.rejected, made.class_counts) == ({Metric.IMAGES: 1}, [], {1: 1})


def test_estimate_is_within_a_tenth():
    row = TableRow(RECORD + bytes(3000), 4, "")  # what is in it makes no difference here
    task = msgspec.structs.replace(TASK, ref=ImageFile("a.jpg", 0), labels=ImageLabels(row=row))
    columns_not_known = msgspec.structs.replace(TABLE, features=row_image_features((20, 30)))
    pixels = EncodeImages("keep", ImageRules("decode", raw_size=(20, 30)))
    written = len(RECORD) + 3000 + 20 * 30 * 3
    assert written < expected_amount(pixels.estimate(columns_not_known), task)[0] < 1.1 * written
    of_file = msgspec.structs.replace(task, ref=ImageFile("a.jpg", 5000))
    files = EncodeImages("keep", ImageRules("decode"))
    estimate = files.estimate(msgspec.structs.replace(TABLE, features=row_image_features(None)))
    assert len(RECORD) + 8000 < expected_amount(estimate, of_file)[0] < 1.1 * (len(RECORD) + 8000)


def test_pixels_and_row_without_class():
    pixels = bytes(range(12))
    task = msgspec.structs.replace(TASK, labels=ImageLabels(row=ROW))
    image = StoredImage(pixels, "raw", 2, 2, "", None, Transcoding("jpeg", 99))
    made = ImageRowEncoder(LabelMap(()), table((2, 2))).encode(task, image)
    found = features_of(*made.records[0])
    assert found.keys() == {
        "a",
        "image/filename",
        "image/height",
        "image/name",
        "image/pixels",
        "image/source_id",
        "image/width",
    }
    assert found["image/pixels"] == [pixels]
    assert made.class_counts == {}
    assert made.counted[Metric.FROM_JPEG] == 1
    assert (made.counted[Metric.REWRITTEN_BYTES_READ], made.counted[Metric.REWRITTEN_BYTES]) == (99, 12)


def test_record_that_no_reader_takes_is_reject_of_its_row(monkeypatch):
    for limit, size in ((20, len(JPEG) + len(RECORD)), (len(JPEG) + len(RECORD), None)):
        monkeypatch.setattr(record_maker, "MAX_RECORD_BYTES", limit)
        reject = ImageRowEncoder(LABELS, table(None)).encode(TASK, StoredImage(JPEG, "jpeg", 40, 30, "ab"))
        assert isinstance(reject, Rejected)
        assert (reject.what, reject.id, reject.reason) == ("row", 4, Reason.RECORD_TOO_LARGE)
        assert reject.detail.startswith("t.csv row 4: column p: 'a.jpg': its record would have ")
        assert size is None or f" {size:,} bytes" in reject.detail
