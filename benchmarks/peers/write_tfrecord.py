"""The writer of PyPI's tfrecord in a loop, without TensorFlow."""

import sys

from rows import columns, rows, shard_names
from tfrecord.writer import TFRecordWriter


def main(data: str, output: str, shards: str) -> None:
    writers = [TFRecordWriter(name) for name in shard_names(output, "tfrecord", shards)]
    for index, row in enumerate(rows(data)):
        # It cannot write an empty list.
        writers[index % len(writers)].write({name: value for name, value in columns(row).items() if value[0]})
    for writer in writers:
        writer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
