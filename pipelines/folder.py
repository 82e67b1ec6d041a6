"""`recordmill folder`: images of one class each become TFRecord shards, divided into splits."""

from collections.abc import Iterator

import apache_beam as beam
from apache_beam.pvalue import PCollection

from recordmill.pipelines.convert import Gathered, read_division
from recordmill.pipelines.options.folder_options import LabelledOptions
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.labels import LabelMap, alike_names, misread_numbers
from recordmill.transforms.dataset.facts import FACTS, Facts
from recordmill.transforms.folder.choose_classes import ListClasses, WarnOfNestedClasses
from recordmill.transforms.folder.read_folder import FolderRules, JoinFiles, ListFolders, ReadTables
from recordmill.transforms.folder.read_labels import LabelTable
from recordmill.transforms.folder.stratify import Stratify


def gather(p: beam.Pipeline, options: LabelledOptions, splits: tuple[str, ...], table: FeatureTable) -> Gathered:
    """Image files, with their classes and splits; `splits` are those of the job, `table` is of their records."""
    division = read_division(p, options)
    rule = None if options.labels else options.path_labels
    source, kind = ", ".join(sorted(options.labels or options.images)), "labels" if options.labels else "images"
    rules = FolderRules(options.output, rule, options.classes, splits, options.seed, source, kind)
    listed = p | "ImageFolders" >> beam.Create(options.images) | "ListImages" >> ListFolders(rules, division)
    rows, files, facts = listed.blocks, [], listed.facts
    if options.labels:
        tables = [LabelTable(path, options.columns, options.images) for path in options.labels]
        read = p | "LabelTables" >> beam.Create(tables) | "ReadLabels" >> ReadTables(rules, division)
        rows, files, facts = read.rows, [listed.blocks], (*listed.facts, read[FACTS])
    if options.stratify:
        rows = rows | "Stratify" >> Stratify(division, splits)
    joined = (rows, *files) | "JoinFiles" >> JoinFiles(rules)
    labels = rows | "ListClasses" >> ListClasses(options.classes, _class_folders(options))
    return Gathered(
        joined.blocks,
        labels,
        p | "Table" >> beam.Create([table]),
        (*facts, joined[FACTS], *_warned(rows, labels, options, splits)),
        division=division if options.keeps_groups else None,
    )


def _warned(
    rows: PCollection, labels: PCollection, options: LabelledOptions, splits: tuple[str, ...]
) -> Iterator[PCollection]:
    if not options.classes:
        yield labels | "WarnOfNames" >> beam.Map(_of_names, splits)
    if _class_folders(options):
        yield rows | "WarnOfNestedClasses" >> WarnOfNestedClasses(labels, splits)


def _of_names(labels: LabelMap, splits: tuple[str, ...]) -> Facts:
    texts = [*misread_numbers(labels), *alike_names(labels)]
    return Facts(warnings={(split, text) for text in texts for split in splits})


def _class_folders(options: LabelledOptions) -> tuple[str, ...]:
    """The folders whose sub-folders are classes."""
    return () if options.labels or options.label_from != "folder" else options.images
