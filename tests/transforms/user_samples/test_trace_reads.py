"""Reads that Samples of a pipeline come from."""

import apache_beam as beam
import pytest

from recordmill.schemas.inputs.sample import Sample
from recordmill.transforms.user_samples.trace_reads import Link, Read, trace_reads
from tests.beam_pipeline import Pipeline


class ReadOne(beam.PTransform):
    """Read one Sample."""

    def expand(self, p):
        samples = p | beam.Create([Sample("a.jpg", data=b"a")]).with_output_types(Sample)
        labels, facts = p | "Labels" >> beam.Create([]), p | "Facts" >> beam.Create([])
        return Read(samples, labels, facts, job=None)


class Composite(beam.PTransform):
    def expand(self, samples):
        keyed = samples | "Key" >> beam.Map(lambda one: (one.file_name, one)).with_output_types(tuple[str, Sample])
        return keyed | beam.Values().with_output_types(Sample)


KEY = "Key" >> beam.Map(lambda one: (one.file_name, one)).with_output_types(tuple[str, Sample])
VALUES = "Values" >> beam.Values().with_output_types(Sample)
ANY = "Any" >> beam.Map(lambda one: one)
TEXT = "Text" >> beam.Map(str).with_output_types(str)


@pytest.mark.parametrize(
    ("steps", "traces"),
    [
        (lambda one, _: one, {("One", Link.WHOLE, "")}),
        (lambda one, _: one | beam.Filter(bool) | ANY, {("One", Link.WHOLE, "")}),
        (lambda one, _: one | Composite(), {("One", Link.WHOLE, "")}),
        (lambda one, _: one | beam.Reshuffle(), {("One", Link.WHOLE, "")}),
        (lambda one, _: one | KEY | VALUES, {("One", Link.BROKEN, "Key")}),
        (lambda one, _: one | KEY | beam.GroupByKey() | TEXT | ANY, {("One", Link.BROKEN, "Key")}),
        (lambda one, _: one.samples | ANY, {("One", Link.APART, "")}),
        (lambda one, _: next(iter(one)) | ANY, {("One", Link.APART, "")}),
        (lambda one, _: (one, one.samples | ANY) | beam.Flatten(), {("One", Link.WHOLE, "")}),
        (lambda one, _: (one | ANY, one | KEY | VALUES) | beam.Flatten(), {("One", Link.WHOLE, "")}),
        (lambda one, _: (one | beam.Partition(lambda *_: 0, 2))[1], {("One", Link.WHOLE, "")}),
        (lambda one, other: (one, other | ANY) | beam.Flatten(), {("One", Link.WHOLE, ""), ("Other", Link.WHOLE, "")}),
        (lambda one, _: one.pipeline | beam.Create([Sample("b.jpg")]), set()),
    ],
)
def test_trace_reads(steps, traces):
    p = Pipeline()
    samples = steps(p | "One" >> ReadOne(), p | "Other" >> ReadOne())
    assert {(trace.label, trace.link, trace.step) for trace in trace_reads(samples)} == traces
