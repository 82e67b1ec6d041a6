"""Rename, merge and drop classes of Samples."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import msgspec
from apache_beam.pvalue import AsList, AsSingleton, PCollection

from recordmill.schemas.dataset.manifest import MappedClass
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.annotations import Category, ImageLabels, PanopticAnnotation, StuffAnnotation
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.rejects import Metric
from recordmill.transforms.dataset.collect_facts import WithFacts
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.join.observed_labels import ObservedLabel, choose_labels
from recordmill.transforms.shape.class_map import ClassMap
from recordmill.transforms.shape.finish_labels import map_by_name
from recordmill.transforms.shape.map_classes import ClassMapping, map_image_labels


class MapSamples(beam.PTransform):
    """Convert Samples to those of new classes, and the LabelMap of the new classes.

    At run time, raises the errors of `map_by_name`.

    Args:
        labels: PCollection of one LabelMap; None to collect the classes of the Samples.
        splits: Splits of the Samples. The first one has the counts of Samples without a split.
    """

    def __init__(self, class_map: ClassMap, labels: PCollection | None, splits: Sequence[str]):
        super().__init__()
        self._class_map, self._labels, self._splits = class_map, labels, tuple(splits)

    def expand(self, samples: PCollection[Sample]):  # Beam accepts no type hints of several outputs
        labels = self._labels
        if labels is None:
            traits = samples | "Traits" >> beam.FlatMap(class_traits).with_output_types(Any) | beam.Distinct()
            once = samples.pipeline | "OnceForClasses" >> beam.Impulse()
            labels = once | "CollectClasses" >> beam.Map(_collect_labels, AsList(traits)).with_output_types(LabelMap)
        finish = WithFacts(_map_labels, self._class_map, self._splits, types=LabelMap, tags=("mapping",))
        new_labels, mapping = labels | "MapLabels" >> finish
        sides = self._class_map, AsSingleton(labels), AsSingleton(mapping), self._splits
        return samples | "Map" >> WithFacts(_map_sample, *sides, types=Sample), new_labels


def class_traits(sample: Sample) -> set[tuple[str, str, int, int]]:
    """Return the classes of a Sample as tuples of ObservedLabel; keypoints do not matter. A faulty Sample has none."""
    if not _is_usable(sample):
        return set()
    traits = {ObservedLabel("class", name) for name in (sample.class_name, *sample.tags) if isinstance(name, str)}
    if sample.stuff or sample.panoptic:
        traits.add(ObservedLabel("segments"))
    for item in sample.objects:
        if isinstance(item, SampleObject) and isinstance(item.category, str):
            traits.add(ObservedLabel("category", item.category, -1 if item.category_id is None else item.category_id))
    return {tuple(trait) for trait in traits}  # type: ignore[misc]


def _collect_labels(_: bytes, traits: list[tuple[str, str, int, int]]) -> LabelMap:
    return collect_labels([ObservedLabel(*trait) for trait in traits])


def collect_labels(traits: Sequence[ObservedLabel]) -> LabelMap:
    """Return the classes of Samples: of objects, with the ids of `choose_labels`, and of images, with separate ids.

    Raises:
        ConfigError: Samples have segments, whose classes have no names.
    """
    if any(trait.kind == "segments" for trait in traits):
        raise ConfigError(
            "MapClasses: Samples have segments, whose classes have no names. Apply MapClasses to the Samples of "
            "ReadDataset, whose classes it finds, or to others without stuff and panoptic"
        )
    categories = choose_labels(traits, is_image_class=False).categories
    names = sorted({trait.name for trait in traits if trait.kind == "class"} - {one.name for one in categories})
    first = max((category.id for category in categories), default=0) + 1
    return LabelMap((*categories, *(Category(id_, name) for id_, name in enumerate(names, first))))


def _map_labels(labels: LabelMap, facts: FactsBuilder, class_map: ClassMap, splits: tuple[str, ...]) -> Iterator[Any]:
    mapped, mapping, warnings = map_by_name(labels, class_map)
    facts.warn_all(splits[:1], warnings)
    for split in splits:
        for category in labels.all:
            facts.add_mapped(split, MappedClass(category.name, class_map.new_name(category.name) or ""))
    yield mapped
    yield beam.pvalue.TaggedOutput("mapping", mapping)


def _map_sample(
    sample: Sample,
    facts: FactsBuilder,
    class_map: ClassMap,
    labels: LabelMap,
    mapping: ClassMapping,
    splits: tuple[str, ...],
) -> Iterator[Sample]:
    if not _is_usable(sample):  # WriteDataset rejects it, or its parts
        yield sample
        return
    split = sample.split if sample.split in splits else splits[0]
    for mapped_class in sample_classes(sample, class_map, labels):
        facts.add_mapped(split, mapped_class)
    mapped = map_sample(sample, class_map, labels, mapping)
    facts.count(split, Metric.OF_OTHER_CLASSES, int(mapped is None))
    rows = 0 if mapped is None else mapped.annotation_rows
    facts.count(split, Metric.FILTERED_CLASS_MAP, sample.annotation_rows - rows)
    facts.count(split, Metric.EMPTIED, int(bool(mapped and sample.objects and not mapped.objects)))
    yield from () if mapped is None else (mapped,)


def map_sample(sample: Sample, class_map: ClassMap, labels: LabelMap, mapping: ClassMapping) -> Sample | None:
    """Return a Sample with new classes; None if the class of the image is dropped.

    Objects of other types than SampleObject are unchanged: WriteDataset rejects them.

    Args:
        labels: Classes of the Samples.
        mapping: Ids and names of the classes that stay.
    """
    class_name = sample.class_name
    if isinstance(class_name, str) and (class_name := class_map.new_name(class_name)) is None:
        return None
    ids = {category.id: category.name for category in labels.all}
    objects = [_map_object(item, class_map, ids, mapping) for item in sample.objects]
    id_by_name = {name: id_ for id_, name in ids.items()}
    object_ids = [id_by_name.get(getattr(item, "category", ""), 0) for item in sample.objects]
    panoptic = (sample.panoptic,) if sample.panoptic is not None else ()
    lists = sample.neg_category_ids, sample.not_exhaustive_category_ids
    image = map_image_labels(ImageLabels((), sample.stuff, panoptic, *lists), object_ids, mapping)
    tags = dict.fromkeys(class_map.new_name(tag) for tag in sample.tags)
    return msgspec.structs.replace(
        sample,
        class_name=class_name,
        objects=tuple(item for item in objects if item is not None),
        stuff=image.regions,
        panoptic=next(iter(image.panoptic), None),
        neg_category_ids=image.neg_category_ids,
        not_exhaustive_category_ids=image.not_exhaustive_category_ids,
        tags=tuple(tag for tag in tags if tag is not None),
    )


def _map_object(
    item: SampleObject, class_map: ClassMap, names: Mapping[int, str], mapping: ClassMapping
) -> SampleObject | None:
    """Return an object of its new class; None if the class is dropped. The id is None if it is not that of the class.

    Args:
        names: Names of classes by id.
    """
    if not (isinstance(item, SampleObject) and isinstance(item.category, str)):
        return item
    category, id_ = class_map.new_name(item.category), item.category_id
    if category is None:
        return None
    new_id = mapping.ids.get(id_) if id_ is not None and names.get(id_) == item.category else None
    return msgspec.structs.replace(item, category=category, category_id=new_id)


def _is_usable(sample: Sample) -> bool:
    """Return True if the parts with classes have the types of a Sample."""
    lists = "objects", "stuff", "tags", "captions", "neg_category_ids", "not_exhaustive_category_ids"
    return (
        isinstance(sample, Sample)
        and all(isinstance(getattr(sample, name), list | tuple) for name in lists)
        and all(isinstance(region, StuffAnnotation) for region in sample.stuff)
        and all(isinstance(tag, str) for tag in sample.tags)
        and isinstance(sample.panoptic, PanopticAnnotation | None)
    )


def sample_classes(sample: Sample, class_map: ClassMap, labels: LabelMap) -> Iterator[MappedClass]:
    """Yield the class of each label of a Sample, with its new name."""
    names: Mapping[int, str] = {category.id: category.name for category in labels.all}
    segments = sample.panoptic.segments if sample.panoptic is not None else ()
    category_ids = [
        *(region.category_id for region in sample.stuff),
        *(segment.category_id for segment in segments),
    ]
    counted: Iterable[tuple[Any, dict[str, int]]] = (
        *((getattr(item, "category", None), {"objects": 1}) for item in sample.objects),
        *((names.get(id_), {"segments": 1}) for id_ in category_ids),
        *((name, {"images": 1}) for name in (sample.class_name, *sample.tags)),
    )
    for name, numbers in counted:
        if isinstance(name, str):
            yield MappedClass(name, class_map.new_name(name) or "", **numbers)
