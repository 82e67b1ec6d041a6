"""Grain reads every record in order."""

import grain
import tensorflow as tf

from tests.consumers.coco_truth import assert_detection


def arrays(record: bytes) -> dict:
    """A record's values by feature name, as users parse them who have the message but no parse spec."""
    features = tf.train.Example.FromString(record).features.feature
    lists = {name: getattr(feature, feature.WhichOneof("kind")).value for name, feature in features.items()}
    single = ("image/encoded", "image/filename", "image/height", "image/source_id", "image/width")
    return {name: values[0] if name in single else list(values) for name, values in lists.items()}


def test_every_record_in_order(truth, tmp_path, recordmill):
    assert recordmill("convert", *truth.flags, "--output", tmp_path, "--num-shards", 2).code == 0
    seen = []
    for shard in sorted(tmp_path.glob("*.tfrecord-*")):
        records = list(grain.experimental.TFRecordIterDataset(str(shard)))
        assert records == list(tf.data.TFRecordDataset(str(shard)).as_numpy_iterator())
        seen += [assert_detection(arrays(record), truth) for record in records]
    assert sorted(seen) == sorted(truth.image_ids)
