"""Write tf.Examples by Beam's own sink. docs/beam.md has more."""

import apache_beam as beam

from recordmill.beam import Encode, ReadDataset

with beam.Pipeline() as p:
    read = p | ReadDataset("sample/images", instances="sample/annotations/instances.json")
    read | Encode() | beam.io.WriteToTFRecord("records/shapes", file_name_suffix=".tfrecord")
