"""How many objects of each class there are to write; or images, where each has one class."""

from collections.abc import Iterable, Iterator, Mapping

import apache_beam as beam
from apache_beam.pvalue import PCollection

from recordmill.schemas.images import ImageTask
from recordmill.schemas.labels import LabelMap

OfSplit = tuple[tuple[str, int | str], int]
"""((split, category id or class name), number)."""


class CountClasses(beam.PTransform):
    """ImageTask become OfSplit."""

    def expand(self, tasks: PCollection[ImageTask]) -> PCollection[OfSplit]:
        return tasks | "Classes" >> beam.FlatMap(_classes) | "AddClasses" >> beam.combiners.Count.PerElement()


def _classes(task: ImageTask) -> Iterator[tuple[str, int | str]]:
    if task.labels.class_name is not None:
        yield task.split, task.labels.class_name
    for annotation in task.annotations:
        yield task.split, annotation.category_id


def class_counts(counts: Iterable[OfSplit], labels: LabelMap) -> dict[str, list[int]]:
    """The numbers of each split by class index.

    >>> from recordmill.schemas.annotations import Category
    >>> class_counts([(("val", "dog"), 3)], LabelMap((Category(0, "cat"), Category(1, "dog"))))
    {'val': [0, 3]}
    """
    of_id = labels.index_by_id()
    of_name = {category.name: index for index, category in enumerate(labels.categories)}
    by_split: dict[str, list[int]] = {}
    for (split, kind), number in sorted(counts, key=str):
        index: Mapping = of_name if isinstance(kind, str) else of_id
        by_split.setdefault(split, [0] * len(labels.categories))[index[kind]] += number
    return by_split
