"""Transforms for your own Beam pipelines: a reader, Samples, a writer.

    p | ReadDataset("my_dataset") | beam.Filter(lambda sample: sample.objects) | WriteDataset("out")

See docs/beam.md.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from recordmill.transforms.dataset.collect_facts import collect_facts

try:
    import apache_beam as beam
except ModuleNotFoundError as error:
    from recordmill.schemas.errors import missing_extra

    raise missing_extra("recordmill.beam", "beam") from error
import msgspec
import numpy as np
from apache_beam.pvalue import AsIter, AsSingleton, PCollection
from apache_beam.transforms.trigger import DefaultTrigger
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints.typehints import is_consistent_with

from recordmill._conversion import format_values, plain_value
from recordmill.launch.command_line.parser import drop_unknown
from recordmill.launch.preflight.check_folder import real_path
from recordmill.launch.preflight.check_inputs import check_inputs
from recordmill.launch.preflight.claim_output import OutputState, claim_output
from recordmill.pipelines.choose_format import choose_conversion
from recordmill.pipelines.convert import Job
from recordmill.pipelines.formats import Format
from recordmill.pipelines.samples import samples_job
from recordmill.pipelines.transform_options import (
    ROWS_FORMAT,
    TRANSFORMS,
    WriteOptions,
    keyword_types,
    transform_fields,
)
from recordmill.schemas.command_texts import python_text, without_flags
from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.errors import ConfigError, JobError, translated_errors
from recordmill.schemas.features import FeatureTable, Part
from recordmill.schemas.field_features import field_columns
from recordmill.schemas.inputs.images import TileRules
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.limits import Limits
from recordmill.schemas.inputs.sample import Sample, SampleObject, SampleTile
from recordmill.schemas.layouts import LAYOUTS
from recordmill.schemas.names import set_name_fault
from recordmill.schemas.rejects import Rejected
from recordmill.schemas.sizes import shorten
from recordmill.transforms.annotated.format_options import FormatOptions
from recordmill.transforms.blocks.pack_block import pack_block, unpack_block
from recordmill.transforms.dataset.dataset_folder import read_manifest, read_statistics
from recordmill.transforms.dataset.fact_lines import problem_lines
from recordmill.transforms.dataset.facts import Facts
from recordmill.transforms.encoders.record_maker import RecordContext
from recordmill.transforms.insight.across_splits import compare_splits
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.beam_steps import ThreadedDoFn, translate_errors
from recordmill.transforms.shape.class_map import class_map_of, read_class_map
from recordmill.transforms.shape.join_sets import DataSetPart, JoinSets, facts_of_set
from recordmill.transforms.shards.encode_images import EncodeImages
from recordmill.transforms.storage.os_errors import explain_os_error, is_command_error
from recordmill.transforms.user_samples.convert_samples import convert_block, convert_samples, unpack_sample
from recordmill.transforms.user_samples.gather_samples import CheckSamples, GatherSamples, shares_files, stored_sample
from recordmill.transforms.user_samples.limit_samples import LimitSamples
from recordmill.transforms.user_samples.map_samples import MapSamples
from recordmill.transforms.user_samples.record_options import PARTS, RecordOptions
from recordmill.transforms.user_samples.tile_samples import TileSamples
from recordmill.transforms.user_samples.trace_reads import Link, Read, Trace, trace_reads

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

_LOGGER = logging.getLogger("recordmill")
_NOWHERE = os.path.join(os.devnull, "no output")  # output of transforms that only read
_LOGGED = 10
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
        self._given = _plain_values({"data": data, **options})
        self._given |= format_values(format_options, self._given)
        if "model" in self._given:
            raise ConfigError(_MODEL_CURE)
        with _keywords_in_errors(self._given):
            self._format, self._options = self._choose()

    def _choose(self) -> tuple[Format, Any]:
        """Return the format and its options."""
        faults: list[str] = []
        values = _known_values(self, self._given, faults)
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
            options = conversion.format.options(**conversion.values, output=_NOWHERE)
            if not faults:
                check_inputs(options, writes=False)
        except ConfigError as error:
            faults.append(str(error))
        if faults:
            raise ConfigError("; ".join(faults))
        for line in conversion.notes[:-1]:  # the last one is a command
            _LOGGER.info("%s", line)
        return conversion.format, options

    def display_data(self):
        return {name: str(value) for name, value in self._given.items()}

    def expand(self, p):
        with _keywords_in_errors(self._given), collect_facts() as collected:
            job = self._format.load("prepare")(self._options)
            gathered = job.read(p)
        for note in job.notes:
            _LOGGER.info("%s", note)
        has_fields = getattr(self._options, "fields", ())
        table = AsSingleton(gathered.table) if has_fields else None
        to_samples = beam.FlatMap(_samples, AsSingleton(gathered.labels), table, job.splits)
        samples = gathered.blocks | "Samples" >> to_samples.with_output_types(Sample)
        labels, facts = gathered.labels, tuple(collected) | "Facts" >> beam.Flatten()
        labels.element_type, facts.element_type = LabelMap, Facts  # `_check_type` compares them
        translate_errors(p.pipeline.transforms_stack[-1], _translation(self._given))
        return Read(samples, labels, facts, job)


@beam.typehints.with_input_types(Sample)
@beam.typehints.with_output_types(Sample)
class LimitImages(beam.PTransform):
    """Leave out Samples of large splits and of frequent classes, as `recordmill convert --limit --max-per-class` does.

    A hash of `file_name` chooses the Samples, so that their order and the runner do not matter. Samples without a split
    count as one split.

    Args:
        limit: Maximum number of Samples of each split; None for no limit.
        max_per_class: Leave out a Sample if each of its classes has this number of objects already, in the order of the
            hash. `class_name` and tags count as objects. A Sample without classes stays. None for no limit.

    Returns:
        PCollection of Sample. WriteDataset finds the classes and counts of ReadDataset through it.

    Raises:
        ConfigError: A limit is below 1, or none is given; or the Samples have windows.
    """

    def __init__(self, limit: int | None = None, max_per_class: int | None = None):
        super().__init__()
        for name, value in (("limit", limit), ("max_per_class", max_per_class)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, Integral) or value < 1):
                raise ConfigError(f"LimitImages: {name} must be a whole number of 1 or more (got {value!r})")
        if limit is None and max_per_class is None:
            raise ConfigError("LimitImages: give limit, max_per_class or both")
        self._limits = Limits(limit and int(limit), max_per_class and int(max_per_class))

    def expand(self, samples):
        _check_type("the input", samples, Sample)
        _check_windows("LimitImages", samples)
        limited = samples | "LimitSamples" >> LimitSamples(self._limits)
        translate_errors(samples.pipeline.transforms_stack[-1], _translation())
        return limited


@beam.typehints.with_output_types(Sample)
class Tile(beam.PTransform):
    """Divide each Sample into the Samples of its tiles, as `recordmill convert --tile` does, see docs/shape.md.

    A Sample whose image cannot be read stays whole, and is rejected when its record is made. Rejects of objects are
    counted as metrics in the namespace `recordmill`; the first ten rejects of a worker are logged.

    Args:
        size: Width and height of a tile in pixels.
        overlap: Share of a tile that the next one repeats, 0 to below 1.
        min_visible: A tile has an object if it shows at least this share of the object's mask, or else of its box.
        keep_empty: Share of the tiles without objects that is kept.

    Returns:
        PCollection of Sample, each with `tile`. Segmentations are run lengths, boxes and keypoints in pixels.

    Raises:
        ConfigError: A number is out of its range.
    """

    def __init__(self, size: int, overlap: float = 0.0, min_visible: float = 0.3, keep_empty: float = 0.0):
        super().__init__()
        names = {"tile": size, "tile_overlap": overlap, "tile_min_visible": min_visible, "keep_empty": keep_empty}
        own_names = {"--tile": "size", "--tile-overlap": "overlap", "--tile-min-visible": "min_visible"}
        own_names |= {"--keep-empty": "keep_empty"}
        with translated_errors(lambda text: without_flags(text, own_names)):
            options = WriteOptions(**_plain_values(names), output=_NOWHERE)
        self._rules = TileRules(size, options.tile_overlap, options.tile_min_visible, options.keep_empty)

    def display_data(self):
        return {"tile": str(self._rules)}

    def expand(self, samples):
        _check_type("the input", samples, Sample)
        reads = [trace.read.job.options for trace in trace_reads(samples)]
        upright = any(options.image_rules.upright for options in reads)
        return samples | "Tile" >> beam.ParDo(TileSamples(self._rules, upright)).with_output_types(Sample)


class _RecordTransform(beam.PTransform):
    """Transform of Samples, with options of records."""

    _has_splits = True  # False if the transform ignores the splits of Samples
    _divides_reads = True  # False if Samples of a Read keep its splits

    def __init__(self, output: str, given: Mapping[str, Any], labels: PCollection | None, facts: PCollection | None):
        super().__init__()
        self._output, self._labels, self._facts = output, labels, facts
        self._given = _plain_values(given)
        faults: list[str] = []
        self._values = _known_values(self, self._given, faults)
        with _keywords_in_errors():
            try:
                self._options = WriteOptions(**self._values, output=output)
                if not faults:
                    check_inputs(self._options, writes=output != _NOWHERE)
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
            _check_type(name, part, type_)
        name = type(self).__name__
        _check_windows(name, samples)
        traces = trace_reads(samples)
        for read in _sources(traces) if self._output != _NOWHERE else ():
            with _keywords_in_errors():
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
            cure = "labels=read.labels" + (", facts=read.facts" if self._output != _NOWHERE else "")
            text = (
                f"{name} does not get the classes and counts of {trace.label}, because outputs of {trace.step} "
                f"are not Samples. Its classes are those of the Samples. To keep both: read = p | ReadDataset(…), and "
                f"{name}(…, {cure})"
            )
            _LOGGER.warning("%s", text)
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
        with _keywords_in_errors():
            return WriteOptions(**values, output=self._output).with_source(read, splits, observed_kinds)


class JoinDatasets(_RecordTransform):
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
        super().__init__(_NOWHERE, {"split": split}, None, None)
        self._find_copies = find_copies

    def expand(self, sets):
        _check_sets(sets)
        sources = [self._find_source(samples) for samples in sets.values()]
        splits = tuple(dict.fromkeys(split for options, *_ in sources for split in options.splits))
        turns_upright = any(options.image_rules.upright for options, *_ in sources)
        with collect_facts() as collected:
            parts = []
            for (name, samples), source in zip(sets.items(), sources, strict=True):
                own_blocks, own_labels, own_table = samples | f"Set {name}" >> _GatherSet(name, *source)
                ignores_exif = turns_upright and not source[0].image_rules.upright
                parts.append(DataSetPart(name, own_blocks, own_labels, own_table, source[0].splits, ignores_exif))
            join = JoinSets(parts, splits, self._options, reports_copies=self._find_copies)
            blocks, labels, table = tuple(part.blocks for part in parts) | "JoinSets" >> join
        to_samples = beam.FlatMap(_samples, AsSingleton(labels), AsSingleton(table), splits)
        samples = blocks | "Samples" >> to_samples.with_output_types(Sample)
        facts = tuple(collected) | "Facts" >> beam.Flatten()
        labels.element_type, facts.element_type = LabelMap, Facts  # `_check_type` compares them
        translate_errors(blocks.pipeline.transforms_stack[-1], _translation())
        options = _joined_options([options for options, *_ in sources], splits)
        job = samples_job(options, samples, labels, facts)
        reads = tuple(_sources(trace for own in sets.values() for trace in trace_reads(own)))
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
            raise ConfigError(f"JoinDatasets: name {shorten(repr(name), 80)} {fault}; file names begin with it")


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
    return WriteOptions(**values, output=_NOWHERE).with_source(upright, splits, observed, kinds_of_fields)


def _sources(traces: Iterable[Trace]) -> Iterator[Read]:
    """Yield the Reads of data sets, and not those that join several."""
    for trace in traces:
        yield from trace.read.sources or (trace.read,)


class MapClasses(beam.PTransform):
    """Rename, merge and drop classes of Samples by name, as `--class-map` does; see docs/shape.md.

    Images whose class is dropped are left out. Images without an object stay. WriteDataset and Encode find the new
    classes and counts.

    Args:
        class_map: CSV or YAML file of names and new names; or a dict of new names by name. An empty new name, or None,
            drops the class; the name `*` is that of all other classes.

    Returns:
        Read, if the Samples come from one ReadDataset; else a PCollection of Sample.

    Raises:
        ConfigError: The map has no class, or has one twice. In the pipeline: a class of the map does not exist.
    """

    def __init__(self, class_map: "str | os.PathLike[str] | Mapping[str, str | None]"):
        super().__init__()
        with _keywords_in_errors({"class_map": ""}):
            if isinstance(class_map, Mapping):
                pairs = (("", name, new_name or "") for name, new_name in class_map.items())
                self._class_map = class_map_of("MapClasses", pairs)
            else:
                self._class_map = read_class_map(plain_value("class_map", class_map))

    def display_data(self):
        return {"class_map": self._class_map.path}

    def expand(self, samples):
        _check_type("the input", samples, Sample)
        whole = [trace.read for trace in trace_reads(samples) if trace.link is Link.WHOLE]
        read = whole[0] if len(whole) == 1 else None
        with collect_facts() as collected:
            splits = read.job.splits if read else ("",)
            mapped, labels = samples | "MapSamples" >> MapSamples(self._class_map, read and read.labels, splits)
        translate_errors(samples.pipeline.transforms_stack[-1], _translation())
        own = tuple(collected) | "OwnFacts" >> beam.Flatten()
        if read is None:
            own | "LogWarnings" >> beam.Map(_log_warnings)
            return mapped
        facts = (read.facts, own) | "Facts" >> beam.Flatten()
        labels.element_type, facts.element_type = LabelMap, Facts
        return Read(mapped, labels, facts, read.job, read.sources)


@beam.typehints.with_output_types(bytes)
class Encode(_RecordTransform):
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
        super().__init__(_NOWHERE, dict(options), labels, None)

    def expand(self, samples):
        options, labels, _ = self._find_source(samples)
        with collect_facts():  # rejects are only counted and logged
            checked, labels, table = samples | "CheckSamples" >> CheckSamples(options, labels)
        encode = beam.ParDo(_Encode(options), AsSingleton(labels), AsSingleton(table)).with_output_types(bytes)
        batches = checked | beam.Values() | beam.BatchElements(min_batch_size=8, max_batch_size=64)
        records = batches | "Encode" >> encode
        translate_errors(samples.pipeline.transforms_stack[-1], _translation())
        return records


@beam.typehints.with_output_types(Manifest)
class WriteDataset(_RecordTransform):
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
        with _keywords_in_errors():
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
        with _keywords_in_errors():
            states = claim_output(options.output, recipes, options.overwrite)
        if OutputState.COMPLETE in states:
            raise ConfigError(
                f"{options.output} holds {' and '.join(options.splits)}, and only running the pipeline would show "
                "whether its Samples are the same: give another output, or overwrite=True"
            )
        written = job.write(samples.pipeline, recipes)
        written | "LogProblems" >> beam.ParDo(_LogProblems(), options.output, options.splits)
        step = samples.pipeline.transforms_stack[-1]
        translate_errors(step, _translation())
        writers |= dict.fromkeys(claims, step.full_label)
        return written


def _plain_values(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plain_value(name, value) for name, value in given.items() if value is not None}


def _known_values(transform: beam.PTransform, given: Mapping[str, Any], faults: list[str]) -> dict[str, Any]:
    """Return the values of the options that a transform has, and append an error for each other name."""
    own, *other_transforms = sorted(TRANSFORMS, key=lambda name: name != type(transform).__name__)
    fields = {field.name: field for field in transform_fields(own)}
    users = {
        field.name: other for other in other_transforms for field in transform_fields(other) if field.name not in fields
    }
    for name in given.keys() & users.keys():
        faults.append(f"{name} is an option of {users[name]}, not of {own}")
    return drop_unknown({name: given[name] for name in given if name not in users}, fields, "", faults)


@contextmanager
def _keywords_in_errors(given: Mapping[str, Any] = {}) -> Iterator[None]:
    """Name keywords in errors, as `recordmill.convert` does. Raise errors of files as those of the command.

    Args:
        given: Values of options, also of those that only formats of other packages have, by name.
    """
    try:
        with translated_errors(_translation(given)):
            yield
    except OSError as error:
        raise (ConfigError if is_command_error(error) else JobError)(explain_os_error(error)) from error


def _translation(given: Mapping[str, Any] = {}) -> Callable[[str], str]:
    """Return the translation of messages to keywords; `given` as for `_keywords_in_errors`."""
    types = {name: type(value).__name__ for name, value in given.items()}
    return partial(python_text, keywords=types | keyword_types())


def _check_type(name: str, part: Any, type_: type) -> None:
    """Raise ConfigError if a PCollection has other elements."""
    element_type = getattr(part, "element_type", type(part))
    if part is not None and not is_consistent_with(element_type, type_):
        type_name = getattr(element_type, "__name__", element_type)
        cure = "samples, labels, facts = p | ReadDataset(…), then samples | …(labels=labels, facts=facts)"
        if type_ is Sample and element_type not in (LabelMap, Facts):
            cure = "the step before it has to return Samples"
        raise ConfigError(f"{name} is of {type_name}, and a PCollection of {type_.__name__} is expected: {cure}")


def _check_windows(name: str, samples: PCollection) -> None:
    """Raise ConfigError if Beam would give the Samples to a transform in several parts."""
    windowing = samples.windowing
    parts = "" if isinstance(windowing.windowfn, GlobalWindows) else f"in {type(windowing.windowfn).__name__}"
    if not parts and not isinstance(windowing.triggerfn, DefaultTrigger):
        parts = f"in windows with the trigger {type(windowing.triggerfn).__name__}"
    if parts:
        raise ConfigError(
            f"{name} writes all Samples as one data set, but its input is {parts}: add "
            "beam.WindowInto(beam.window.GlobalWindows()) before it"
        )
    if not samples.is_bounded:
        raise ConfigError(
            f"{name} writes all Samples as one data set, but its input is unbounded: read them from a source that ends"
        )


def _samples(
    keyed: tuple[int, bytes], labels: LabelMap, table: FeatureTable | None, splits: Sequence[str]
) -> Iterator[Sample]:
    yield from convert_block(unpack_block(keyed[1]), labels, splits, field_columns(table) if table else ())


def _log_warnings(facts: Facts) -> None:
    for _, text in sorted(facts.warnings):
        _LOGGER.warning("%s", _translation()(text))


class _LogProblems(beam.DoFn):
    """Warn of the problems of splits that the summary of the command has: leakage, unusual shares, suspicious boxes."""

    def process(self, manifest: Manifest, output: str, splits: Sequence[str]) -> None:
        comparison = compare_splits(read_statistics(output, manifest.splits))
        for text in problem_lines(output, manifest, splits, comparison):
            _LOGGER.warning("%s: %s", output, _translation()(text))


class _Encode(ThreadedDoFn):
    """Convert lists of packed Samples to records."""

    def __init__(self, options: RecordOptions):
        super().__init__(options.workers)
        self._options = options
        self._logged = 0

    def process(self, batch: list[bytes], labels: LabelMap, table: FeatureTable) -> Iterator[bytes]:
        samples = [msgspec.structs.replace(unpack_sample(packed), split="") for packed in batch]
        options = self._options.of_layout(table.layout)
        block = convert_samples([stored_sample(sample, options) for sample in samples], labels, options, self._reject)
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
