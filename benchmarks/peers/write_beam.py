"""Beam as its guide has it: read, Reshuffle, encode, WriteToTFRecord; on the runner in this process."""

import sys
from pathlib import Path

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from rows import columns, rows
from write_tensorflow import example


def main(data: str, output: str, shards: str) -> None:
    with beam.Pipeline("FnApiRunner", PipelineOptions([])) as p:
        (
            p
            | "Rows" >> beam.Create(list(rows(data)))
            | "Spread" >> beam.Reshuffle()
            | "Read" >> beam.Map(columns)
            | "Encode" >> beam.Map(example)
            | "Write" >> beam.io.WriteToTFRecord(str(Path(output) / "coco-train.tfrecord"), num_shards=int(shards))
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
