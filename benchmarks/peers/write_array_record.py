"""ArrayRecordWriter in a loop: tf.Examples, uncompressed, a record a group, as Grain reads best."""

import sys

from array_record.python.array_record_module import ArrayRecordWriter
from rows import columns, rows, shard_names
from tfrecord import example_pb2 as pb


def example(columns_: dict) -> bytes:
    features = {}
    for name, (values, kind) in columns_.items():
        if kind == "byte":
            features[name] = pb.Feature(bytes_list=pb.BytesList(value=values))
        elif kind == "int":
            features[name] = pb.Feature(int64_list=pb.Int64List(value=values))
        else:
            features[name] = pb.Feature(float_list=pb.FloatList(value=values))
    return pb.Example(features=pb.Features(feature=features)).SerializeToString()


def main(data: str, output: str, shards: str) -> None:
    names = shard_names(output, "array_record", shards)
    writers = [ArrayRecordWriter(name, "group_size:1,uncompressed") for name in names]
    for index, row in enumerate(rows(data)):
        writers[index % len(writers)].write(example(columns(row)))
    for writer in writers:
        writer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
