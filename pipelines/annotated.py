"""Verbs of formats: convert images with label files to TFRecord shards. A format's `source` determines the input."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import apache_beam as beam
from apache_beam.pvalue import AsSingleton

from recordmill.pipelines.convert import Gathered, Job, choose_images, image_contents, input_file, read_division
from recordmill.schemas.dataset.dataset_files import state_folder
from recordmill.schemas.dataset.recipes import InputFile
from recordmill.schemas.layouts import LAYOUTS
from recordmill.transforms.annotated.format_options import FormatOptions
from recordmill.transforms.annotated.join_annotated import ClassRules, DescribeClasses, JoinAnnotated, wanted_labels
from recordmill.transforms.annotated.read_annotated import ReadAnnotated
from recordmill.transforms.annotated.read_labels import AnnotatedRules
from recordmill.transforms.annotated.source import Source
from recordmill.transforms.dataset.dataset_folder import labels_beside
from recordmill.transforms.encoders.estimate_records import RecordEstimate
from recordmill.transforms.join.divide_images import DivideImages
from recordmill.transforms.join.screen_objects import Filters
from recordmill.transforms.storage.resolve import join_path


def prepare(options: FormatOptions) -> Job:
    """Return the job of a format.

    Raises:
        ConfigError: See `FormatOptions.source` and `FormatOptions.splits_of`.
    """
    source = options.source()
    splits = options.splits_of(source)
    without = [part.value for part in source.parts if part not in LAYOUTS[options.layout].parts]
    if without:
        text = f"the layout {options.layout} has no feature for {', '.join(without)}, which {options.data} has"
        source = replace(source, warnings=(*source.warnings, text))
    options = options.of_source(source)
    steps = partial(gather, options=options, source=source, splits=splits)
    return Job(options, splits, partial(inputs, options, source), steps, image_contents(options, splits, options.table))


def inputs(options: FormatOptions, source: Source) -> Iterator[InputFile]:
    """Yield the files that determine what is read. The job itself reads label files."""
    for path in source.inputs:
        yield input_file(source.kind, path)


def gather(p: beam.Pipeline, options: FormatOptions, source: Source, splits: tuple[str, ...]) -> Gathered:
    """Return images with their objects, and the classes."""
    division = read_division(p, options)
    divides = not source.splits or splits != source.splits
    match = getattr(options, "match", "path")
    filters = Filters(options.categories, not options.no_crowd, options.min_area)
    estimate = RecordEstimate(options.table, options.max_side)
    group_from = options.division.group_from
    state = "" if options.dry_run else join_path(options.output, state_folder(splits[0]))
    rules = AnnotatedRules(
        source, splits, options.output, state, options.seed, divides, match, group_from, filters, estimate
    )
    read = p | "ReadAnnotated" >> ReadAnnotated(rules, division if divides else None)
    beside = labels_beside(options.output, splits)
    classes = ClassRules(source, splits, options.categories, options.table, options.layout_table, beside)
    described = read.traits | "DescribeClasses" >> DescribeClasses(classes)
    rows = read.rows
    if options.stratify or options.split_by == "rank":
        wanted = beam.FlatMap(wanted_labels, AsSingleton(described.categories), rules)
        found = (rows | "WantedLabels" >> wanted.with_output_types(tuple[int, bytes]),) if options.stratify else ()
        rows = (rows, *found) | "DivideImages" >> DivideImages(division, splits)
    joined = rows | "JoinAnnotated" >> JoinAnnotated(rules, described.categories)
    chosen = choose_images(options, joined.blocks, splits)
    facts = (*read.facts, described.facts, joined.facts, *chosen.facts)
    division_ = division if options.keeps_groups else None
    return Gathered(chosen.blocks, described.labels, described.table, facts, division=division_)
