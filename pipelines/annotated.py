"""Verbs of formats: convert images with label files to TFRecord shards. A format's `source` determines the input."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection

from recordmill.pipelines.convert import Job, encode_and_plan, input_file, read_division, read_existing
from recordmill.pipelines.gathered import Gathered
from recordmill.schemas.dataset.recipes import InputFile
from recordmill.schemas.features import PARTS_OF_FIELDS
from recordmill.schemas.inputs.splits import Division
from recordmill.schemas.layouts import LAYOUTS
from recordmill.transforms.annotated.format_options import FormatOptions
from recordmill.transforms.annotated.join_annotated import DescribeClasses, JoinAnnotated, label_pairs
from recordmill.transforms.annotated.read_annotated import ReadAnnotated
from recordmill.transforms.annotated.source import Source
from recordmill.transforms.annotated.unread_folders import unread_folders
from recordmill.transforms.join.divide_images import DivideImages
from recordmill.transforms.shape.shape_classes import MapPairs


def prepare(options: FormatOptions) -> Job:
    """Return the job of a format.

    Raises:
        ConfigError: See `FormatOptions.source` and `FormatOptions.source_splits`.
    """
    source = options.source()
    source = replace(source, warnings=(*source.warnings, *unread_folders(source)))
    splits = options.source_splits(source)
    stored = (*LAYOUTS[options.layout].parts, *PARTS_OF_FIELDS)
    without = [part.value for part in source.parts if part not in stored]
    if without:
        text = f"the layout {options.layout} has no feature for {', '.join(without)}, which {options.data} has"
        source = replace(source, warnings=(*source.warnings, text))
    options = options.with_source(source)
    steps = partial(gather, options=options, source=source, splits=splits)
    maker, plan = encode_and_plan(options, splits, options.table)
    read = partial(inputs, options, source)
    return Job(options, splits, read, steps, maker, plan, notes=source.notes, names_splits=bool(source.splits))


def inputs(options: FormatOptions, source: Source) -> Iterator[InputFile]:
    """Yield the files that determine what is read. The job itself reads label files."""
    for path in source.inputs:
        yield input_file(source.kind, path)


def gather(p: beam.Pipeline, options: FormatOptions, source: Source, splits: tuple[str, ...]) -> Gathered:
    """Return images with their objects, and the classes."""
    division = read_division(p, options)
    job = options, source, splits
    rows, traits = p | "ReadAnnotated" >> ReadAnnotated(*job, division)
    existing = read_existing(options, splits)
    categories, labels, table = traits | "DescribeClasses" >> DescribeClasses(*job, existing)
    if options.divides_ranked:
        rows = _divide_annotated(rows, categories, *job, division)
    blocks = rows | "JoinAnnotated" >> JoinAnnotated(*job, categories)
    return Gathered(blocks, labels, table, division=division if options.keeps_groups else None)


def _divide_annotated(
    rows: PCollection,
    categories: PCollection,
    options: FormatOptions,
    source: Source,
    splits: tuple[str, ...],
    division: Division | AsSingleton,
) -> PCollection:
    """Return image rows with splits that depend on all images."""
    pairs = beam.FlatMap(label_pairs, AsSingleton(categories), options, source).with_output_types(tuple[int, bytes])
    # A shuffle, or runners fuse this step with the one that reads the categories, which would wait for itself.
    ranked_by = (rows | "SpreadRows" >> beam.Reshuffle() | "SelectedLabels" >> pairs,) if options.stratify else ()
    if options.class_map:
        ranked_by = tuple(pairs | "MapPairs" >> MapPairs(options, categories) for pairs in ranked_by)
    return (rows, *ranked_by) | "DivideImages" >> DivideImages(division, splits)
