import hashlib
import io
import json
import pickle
import tarfile

import pytest

from recordmill.schemas.errors import ConfigError, IndexMismatchError, RecordError
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import CLASSIFICATION, DETECTION
from recordmill.schemas.shards import ShardInfo, ShardKey
from recordmill.transforms.containers import webdataset
from recordmill.transforms.containers.container import Contents
from recordmill.transforms.containers.webdataset import CONTAINER
from recordmill.transforms.records.example import ExampleWriter
from recordmill.transforms.records.shard_index import index_path
from recordmill.transforms.records.tar import build_tar_index
from recordmill.transforms.storage.resolve import storage_for
from tests.literal_data import GREY, jpeg

KEY = ShardKey("train", 3, 8)
LABELS = LabelMap((Category(1, "cat"), Category(3, "dög")))
BOXES = Contents(DETECTION.with_parts((Part.SEMANTIC,)), LABELS)
CLASSES = Contents(CLASSIFICATION.with_parts(()), LABELS)


def make_record(contents: Contents, number: int) -> bytes:
    """Record of an image with as many objects as its number, modulo 3."""
    image = GREY if number % 4 == 3 else jpeg(number)
    objects = range(number % 3)
    values = {
        "image.channels": 1,
        "image.class_index": number % 2,
        "image.class_name": (b"cat", "dög".encode())[number % 2],
        "image.encoded": image,
        "image.file_name": b"%d.x" % number,
        "image.format": b"png" if number % 4 == 3 else b"jpeg",
        "image.height": 30,
        "image.id": b"%d" % number,
        "image.sha256": hashlib.sha256(image).hexdigest().encode(),
        "image.width": 40,
        "objects.area": [0.5 for _ in objects],
        "objects.category_name": [b"cat" for _ in objects],
        "objects.class_index": [0 for _ in objects],
        "objects.id": list(objects),
        "objects.is_crowd": [0 for _ in objects],
        "objects.label": [1 for _ in objects],
        "objects.xmax": [1.0 for _ in objects],
        "objects.xmin": [0.25 for _ in objects],
        "objects.ymax": [1.0 for _ in objects],
        "objects.ymin": [0.5 for _ in objects],
        "semantic.png": GREY,
    }
    return ExampleWriter(contents.table).write(values)


def make_records(contents: Contents, number: int) -> list[bytes]:
    return [make_record(contents, index) for index in range(number)]


def write(path, contents: Contents, records: list[bytes], has_index: bool = True) -> str:
    parts: list[bytes] = []
    writer = CONTAINER.create(contents, KEY, parts.append)
    for record in records:
        writer.append(record[:9], record[9:])
    index = writer.close()
    path.write_bytes(b"".join(parts))
    if has_index:
        storage_for(str(path)).write(index_path(str(path)), index)
    return str(path)


@pytest.fixture(params=[BOXES, CLASSES], ids=["boxes", "classes"])
def contents(request):
    return request.param


@pytest.mark.parametrize("number", [1, 32, 77])
def test_records_come_back(tmp_path, contents, number):
    records = make_records(contents, number)
    path = write(tmp_path / "x.tar", contents, records)
    reader, file = CONTAINER.read(path, contents), CONTAINER.open(path, contents, None)
    assert list(reader.records()) == records
    data = (tmp_path / "x.tar").read_bytes()
    assert (reader.examples, reader.record_bytes, reader.size) == (number, sum(map(len, records)), len(data))
    assert reader.sha256.hexdigest() == hashlib.sha256(data).hexdigest()
    assert reader.index() == storage_for(path).read(index_path(path)) == build_tar_index(path, lambda _: None)[0]
    assert list(file.in_order()) == records
    wanted = [number - 1, 0, number // 2, 0]
    assert pickle.loads(pickle.dumps(file)).read(wanted) == [records[index] for index in wanted]
    assert (len(file), file.read([])) == (number, [])
    with pytest.raises(IndexError):
        file.read([number])


def test_members_are_files_of_plain_ustar(tmp_path):
    path = write(tmp_path / "x.tar", BOXES, make_records(BOXES, 4))
    with tarfile.open(path) as archive:
        members = archive.getmembers()
        assert {(m.mtime, m.uid, m.gid, m.mode, m.uname, m.gname, m.type) for m in members} == {
            (0, 0, 0, 0o644, "", "", tarfile.REGTYPE)
        }
        assert [m.name for m in members[:3] + members[-3:]] == [
            "000003-00000000.jpg",
            "000003-00000000.json",
            "000003-00000000.semantic.png",
            "000003-00000003.png",
            "000003-00000003.json",
            "000003-00000003.semantic.png",
        ]
        assert archive.extractfile("000003-00000002.jpg").read() == jpeg(2)
        sample = json.load(archive.extractfile("000003-00000001.json"))
    assert sample.pop("sha256") == hashlib.sha256(jpeg(1)).hexdigest()
    (annotation,) = sample.pop("annotations")
    assert sample == {"image_id": 1, "file_name": "1.x", "width": 40, "height": 30}
    assert annotation == {"id": 0, "category_id": 1, "bbox": [10.0, 15.0, 30.0, 15.0], "area": 0.5, "iscrowd": 0}


def test_class_of_image_is_member(tmp_path):
    path = write(tmp_path / "x.tar", CLASSES, make_records(CLASSES, 2))
    with tarfile.open(path) as archive:
        assert archive.extractfile("000003-00000001.cls").read() == b"1"
        assert "label" not in json.load(archive.extractfile("000003-00000001.json"))


def read_damaged(path, contents: Contents, change) -> tuple[list[bytes], RecordError]:
    """Return the records that are read, and the error."""
    data = bytearray(path.read_bytes())
    path.write_bytes(change(data) or data)
    records = []
    try:
        for record in CONTAINER.read(str(path), contents).records():
            records.append(record)
    except RecordError as error:
        return records, error
    pytest.fail("no error")


def place_of(data: bytes, text: bytes, number: int) -> int:
    place = -1
    for _ in range(number + 1):
        place = data.index(text, place + 1)
    return place


def flip(text: bytes, number: int, offset: int = 0, bit: int = 1):
    """Change that flips a bit of the occurrence of a text."""

    def change(data: bytearray) -> None:
        data[place_of(data, text, number) + offset] ^= bit

    return change


@pytest.mark.parametrize(
    ("change", "reason", "said"),
    [
        (flip(b"000003-00000040.jpg", 0), "header", "header is damaged"),
        (flip(b"000003-00000040.json", 0, 150), "header", "header is damaged"),
        (flip(b'"image_id":40', 0, 0), "data", "JSON"),
        (flip(b'"image_id":40', 0, -1, 4), "data", "JSON"),
        (flip(b"\xff\xd8", 30, 60), "data", "SHA-256"),
        (lambda data: data[: place_of(data, b"000003-00000040.json", 0) + 600], "truncated", "truncated"),
        (lambda data: data[: place_of(data, b"000003-00000040.json", 0) + 60], "truncated", "truncated"),
    ],
)
def test_damage_is_named_by_record(tmp_path, change, reason, said):
    records = make_records(BOXES, 50)
    write(tmp_path / "x.tar", BOXES, records)
    read, error = read_damaged(tmp_path / "x.tar", BOXES, change)
    assert (error.record, error.reason, read) == (40, reason, records[:40])
    assert said in error.detail


@pytest.mark.parametrize(
    ("change", "record"),
    [
        (lambda data: data[:-1024], 3),  # cut at the border of a sample
        (lambda data: data[:-512], 3),
        (lambda data: data[:-1024] + b"x" * 1024, 3),
        (lambda data: data[: len(data) - 1024] + data, 3),  # a shard twice
    ],
)
def test_damaged_end_is_error(tmp_path, change, record):
    records = make_records(BOXES, 3)
    write(tmp_path / "x.tar", BOXES, records)
    read, error = read_damaged(tmp_path / "x.tar", BOXES, change)
    assert (error.record, read) == (record, records)


@pytest.mark.parametrize(
    ("change", "number", "said"),
    [
        (flip(b"000003-00000002.json", 0, 200), 2, "record 2 at byte .*header is damaged"),
        (flip(b'"image_id":2', 0), 2, "record 2.*JSON.*recordmill verify"),
        (flip(b"\xff\xd8", 2, 60), 2, "record 2.*SHA-256"),
    ],
)
def test_read_by_number_names_damaged_record(tmp_path, change, number, said):
    records = make_records(BOXES, 3)
    path = write(tmp_path / "x.tar", BOXES, records)
    data = bytearray((tmp_path / "x.tar").read_bytes())
    change(data)
    (tmp_path / "x.tar").write_bytes(data)
    file = CONTAINER.open(path, BOXES, None)
    assert file.read([0, 1]) == records[:2]
    with pytest.raises(RecordError, match=said):
        file.read([0, number, 1])
    with pytest.raises(RecordError, match=r"x\.tar: record 2 at byte"):
        list(file.in_order())


def test_tar_without_index_is_scanned(tmp_path):
    records = make_records(BOXES, 3)
    path = write(tmp_path / "x.tar", BOXES, records, has_index=False)
    assert CONTAINER.open(path, BOXES, None).read([2]) == records[2:]


def test_index_of_another_tar_is_error(tmp_path):
    write(tmp_path / "y.tar", BOXES, make_records(BOXES, 4))
    path = write(tmp_path / "x.tar", BOXES, make_records(BOXES, 3))
    storage_for(path).write(index_path(path), storage_for(path).read(index_path(str(tmp_path / "y.tar"))))
    with pytest.raises(IndexMismatchError, match="recordmill index"):
        CONTAINER.open(path, BOXES, None).read([0])


def test_zeros_in_place_of_samples_are_an_error(tmp_path):
    """They look like the end of the tar."""
    records = make_records(BOXES, 6)
    path = write(tmp_path / "x.tar", BOXES, records)
    start, end = CONTAINER.open(path, BOXES, None).index.bounds[2:5:2].tolist()
    data = (tmp_path / "x.tar").read_bytes()
    (tmp_path / "x.tar").write_bytes(data[:start] + bytes(end - start) + data[end:])
    file, reader = CONTAINER.open(path, BOXES, None), CONTAINER.read(path, BOXES)
    assert file.read([0, 1, 4]) == [records[number] for number in (0, 1, 4)]
    for numbers in ([2], [3], range(6)):
        with pytest.raises(RecordError, match="a block of zeros"):
            file.read(numbers)
    for given in (file.in_order(), reader.records()):
        assert [next(given), next(given)] == records[:2]
        with pytest.raises(RecordError, match="a block of zeros"):
            next(given)


def test_tar_under_name_of_another_shard_is_error(tmp_path):
    path = write(tmp_path / "coco-train-000003.tar", BOXES, make_records(BOXES, 2))
    size = (tmp_path / "coco-train-000003.tar").stat().st_size
    infos = [ShardInfo(f"coco-train-{shard:06}.tar", 2, size, "", "") for shard in (3, 4)]
    own, other = (CONTAINER.open(path, BOXES, info) for info in infos)
    assert list(own.in_order()) == own.read([0, 1])
    for read in (lambda: other.read([1]), lambda: list(other.in_order())):
        with pytest.raises(RecordError, match=r"has the member 000003-0000000\d\.jpg instead of 000004-"):
            read()


def test_record_that_would_change_is_error_that_names_shard(monkeypatch):
    writer = CONTAINER.create(BOXES, KEY, lambda data: pytest.fail("bytes were written"))
    writer.append(make_record(BOXES, 0))
    writer.append(make_record(BOXES, 1).replace(b"image/width", b"image/widht"))
    with pytest.raises(ConfigError, match="shard 3 of train: record 1 would not come back"):
        writer.close()


def test_empty_shard_is_error():
    writer = CONTAINER.create(BOXES, KEY, io.BytesIO().write)
    with pytest.raises(ConfigError, match="shard 3 of train has no records, and DALI cannot read an empty tar"):
        writer.close()


def test_large_images_are_in_small_batches(monkeypatch, tmp_path):
    monkeypatch.setattr(webdataset, "_BATCH_BYTES", 1)
    monkeypatch.setattr(webdataset, "_LARGE_BYTES", 1)
    records = make_records(BOXES, 5)
    one = (tmp_path / "x.tar", write(tmp_path / "x.tar", BOXES, records))[0].read_bytes()
    assert list(CONTAINER.read(str(tmp_path / "x.tar"), BOXES).records()) == records
    monkeypatch.undo()
    write(tmp_path / "y.tar", BOXES, records)
    assert (tmp_path / "y.tar").read_bytes() == one


def test_in_bucket_near_records_are_one_request(gcs, tmp_path):
    records = make_records(BOXES, 40)
    path = write(tmp_path / "x.tar", BOXES, records)
    gcs.put("out/x.tar", (tmp_path / "x.tar").read_bytes())
    assert build_tar_index("gs://bucket/out/x.tar", lambda _: None)[0] == storage_for(path).read(index_path(path))
    file = CONTAINER.open("gs://bucket/out/x.tar", BOXES, None)  # without an index
    assert file.read([1]) == records[1:2]
    gcs.log.clear()
    assert file.read([30, 2, 2, 39]) == [records[number] for number in (30, 2, 2, 39)]
    assert [call.operation for call in gcs.log] == ["read"]
    assert list(file.in_order()) == list(CONTAINER.read("gs://bucket/out/x.tar", BOXES).records()) == records
    gcs.put("out/x.tar", b"another file")
    with pytest.raises(RecordError, match="changed or was deleted"):
        file.read([1])
