"""`recordmill folder`: convert images of one class each."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PCollection, TaggedOutput

from recordmill.pipelines.convert import Gathered, Job, choose_images, image_contents, input_file, read_division
from recordmill.schemas.dataset.recipes import InputFile, unlisted_folder
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.labels import (
    SAME_CLASSES,
    LabelMap,
    LabelsBeside,
    adopt_labels,
    misread_numbers,
    name_warnings,
)
from recordmill.schemas.inputs.options import ALL_TRAIN
from recordmill.transforms.dataset.dataset_folder import labels_beside
from recordmill.transforms.dataset.facts import FACTS, Facts
from recordmill.transforms.folder.choose_classes import (
    ListClasses,
    WarnOfNestedClasses,
    check_sample,
    folders_without_images,
)
from recordmill.transforms.folder.folder_options import FolderOptions
from recordmill.transforms.folder.read_folder import ReadTables, count_rows, folder_rows
from recordmill.transforms.folder.read_labels import LabelTable, table_splits
from recordmill.transforms.folder.stratify import Stratify
from recordmill.transforms.join.divide_images import DivideImages
from recordmill.transforms.join.join_files import FolderRules, JoinFiles
from recordmill.transforms.join.list_images import ListFolders
from recordmill.transforms.storage.resolve import file_version


def prepare(options: FolderOptions) -> Job:
    """Return the job of `recordmill folder`.

    Raises:
        ConfigError: No image has a class, splits are given in two ways, or the tables have none.
        AnnotationFileError: A table cannot be read.
    """
    splits = splits_of(options)
    steps, contents = partial(gather, options=options, splits=splits), image_contents(options, splits, options.table)
    return Job(options, splits, partial(inputs, options), steps, contents)


def inputs(options: FolderOptions) -> Iterator[InputFile]:
    """Yield the tables of labels, or the folders, which the job itself lists, because a million files take minutes."""
    if options.labels:
        yield from (input_file("labels", path) for path in sorted(options.labels))
    else:
        yield from map(unlisted_folder, sorted(options.images))


def splits_of(options: FolderOptions) -> tuple[str, ...]:
    """Return the splits of the tables of labels, or else those of the options. Without tables, check first for images.

    Raises:
        ConfigError, AnnotationFileError: See `prepare`.
    """
    if not options.labels:
        check_sample(options)
    by_table = {path: table_splits(path, options.columns) for path in options.labels}
    with_splits = sorted(path for path, splits in by_table.items() if splits is not None)
    if not with_splits:
        return options.splits
    if len(with_splits) < len(by_table):
        raise ConfigError(f"--labels: {', '.join(with_splits)} says which split an image is of, the others do not")
    splits = tuple(sorted({split for splits in by_table.values() for split in splits or ()}))
    if not splits:
        raise ConfigError(f"{', '.join(with_splits)}: no row that can be used, so there is nothing to write")
    if options.split != ALL_TRAIN:
        raise ConfigError(
            f"{with_splits[0]} says which split an image is of ({', '.join(splits)}), and so does --split"
        )
    return splits


def gather(p: beam.Pipeline, options: FolderOptions, splits: tuple[str, ...]) -> Gathered:
    """Return image files with their classes and splits. `splits` are those of the job."""
    division = read_division(p, options)
    rule = None if options.labels else options.path_labels
    source, kind = ", ".join(sorted(options.labels or options.images)), "labels" if options.labels else "images"
    rules = FolderRules(options.output, rule, options.classes, splits, options.seed, source, kind)
    listed = (
        p
        | "ImageFolders" >> beam.Create(options.images)
        | "ListImages" >> ListFolders(options.output, folder_rows, rules, division)
    )
    rows, files, facts = listed.blocks, [], listed.facts
    if options.labels:
        tables = [LabelTable(path, options.columns, options.images, file_version(path)) for path in options.labels]
        read = p | "LabelTables" >> beam.Create(tables) | "ReadLabels" >> ReadTables(rules, division)
        rows, files, facts = read.rows, [listed.blocks], (*listed.facts, read[FACTS])
    joined = (rows, *files) | "JoinFiles" >> JoinFiles(rules)
    blocks = joined.blocks  # of images that can be written, unless they turn out broken
    if options.stratify:
        blocks = blocks | "Stratify" >> Stratify(division, splits)
    elif options.split_by == "rank":
        blocks = (blocks,) | "DivideImages" >> DivideImages(division, splits)
    counted = blocks | "CountRows" >> beam.Map(count_rows, rules)
    found = rows | "ListClasses" >> ListClasses(options.classes, _class_folders(options))
    beside = labels_beside(options.output, splits)
    adopted = found | "AdoptLabels" >> beam.FlatMap(_adopted, beside, options.classes, splits).with_outputs(
        FACTS, main="labels"
    )
    labels = adopted.labels
    chosen = choose_images(options, blocks, splits)
    return Gathered(
        chosen.blocks,
        labels,
        p | "Table" >> beam.Create([options.table]),
        (*facts, joined[FACTS], counted, *chosen.facts, adopted[FACTS], *_warned(rows, labels, options, splits)),
        division=division if options.keeps_groups else None,
    )


def _adopted(
    labels: LabelMap, beside: LabelsBeside | None, classes: tuple[str, ...], splits: tuple[str, ...]
) -> Iterator[Any]:
    """Yield the label map of the data set to which splits are added, if it has all classes, and a warning about classes
    without images."""
    if beside:
        labels, absent = adopt_labels(labels, beside, bool(classes), SAME_CLASSES)
        if absent:
            yield TaggedOutput(FACTS, Facts(warnings={(split, absent) for split in splits}))
    yield labels


def _warned(
    rows: PCollection, labels: PCollection, options: FolderOptions, splits: tuple[str, ...]
) -> Iterator[PCollection]:
    if not options.classes:
        yield labels | "WarnOfNames" >> beam.Map(_of_names, splits)
    if folders := _class_folders(options):
        texts = folders_without_images(folders, options.output)
        found = Facts(warnings={(split, text) for text in texts for split in splits})
        yield rows.pipeline | "FoldersWithoutImages" >> beam.Create([found])
        yield rows | "WarnOfNestedClasses" >> WarnOfNestedClasses(labels, splits)


def _of_names(labels: LabelMap, splits: tuple[str, ...]) -> Facts:
    texts = [*misread_numbers(labels), *name_warnings(labels)]
    return Facts(warnings={(split, text) for text in texts for split in splits})


def _class_folders(options: FolderOptions) -> tuple[str, ...]:
    """Return the folders whose sub-folders are classes."""
    return () if options.labels or options.label_from != "folder" else options.images
