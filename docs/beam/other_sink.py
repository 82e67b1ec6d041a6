"""Write tf.Examples by Beam's own sink. docs/beam.md has more."""

import apache_beam as beam

from recordmill.beam import Encode, ReadCoco

with beam.Pipeline() as p:
    samples, labels, facts = p | ReadCoco(images="sample/images", instances="sample/annotations/instances.json")
    samples | Encode(labels=labels) | beam.io.WriteToTFRecord("records/shapes", file_name_suffix=".tfrecord")
