import pytest
import tensorflow as tf

from recordmill.launch.verbs.show import record_lines
from recordmill.schemas.errors import ConfigError, RecordError
from recordmill.transforms.records.parse_record import parse_example
from recordmill.transforms.show.choose_records import Choice, choose_records, json_document
from recordmill.transforms.show.describe_values import describe_list
from recordmill.transforms.show.find_shards import find_shards
from tests.transforms.show.records import example, framed, image_bytes, label_map, write


def chosen(path, count: int = 99, split: str = "", **choice) -> list:
    return list(choose_records(find_shards(str(path), split), Choice(**choice), count, lambda records: None))


def numbers(path, **choice) -> list[tuple[int, int]]:
    """File, by its last digit, and number of each record."""
    return [(int(record.shard.path[-1]), record.number) for record in chosen(path, **choice)]


@pytest.fixture
def files(tmp_path):
    """Two files of three and two images."""
    names = ["cat", "dog", "cat", "red panda", "dog"]
    records = [
        example(
            image__source_id=[str(100 + number).encode()],
            image__filename=[f"{number}.jpg".encode()],
            image__object__class__text=[name.encode(), b"tree"],
            image__object__bbox__xmin=[0.5, 0.25],
            image__height=[10 + number],
        )
        for number, name in enumerate(names)
    ]
    write(tmp_path / "x.tfrecord-0", *records[:3])
    write(tmp_path / "x.tfrecord-1", *records[3:])
    return tmp_path


def test_all_in_order_and_no_more_than_asked_for(files):
    assert numbers(files) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert numbers(files, count=2) == [(0, 0), (0, 1)]


def test_by_number_over_all_files(files):
    assert numbers(files, first=3, count=1) == [(1, 0)]
    assert numbers(files, first=2) == [(0, 2), (1, 0), (1, 1)]


def test_by_id_or_file_name(files):
    assert numbers(files, id="103") == numbers(files, id="3.jpg") == [(1, 0)]


@pytest.mark.parametrize(
    "more",
    [
        {"image__source_id": bytes, "image__encoded": [image_bytes()], "image__format": [b"jpeg"]},
        {"image__id": int, "image": [image_bytes()], "image__filename": [b"a"]},
    ],
    ids=["text", "number"],
)
def test_by_id_far_from_the_beginning(tmp_path, more):
    """The search compares bytes of records before it parses them."""
    (name, kind), *other_features = more.items()
    ids = [*range(40), -5, 1 << 40]
    written = [{name: [id_ if kind is int else str(id_).encode()]} for id_ in ids]
    path = write(tmp_path / "x.tfrecord0", *(example(**dict(other_features), **id_feature) for id_feature in written))
    for number in (0, 30, 40, 41):
        assert numbers(path, id=str(ids[number])) == [(0, number)]


def test_by_class(files):
    assert numbers(files, feature="category", value="cat") == [(0, 0), (0, 2)]
    assert numbers(files, feature="category", value="dog", first=2) == [(1, 1)]


def test_by_the_value_of_a_feature(files, tmp_path):
    assert numbers(files, feature="image/height", value="11") == [(0, 1)]
    assert numbers(files, feature="image/filename", value="1.jpg") == [(0, 1)]
    assert len(chosen(files, feature="image/object/bbox/xmin", value="0.25")) == 5
    path = write(tmp_path / "column" / "x.tfrecord0", example(category=[b"a"]), example(category=[b"b"]))
    assert numbers(path, feature="category", value="b") == [(0, 1)]


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"first": 5}, "only 5 records"),
        ({"first": 99}, "only 5 records"),
        ({"id": "7"}, "none of 5 records in 2 files has this id. Examples of ids: 100, 101, 102, 103, 104."),
        ({"feature": "category", "value": "redpanda"}, "the nearest class is red panda"),
        ({"feature": "image/object/bbox/xmin", "value": "0.3"}, "none of 5 records in 2 files has this value"),
        ({"feature": "image/heigt", "value": "11"}, "the nearest feature is image/height"),
    ],
)
def test_nothing_is_chosen(files, choice, message):
    with pytest.raises(ConfigError, match=message):
        chosen(files, **choice)


def test_offsets_are_records(files):
    data = (files / "x.tfrecord-0").read_bytes()
    for record in chosen(files)[:3]:
        size = int.from_bytes(data[record.offset : record.offset + 8], "little")
        assert parse_example(data[record.offset + 12 :][:size])["image/filename"] == record.features["image/filename"]


def test_records_before_damaged_one_are_given(files):
    data = bytearray((files / "x.tfrecord-1").read_bytes())
    data[-5] ^= 1
    (files / "x.tfrecord-1").write_bytes(bytes(data))
    records = choose_records(find_shards(str(files), ""), Choice(), 99, lambda _: None)
    assert [next(records).number for _ in range(4)] == [0, 1, 2, 0]
    with pytest.raises(RecordError, match="record 1 at byte"):
        next(records)


@pytest.mark.parametrize("data", [b"no protocol buffer", b"\x0a\x7f\x00", b"\x12\x02\x08\x01"])
def test_records_of_something_else(tmp_path, data):
    (tmp_path / "x").write_bytes(framed(example(a=[1]), data))
    with pytest.raises(RecordError, match=r"record 1 at byte \d+ is not a tf.train.Example"):
        chosen(tmp_path / "x")


def test_files_without_a_record(tmp_path):
    (tmp_path / "x").write_bytes(b"")
    with pytest.raises(ConfigError, match="no records in"):
        chosen(tmp_path / "x")


def test_an_empty_example_is_a_record(tmp_path):
    assert [record.features for record in chosen(write(tmp_path / "x.tfrecord0", b"", b"\n\0"))] == [{}, {}]


def test_classes_of_data_set_are_known_before_it_is_read(tmp_path, copy_converted):
    copy_converted(tmp_path)
    for shard in tmp_path.glob("*.tfrecord-*"):
        shard.unlink()
    with pytest.raises(ConfigError, match="has no such class; the nearest class is circle"):
        chosen(tmp_path, feature="category", value="circel")


def test_shard_that_lacks_records_at_its_end_is_named(tmp_path, copy_converted):
    copy_converted(tmp_path)
    (path,) = tmp_path.glob("*.tfrecord-*")
    data = path.read_bytes()
    path.write_bytes(data[: 16 + int.from_bytes(data[:8], "little")])
    records = choose_records(find_shards(str(tmp_path), ""), Choice(), 99, lambda _: None)
    assert next(records).number == 0
    with pytest.raises(RecordError, match="has 1 records, not 22 as written"):
        next(records)


def test_shards_before_number_are_not_read(tmp_path, copy_converted):
    copy_converted(tmp_path, "--num-shards", 3)
    (tmp_path / "coco-train.tfrecord-00000-of-00003").unlink()
    (record,) = chosen(tmp_path, first=16, count=1)
    assert (record.shard.path[-14:], record.number) == ("00002-of-00003", 1)


def test_class_names_of_tfds_beside_files(tmp_path):
    record = example(image=[label_map([[0]])], faces__bbox=[0.1, 0.2, 0.3, 0.4], faces__label=[1], kind=[0])
    path = write(tmp_path / "x-train.tfrecord-00000-of-00001", record)
    (tmp_path / "faces-label.labels.txt").write_text("young\nold\n")
    (tmp_path / "kind.labels.txt").write_text("indoor\noutdoor\n")
    (record,) = chosen(path)
    assert record.classes == {"old"}
    assert record.meanings == {"faces/label": ("young", "old"), "kind": ("indoor", "outdoor")}


def test_feature_lists_of_sequence_example(tmp_path):
    record = tf.train.SequenceExample()
    record.context.feature["id"].bytes_list.value.append(b"a")
    for frame in ([1, 2], [], [3]):
        record.feature_lists.feature_list["label"].feature.add().int64_list.value.extend(frame)
    record.feature_lists.feature_list["text"].feature.add().bytes_list.value.append(b"cat")
    record.feature_lists.feature_list["none"].feature.add()
    shards = find_shards(write(tmp_path / "x.tfrecord", record.SerializeToString()), "")
    (match,) = choose_records(shards, Choice(feature="text", value="cat"), 9, lambda records: None)
    document = json_document("x", shards, [match])["records"][0]
    assert document["features"] == {"id": {"type": "bytes", "values": ["a"]}}
    assert document["feature_lists"] == {
        "label": [{"type": "int64", "values": values} for values in ([1, 2], [], [3])],
        "none": [None],
        "text": [{"type": "bytes", "values": ["cat"]}],
    }
    rows = [[*describe_list(*item)[1:]] for item in sorted(match.lists.items())]
    assert rows == [
        ["int64", "3 steps of 0 to 2 values: [3] 1, 2, 3"],
        ["", "1 step of 0 values"],
        ["bytes", "1 step: cat"],
    ]
    assert any("label (list)" in line for line in record_lines([match], 100))
