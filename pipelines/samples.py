"""Write Samples of a user's pipeline to TFRecord shards."""

import apache_beam as beam
from apache_beam.pvalue import PCollection

from recordmill.pipelines.convert import Job, encode_and_plan
from recordmill.pipelines.gathered import Gathered
from recordmill.transforms.user_samples.gather_samples import GatherSamples
from recordmill.transforms.user_samples.record_options import RecordOptions


def samples_job(
    options: RecordOptions, samples: PCollection, labels: PCollection | None, facts: PCollection | None
) -> Job:
    """Return the job that writes Samples.

    Args:
        labels: PCollection of one LabelMap; None to collect the classes of the Samples.
        facts: PCollection of the Facts of the source of the Samples; None if there is none.
    """

    def gather(_: beam.Pipeline) -> Gathered:
        blocks, labels_, table = samples | "GatherSamples" >> GatherSamples(options, labels, facts)
        return Gathered(blocks, labels_, table)

    return Job(options, options.splits, tuple, gather, *encode_and_plan(options, options.splits, options.table))
