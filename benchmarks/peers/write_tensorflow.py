"""tf.io.TFRecordWriter in a loop."""

import sys
from typing import Any

import tensorflow as tf
from rows import columns, rows, shard_names


def feature(values: list[Any], kind: str) -> tf.train.Feature:
    if kind == "byte":
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if kind == "int":
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def example(columns_: dict[str, tuple[list[Any], str]]) -> bytes:
    features = {name: feature(*value) for name, value in columns_.items()}
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def main(data: str, output: str, shards: str) -> None:
    writers = [tf.io.TFRecordWriter(name) for name in shard_names(output, "tfrecord", shards)]
    for index, row in enumerate(rows(data)):
        writers[index % len(writers)].write(example(columns(row)))
    for writer in writers:
        writer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
