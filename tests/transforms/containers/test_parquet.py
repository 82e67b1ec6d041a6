import hashlib
import io
import json
import pickle
from concurrent.futures import ThreadPoolExecutor

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest

from recordmill.schemas.errors import ConfigError, RecordError
from recordmill.schemas.features import ColumnType, FeatureKind, Part
from recordmill.schemas.field_features import RAGGED, FieldColumn, add_fields
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.tables import Column, TableSchema
from recordmill.schemas.layouts import CLASSIFICATION, DETECTION, row_image_features
from recordmill.schemas.shards import ShardKey
from recordmill.transforms.containers.container import Contents
from recordmill.transforms.containers.parquet import CONTAINER
from recordmill.transforms.records.example import ExampleWriter
from tests.literal_data import GREY, jpeg

KEY = ShardKey("train", 0, 1)
LABELS = LabelMap((Category(1, "cat"), Category(7, "cat"), Category(9, "dög <b>: \n")))
NAMES = (b"cat", b"cat", "dög <b>: \n".encode())
FIELDS = (
    FieldColumn("object", "score", FeatureKind.FLOAT),
    FieldColumn("object", "occluded", FeatureKind.INT64, is_bool=True),
    FieldColumn("object", "parts", FeatureKind.BYTES, RAGGED),
    FieldColumn("object", "vec", FeatureKind.FLOAT, 2),
    FieldColumn("image", "camera", FeatureKind.BYTES),
    FieldColumn("image", "gps", FeatureKind.FLOAT, 2),
)
PARTS = (Part.SEMANTIC, Part.MASK_RLE, Part.CAPTIONS, Part.TAGS)
BOXES = Contents(add_fields(DETECTION.with_parts(PARTS), FIELDS).table, LABELS)
CLASSES = Contents(CLASSIFICATION.with_parts(()), LABELS)
COLUMNS = TableSchema(
    (
        Column("day", "day", ColumnType.DATE),
        Column("kind", "kind", ColumnType.ENUM, values=("x", "y: <i>")),
        Column("matrix", "matrix", ColumnType.INT64, is_list=True, shape=(2, 2)),
        Column("name", "name", ColumnType.BYTES, is_optional=True),
        Column("ok", "ok", ColumnType.BOOL, is_list=True),
        Column("score", "score", ColumnType.FLOAT),
        Column("tags", "tags", ColumnType.BYTES, is_list=True),
        Column("when", "when", ColumnType.TIMESTAMP),
    )
)
ROWS = Contents(COLUMNS.table(), LabelMap(()))
IMAGE_ROWS = Contents(COLUMNS.table(row_image_features(None)), LabelMap(()))


def make_record(contents: Contents, number: int) -> bytes:
    """Record with as many objects as its number, modulo 3. Every fifth lacks optional values."""
    image = GREY if number % 4 == 3 else jpeg(number)
    objects, has_all = range(number % 3), number % 5 > 0
    values = {
        "captions.text": [b"a", "é".encode()][: number % 3],
        "image.channels": 1,
        "image.class_index": number % 3,
        "image.class_name": NAMES[number % 3],
        "image.encoded": image,
        "image.field:camera": b"front" * has_all,
        "image.field:gps": [1.5, -0.0] if has_all else [float("nan")] * 2,
        "image.file_name": f"à/{number}.x".encode(),
        "image.format": b"png" if number % 4 == 3 else b"jpeg",
        "image.height": 30,
        "image.id": b"%d" % -number,
        "image.sha256": hashlib.sha256(image).hexdigest().encode(),
        "image.tag_labels": [7, 9][: number % 2],
        "image.tag_names": [b"cat", NAMES[2]][: number % 2],
        "image.width": 40,
        "objects.area": [0.1 for _ in objects],
        "objects.category_name": [NAMES[index] for index in objects],
        "objects.class_index": list(objects),
        "objects.field:occluded": [index - 1 for index in objects],
        "objects.field:parts/ragged_flat_values": [b"p"] * sum(objects),
        "objects.field:parts/ragged_row_lengths_0": list(objects),
        "objects.field:score": [float("nan") if index else 0.3 for index in objects],
        "objects.field:vec": [0.25] * 2 * len(objects),
        "objects.id": [number * 10 + index for index in objects],
        "objects.is_crowd": list(objects),
        "objects.label": [LABELS.categories[index].id for index in objects],
        "objects.mask_rle": [b"0`@" for _ in objects],
        "objects.xmax": [1.0 for _ in objects],
        "objects.xmin": [0.1 for _ in objects],
        "objects.ymax": [0.7 for _ in objects],
        "objects.ymin": [1 / 3 for _ in objects],
        "row.day": -number,
        "row.kind": number % 2,
        "row.matrix": [number, -1, 2**40, 0],
        "row.name": ["名\n".encode()],
        "row.ok": [0, 1][: number % 3],
        "row.score": 1e-45,
        "row.tags": [b"", b"x"][: number % 3],
        "row.when": -(2**50) + number,
        "semantic.png": GREY if number % 7 else b"",
    }
    table = contents.table
    if not has_all:  # a record of a table lacks the feature
        table = msgspec.structs.replace(table, features=tuple(f for f in table.features if f.source != "row.name"))
    return ExampleWriter(table).write(values)


def make_records(contents: Contents, number: int) -> list[bytes]:
    return [make_record(contents, index) for index in range(number)]


def encode(contents: Contents, records: list[bytes]) -> bytes:
    parts: list[bytes] = []
    writer = CONTAINER.create(contents, KEY, parts.append)
    for record in records:
        writer.append(record[:9], record[9:])
    assert writer.close() is None
    return b"".join(parts)


def write(path, contents: Contents, records: list[bytes]) -> str:
    path.write_bytes(encode(contents, records))
    return str(path)


@pytest.fixture(params=[BOXES, CLASSES, ROWS, IMAGE_ROWS], ids=["boxes", "classes", "rows", "rows_with_images"])
def contents(request):
    return request.param


def test_records_come_back_in_order(tmp_path, contents):
    records = make_records(contents, 230)
    path = write(tmp_path / "a.parquet", contents, records)
    reader = CONTAINER.read(path, contents)
    assert list(reader.records()) == records
    data = (tmp_path / "a.parquet").read_bytes()
    assert reader.sha256.digest() == hashlib.sha256(data).digest()
    sizes = reader.examples, reader.record_bytes, reader.size, reader.index()
    assert sizes == (230, sum(map(len, records)), len(data), None)
    assert list(CONTAINER.open(path, contents, None).in_order()) == records


def test_records_come_back_by_number_from_several_threads(tmp_path, contents):
    records = make_records(contents, 230)
    file = pickle.loads(pickle.dumps(CONTAINER.open(write(tmp_path / "a.parquet", contents, records), contents, None)))
    numbers = [229, 0, 100, 99, 0, 7, 150]
    with ThreadPoolExecutor(8) as pool:
        for read in pool.map(file.read, [numbers] * 40):
            assert read == [records[number] for number in numbers]
    assert len(file) == 230
    with pytest.raises(IndexError, match="230 records"):
        file.read([230])


def test_a_shard_without_records(tmp_path, contents):
    path = write(tmp_path / "a.parquet", contents, [])
    assert list(CONTAINER.read(path, contents).records()) == []
    assert CONTAINER.open(path, contents, None).read([]) == []


def test_equal_records_give_equal_bytes(contents):
    records = make_records(contents, 12)
    assert encode(contents, records) == encode(contents, records)


def test_columns_of_boxes():
    table = pq.read_table(io.BytesIO(encode(BOXES, make_records(BOXES, 6))))
    row = table.to_pylist()[5]
    assert row["image"] == {"bytes": jpeg(5), "path": "à/5.x"}
    assert {name: row[name] for name in ("image_id", "width", "height", "captions", "tags", "camera", "gps")} == {
        "image_id": -5, "width": 40, "height": 30, "captions": ["a", "é"], "tags": [1], "camera": None, "gps": None,
    }  # fmt: skip
    assert row["semantic"] == {"bytes": GREY, "path": None}
    assert row["objects"] == {
        "id": [50, 51],
        "category": [0, 1],
        "bbox": [[4.0, 10.0, 36.0, 11.0]] * 2,
        "area": [np.float32(0.1)] * 2,
        "iscrowd": [0, 1],
        "segmentation": ["0`@"] * 2,
        "occluded": [None, False],
        "parts": [[], ["p"]],
        "score": [np.float32(0.3), None],
        "vec": [[0.25, 0.25]] * 2,
    }
    assert table.to_pylist()[0]["semantic"] is None


def test_columns_of_rows():
    row = pq.read_table(io.BytesIO(encode(ROWS, make_records(ROWS, 6)))).to_pylist()[5]
    assert row["when"].isoformat() == "1934-04-28T18:01:33.157381+00:00"
    assert str(row.pop("day")) == "1969-12-27"
    del row["when"], row["score"]
    assert row == {"kind": 1, "matrix": [[5, -1], [2**40, 0]], "name": None, "ok": [False, True], "tags": ["", "x"]}


def test_classes_and_images_are_in_the_metadata_of_hugging_face():
    schema = pq.read_schema(io.BytesIO(encode(BOXES, [])))
    features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
    assert features["image"] == {"_type": "Image"}
    names = ["cat (id 1)", "cat (id 7)", "dög <b>:"]
    assert features["objects"]["category"] == {
        "feature": {"names": names, "_type": "ClassLabel"}, "_type": "Sequence",
    }  # fmt: skip


def test_row_groups_of_100_rows_with_a_page_per_large_image():
    image = b"\xff\xd8" + bytes(100_000)
    values = {"image.encoded": image, "image.sha256": b"", "image.format": b"jpeg", "image.class_name": b"cat"}
    other = {"image.channels": 1, "image.class_index": 0, "image.file_name": b"a", "image.height": 1, "image.width": 1}
    record = ExampleWriter(CLASSIFICATION.with_parts(())).write({**values, **other, "image.id": b"1"})
    file = pq.ParquetFile(io.BytesIO(encode(CLASSES, [record] * 150)))
    assert [file.metadata.row_group(group).num_rows for group in range(2)] == [100, 50]
    column = file.metadata.row_group(0).column(0)
    assert (column.path_in_schema, column.compression) == ("image.bytes", "UNCOMPRESSED")
    assert column.has_offset_index
    assert file.metadata.row_group(0).column(2).is_stats_set


def test_a_record_by_number_reads_its_page_and_no_other_image(tmp_path, monkeypatch):
    images = [b"\xff\xd8" + bytes([number]) * 100_000 for number in range(100)]
    values = {"image.sha256": b"", "image.format": b"jpeg", "image.class_name": b"cat", "image.id": b"1"}
    other = {"image.channels": 1, "image.class_index": 0, "image.file_name": b"a", "image.height": 1, "image.width": 1}
    writer = ExampleWriter(CLASSIFICATION.with_parts(()))
    records = [writer.write({**values, **other, "image.encoded": image}) for image in images]
    file = CONTAINER.open(write(tmp_path / "a.parquet", CLASSES, records), CLASSES, None)
    sizes: list[int] = []
    read = type(file)._read_ranges
    monkeypatch.setattr(
        type(file), "_read_ranges", lambda self, ranges: sizes.extend(size for _, size in ranges) or read(self, ranges)
    )
    assert file.read([41]) == [records[41]]
    assert len(sizes) == 3  # footer, values of the row group, page
    assert sum(sizes[1:]) < 110_000
    assert file.read([42]) == [records[42]]
    assert len(sizes) == 4  # values are cached


def test_a_record_that_would_change_is_refused():
    records = make_records(CLASSES, 3)
    records[1] = records[1].replace(b"jpeg", b"webp")
    with pytest.raises(ConfigError, match="record 1 would not come back byte for byte"):
        encode(CLASSES, records)


def test_a_text_that_is_not_utf8_is_refused():
    record = make_record(ROWS, 2).replace("名".encode(), b"\xff\xfe\xfd")
    with pytest.raises(ConfigError, match="record 0 would not come back byte for byte"):
        encode(ROWS, [record])


def test_no_flipped_bit_gives_another_record(tmp_path, contents):
    records = make_records(contents, 7)
    data = encode(contents, records)
    path = tmp_path / "a.parquet"
    damaged = 0
    for place in range(0, len(data), max(1, len(data) // 150)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        for read in (CONTAINER.read(str(path), contents).records, CONTAINER.open(str(path), contents, None).in_order):
            try:
                assert list(read()) == records
            except RecordError:
                damaged += 1
    assert damaged > 20


def test_damage_is_named(tmp_path):
    records = make_records(CLASSES, 7)
    data = encode(CLASSES, records)
    path = tmp_path / "a.parquet"
    image = data.index(GREY)  # of record 3; small images share a page
    for content, reason, number in [
        (data[:image] + b"\0" + data[image + 1 :], "data_crc", 0),
        (data[:-9], "truncated", None),
        (b"", "truncated", None),
        (encode(ROWS, []), "unreadable", None),
    ]:
        path.write_bytes(content)
        with pytest.raises(RecordError) as error:
            list(CONTAINER.read(str(path), CLASSES).records())
        assert (error.value.reason, error.value.record) == (reason, number)
        with pytest.raises(RecordError, match=f"{path}.*recordmill verify"):
            CONTAINER.open(str(path), CLASSES, None).read([0])


def test_an_abandoned_shard_writes_nothing_more():
    parts: list[bytes] = []
    writer = CONTAINER.create(CLASSES, KEY, parts.append)
    writer.append(make_record(CLASSES, 0))
    written = len(parts)
    del writer
    assert len(parts) == written
