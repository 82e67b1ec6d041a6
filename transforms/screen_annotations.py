"""Annotations that are not wanted, or of no known category, leave their task."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec
from apache_beam.pvalue import AsSingleton, PCollection

from schemas.coco import Annotation
from schemas.images import ImageTask
from schemas.labels import LabelMap
from schemas.rejects import Counted, Reason, Rejected, Tally
from transforms.outputs import COUNTED, REJECTED, tag_by_type


class Filters(msgspec.Struct, frozen=True):
    """Which annotations are wanted.

    Attributes:
        categories: names; empty for all.
        crowd: whether annotations with iscrowd 1 are.
        min_area_px2: the least area, in pixels², by the JSON.
    """

    categories: tuple[str, ...] = ()
    crowd: bool = True
    min_area_px2: float = 0.0

    def unwanted(self, annotation: Annotation, name: str) -> Tally | None:
        """What an annotation of the category `name` falls to, or None."""
        if self.categories and name not in self.categories:
            return Tally.FILTERED_CATEGORY
        if annotation.is_crowd and not self.crowd:
            return Tally.FILTERED_CROWD
        if annotation.area_px2 < self.min_area_px2:
            return Tally.FILTERED_AREA
        return None


class ScreenedTasks(NamedTuple):
    """What ScreenAnnotations gives.

    Attributes:
        tasks: ImageTask.
        rejected: Rejected.
        counted: Counted.
    """

    tasks: PCollection
    rejected: PCollection
    counted: PCollection


class ScreenAnnotations(beam.PTransform):
    """ImageTask become ScreenedTasks. `labels` is a PCollection of one LabelMap: all categories of the input."""

    def __init__(self, labels: PCollection, filters: Filters):
        super().__init__()
        self._labels = labels
        self._filters = filters

    def expand(self, tasks):
        names = self._labels | "NameById" >> beam.Map(LabelMap.name_by_id)
        screened = tasks | "Screen" >> beam.FlatMap(_screen, AsSingleton(names), self._filters).with_output_types(
            ImageTask
        ).with_outputs(REJECTED, COUNTED, main="tasks")
        return ScreenedTasks(screened.tasks, screened[REJECTED], screened[COUNTED])


def _screen(task: ImageTask, names: dict[int, str], filters: Filters) -> Iterator[Any]:
    return tag_by_type(screen_annotations(task, names, filters))


def screen_annotations(
    task: ImageTask, names: dict[int, str], filters: Filters
) -> Iterator[ImageTask | Rejected | Counted]:
    """The task with the annotations that are wanted; the task itself always stays, if without objects.

    Args:
        names: of all categories, by id.
    """
    kept = []
    filtered: Counter[Tally] = Counter()
    for annotation in task.annotations:
        name = names.get(annotation.category_id)
        if name is None:
            detail = f"no category has the id {annotation.category_id}"
            yield Rejected("annotation", annotation.id, Reason.UNKNOWN_CATEGORY, detail, task.image_id)
        elif tally := filters.unwanted(annotation, name):
            filtered[tally] += 1
        else:
            kept.append(annotation)
    for tally, number in filtered.items():
        yield Counted(tally, number)
    yield msgspec.structs.replace(task, annotations=tuple(kept)) if len(kept) < len(task.annotations) else task
