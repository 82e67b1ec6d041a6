"""Base of the transforms of `recordmill.beam` with options of records."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PCollection

from recordmill._beam_checks import (
    LOGGER,
    NOWHERE,
    check_type,
    check_windows,
    keywords_in_errors,
    known_values,
    plain_values,
)
from recordmill.launch.preflight.check_inputs import check_inputs
from recordmill.pipelines.convert import Job
from recordmill.pipelines.transform_options import WriteOptions
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.sample import Sample
from recordmill.schemas.layouts import LAYOUTS
from recordmill.transforms.annotated.format_options import FormatOptions
from recordmill.transforms.dataset.facts import Facts
from recordmill.transforms.user_samples.record_options import PARTS, RecordOptions
from recordmill.transforms.user_samples.trace_reads import Link, Read, Trace, trace_reads


class RecordTransform(beam.PTransform):
    """Transform of Samples, with options of records."""

    _has_splits = True  # False if the transform ignores the splits of Samples
    _divides_reads = True  # False if Samples of a Read keep its splits

    def __init__(self, output: str, given: Mapping[str, Any], labels: PCollection | None, facts: PCollection | None):
        super().__init__()
        self._output, self._labels, self._facts = output, labels, facts
        self._given = plain_values(given)
        faults: list[str] = []
        self._values = known_values(self, self._given, faults)
        with keywords_in_errors():
            try:
                self._options = WriteOptions(**self._values, output=output)
                if not faults:
                    check_inputs(self._options, writes=output != NOWHERE)
            except ConfigError as error:
                faults.append(str(error))
            if faults:
                raise ConfigError("; ".join(faults))

    def display_data(self):
        return {name: str(value) for name, value in self._given.items()}

    def _find_source(self, samples: PCollection) -> tuple[RecordOptions, PCollection | None, PCollection | None]:
        """Return options, labels and facts of the Samples: those that the user gave, and those of their Read.

        Raises:
            ConfigError: The input or another PCollection has other elements, as when labels and facts are exchanged;
                the Samples have windows, or are those of two Reads.
        """
        labels, facts = self._labels, self._facts
        for name, part, type_ in (
            ("the input", samples, Sample),
            ("labels", labels, LabelMap),
            ("facts", facts, Facts),
        ):
            check_type(name, part, type_)
        name = type(self).__name__
        check_windows(name, samples)
        traces = trace_reads(samples)
        for read in read_sources(traces) if self._output != NOWHERE else ():
            with keywords_in_errors():
                check_inputs(read.job.options.model_copy(update={"output": self._output}), writes=True)
        whole = [trace for trace in traces if trace.link is Link.WHOLE]
        if len(whole) > 1 and (labels is None or facts is None):
            shown = " and ".join(sorted(trace.label for trace in whole))
            raise ConfigError(
                f"the input has the Samples of {shown}, whose classes and counts are not joined. Give them to "
                f"{name} by {{name: read, other_name: other_read}} | JoinDatasets(), or write each by its own {name}"
            )
        if len(whole) == 1:
            labels, facts = labels or whole[0].read.labels, facts or whole[0].read.facts
        broken = [trace for trace in traces if trace.link is Link.BROKEN]
        for trace in broken if labels is None and facts is None else ():
            cure = "labels=read.labels" + (", facts=read.facts" if self._output != NOWHERE else "")
            text = (
                f"{name} does not get the classes and counts of {trace.label}, because outputs of {trace.step} "
                f"are not Samples. Its classes are those of the Samples. To keep both: read = p | ReadDataset(…), and "
                f"{name}(…, {cure})"
            )
            LOGGER.warning("%s", text)
        options = self._options_of(traces[0].read.job) if len(traces) == 1 else self._options
        given = {name for name, value in self._values.items() if value not in (False, "none")}
        is_chosen = given & {"layout", "rename", "dtype", "masks", *PARTS}
        return options if is_chosen else options.following_samples(), labels, facts

    def _options_of(self, job: Job) -> RecordOptions:
        """Return the options for Samples of a job. What the user did not give is as the job has it."""
        read: Any = job.options
        given = self._values if self._divides_reads else {}
        layout = given.get("layout", read.layout)
        parts = {*read.table.parts} & {*LAYOUTS[layout].parts}
        kinds = {name for name, needed in PARTS.items() if {*needed} <= parts}
        if {"stuff", "panoptic"} <= kinds:  # both make the semantic mask
            kinds.remove("stuff")
        if {"stuff", "panoptic"} & given.keys():
            kinds -= {"stuff", "panoptic"}
        values = {"layout": layout, "masks": getattr(read, "masks", "none"), **dict.fromkeys(kinds, True), **given}
        splits = () if not self._has_splits or "split" in given else job.splits
        if splits and read.is_split_given:
            values |= {"split": read.split, "split_seed": read.split_seed}
            splits = ()
        # Label files do not say before they are read whether objects have keypoints.
        is_observed = isinstance(read, FormatOptions) or (
            isinstance(read, RecordOptions) and "keypoints" in read.stored_kinds
        )
        is_stored = is_observed and "keypoints" not in given
        observed_kinds = frozenset({"keypoints"} if is_stored and Part.KEYPOINTS in LAYOUTS[layout].parts else ())
        with keywords_in_errors():
            return WriteOptions(**values, output=self._output).with_source(read, splits, observed_kinds)


def read_sources(traces: Iterable[Trace]) -> Iterator[Read]:
    """Yield the Reads of data sets, and not those that join several."""
    for trace in traces:
        yield from trace.read.sources or (trace.read,)
