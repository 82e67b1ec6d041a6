"""The layout keras from end to end: a record an annotation, in shards that say how many they hold."""

from pathlib import Path

import tensorflow as tf

from tests.conftest import annotation, draw_jpeg, image_row


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
