"""`recordmill folder`: images of one class each become TFRecord shards, divided into splits."""

from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PCollection

from recordmill.pipelines.convert import Gathered, read_division
from recordmill.pipelines.options.folder_options import LabelledOptions
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.images import JoinSide
from recordmill.schemas.labels import LabelMap, alike_names, misread_numbers
from recordmill.schemas.manifest import InputRows
from recordmill.transforms.folder.choose_classes import ChooseClasses, ListClasses
from recordmill.transforms.folder.label_paths import LabelPaths
from recordmill.transforms.folder.nested_classes import WarnOfNestedClasses
from recordmill.transforms.folder.read_labels import LabelTable, ReadLabels
from recordmill.transforms.folder.stratify import Stratify
from recordmill.transforms.images.list_images import ListLabelledImages
from recordmill.transforms.join.match_files import MatchFiles
from recordmill.transforms.metadata.write_metadata import Findings
from recordmill.transforms.rejects.bounded_rejects import GatherRejects
from recordmill.transforms.runtime.outputs import REJECTED, UNLISTED


def gather(p: beam.Pipeline, options: LabelledOptions, splits: tuple[str, ...], table: FeatureTable) -> Gathered:
    """Image files, with their classes and splits; `splits` are those of the job, `table` is of their records."""
    listed = p | "ImageFolders" >> beam.Create(options.images) | "ListImages" >> ListLabelledImages(options.output)
    division = read_division(p, options)
    if options.labels:
        tables = [LabelTable(path, options.columns, options.images) for path in options.labels]
        labelled = p | "LabelTables" >> beam.Create(tables) | "ReadLabels" >> ReadLabels(division, splits)
        files, unlisted = [listed.files], []
    else:
        labelled = listed.files | "LabelPaths" >> LabelPaths(options.path_labels, division)
        files, unlisted = [], [labelled[UNLISTED]]
    images, rejected = labelled.images, labelled[REJECTED]
    if options.stratify:
        images = images | "Stratify" >> Stratify(division)
    matched = (images, *files) | "BothSides" >> beam.Flatten() | "MatchFiles" >> MatchFiles()
    chosen = matched.tasks | "ChooseClasses" >> ChooseClasses(options.classes)
    rows = (
        images | "SplitOfImage" >> beam.Map(_split_of_image).with_output_types(str),
        rejected | "SplitOfReject" >> beam.Keys().with_output_types(str),
    ) | "Rows" >> beam.Flatten()
    labels = images | "ListClasses" >> ListClasses(options.classes, _class_folders(options))
    source = ", ".join(sorted(options.labels or options.images))
    kind = "labels" if options.labels else "images"
    return Gathered(
        chosen.tasks,
        labels,
        p | "Table" >> beam.Create([table]),
        Findings(
            rows
            | "CountRows" >> beam.combiners.Count.PerElement()
            | "InputRows" >> beam.Map(_input_rows, source, kind),
            (rejected, matched.rejected) | "FoundRejected" >> GatherRejects(),
            chosen.counted,
            (*unlisted, matched.unlisted) | "Unlisted" >> beam.Flatten(),
            matched.unmatched,
            _warnings(images, labels, options, splits),
        ),
        listings=listed.listings,
        division=division if options.keeps_groups else None,
    )


def _warnings(
    images: PCollection, labels: PCollection, options: LabelledOptions, splits: tuple[str, ...]
) -> PCollection:
    of_names = beam.FlatMap(_of_names, options.classes, splits).with_output_types(Any)
    warnings = [labels | "WarnOfNames" >> of_names]
    if _class_folders(options):
        warnings.append(images | "WarnOfNestedClasses" >> WarnOfNestedClasses(labels, splits))
    return warnings | "ClassWarnings" >> beam.Flatten()


def _of_names(labels: LabelMap, asked: tuple[str, ...], splits: tuple[str, ...]) -> list[tuple[str, str]]:
    texts = [] if asked else [*misread_numbers(labels), *alike_names(labels)]
    return [(split, text) for text in texts for split in splits]


def _class_folders(options: LabelledOptions) -> tuple[str, ...]:
    """The folders whose sub-folders are classes."""
    return () if options.labels or options.label_from != "folder" else options.images


def _split_of_image(named: tuple[str, JoinSide]) -> str:
    _, match = named
    return match.row.split


def _input_rows(counted: tuple[str, int], path: str, kind: str) -> tuple[str, InputRows]:
    split, images = counted
    return split, InputRows(path, kind, images, 0)
