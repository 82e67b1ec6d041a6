"""Find the data sets that Samples of a pipeline were read from."""

from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple

from apache_beam.pipeline import AppliedPTransform
from apache_beam.pvalue import PCollection
from apache_beam.typehints.typehints import is_consistent_with

from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.sample import Sample
from recordmill.transforms.dataset.facts import Facts


class Read(PCollection[Sample]):
    """Samples of a data set: a PCollection of Sample that knows its classes and counts.

    WriteDataset and Encode find the classes and counts through all steps whose outputs are Samples. `samples, labels,
    facts = read` has them apart.

    Attributes:
        samples: PCollection of Sample, without classes and counts.
        labels: PCollection of one LabelMap, the classes.
        facts: PCollection of Facts: numbers of rows, rejects and warnings of reading.
        job: Conversion that `recordmill convert` would run.
        sources: Reads of the data sets, if it joins several.
    """

    def __init__(
        self, samples: PCollection, labels: PCollection, facts: PCollection, job: Any, sources: tuple["Read", ...] = ()
    ):
        super().__init__(samples.pipeline, samples.tag, samples.element_type, is_bounded=samples.is_bounded)
        # Beam compares PCollections by tag and producer, so these are one PCollection of the pipeline.
        self.producer = samples.producer
        self.samples: PCollection[Sample] = samples
        self.labels: PCollection[LabelMap] = labels
        self.facts: PCollection[Facts] = facts
        self.job = job
        self.sources = sources

    def __iter__(self) -> Iterator[PCollection[Any]]:
        return iter((self.samples, self.labels, self.facts))


class Link(Enum):
    """Relation between Samples and a Read.

    Attributes:
        WHOLE: All steps between have Samples as outputs, so classes and counts are those of the Read.
        BROKEN: A step between has other outputs.
        APART: The pipeline uses `read.samples`, without classes and counts.
    """

    WHOLE = 1
    BROKEN = 2
    APART = 3


class Trace(NamedTuple):
    """A Read that Samples come from.

    Attributes:
        label: Label of the step that reads.
        step: Label of the first step whose outputs are not Samples; empty for other links.
    """

    read: Read
    label: str
    link: Link
    step: str = ""


def is_of_samples(collection: PCollection) -> bool:
    """Return True if the elements may be Samples. The element type Any counts as Sample."""
    return is_consistent_with(collection.element_type, Sample)


def trace_reads(samples: PCollection) -> list[Trace]:
    """Return each Read that Samples come from, in no particular order, with its strongest link."""
    traces: dict[Read, Trace] = {}
    waiting, seen = [(samples, "")], set[tuple[PCollection, bool, bool]]()
    while waiting:
        collection, broken_at = waiting.pop()
        key = (collection, isinstance(collection, Read), bool(broken_at))
        if key in seen:
            continue
        seen.add(key)
        step = _outermost(collection)
        read = next((output for output in step.outputs.values() if isinstance(output, Read)), None)
        if read is not None:
            link = Link.APART if not isinstance(collection, Read) else Link.BROKEN if broken_at else Link.WHOLE
            if read not in traces or link.value < traces[read].link.value:
                traces[read] = Trace(read, step.full_label, link, broken_at if link is Link.BROKEN else "")
            continue
        if not is_of_samples(collection):
            broken_at = step.full_label
        waiting += [(given, broken_at) for given in step.inputs if isinstance(given, PCollection)]
    return list(traces.values())


def _outermost(collection: PCollection) -> AppliedPTransform:
    """Return the outermost step that has the PCollection as an output."""
    step: Any = collection.producer
    while step.parent is not None and collection in step.parent.outputs.values():
        step = step.parent
    return step
