"""The layout keras from end to end: a record an annotation, in shards that are full and say how many they hold."""

from pathlib import Path

import tensorflow as tf

from tests.conftest import annotation, draw_jpeg, image_row, manifest_of, rejects_of


def keras_records(folder: Path) -> list[dict[str, list]]:
    examples = []
    for number, path in enumerate(sorted(folder.glob("file_*.tfrec"))):
        records = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
        assert path.name == f"file_{number:02d}-{len(records)}.tfrec"
        for record in records:
            features = tf.train.Example.FromString(record).features.feature
            examples.append({name: list(getattr(f, f.WhichOneof("kind")).value) for name, f in features.items()})
    return examples


def test_keras_reads_each_image_once(inputs, recordmill, monkeypatch):
    from recordmill.transforms.storage.local_storage import LocalStorage

    draw_jpeg(inputs.folder / "images" / "b.jpg")
    rows = [annotation(id_, 1) for id_ in range(50)]
    instances = inputs.file("instances.json", rows, images=[image_row(1, "a.jpg"), image_row(2, "b.jpg")])
    reads = []
    read = LocalStorage.read
    monkeypatch.setattr(
        LocalStorage, "read", lambda self, path, *more: (reads.append(Path(path).name), read(self, path, *more))[1]
    )
    assert recordmill(*inputs.flags("--instances", instances, "--layout", "keras")).code == 0
    assert [name for name in reads if name.endswith(".jpg")] == ["a.jpg"]
    assert [path.name for path in inputs.out.glob("file_*")] == ["file_00-50.tfrec"]
    assert len({record["image"][0] for record in keras_records(inputs.out)}) == 1


def test_keras_shards_are_full_and_count_reject_once(inputs, recordmill):
    draw_jpeg(inputs.folder / "images" / "b.jpg")
    (inputs.folder / "images" / "c.jpg").write_bytes(b"\xff\xd8\xff cut short")
    rows = [annotation(10 * image_id + number, image_id) for image_id in (1, 2, 3) for number in range(5)]
    images = [image_row(id_, name) for id_, name in ((1, "a.jpg"), (2, "b.jpg"), (3, "c.jpg"))]
    instances = inputs.file("instances.json", rows, images=images)
    flags = inputs.flags("--instances", instances, "--layout", "keras", "--examples-per-shard", 2)
    assert recordmill(*flags).code == 0
    (reject,) = rejects_of(inputs.out)
    assert (reject["id"], reject["reason"]) == (3, "image_unreadable")
    split = manifest_of(inputs.out)["splits"]["train"]
    assert split["images"] == {"rows": 3, "written": 2, "without_record": 0, "rejected": {"image_unreadable": 1}}
    assert (split["annotations"]["objects"], split["annotations"]["of_rejected_images"]) == (10, 5)
    assert sorted(record["id"][0] for record in keras_records(inputs.out)) == [*range(10, 15), *range(20, 25)]
    (inputs.folder / "images" / "c.jpg").unlink()
    draw_jpeg(inputs.folder / "images" / "c.jpg")
    assert recordmill(*flags, "--overwrite").code == 0
    shards = [*(f"file_{number:02d}-2.tfrec" for number in range(7)), "file_07-1.tfrec"]
    assert sorted(path.name for path in inputs.out.glob("file_*")) == shards
    links = sorted(inputs.out.glob("coco-train.tfrecord-*"))
    assert [link.resolve().name for link in links] == shards
