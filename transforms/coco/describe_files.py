"""Annotation files as a whole: their categories, what records hold, and their rows."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsList, PCollection, TaggedOutput

from recordmill.schemas.coco import AnnotationFile
from recordmill.schemas.features import FeatureTable
from recordmill.transforms.coco.choose_features import choose_features
from recordmill.transforms.coco.describe_inputs import input_facts
from recordmill.transforms.coco.merge_categories import merge_categories, select_categories
from recordmill.transforms.dataset.facts import FACTS

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


class DescribeFiles(beam.PTransform):
    """Convert AnnotationFile to DescribedFiles."""

    def __init__(self, rules: FileRules):
        super().__init__()
        self._rules = rules

    def expand(self, files: PCollection[AnnotationFile]):
        once = files.pipeline | "Once" >> beam.Create([self._rules])
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
