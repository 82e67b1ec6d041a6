"""Transforms for your own Beam pipelines: readers, Samples, writer.

    samples, labels, facts = p | ReadCoco(images="images", instances="instances.json")
    samples | beam.Filter(lambda sample: sample.objects) | WriteDataset("out", labels=labels, facts=facts)

`p | ReadCoco(…) | WriteDataset(…)` writes Samples that no step changes. See docs/beam.md.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from recordmill.transforms.dataset.collect_facts import collect_facts

try:
    import apache_beam as beam
except ModuleNotFoundError as error:
    from recordmill.schemas.errors import missing_extra

    raise missing_extra("recordmill.beam", "beam") from error
from apache_beam.pvalue import AsSingleton, PCollection
from apache_beam.typehints.typehints import is_consistent_with

from recordmill._conversion import plain_value
from recordmill.launch.command_line.parser import drop_unknown
from recordmill.launch.preflight.check_inputs import check_inputs
from recordmill.launch.preflight.claim_output import OutputState, claim_output
from recordmill.pipelines import coco, folder
from recordmill.pipelines.convert import Gathered
from recordmill.pipelines.samples import samples_job
from recordmill.pipelines.transform_options import TRANSFORM_OPTIONS
from recordmill.schemas.command_texts import without_flags
from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.errors import ConfigError, rename_flags_in_errors
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.option import option_fields
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.rejects import Rejected
from recordmill.transforms.blocks.pack_block import unpack_block
from recordmill.transforms.coco.find_exports import find_exports
from recordmill.transforms.dataset.facts import Facts
from recordmill.transforms.encoders.record_maker import RecordContext
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.beam_steps import ThreadedDoFn
from recordmill.transforms.shards.encode_images import EncodeImages
from recordmill.transforms.user_samples.convert_samples import convert_block, convert_samples, unpack_sample
from recordmill.transforms.user_samples.gather_samples import CheckSamples
from recordmill.transforms.user_samples.record_options import RecordOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from recordmill._keywords import EncodeKeywords, ReadCocoKeywords, ReadFolderKeywords, WriteDatasetKeywords

__all__ = ["Encode", "Read", "ReadCoco", "ReadFolder", "Sample", "SampleObject", "WriteDataset"]

_LOGGER = logging.getLogger("recordmill")
_NOWHERE = os.path.join(os.devnull, "no output")  # output of transforms that only read
_LOGGED = 10


class Read(NamedTuple):
    """Result of reading a data set.

    Attributes:
        samples: PCollection of Sample.
        labels: PCollection of one LabelMap, the classes.
        facts: PCollection of Facts: numbers of rows, rejects and warnings of reading.
    """

    samples: PCollection
    labels: PCollection
    facts: PCollection


class _Transform(beam.PTransform):
    """Transform with options of a command."""

    def __init__(self, output: Any, given: dict[str, Any]):
        super().__init__()
        model, names = TRANSFORM_OPTIONS[type(self).__name__]
        self._given = {name: plain_value(name, value) for name, value in given.items() if value is not None}
        fields = {field.name: field for field in option_fields(model)}
        faults: list[str] = []
        values = drop_unknown(self._given, {name: fields[name] for name in names}, "", faults)
        try:
            self._options: Any = model(**values, output=output)
            if not faults:
                check_inputs(self._options, writes=output != _NOWHERE)
        except ConfigError as error:
            faults.append(str(error))
        if faults:
            raise ConfigError(without_flags("; ".join(faults), {field.flag: field.name for field in fields.values()}))

    def display_data(self):
        return {name: str(value) for name, value in self._given.items()}


class ReadCoco(_Transform):
    """Reader of COCO annotations and names of image files.

    Args:
        options: Options of the format `coco` for inputs, annotations and splits. Segmentations are read unless `masks`
            is `none`.

    Returns:
        Read. A Sample names its image file. The step that makes records reads the file.

    Raises:
        ConfigError: The options are wrong, or name missing files. The message has all errors.
    """

    def __init__(self, **options: "Unpack[ReadCocoKeywords]"):
        super().__init__(_NOWHERE, dict(options))

    def expand(self, p):
        options, given = find_exports(self._options)
        with collect_facts() as facts:
            gathered = coco.gather(p, options, given)
        return _read(gathered, facts, given.splits)


class ReadFolder(_Transform):
    """Read the names and classes of images in class folders, or in tables of labels.

    Args:
        options: Options of the format `folder` for inputs and splits.

    Returns:
        Read. Samples have a `class_name`.

    Raises:
        ConfigError: See ReadCoco.
    """

    def __init__(self, **options: "Unpack[ReadFolderKeywords]"):
        super().__init__(_NOWHERE, dict(options))

    def expand(self, p):
        splits = folder.choose_splits(self._options)
        with collect_facts() as facts:
            gathered = folder.gather(p, self._options, splits)
        return _read(gathered, facts, splits)


@beam.typehints.with_output_types(bytes)
class Encode(_Transform):
    """Convert each Sample to its record, a serialised tf.Example, for any sink. Apply to Samples or to a Read.

    Rejects are counted as metrics in the namespace `recordmill`; the first ten rejects of a worker are logged.

    Args:
        labels: PCollection of one LabelMap, as ReadCoco returns it; None to collect the classes of the Samples. A Read
            brings its own.
        options: Options of WriteDataset for records.

    Returns:
        PCollection of bytes. In the layout `keras`, a Sample has one record per object.
    """

    def __init__(self, labels: PCollection | None = None, **options: "Unpack[EncodeKeywords]"):
        super().__init__(_NOWHERE, dict(options))
        self._labels = labels

    def expand(self, samples):
        samples, labels, _ = _read_of(samples, self._labels)
        with collect_facts():  # rejects are only counted and logged
            checked, labels, table = samples | "CheckSamples" >> CheckSamples(self._options, labels)
        encode = beam.ParDo(_Encode(self._options), AsSingleton(labels), AsSingleton(table))
        batches = checked | beam.Values() | beam.BatchElements(min_batch_size=8, max_batch_size=64)
        return batches | "Encode" >> encode.with_output_types(bytes)


@beam.typehints.with_output_types(Manifest)
class WriteDataset(_Transform):
    """Write Samples, or a Read, as a data set, with the shards, manifest and statistics of the command.

    To resume a stopped run, run the same pipeline again: finished shards of the same Samples are kept.

    Args:
        output: Folder of the data set, local or in a bucket.
        labels: PCollection of one LabelMap, as ReadCoco returns it; None to collect the classes of the Samples.
        facts: PCollection of Facts, as ReadCoco returns it, for the counts of the manifest; None if nothing was read. A
            Read brings its own labels and facts.
        options: Options of the command for records, splits, shards and rejects, see docs/beam.md.

    Returns:
        PCollection of one Manifest, when the data set is complete.

    Raises:
        ConfigError: The options are wrong, or the folder has a data set and `overwrite` is not set.
    """

    def __init__(
        self,
        output: "str | os.PathLike[str]",
        labels: PCollection | None = None,
        facts: PCollection | None = None,
        **options: "Unpack[WriteDatasetKeywords]",
    ):
        super().__init__(plain_value("output", output), dict(options))
        self._labels, self._facts = labels, facts

    def expand(self, samples):
        options: RecordOptions = self._options
        samples, labels, facts = _read_of(samples, self._labels, self._facts)
        job = samples_job(options, samples, labels, facts)
        recipes = job.recipes()
        with rename_flags_in_errors(options.words):
            states = claim_output(options.output, recipes, options.overwrite)
        if OutputState.COMPLETE in states:
            raise ConfigError(
                f"{options.output} holds {' and '.join(options.splits)}, and only running the pipeline would show "
                "whether its Samples are the same: give another output, or overwrite=True"
            )
        return job.write(samples.pipeline, recipes)


def _read_of(given: Any, labels: PCollection | None, facts: PCollection | None = None) -> tuple[Any, Any, Any]:
    """Return samples, labels and facts of a transform's input: a Read, or a PCollection of Sample with these.

    Raises:
        ConfigError: One has other elements, as when labels and facts are exchanged.
    """
    if isinstance(given, tuple) and len(given) == len(Read._fields):
        samples, own_labels, own_facts = given
        given, labels, facts = samples, labels or own_labels, facts or own_facts
    for name, part, type_ in (("the input", given, Sample), ("labels", labels, LabelMap), ("facts", facts, Facts)):
        element_type = getattr(part, "element_type", type(part))
        if part is not None and not is_consistent_with(element_type, type_):
            type_name = getattr(element_type, "__name__", element_type)
            raise ConfigError(
                f"{name} is of {type_name}, and a PCollection of {type_.__name__} is expected: "
                "samples, labels, facts = p | ReadCoco(…), then samples | …(labels=labels, facts=facts)"
            )
    return given, labels, facts


def _read(gathered: Gathered, facts_of_steps: Sequence[PCollection], splits: Sequence[str]) -> Read:
    convert = beam.FlatMap(_samples, AsSingleton(gathered.labels), splits)
    samples = gathered.blocks | "Samples" >> convert.with_output_types(Sample)
    labels, facts = gathered.labels, tuple(facts_of_steps) | "Facts" >> beam.Flatten()
    labels.element_type, facts.element_type = LabelMap, Facts  # `_read_of` compares them
    return Read(samples, labels, facts)


def _samples(keyed: tuple[int, bytes], labels: LabelMap, splits: Sequence[str]) -> Iterator[Sample]:
    yield from convert_block(unpack_block(keyed[1]), labels, splits)


class _Encode(ThreadedDoFn):
    """Convert lists of packed Samples to records."""

    def __init__(self, options: RecordOptions):
        super().__init__(options.workers)
        self._options = options
        self._logged = 0

    def process(self, batch: list[bytes], labels: LabelMap, table: FeatureTable) -> Iterator[bytes]:
        block = convert_samples(list(map(unpack_sample, batch)), labels, self._options, self._reject)
        if block is None:
            return
        maker = EncodeImages(self._options.box_policy, self._options.image_rules)
        encode = maker.start(RecordContext(labels, table, self.pool, self.threads))
        for run in encode(block.replace(split=block.split * 0), ""):
            for rejected in run.rejected:
                self._reject("", rejected)
            yield from map(b"".join, run.records)

    def _reject(self, _: str, rejected: Rejected) -> None:
        progress.count_reject(rejected)
        if self._logged < _LOGGED:
            _LOGGER.warning("rejected: %s", rejected.detail)
        self._logged += 1
