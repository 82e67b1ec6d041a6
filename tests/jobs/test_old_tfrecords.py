"""TFRecord files of other tools, written by TensorFlow, from end to end."""

import json
from pathlib import Path

import pytest

from tests.conftest import examples_by_name, manifest_of, read_examples, rejects_of
from tests.literal_data import example, jpeg, old_record, tfrecord, write_coco_set, write_files


def feature(values: list):
    import tensorflow as tf

    if isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if isinstance(values[0], int):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def write_by_tensorflow(path: Path, records: list[dict[str, list]]) -> None:
    import tensorflow as tf

    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            features = {name: feature(values) if values else tf.train.Feature() for name, values in record.items()}
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def api_records(folder: Path) -> list[dict[str, list]]:
    """Records of a COCO data set, as `create_coco_tf_record.py` of the Object Detection API writes them."""
    coco = json.loads((folder / "instances.json").read_text())
    names = {category["id"]: category["name"].encode() for category in coco["categories"]}
    records = []
    for image in coco["images"]:
        width, height = image["width"], image["height"]
        rows = [row for row in coco["annotations"] if row["image_id"] == image["id"]]
        boxes = [row["bbox"] for row in rows]
        records.append(
            {
                "image/height": [height],
                "image/width": [width],
                "image/filename": [image["file_name"].encode()],
                "image/source_id": [str(image["id"]).encode()],
                "image/key/sha256": [b"0"],
                "image/encoded": [(folder / "images" / image["file_name"]).read_bytes()],
                "image/format": [b"jpeg"],
                "image/object/bbox/xmin": [x / width for x, *_ in boxes],
                "image/object/bbox/xmax": [min((x + w) / width, 1.0) for x, _, w, _ in boxes],
                "image/object/bbox/ymin": [y / height for _, y, *_ in boxes],
                "image/object/bbox/ymax": [min((y + h) / height, 1.0) for _, y, _, h in boxes],
                "image/object/class/text": [names[row["category_id"]] for row in rows],
                "image/object/class/label": [row["category_id"] for row in rows],
                "image/object/is_crowd": [row["iscrowd"] for row in rows],
                "image/object/area": [float(row["area"]) for row in rows],
                "image/object/id": [row["id"] for row in rows],
            }
        )
    return records


def test_records_are_those_of_the_coco_files_that_the_old_ones_are_from(tmp_path, recordmill):
    write_coco_set(tmp_path)
    records = api_records(tmp_path)
    for shard in range(2):
        write_by_tensorflow(tmp_path / "old" / f"coco_train.record-0000{shard}-of-00002", records[shard::2])
    coco = recordmill(
        "convert",
        tmp_path / "images",
        "--instances",
        tmp_path / "instances.json",
        "-o",
        tmp_path / "coco",
        "--num-shards",
        1,
    )
    old = recordmill("convert", tmp_path / "old", "-o", tmp_path / "out", "--num-shards", 1)
    assert (coco.code, old.code) == (0, 0), old
    assert examples_by_name(tmp_path / "out") == examples_by_name(tmp_path / "coco")


def test_records_of_an_annotation_each_become_one_image(tmp_path, recordmill):
    """As in keras' recipe; the records of an image may be in two files."""
    rows = [
        {
            "image": [jpeg(number // 2)],
            "path": [f"images/{number // 2}.jpg".encode()],
            "bbox": [1.0, 2.0, 3.0 + number, 4.0],
            "area": [float(number)],
            "category_id": [number % 2],
            "id": [number + 10],
            "image_id": [number // 2],
        }
        for number in range(4)
    ]
    write_by_tensorflow(tmp_path / "old" / "file_00-3.tfrec", rows[:3])
    write_by_tensorflow(tmp_path / "old" / "file_01-1.tfrec", rows[3:])
    outcome = recordmill("convert", tmp_path / "old", "-o", tmp_path / "out", "--class-names", "cat,dog")
    assert outcome.code == 0, outcome
    examples = examples_by_name(tmp_path / "out")
    assert {name: record["image/object/id"] for name, record in examples.items()} == {
        "images/0.jpg": [10, 11],
        "images/1.jpg": [12, 13],
    }
    assert examples["images/1.jpg"]["image/object/class/text"] == [b"cat", b"dog"]
    assert examples["images/1.jpg"]["image/object/area"] == [2, 3]
    assert examples["images/1.jpg"]["image/encoded"] == [jpeg(1)]


@pytest.mark.parametrize(("layout", "labels"), [("detection", ([3], [7])), ("classification", ([0], [1]))])
def test_a_class_of_each_image(layout, labels, tmp_path, recordmill):
    records = [
        {"image/encoded": [jpeg(label)], "image/class/label": [label], "image/class/text": [text]}
        for label, text in ((3, b"tench, Tinca"), (7, b"cat"))
    ]
    write_by_tensorflow(tmp_path / "old" / "train-00000-of-00001", records)
    outcome = recordmill("convert", tmp_path / "old", "-o", tmp_path / "out", "--layout", layout)
    assert outcome.code == 0, outcome
    tags = [(record["image/class/label"], record["image/class/text"]) for record in read_examples(tmp_path / "out")]
    assert sorted(tags) == [(labels[0], [b"tench, Tinca"]), (labels[1], [b"cat"])]
    (warning,) = manifest_of(tmp_path / "out")["splits"]["train"]["warnings"]
    assert ("--layout classification stores the class" in warning) == (layout == "detection")
    assert ("'tench, Tinca' is 0, and was 3" in warning) == (layout == "classification")


def test_images_without_one_class_are_rejects_and_others_are_stratified(tmp_path, recordmill):
    def record(number: int, *classes: bytes) -> bytes:
        return example(
            image__encoded=jpeg(number),
            image__filename=f"{number}.jpg".encode(),
            image__class__text=[*classes],
            image__class__label=[1 if name == b"cat" else 2 for name in classes],
        )

    records = [record(number, b"cat" if number < 4 else b"dog") for number in range(8)]
    records += [record(8, b"cat", b"dog"), record(9)]
    write_files(tmp_path / "old", {"a.record": tfrecord(*records)})
    shares = "--split", "train=0.5,val=0.5", "--stratify", "--max-rejects", 1
    outcome = recordmill("convert", tmp_path / "old", "-o", tmp_path / "out", "--layout", "classification", *shares)
    assert outcome.code == 0, outcome
    splits = manifest_of(tmp_path / "out")["splits"]
    assert [split["class_counts"] for split in splits.values()] == [[2, 2], [2, 2]]
    rejects = rejects_of(tmp_path / "out")
    assert {reject["file_name"]: (reject["reason"], reject["detail"]) for reject in rejects} == {
        "8.jpg": ("no_class", "record 8 in a.record: the image has 2 classes, not one"),
        "9.jpg": ("no_class", "record 9 in a.record: the image has 0 classes, not one"),
    }


def test_records_of_the_class_of_an_image_lack_its_objects(tmp_path, recordmill):
    write_files(
        tmp_path / "old",
        {"a.record": tfrecord(old_record(0, image__class__text=b"cat", image__object__bbox__xmax=[9.0]))},
    )
    outcome = recordmill("convert", tmp_path / "old", "-o", tmp_path / "out", "--layout", "classification")
    assert outcome.code == 0, outcome
    (warning,) = manifest_of(tmp_path / "out")["splits"]["train"]["warnings"]
    assert warning == "the layout classification has no feature for objects and captions: they are not written"
    assert [record["image/class/text"] for record in read_examples(tmp_path / "out")] == [[b"cat"]]


def test_what_is_read_of_damaged_files(tmp_path, recordmill):
    whole = tfrecord(*map(old_record, range(4)))
    cut = tfrecord(old_record(4), old_record(5))[:-5]
    damaged = bytearray(whole)
    damaged[len(tfrecord(old_record(0))) + 60] ^= 1
    write_files(tmp_path / "old", {"a.record": bytes(damaged), "b.record": cut})
    outcome = recordmill("convert", tmp_path / "old", "-o", tmp_path / "out", "--max-rejects", 1)
    assert outcome.code == 0, outcome
    assert sorted(examples_by_name(tmp_path / "out")) == ["0.jpg", "2.jpg", "3.jpg", "4.jpg"]
    rejects = {reject["file_name"]: reject for reject in rejects_of(tmp_path / "out")}
    assert [
        (rejects[name]["reason"], rejects[name]["detail"].partition(":")[0]) for name in ("a.record", "b.record")
    ] == [
        ("malformed_image", f"record 1 at byte {len(tfrecord(old_record(0)))} in a.record"),
        ("malformed_labels", "b.record"),
    ]
    assert "Records before it that were read: 1" in rejects["b.record"]["detail"]


def test_a_record_that_is_there_again_counts_once(tmp_path, recordmill):
    write_files(
        tmp_path / "old", {"a.record": tfrecord(old_record(0), old_record(1)), "b.record": tfrecord(old_record(0))}
    )
    outcome = recordmill("convert", tmp_path / "old", "-o", tmp_path / "out")
    assert outcome.code == 0, outcome
    assert [record["image/object/class/label"] for record in read_examples(tmp_path / "out")] == [[1], [1]]
    assert (
        "records with the same bytes count once: record 0 of b.record equals record 0 of a.record"
        in outcome.out + outcome.err
    )


@pytest.mark.parametrize(
    ("records", "text"),
    [
        (
            (old_record(0), old_record(1, image__filename=b"0.jpg")),
            "different images are called '0.jpg': record 0 of a.record and record 1 of a.record. Add --keys "
            "image/filename= to",
        ),
        (
            (old_record(0, image__source_id=b"0"), old_record(1, image__source_id=b"0")),
            "different images have one id, image/source_id: record 1 of a.record, and record 0 of a.record. Add --keys "
            "image/source_id= to",
        ),
    ],
)
def test_different_images_of_one_name_or_id(records, text, tmp_path, recordmill):
    write_files(tmp_path / "old", {"a.record": tfrecord(*records)})
    outcome = recordmill("convert", tmp_path / "old", "-o", tmp_path / "out")
    assert outcome.code == 1
    assert text in outcome.err


def test_a_name_of_two_splits_is_of_an_image_each(tmp_path, recordmill):
    write_files(
        tmp_path / "old",
        {"train.record": tfrecord(old_record(0)), "val.record": tfrecord(old_record(1, image__filename=b"0.jpg"))},
    )
    assert recordmill("convert", tmp_path / "old", "-o", tmp_path / "out").code == 0
    stored = [read_examples(tmp_path / "out", split)[0]["image/encoded"] for split in ("train", "val")]
    assert stored == [[jpeg(0)], [jpeg(1)]]


def test_several_files_are_one_data_set(tmp_path, recordmill):
    files = {f"{name}.record": tfrecord(old_record(number)) for number, name in enumerate("abc")}
    write_files(tmp_path / "old", files)
    paths = tmp_path / "old" / "a.record", tmp_path / "old" / "b.record"
    outcome = recordmill("convert", *paths, "-o", tmp_path / "out")
    assert outcome.code == 0, outcome
    assert sorted(examples_by_name(tmp_path / "out")) == ["0.jpg", "1.jpg"]
    assert "--files a.record,b.record --format tfrecord" in outcome.out + outcome.err


def test_steps_of_other_formats_follow(tmp_path, recordmill):
    """Tiles of another container, and a job that adds images."""
    write_files(tmp_path / "old", {"a.record": tfrecord(old_record(0)), "b.record": tfrecord(*map(old_record, (0, 1)))})
    out = ("-o", tmp_path / "out", "--name", "set", "--tile", 20, "--container", "webdataset")
    assert recordmill("convert", tmp_path / "old" / "a.record", *out).code == 0
    outcome = recordmill("convert", tmp_path / "old", *out, "--add")
    assert outcome.code == 0, outcome
    assert "added               1 image in 1 shard, 1 was present" in outcome.out
    assert recordmill("verify", tmp_path / "out").code == 0


def test_a_job_that_keeps_no_images_in_memory_reads_ranges(tmp_path, recordmill, monkeypatch):
    """Images are read from the old files when shards are written."""
    from recordmill.transforms.images import load_images

    offsets = []
    fetch = load_images.fetch_file
    monkeypatch.setattr(load_images, "fetch_file", lambda file: (offsets.append(file.offset), fetch(file))[1])
    write_files(tmp_path / "old", {"a.record": tfrecord(*map(old_record, range(3)))})
    assert recordmill("convert", tmp_path / "old", "-o", tmp_path / "out", "--workers", 1).code == 0
    assert len(offsets) == 3
    assert min(offsets) > 0
