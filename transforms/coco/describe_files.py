"""Annotation files as a whole: their categories, what records hold, and their rows."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec
from apache_beam.pvalue import AsList, PCollection, TaggedOutput

from recordmill.schemas.coco import AnnotationFile, AnnotationKind, FieldRows
from recordmill.schemas.features import FeatureTable, Part
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.manifest import InputRows
from recordmill.transforms.coco.file_fields import without
from recordmill.transforms.coco.merge_categories import merge_categories, select_categories
from recordmill.transforms.dataset.facts import FACTS, Facts, FactsBuilder

_LABELS, _TABLE = "labels", "table"


class FileRules(NamedTuple):
    """What is asked of annotation files.

    Attributes:
        categories: names of those that are wanted; empty for all.
        asked: features that were asked for.
        layout: all features of the layout that may be in records; `carried` all of the layout.
    """

    categories: tuple[str, ...]
    splits: tuple[str, ...]
    asked: FeatureTable
    layout: FeatureTable
    carried: FeatureTable


class DescribedFiles(NamedTuple):
    """PCollections of one LabelMap of all categories, one LabelMap of the classes, one FeatureTable; and Facts."""

    categories: PCollection
    labels: PCollection
    table: PCollection
    facts: PCollection


@dataclass(eq=False, repr=False)
class DescribeFiles(beam.PTransform):
    """Convert AnnotationFile to DescribedFiles."""

    rules: FileRules

    def expand(self, files: PCollection[AnnotationFile]):
        once = files.pipeline | "Once" >> beam.Create([self.rules])
        found = once | "Describe" >> beam.FlatMap(_describe, AsList(files)).with_outputs(
            _LABELS, _TABLE, FACTS, main="categories"
        )
        return DescribedFiles(found.categories, found[_LABELS], found[_TABLE], found[FACTS])


def _describe(rules: FileRules, files: list[AnnotationFile]) -> Iterator[Any]:
    categories = merge_categories(files)
    labels = select_categories(categories, rules.categories)
    yield categories
    yield TaggedOutput(_LABELS, labels)
    yield TaggedOutput(_TABLE, choose_features(files, labels, rules.asked, rules.layout))
    yield TaggedOutput(FACTS, input_facts(files, rules.carried, rules.splits))


_SOURCES = {
    "iscrowd": "objects.is_crowd",
    "neg_category_ids": "image.neg_category_ids",
    "not_exhaustive_category_ids": "image.not_exhaustive_category_ids",
}
"""The feature that each field that only some layouts carry is in."""


def input_facts(files: Iterable[AnnotationFile], layout: FeatureTable, splits: Sequence[str]) -> Facts:
    """The rows of each file, all as of the first split; joining moves those that are of others. Fields that no record
    carries are those of the whole input. And the warnings of each file."""
    facts = FactsBuilder()
    for rows in describe_inputs(files, layout):
        facts.add_rows(splits[0], rows)
        for split in splits[1:]:
            facts.add_rows(split, msgspec.structs.replace(rows, images=0, annotations=0))
    for file in files:
        for text in file.warnings:
            facts.warn(splits[0], text)
    return facts.build()


def describe_inputs(files: Iterable[AnnotationFile], layout: FeatureTable) -> list[InputRows]:
    """Rows of each file by its path and kind."""
    files = sorted(files, key=lambda file: (file.path, file.kind))
    by_layout = [name for name, source in _SOURCES.items() if source in layout.sources]
    # Rows of a keypoints file are joined with those of instances.
    joined = ("keypoints", "num_keypoints") if any(file.kind is AnnotationKind.KEYPOINTS for file in files) else ()
    uncarried: dict[str, FieldRows] = {}
    for file in files:
        fields = {
            list_: without(file.unread.get(list_, {}), joined) | without(file.optional.get(list_, {}), by_layout)
            for list_ in ("file", "images", "annotations", "categories")
        }
        before = uncarried.get(file.path, fields)  # a file may be given to two flags
        uncarried[file.path] = {list_: _common(before[list_], fields[list_]) for list_ in fields}
    described = []
    for file in files:
        fields = {list_: of_list for list_, of_list in uncarried.pop(file.path, {}).items() if of_list}
        described.append(InputRows(file.path, file.kind.value, file.images, file.annotations, fields))
    return described


def _common(first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    return {name: first[name] for name in sorted(first.keys() & second.keys())}


def choose_features(
    files: Iterable[AnnotationFile], labels: LabelMap, asked: FeatureTable, layout: FeatureTable
) -> FeatureTable:
    """`asked`, with LVIS's lists where a file has them, and category ids where labels are others."""
    lvis = (Part.LVIS,) if any(file.lvis for file in files) else ()
    category_id = (Part.CATEGORY_ID,) if labels.is_shifted else ()
    return layout.with_parts((*asked.parts, *lvis, *category_id))
