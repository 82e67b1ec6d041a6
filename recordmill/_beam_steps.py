"""Steps on Samples: limits, tiles, class maps."""

import os
from collections.abc import Mapping
from numbers import Integral

import apache_beam as beam

from recordmill._beam_checks import (
    NOWHERE,
    check_type,
    check_windows,
    keywords_in_errors,
    log_warnings,
    plain_values,
    translation,
)
from recordmill._conversion import plain_value
from recordmill.pipelines.transform_options import WriteOptions
from recordmill.schemas.command_texts import without_flags
from recordmill.schemas.errors import ConfigError, translated_errors
from recordmill.schemas.inputs.images import TileRules
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.limits import Limits
from recordmill.schemas.inputs.sample import Sample
from recordmill.transforms.dataset.collect_facts import collect_facts
from recordmill.transforms.dataset.facts import Facts
from recordmill.transforms.runtime.beam_steps import translate_errors
from recordmill.transforms.shape.class_map import class_map_of, read_class_map
from recordmill.transforms.user_samples.limit_samples import LimitSamples
from recordmill.transforms.user_samples.map_samples import MapSamples
from recordmill.transforms.user_samples.tile_samples import TileSamples
from recordmill.transforms.user_samples.trace_reads import Link, Read, trace_reads


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
        check_type("the input", samples, Sample)
        check_windows("LimitImages", samples)
        with collect_facts() as collected:  # WriteDataset counts the Samples that are left out
            limited = samples | "LimitSamples" >> LimitSamples(self._limits)
        tuple(collected) | "Facts" >> beam.Flatten() | "LogWarnings" >> beam.Map(log_warnings)
        translate_errors(samples.pipeline.transforms_stack[-1], translation())
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
            options = WriteOptions(**plain_values(names), output=NOWHERE)
        self._rules = TileRules(size, options.tile_overlap, options.tile_min_visible, options.keep_empty)

    def display_data(self):
        return {"tile": str(self._rules)}

    def expand(self, samples):
        check_type("the input", samples, Sample)
        reads = [trace.read.job.options for trace in trace_reads(samples)]
        upright = any(options.image_rules.upright for options in reads)
        return samples | "Tile" >> beam.ParDo(TileSamples(self._rules, upright)).with_output_types(Sample)


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
        with keywords_in_errors({"class_map": ""}):
            if isinstance(class_map, Mapping):
                pairs = (("", name, new_name or "") for name, new_name in class_map.items())
                self._class_map = class_map_of("MapClasses", pairs)
            else:
                self._class_map = read_class_map(plain_value("class_map", class_map))

    def display_data(self):
        return {"class_map": self._class_map.path}

    def expand(self, samples):
        check_type("the input", samples, Sample)
        whole = [trace.read for trace in trace_reads(samples) if trace.link is Link.WHOLE]
        read = whole[0] if len(whole) == 1 else None
        with collect_facts() as collected:
            splits = read.job.splits if read else ("",)
            mapped, labels = samples | "MapSamples" >> MapSamples(self._class_map, read and read.labels, splits)
        translate_errors(samples.pipeline.transforms_stack[-1], translation())
        own = tuple(collected) | "OwnFacts" >> beam.Flatten()
        if read is None:
            own | "LogWarnings" >> beam.Map(log_warnings)
            return mapped
        facts = (read.facts, own) | "Facts" >> beam.Flatten()
        labels.element_type, facts.element_type = LabelMap, Facts
        return Read(mapped, labels, facts, read.job, read.sources)
