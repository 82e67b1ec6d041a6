"""Two classes become one. docs/beam.md has more."""

import apache_beam as beam
import msgspec

from recordmill.beam import ReadDataset, WriteDataset

ROUND = {"circle": "round", "star": "angular", "square": "angular", "triangle": "angular"}


def relabelled(sample):
    objects = [
        msgspec.structs.replace(each, category=ROUND.get(each.category, each.category)) for each in sample.objects
    ]
    return msgspec.structs.replace(sample, objects=objects)


with beam.Pipeline() as p:
    read = p | ReadDataset("sample/images", instances="sample/annotations/instances.json")
    read.samples | beam.Map(relabelled) | WriteDataset("relabelled", facts=read.facts)
