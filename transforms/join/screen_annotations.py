"""Annotations that are not wanted, or of no known category, leave their task."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec
from apache_beam.pvalue import AsSingleton, PCollection

from recordmill.schemas.annotations import Annotation
from recordmill.schemas.images import ImageTask
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.rejects import Count, Metric, Reason, Rejected
from recordmill.transforms.runtime.outputs import COUNTED, REJECTED, in_split, route_outputs


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

    def unwanted(self, annotation: Annotation, name: str) -> Metric | None:
        """What an annotation of the category `name` falls to, or None."""
        if self.categories and name not in self.categories:
            return Metric.FILTERED_CATEGORY
        if annotation.is_crowd and not self.crowd:
            return Metric.FILTERED_CROWD
        if self.min_area_px2 and annotation.area_px2 < self.min_area_px2:  # some tools write -1 for an area
            return Metric.FILTERED_AREA
        return None


_ALL = Filters()


class ScreenedTasks(NamedTuple):
    """What ScreenAnnotations gives.

    Attributes:
        tasks: ImageTask.
        rejected: SplitReject.
        counted: SplitCount.
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

    def expand(self, tasks: PCollection[ImageTask]):
        known = self._labels | "Known" >> beam.Map(known_categories)
        screened = tasks | "Screen" >> beam.FlatMap(_screen, AsSingleton(known), self._filters).with_output_types(
            ImageTask
        ).with_outputs(REJECTED, COUNTED, main="tasks")
        return ScreenedTasks(screened.tasks, screened[REJECTED], screened[COUNTED])


class KnownCategories(msgspec.Struct, frozen=True):
    """Names of the classes of objects by id, and the ids of segments."""

    names: dict[int, str]
    segments: frozenset[int] = frozenset()


def known_categories(labels: LabelMap) -> KnownCategories:
    return KnownCategories(labels.name_by_id(), frozenset(category.id for category in labels.segments))


def _screen(task: ImageTask, known: KnownCategories, filters: Filters) -> Iterator[Any]:
    return route_outputs(in_split(task.split, screen_annotations(task, known, filters)))


def screen_annotations(
    task: ImageTask, known: KnownCategories, filters: Filters
) -> Iterator[ImageTask | Rejected | Count]:
    """The task with the annotations that are wanted; the task itself always stays, if without any."""
    if (
        filters == _ALL
        and task.labels.rows == len(task.labels.captions)
        and known.names.keys() >= {annotation.category_id for annotation in task.annotations}
    ):  # the usual case, spared a call for each annotation
        yield task
        return
    kept = []
    filtered: Counter[Metric] = Counter()
    for annotation in task.annotations:
        name = known.names.get(annotation.category_id)
        if name is None:
            yield _unknown(task, annotation.id, [annotation.category_id])
        elif metric := filters.unwanted(annotation, name):
            filtered[metric] += 1
        else:
            kept.append(annotation)
    for metric, number in filtered.items():
        yield Count(metric, number)
    regions, panoptic = [], []
    for region in task.labels.regions:
        if region.category_id in known.segments:
            regions.append(region)
        else:
            yield _unknown(task, region.id, [region.category_id])
    for row in task.labels.panoptic:
        if unknown := sorted({segment.category_id for segment in row.segments} - known.segments):
            yield _unknown(task, None, unknown)
        else:
            panoptic.append(row)
    if len(kept) + len(regions) + len(panoptic) + len(task.labels.captions) < task.annotation_rows:
        labels = msgspec.structs.replace(task.labels, regions=tuple(regions), panoptic=tuple(panoptic))
        task = msgspec.structs.replace(task, annotations=tuple(kept), labels=labels)
    yield task


def _unknown(task: ImageTask, annotation_id: int | None, category_ids: list[int]) -> Rejected:
    detail = f"no category has the id {', '.join(map(str, category_ids))}"
    return Rejected("annotation", annotation_id, Reason.UNKNOWN_CATEGORY, detail, task.image_id)
