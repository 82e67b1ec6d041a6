"""Transforms for your own Beam pipelines: a reader, Samples, a writer.

    p | ReadDataset("my_dataset") | beam.Filter(lambda sample: sample.objects) | WriteDataset("out")

See docs/beam.md.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

try:
    import apache_beam as beam
except ModuleNotFoundError as error:
    from recordmill.schemas.errors import missing_extra

    raise missing_extra("recordmill.beam", "beam") from error
import msgspec
from apache_beam.pvalue import AsSingleton, PCollection

from recordmill._beam_checks import (
    LOGGER,
    NOWHERE,
    keywords_in_errors,
    known_values,
    plain_values,
    read_samples,
    translation,
)
from recordmill._beam_join import JoinDatasets
from recordmill._beam_records import RecordTransform
from recordmill._beam_steps import LimitImages, MapClasses, Tile
from recordmill._conversion import format_values, plain_value
from recordmill.launch.preflight.check_folder import real_path
from recordmill.launch.preflight.check_inputs import check_inputs
from recordmill.launch.preflight.claim_output import OutputState, claim_output
from recordmill.pipelines.choose_format import choose_conversion
from recordmill.pipelines.formats import Format
from recordmill.pipelines.samples import samples_job
from recordmill.pipelines.transform_options import ROWS_FORMAT
from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.maps import MAP_NAMES
from recordmill.schemas.inputs.sample import Sample, SampleObject, SampleTile
from recordmill.transforms.dataset.collect_facts import collect_facts
from recordmill.transforms.dataset.dataset_folder import read_manifest, read_statistics
from recordmill.transforms.dataset.fact_lines import problem_lines
from recordmill.transforms.dataset.facts import Facts
from recordmill.transforms.encoders.record_maker import RecordContext
from recordmill.transforms.insight.across_splits import compare_splits
from recordmill.transforms.runtime.beam_steps import ThreadedDoFn, translate_errors
from recordmill.transforms.shards.encode_images import EncodeImages
from recordmill.transforms.user_samples.convert_samples import convert_samples, unpack_sample
from recordmill.transforms.user_samples.gather_samples import CheckSamples, stored_sample
from recordmill.transforms.user_samples.log_rejects import RejectLog
from recordmill.transforms.user_samples.record_options import RecordOptions
from recordmill.transforms.user_samples.trace_reads import Read

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from recordmill._keywords import EncodeKeywords, Paths, ReadDatasetKeywords, WriteDatasetKeywords

__all__ = [
    "Encode",
    "JoinDatasets",
    "LimitImages",
    "MapClasses",
    "Read",
    "ReadDataset",
    "Sample",
    "SampleObject",
    "SampleTile",
    "Tile",
    "WriteDataset",
]

_WRITERS: WeakKeyDictionary[beam.Pipeline, dict[tuple[str, str], str]] = WeakKeyDictionary()
"""Label of the WriteDataset of each output and split of a pipeline."""
_ROWS_CURE = (
    "Read rows by Beam's own ReadFromCsv, ReadFromJson or ReadFromParquet of apache_beam.io, and make Samples of them, "
    "see docs/beam.md"
)
_MODEL_CURE = (
    "model: ReadDataset reads images, not features. Compute features by Beam's own RunInference of "
    "apache_beam.ml.inference, or by recordmill.convert"
)


class ReadDataset(beam.PTransform):
    """Read a data set of images as Samples. Its format is recognised, as by `recordmill convert`.

    Args:
        data: Folder, .zip or file of the data set, or a list of folders of class folders.
        options: Options of `recordmill convert` for inputs, annotations, splits and classes, see docs/cli.md:
            `format="yolo"`, `images=…`, `instances=…`. Segmentations are read unless `masks` is `none`.
        format_options: Options of a format of another package, by name.

    Returns:
        Read. A Sample names its image file. The step that makes records reads the file.

    Raises:
        ConfigError: The options are wrong, or name missing files; the format is not recognised; or the data set has
            rows without images. The message has all errors.
    """

    def __init__(
        self,
        data: "Paths | None" = None,
        *,
        format_options: Mapping[str, Any] | None = None,
        **options: "Unpack[ReadDatasetKeywords]",
    ):
        super().__init__()
        self._given = plain_values({"data": data, **options})
        self._given |= format_values(format_options, self._given)
        if "model" in self._given:
            raise ConfigError(_MODEL_CURE)
        with keywords_in_errors(self._given):
            self._format, self._options = self._choose()

    def _choose(self) -> tuple[Format, Any]:
        """Return the format and its options."""
        faults: list[str] = []
        values = known_values(self, self._given, faults)
        if values.get("format") == ROWS_FORMAT:
            raise ConfigError(f"format {ROWS_FORMAT} is rows, not images. {_ROWS_CURE}")
        try:
            conversion: Any = choose_conversion(values)
        except (ConfigError, OSError):
            if faults:  # a misspelt option may be the one that names the data or its format
                raise ConfigError("; ".join(faults)) from None
            raise
        if conversion.format.name == ROWS_FORMAT:
            raise ConfigError(f"{conversion.notes[0]}. {_ROWS_CURE}")
        options = None
        try:
            options = conversion.format.options(**conversion.values, output=NOWHERE)
            if not faults:
                check_inputs(options, writes=False)
        except ConfigError as error:
            faults.append(str(error))
        if faults:
            raise ConfigError("; ".join(faults))
        for line in conversion.notes[:-1]:  # the last one is a command
            LOGGER.info("%s", line)
        return conversion.format, options

    def display_data(self):
        return {name: str(value) for name, value in self._given.items()}

    def expand(self, p):
        with keywords_in_errors(self._given), collect_facts() as collected:
            job = self._format.load("prepare")(self._options)
            if maps := getattr(job.options, "map_folders", ()):
                raise ConfigError(
                    f"Samples do not have the {MAP_NAMES[maps[0].part]}s of {maps[0].path}. Convert such a data set by "
                    "recordmill.convert, or read its images without them"
                )
            gathered = job.read(p)
        for note in job.notes:
            LOGGER.info("%s", note)
        has_fields = getattr(self._options, "fields", ())
        table = AsSingleton(gathered.table) if has_fields else None
        to_samples = beam.FlatMap(read_samples, AsSingleton(gathered.labels), table, job.splits)
        samples = gathered.blocks | "Samples" >> to_samples.with_output_types(Sample)
        labels, facts = gathered.labels, tuple(collected) | "Facts" >> beam.Flatten()
        labels.element_type, facts.element_type = LabelMap, Facts  # `check_type` compares them
        translate_errors(p.pipeline.transforms_stack[-1], translation(self._given))
        return Read(samples, labels, facts, job)


@beam.typehints.with_output_types(bytes)
class Encode(RecordTransform):
    """Convert each Sample to its record, a serialised tf.Example, for any sink.

    Rejects are counted as metrics in the namespace `recordmill`; the first ten rejects of a worker are logged.

    Args:
        labels: PCollection of one LabelMap. Default: that of the Read that the Samples come from, or else the classes
            of the Samples.
        options: Options of WriteDataset for records.

    Returns:
        PCollection of bytes. In the layout `keras`, a Sample has one record per object.
    """

    _has_splits = False

    def __init__(self, labels: PCollection | None = None, **options: "Unpack[EncodeKeywords]"):
        super().__init__(NOWHERE, dict(options), labels, None)

    def expand(self, samples):
        options, labels, _ = self._find_source(samples)
        with collect_facts():  # rejects are only counted and logged
            checked, labels, table = samples | "CheckSamples" >> CheckSamples(options, labels)
        encode = beam.ParDo(_Encode(options), AsSingleton(labels), AsSingleton(table)).with_output_types(bytes)
        batches = checked | beam.Values() | beam.BatchElements(min_batch_size=8, max_batch_size=64)
        records = batches | "Encode" >> encode
        translate_errors(samples.pipeline.transforms_stack[-1], translation())
        return records


@beam.typehints.with_output_types(Manifest)
class WriteDataset(RecordTransform):
    """Write Samples as a data set, with the shards, manifest and statistics of the command.

    To resume a stopped run, run the same pipeline again: finished shards of the same Samples are kept.

    Args:
        output: Folder of the data set, local or in a bucket.
        labels: PCollection of one LabelMap. Default: that of the Read that the Samples come from, or else the classes
            of the Samples.
        facts: PCollection of Facts, for the counts of the manifest. Default: those of the Read that the Samples come
            from.
        options: Options of the command for records, splits, shards and rejects, see docs/beam.md. Default of `layout`,
            `split`, `masks`, `keypoints`, `captions`, `stuff` and `panoptic`: those of ReadDataset. Samples that have
            only classes of images are written in the layout `classification` if `layout` is not given.

    Returns:
        PCollection of one Manifest, when the data set is complete.

    Raises:
        ConfigError: The options are wrong, the folder has a data set and `overwrite` is not set, or another
            WriteDataset of the pipeline writes the same split.
    """

    def __init__(
        self,
        output: "str | os.PathLike[str]",
        labels: PCollection | None = None,
        facts: PCollection | None = None,
        **options: "Unpack[WriteDatasetKeywords]",
    ):
        super().__init__(plain_value("output", output), dict(options), labels, facts)

    def expand(self, samples):
        options, labels, facts = self._find_source(samples)
        job = samples_job(options, samples, labels, facts)
        with keywords_in_errors():
            recipes = job.recipes()
            if options.follows_samples and (manifest := read_manifest(options.output)):
                recipes = [recipe.of_layout(manifest.layout) for recipe in recipes]
        writers = _WRITERS.setdefault(samples.pipeline, {})
        claims = [(real_path(options.output), split) for split in options.splits]
        if claim := next((claim for claim in claims if claim in writers), None):
            raise ConfigError(
                f"{options.output}: {writers[claim]} of this pipeline writes the split {claim[1]} there, too. Give one "
                "of the two another output or split, or join their Samples by beam.Flatten()"
            )
        with keywords_in_errors():
            states = claim_output(options.output, recipes, options.overwrite)
        if OutputState.COMPLETE in states:
            raise ConfigError(
                f"{options.output} already has {' and '.join(options.splits)}. Whether their Samples are the same is "
                "unknown before the pipeline runs. Give another output, or overwrite=True"
            )
        written = job.write(samples.pipeline, recipes)
        written | "LogProblems" >> beam.ParDo(_LogProblems(), options.output, options.splits)
        step = samples.pipeline.transforms_stack[-1]
        translate_errors(step, translation())
        writers |= dict.fromkeys(claims, step.full_label)
        return written


class _LogProblems(beam.DoFn):
    """Warn of the problems of splits that the summary of the command has: leakage, unusual shares, suspicious boxes."""

    def process(self, manifest: Manifest, output: str, splits: Sequence[str]) -> None:
        comparison = compare_splits(read_statistics(output, manifest.splits))
        for text in problem_lines(output, manifest, splits, comparison):
            LOGGER.warning("%s: %s", output, translation()(text))


class _Encode(ThreadedDoFn):
    """Convert lists of packed Samples to records."""

    def __init__(self, options: RecordOptions):
        super().__init__(options.workers)
        self._options, self._log = options, RejectLog()

    def process(self, batch: list[bytes], labels: LabelMap, table: FeatureTable) -> Iterator[bytes]:
        samples = [msgspec.structs.replace(unpack_sample(packed), split="") for packed in batch]
        options = self._options.of_layout(table.layout)
        stored = [stored_sample(sample, options) for sample in samples]
        block = convert_samples(stored, labels, options, lambda _, rejected: self._log.add(rejected))
        if block is None:
            return
        maker = EncodeImages(self._options.box_policy, self._options.image_rules)
        encode = maker.start(RecordContext(labels, table, self.pool, self.threads))
        for run in encode(block.replace(split=block.split * 0), ""):
            for rejected in run.rejected:
                self._log.add(rejected)
            yield from map(b"".join, run.records)
