"""Join the Samples of several data sets."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsIter, AsSingleton, PCollection

from recordmill._beam_checks import NOWHERE, read_samples, translation
from recordmill._beam_records import RecordTransform, read_sources
from recordmill.pipelines.samples import samples_job
from recordmill.pipelines.transform_options import WriteOptions
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.sample import Sample
from recordmill.schemas.names import set_name_fault
from recordmill.schemas.sizes import shorten
from recordmill.transforms.blocks.pack_block import pack_block, unpack_block
from recordmill.transforms.dataset.collect_facts import collect_facts
from recordmill.transforms.dataset.facts import Facts
from recordmill.transforms.runtime.beam_steps import translate_errors
from recordmill.transforms.shape.join_sets import DataSetPart, JoinSets, facts_of_set
from recordmill.transforms.user_samples.gather_samples import GatherSamples, shares_files
from recordmill.transforms.user_samples.record_options import PARTS, RecordOptions
from recordmill.transforms.user_samples.trace_reads import Read, trace_reads


class JoinDatasets(RecordTransform):
    """Join the Samples of several data sets, as `recordmill convert` joins several DATA.

        {"birds": p | "Birds" >> ReadDataset("birds"), "cats": p | "Cats" >> ReadDataset("cats")} | JoinDatasets()

    The input is a dict of PCollections of Sample by the name of the data set: Reads, and what steps make of these.
    Classes meet by name, ids of the first data set stay, and file names begin with the name and a slash, see
    docs/shape.md.

    Args:
        find_copies: Warn about images of two data sets whose files are equal. Files of equal size are read.
        split: Split, or several with shares, of Samples that a pipeline makes, as for WriteDataset: `"val"`,
            `"train=0.8,val=0.2"`. It names all splits that they have. Samples of ReadDataset keep their splits.
            Default: `train`.

    Returns:
        Read.

    Raises:
        ConfigError: The input is not a dict of two or more PCollections of Sample, a name cannot begin file names, or
            the data sets have different layouts.
    """

    _divides_reads = False

    def __init__(self, find_copies: bool = True, split: "str | Mapping[str, Any] | None" = None):
        super().__init__(NOWHERE, {"split": split}, None, None)
        self._find_copies = find_copies

    def expand(self, sets):
        _check_sets(sets)
        sources = [self._find_source(samples) for samples in sets.values()]
        splits = tuple(dict.fromkeys(split for options, *_ in sources for split in options.splits))
        with collect_facts() as collected:
            parts = []
            for (name, samples), source in zip(sets.items(), sources, strict=True):
                own_blocks, own_labels, own_table = samples | f"Set {name}" >> _GatherSet(name, *source)
                own_splits, upright = source[0].splits, source[0].image_rules.upright
                parts.append(DataSetPart(name, own_blocks, own_labels, own_table, own_splits, upright))
            join = JoinSets(parts, splits, self._options, reports_copies=self._find_copies)
            blocks, labels, table = tuple(part.blocks for part in parts) | "JoinSets" >> join
        to_samples = beam.FlatMap(read_samples, AsSingleton(labels), AsSingleton(table), splits)
        samples = blocks | "Samples" >> to_samples.with_output_types(Sample)
        facts = tuple(collected) | "Facts" >> beam.Flatten()
        labels.element_type, facts.element_type = LabelMap, Facts  # `check_type` compares them
        translate_errors(blocks.pipeline.transforms_stack[-1], translation())
        options = _joined_options([options for options, *_ in sources], splits)
        job = samples_job(options, samples, labels, facts)
        reads = tuple(read_sources(trace for own in sets.values() for trace in trace_reads(own)))
        return Read(samples, labels, facts, job, reads)


class _GatherSet(beam.PTransform):
    """Convert the Samples of a data set to Blocks, with all their annotations. Facts name the data set."""

    def __init__(self, name: str, options: RecordOptions, labels: PCollection | None, facts: PCollection | None):
        super().__init__()
        self._name, self._facts = name, facts
        self._gather = GatherSamples(options.storing_all(), labels, facts)

    def expand(self, samples):
        with facts_of_set(self._name):
            blocks, labels, table = samples | "GatherSamples" >> self._gather
        if self._facts is None:
            return blocks, labels, table
        mark = beam.Map(_mark_shared, AsIter(self._facts)).with_output_types(tuple[int, bytes])
        return blocks | "MarkShared" >> mark, labels, table


def _mark_shared(keyed: tuple[int, bytes], facts: Iterable[Facts]) -> tuple[int, bytes]:
    """Return the Block with `is_shared` True for all images if several ids of the data set name one file, because
    Samples do not say which."""
    if not shares_files(facts):
        return keyed
    block = unpack_block(keyed[1])
    return keyed[0], pack_block(block.replace(is_shared=np.full(len(block), True)))


def _check_sets(sets: Any) -> None:
    """Raise ConfigError if the input of JoinDatasets is not several data sets by name."""
    if not isinstance(sets, Mapping) or len(sets) < 2:
        raise ConfigError(
            "JoinDatasets joins a dict of two or more data sets, by name: "
            '{"birds": p | "Birds" >> ReadDataset("birds"), "cats": p | "Cats" >> ReadDataset("cats")} | JoinDatasets()'
        )
    for name in sets:
        if fault := set_name_fault(name):
            raise ConfigError(f"JoinDatasets: name {shorten(repr(name), 80)} {fault}. File names begin with it")


def _joined_options(sources: Sequence[RecordOptions], splits: tuple[str, ...]) -> RecordOptions:
    """Return the options of records that have what those of several data sets have."""
    kinds = {name for options in sources for name in PARTS if getattr(options, name)}
    if {"stuff", "panoptic"} <= kinds:  # both make the semantic mask
        kinds.remove("stuff")
    masks = {options.masks for options in sources} - {"none"}
    values: dict[str, Any] = dict.fromkeys(kinds, True)
    values |= {"layout": sources[0].layout, "masks": next(iter(masks), "none") if len(masks) < 2 else "both"}
    observed = frozenset({"keypoints"} if any("keypoints" in options.stored_kinds for options in sources) else ())
    upright = min(sources, key=lambda options: not options.image_rules.upright)
    kinds_of_fields = [options.selected_fields() for options in sources]
    return WriteOptions(**values, output=NOWHERE).with_source(upright, splits, observed, kinds_of_fields)
