"""Apply a class map and the selection of classes to the images of a job."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.block import Block
from recordmill.schemas.dataset.manifest import MappedClass
from recordmill.schemas.features import FeatureTable, Part
from recordmill.schemas.inputs.labels import ExistingLabels, LabelMap
from recordmill.schemas.inputs.options import ChoiceOptions
from recordmill.schemas.rejects import Metric
from recordmill.transforms.blocks.cut_range import BlockKey
from recordmill.transforms.blocks.image_tasks import labels_of
from recordmill.transforms.blocks.pack_block import Keyed, pack_block, unpack_block
from recordmill.transforms.blocks.run_step import run_step
from recordmill.transforms.dataset.collect_facts import WithFacts
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.join.divide_images import decode_pairs
from recordmill.transforms.shape.class_map import ClassMap, read_class_map
from recordmill.transforms.shape.finish_labels import finish_labels, map_by_name, select_classes
from recordmill.transforms.shape.map_classes import ClassMapping, count_labels, map_block
from recordmill.transforms.storage.resolve import file_version

_MAPPING, _SELECTED, _TABLE = "mapping", "selected", "table"


class ShapeClasses(beam.PTransform):
    """Convert (BlockKey, packed Block), one LabelMap of all classes and one FeatureTable to those of records.

    At run time, raises the errors of `finish_labels` and `read_class_map`.

    Args:
        options: Options with the class map, if any, and the selection of classes.
        existing: Labels of the data set that the splits are added to; None for a new data set.
    """

    def __init__(self, options: ChoiceOptions, splits: Sequence[str], existing: ExistingLabels | None):
        super().__init__()
        self._options, self._splits, self._existing = options, tuple(splits), existing

    def expand(self, parts):  # several PCollections: Beam accepts no type hints
        blocks, labels, table = parts
        class_map = _read_map(blocks.pipeline, self._options)
        finish = WithFacts(
            _finish_labels, AsSingleton(table), class_map, self._options, self._splits, self._existing,
            types=LabelMap, tags=(_MAPPING, _SELECTED, _TABLE),
        )  # fmt: skip
        new_labels, mapping, selected, new_table = labels | "FinishLabels" >> finish
        sides = AsSingleton(labels), AsSingleton(mapping), AsSingleton(selected)
        types = tuple[BlockKey, bytes]
        mapped = blocks | "MapBlocks" >> WithFacts(_map_keyed, *sides, self._splits, types=types)
        return mapped, new_labels, new_table


def _read_map(p: beam.Pipeline, options: ChoiceOptions) -> AsSingleton | None:
    """Return the class map as a side input; None without one."""
    if not options.class_map:
        return None
    read = beam.Map(read_class_map, file_version(options.class_map))
    return AsSingleton(p | "ClassMapFile" >> beam.Create([options.class_map]) | "ReadClassMap" >> read)


# Long list of arguments: the options of ShapeClasses, as this runs on workers.
def _finish_labels(
    labels: LabelMap,
    facts: FactsBuilder,
    table: FeatureTable,
    class_map: ClassMap | None,
    options: ChoiceOptions,
    splits: tuple[str, ...],
    existing: ExistingLabels | None,
) -> Iterator[Any]:
    finished = finish_labels(labels, table, options, class_map, existing)
    # Of several sets, images of those that have all their objects have no lists, too.
    is_federated = Part.LVIS in table.parts and not options.set_options
    mapping = msgspec.structs.replace(finished.mapping, is_federated=is_federated)
    facts.warn_all(splits[:1], finished.warnings)
    for split in splits if class_map else ():  # classes without a label are listed, too
        for category in labels.all:
            facts.add_mapped(split, _mapped_class(category.name, mapping))
    yield finished.labels
    yield TaggedOutput(_MAPPING, mapping)
    yield TaggedOutput(_SELECTED, finished.selected)
    yield TaggedOutput(_TABLE, finished.table)


def _mapped_class(name: str, mapping: ClassMapping, **numbers: int) -> MappedClass:
    return MappedClass(name, mapping.names.get(name, ""), **numbers)


def _map_keyed(
    keyed: tuple[BlockKey, bytes],
    facts: FactsBuilder,
    labels: LabelMap,
    mapping: ClassMapping,
    selected: LabelMap,
    splits: tuple[str, ...],
) -> Iterator[tuple[BlockKey, bytes]]:
    def shape(blocks: list[Block]) -> Block:
        return shape_classes(blocks[0], labels, mapping, selected, splits, facts)

    block = run_step("map classes", shape, [unpack_block(keyed[1])])
    if len(block):
        yield keyed[0], pack_block(block)


def shape_classes(
    block: Block,
    labels: LabelMap,
    mapping: ClassMapping,
    selected: LabelMap,
    splits: Sequence[str],
    facts: FactsBuilder,
) -> Block:
    """Return a complete Block with new classes, and without objects and images of others.

    Args:
        labels: Classes of the Block.
        mapping: Classes that the map leaves.
        selected: Selected classes. Objects and images of other classes are dropped.
        splits: Splits of the job, by the column `split`.
        facts: Gets the counts.
    """
    count_mapped(block, labels, mapping, splits, facts)
    mapped = map_block(block, mapping)
    remaining = _select_labels(mapped, selected)
    steps = (block, mapped, Metric.FILTERED_CLASS_MAP), (mapped, remaining, Metric.FILTERED_CATEGORY)
    for before, after, metric in steps:
        _count_by_split(facts, splits, Metric.OF_OTHER_CLASSES, before.split, after.split)
        _count_by_split(facts, splits, metric, *map(_splits_of_annotations, (before, after)))
    emptied = [part.split[part.objects_per_image > 0] for part in (block, remaining)]
    _count_by_split(facts, splits, Metric.EMPTIED, *emptied)
    return remaining


def count_mapped(
    block: Block, labels: LabelMap, mapping: ClassMapping, splits: Sequence[str], facts: FactsBuilder
) -> None:
    """Add the numbers of a Block's labels, by class, to `facts`."""
    names = {category.id: category.name for category in labels.all}
    for split in np.unique(block.split).tolist():
        numbers = count_labels(block.take(block.split == split))
        by_name = [
            *((names[id_], {"objects": number}) for id_, number in numbers.objects.items()),
            *((names[id_], {"segments": number}) for id_, number in numbers.segments.items()),
            *((name, {"images": number}) for name, number in numbers.images.items()),
        ]
        for name, number_of in by_name:
            facts.add_mapped(splits[split], _mapped_class(name, mapping, **number_of))


def _select_labels(block: Block, selected: LabelMap) -> Block:
    """Return the Block without images and objects of classes that are not selected."""
    if block.class_name is not None:
        names = {category.name for category in selected.categories}
        block = block.take(np.array([name in names for name in block.class_name.texts()], bool))
    if block.num_objects:
        is_selected = np.isin(block.category_id, [category.id for category in selected.categories])
        block = block if is_selected.all() else block.take_objects(is_selected)
    return block


def _splits_of_annotations(block: Block) -> np.ndarray:
    """Return the split of each object and each region of stuff: int64."""
    regions = [len(labels.regions) for labels in labels_of(block)] if block.labels is not None else 0
    return np.repeat(block.split, block.objects_per_image + np.array(regions, np.int64))


def _count_by_split(
    facts: FactsBuilder, splits: Sequence[str], metric: Metric, before: np.ndarray, after: np.ndarray
) -> None:
    """Count for each split how many fewer rows there are after a step."""
    numbers = np.bincount(before, minlength=len(splits)) - np.bincount(after, minlength=len(splits))
    for split, number in zip(splits, numbers.tolist(), strict=True):
        facts.count(split, metric, number)


class MapPairs(beam.PTransform):
    """Convert pairs of image ids and category ids to those of the new classes, for splits that depend on them.

    Args:
        options: Options with a class map.
        labels: PCollection of one LabelMap of all classes.
    """

    def __init__(self, options: ChoiceOptions, labels: PCollection):
        super().__init__()
        self._options, self._labels = options, labels

    def expand(self, pairs: PCollection[Keyed]) -> PCollection[Keyed]:
        ids = self._labels | "NewIds" >> beam.Map(new_ids, _read_map(pairs.pipeline, self._options), self._options)
        return pairs | "Map" >> beam.Map(map_pairs, AsSingleton(ids)).with_output_types(Keyed)


def new_ids(labels: LabelMap, class_map: ClassMap, options: ChoiceOptions) -> dict[int, int]:
    """Return the new id of each category id of the selected classes."""
    mapped, mapping, _ = map_by_name(labels, class_map)
    selected = {category.id for category in select_classes(mapped, options).categories}
    return {id_: new_id for id_, new_id in mapping.ids.items() if new_id in selected}


def map_pairs(keyed: Keyed, ids: Mapping[int, int]) -> Keyed:
    """Return image ids and new category ids as the bytes of int64 [N, 2], each pair once.

    >>> keyed = 7, np.array([[5, 1], [5, 2], [5, 3]]).tobytes()
    >>> np.frombuffer(map_pairs(keyed, {1: 1, 3: 1})[1], np.int64).reshape(-1, 2)
    array([[5, 1]])
    """
    pairs = decode_pairs([keyed[1]]).tolist()
    mapped = sorted({(image, ids[category]) for image, category in pairs if category in ids})
    return keyed[0], np.array(mapped, np.int64).tobytes()


class MapNames(beam.PTransform):
    """Map the classes of (key, packed Block) of images of one class each. Drop images whose class the class map or the
    selection drops, because splits depend on the remaining images.

    Args:
        options: Options with a class map.
    """

    def __init__(self, options: ChoiceOptions):
        super().__init__()
        self._options = options

    def expand(self, blocks: PCollection[Keyed]) -> PCollection[Keyed]:
        class_map = _read_map(blocks.pipeline, self._options)
        selected = tuple(getattr(self._options, "classes", ()))
        return blocks | "Map" >> beam.FlatMap(_map_names, class_map, selected).with_output_types(Keyed)


def _map_names(keyed: Keyed, class_map: ClassMap, selected: tuple[str, ...]) -> Iterator[Keyed]:
    block = unpack_block(keyed[1])
    new_names = {name: class_map.new_name(name) for name in set(block.class_name.texts())}
    mapped_names = {
        name: new_name
        for name, new_name in new_names.items()
        if new_name is not None and (not selected or new_name in selected)
    }
    block = map_block(block, ClassMapping({}, mapped_names))
    if len(block):
        yield keyed[0], pack_block(block)
