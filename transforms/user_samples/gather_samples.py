"""Convert Samples of a pipeline to complete Blocks, a label map and a feature table."""

from collections.abc import Container, Iterable, Iterator
from itertools import pairwise
from typing import Any

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import AsIter, AsList, AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.dataset.manifest import InputRows
from recordmill.schemas.errors import CollidingImagesError
from recordmill.schemas.features import PARTS_OF_FIELDS, FeatureTable, Part
from recordmill.schemas.field_features import stores_axis
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.sample import Sample
from recordmill.schemas.inputs.splits import name_id
from recordmill.schemas.layouts import CLASSIFICATION, DETECTION, LAYOUTS
from recordmill.schemas.names import has_control_character, name_key
from recordmill.schemas.rejects import FILTERS, Metric, Rejected, UnusableError
from recordmill.transforms.blocks.cut_range import BlockKey, cut_range
from recordmill.transforms.blocks.run_step import hash_images, ranges_of
from recordmill.transforms.dataset.collect_facts import WithFacts, collect_facts, hand_over
from recordmill.transforms.dataset.facts import AddFacts, Facts, FactsBuilder, add_facts
from recordmill.transforms.join.choose_fields import FieldRequest, add_requested_fields
from recordmill.transforms.join.observed_labels import (
    NEGATIVE_AREA,
    OPTIONAL_KINDS,
    ObservedLabel,
    choose_labels,
    find_negative_areas,
    label_warnings,
    observed_parts,
)
from recordmill.transforms.join.sample_rows import id_of, image_order_of
from recordmill.transforms.user_samples.convert_samples import (
    check_distinct,
    convert_samples,
    pack_sample,
    sample_split,
    unpack_sample,
    validate_sample,
)
from recordmill.transforms.user_samples.observe_fields import ObserveFields, pick_sample_fields
from recordmill.transforms.user_samples.record_options import MASKS, PARTS, RecordOptions

_TRAITS, _FIELDS, _TABLE, _NAMES = "traits", "fields", "table", "names"
_BITS = 10
"""There are 2 ** 10 ranges of images, because the number of Samples is unknown."""
_SPLIT_BITS = 16
"""A split has fewer than 2 ** 16 ranges."""
_PIPELINE = "the pipeline"


def sample_traits(sample: Sample) -> set[ObservedLabel]:
    traits = {ObservedLabel("class", sample.class_name)} if sample.class_name is not None else set()
    traits |= {ObservedLabel("tag", tag) for tag in sample.tags}
    has = {
        "keypoints": any(item.keypoints for item in sample.objects),
        "captions": sample.captions,
        "stuff": sample.stuff,
        "panoptic": sample.panoptic,
        "masks": any(item.segmentation for item in sample.objects),
    }
    traits |= {ObservedLabel(kind) for kind, value in has.items() if value}
    traits |= {ObservedLabel("part", part.value) for part in sample.parts} | find_negative_areas(sample)
    for item in sample.objects:
        id_ = -1 if item.category_id is None else item.category_id
        traits.add(ObservedLabel("category", item.category, id_, len(item.keypoints) // 3))
    return traits


def choose_layout(traits: Iterable[ObservedLabel], options: RecordOptions) -> RecordOptions:
    """Return the options with the layout that stores what all Samples have, if the user did not choose one. Samples
    with classes of images and with other annotations keep the default."""
    kinds = {trait.kind for trait in traits}
    has_class, has_others = "class" in kinds, bool(kinds & {"category", "part", *OPTIONAL_KINDS})
    if has_class == has_others:
        return options.of_layout(options.layout)
    return options.of_layout(CLASSIFICATION.layout if has_class else DETECTION.layout)


def stored_sample(sample: Sample, options: RecordOptions) -> Sample:
    """Return the Sample without annotations that are not stored, or that the layout may turn out not to store."""
    objects = () if options.is_image_class and not options.follows_samples else sample.objects
    if not {"keypoints", "masks"} <= options.stored_kinds:
        objects = tuple(
            msgspec.structs.replace(
                item,
                keypoints=item.keypoints if "keypoints" in options.stored_kinds else (),
                segmentation=item.segmentation if "masks" in options.stored_kinds else "",
            )
            for item in objects
        )
    return msgspec.structs.replace(
        sample,
        objects=objects,
        class_name=sample.class_name if options.is_image_class or options.follows_samples else None,
        captions=sample.captions if "captions" in options.stored_kinds else (),
        stuff=sample.stuff if "stuff" in options.stored_kinds else (),
        panoptic=sample.panoptic if "panoptic" in options.stored_kinds else None,
    )


class CheckSamples(beam.PTransform):
    """Check Samples. Facts have the rejects, and warnings about classes.

    Args:
        labels: PCollection of one LabelMap; None to collect the classes.
        facts: PCollection of the Facts of the source of the Samples, whose warnings are not repeated; None if there
            is none.

    Returns:
        (range, packed Sample); one LabelMap; one FeatureTable.
    """

    def __init__(self, options: RecordOptions, labels: PCollection | None, facts: PCollection | None = None):
        super().__init__()
        self._options, self._labels, self._facts = options, labels, facts

    def expand(self, samples: PCollection[Sample]):  # Beam accepts no type hints of several outputs
        check = WithFacts(_check_sample, self._options, types=tuple[int, bytes], tags=(_TRAITS, _FIELDS))
        checked_samples, traits, fields = samples | "Check" >> check
        observed = fields | "ObserveFields" >> beam.CombineGlobally(ObserveFields())
        known: Any = AsList(self._labels) if self._labels is not None else []
        read: Any = AsIter(self._facts) if self._facts is not None else ()
        sides = known, read, AsSingleton(observed)
        labels, table = (
            traits
            | beam.Distinct()
            | beam.combiners.ToList()
            | "Describe" >> WithFacts(_describe_samples, *sides, self._options, tags=(_TABLE,))
        )
        return checked_samples, labels if self._labels is None else self._labels, table


def _check_sample(sample: Sample, facts: FactsBuilder, options: RecordOptions) -> Iterator[Any]:
    try:
        checked_sample, rejects = validate_sample(sample)
    except UnusableError as fault:
        split, number = _split_of_rejected(sample, options), _count_annotations(sample, options)
        name = getattr(sample, "file_name", "")
        rejected = Rejected("image", None, fault.reason, fault.detail, annotations=number)
        facts.reject(split, rejected.named(name if isinstance(name, str) else ""))
        facts.add_rows(split, InputRows(_PIPELINE, "samples", 1, number))
        return
    if rejects:
        split = sample_split(checked_sample, options)
        facts.add_rows(split, InputRows(_PIPELINE, "samples", 0, len(rejects)))
        for reject in rejects:
            facts.reject(split, reject.named(checked_sample.file_name))
    for trait in sample_traits(checked_sample):
        yield TaggedOutput(_TRAITS, tuple(trait))
    number = int(ranges_of(hash_images(np.array(image_order_of(checked_sample)[:1]), options.seed), _BITS)[0])
    if options.needs_splits:  # images of two splits may have one name
        number += options.division.names.index(sample_split(checked_sample, options)) << _SPLIT_BITS
    stored, fields = pick_sample_fields(stored_sample(checked_sample, options), options.selected_fields())
    yield TaggedOutput(_FIELDS, fields)
    yield number, pack_sample(stored)


def _split_of_rejected(sample: Any, options: RecordOptions) -> str:
    """Return the split of a rejected Sample; the first split if it has none."""
    name, split = getattr(sample, "file_name", None), getattr(sample, "split", "")
    if isinstance(split, str) and split in options.splits:
        return split
    if options.needs_splits or not isinstance(name, str) or has_control_character(name):
        return options.splits[0]
    return options.division.split_of(name_key(name))


def _count_annotations(sample: Any, options: RecordOptions) -> int:
    """Return the number of annotations that a rejected Sample would store; 0 if it has none that can be counted."""
    try:
        objects = () if options.is_image_class else sample.objects
        return len(objects) + stored_sample(msgspec.structs.replace(sample, objects=()), options).annotation_rows
    except (AttributeError, TypeError):
        return 0


def _describe_samples(
    traits: list[tuple[str, str, int, int]],
    facts: FactsBuilder,
    known: list[LabelMap],
    read: Iterable[Facts],
    observed: list[tuple[str, str, int, int]],
    options: RecordOptions,
) -> Iterator[Any]:
    """Yield LabelMap and FeatureTable of ObservedLabels as tuples.

    Args:
        read: Facts of the source of the Samples.
        observed: Result of ObserveFields.
    """
    has_warned = any(metric == Metric.NEGATIVE_AREAS.value for part in read for _, metric in part.counts)
    distinct = [
        trait
        for trait in (ObservedLabel(*trait) for trait in traits)
        if not (has_warned and trait.kind == NEGATIVE_AREA)
    ]
    kinds = {trait.kind for trait in distinct}
    options = choose_layout(distinct, options)
    if Part.TAGS in LAYOUTS[options.layout].parts:  # tags are classes, too
        names = {trait.name for trait in distinct if trait.kind == "category"}
        tags = {trait.name for trait in distinct if trait.kind == "tag"}
        distinct += [ObservedLabel("category", tag) for tag in tags - names]
    labels = known[0] if known else choose_labels(distinct, options.is_image_class)
    yield labels
    category_id = (Part.CATEGORY_ID,) if labels.is_shifted and not options.is_image_class else ()
    sample_parts = [part for part in observed_parts(distinct) if part not in options.unwritten_parts]
    parts = (*options.parts, *sample_parts, *options.observed_parts(kinds), *category_id)
    request = FieldRequest(*options.selected_fields(), options.names_of_fields, None, not options.fields)
    labels_of_fields = (ObservedLabel(*label) for label in observed if stores_axis(options.layout, _axis(label)))
    table, field_warnings, _ = add_requested_fields(options.layout_table.with_parts(parts), request, labels_of_fields)
    yield TaggedOutput(_TABLE, table)
    facts.warn_all(options.splits[:1], field_warnings)
    facts.warn_all(options.splits[:1], label_warnings(distinct, labels))
    facts.warn_all(options.splits[:1], _warn_unstored(kinds, sample_parts, options))
    facts.warn_all(options.splits[:1], _warn_classes(distinct, labels, bool(known), options.is_image_class))


def _warn_unstored(kinds: Container[str], parts: Iterable[Part], options: RecordOptions) -> Iterator[str]:
    """Yield a warning of each kind of annotations that Samples have and records do not store.

    Args:
        kinds: Kinds of the ObservedLabels.
        parts: Parts that depend on Samples and not on an option.
    """
    unstored = {"objects": "category"} if options.is_image_class else {"class_name": "class"}
    unstored |= {kind: kind for kind in OPTIONAL_KINDS if kind not in options.stored_kinds}
    lacking = {*parts} - {*LAYOUTS[options.layout].parts, *PARTS_OF_FIELDS}
    unstored |= {part.value: "part" for part in lacking if not (options.is_image_class and part is Part.ORIENTED)}
    for what in sorted(what for what, kind in unstored.items() if kind in kinds):
        kind_parts = {"masks": MASKS["both"], **PARTS}.get(what, ())
        can_store = set(kind_parts) & set(LAYOUTS[options.layout].parts)
        option = 'masks="rle"' if what == "masks" else f"{what}=True"
        fix = f". Give {option}" if can_store else ": the layout has no feature for that" + _LAYOUT_CURES.get(what, "")
        yield f"Samples have {what}, which is not stored in layout {options.layout}{fix}"


def _warn_classes(
    traits: Iterable[ObservedLabel], labels: LabelMap, are_given: bool, is_image_class: bool
) -> Iterator[str]:
    """Yield warnings of classes that the labels lack, and of ids that they do not have."""
    used = [trait for trait in traits if trait.kind == ("class" if is_image_class else "category")]
    if unknown := {trait.name for trait in used} - {category.name for category in labels.categories}:
        yield (
            f"Samples have {len(unknown):,} classes that the labels lack ({min(unknown)!r}, for example). Images and "
            "objects of these are rejects, and tags are not written. To collect the classes of the Samples: "
            "read = p | ReadDataset(…), and read.samples | … | WriteDataset(…, facts=read.facts)"
        )
    ids = {(trait.name, trait.category_id) for trait in used if trait.category_id != -1}
    ids -= {(category.name, category.id) for category in labels.categories}
    if ids and not are_given:
        name, id_ = min(ids)
        yield (
            f"a category name of Samples has several ids, or none ({name!r} has {id_}), so categories are numbered "
            "from 1 in the order of names. Give labels= to keep ids"
        )


_LAYOUT_CURES = {
    "class_name": '. To store it as the only label, give layout="classification"; or name it in Sample.tags',
    "objects": '. To store them in place of classes of images, give layout="detection"',
}


def _axis(label: tuple[str, str, int, int]) -> Any:
    """Return the axis of a label of fields."""
    return label[0].partition(" ")[0]


class GatherSamples(beam.PTransform):
    """Convert Samples to (BlockKey, packed Block), one LabelMap and one FeatureTable.

    Args:
        labels: PCollection of one LabelMap; None to collect the classes of the Samples.
        facts: PCollection of the Facts of the source of the Samples; None if there is none.
    """

    def __init__(self, options: RecordOptions, labels: PCollection | None, facts: PCollection | None):
        super().__init__()
        self._options, self._labels, self._facts = options, labels, facts

    def expand(self, samples: PCollection[Sample]):  # Beam accepts no type hints of several outputs
        options = self._options
        with collect_facts() as own:
            checked_samples, labels, table = samples | CheckSamples(options, self._labels, self._facts)
            sides = AsSingleton(labels), AsSingleton(table), options
            join = WithFacts(_join_samples, *sides, types=tuple[BlockKey, bytes], tags=(_NAMES,))
            blocks, names = checked_samples | "GroupByRange" >> beam.GroupByKey() | "Join" >> join
            read = AsIter(self._facts) if self._facts is not None else ()
            names | "GroupByName" >> beam.GroupByKey() | "CheckNames" >> WithFacts(_check_names, read)
        for facts in own:
            hand_over(facts)
        if self._facts is not None:
            hand_over(self._facts)
            read, passed = (self._facts,) | "Read" >> AddFacts(), tuple(own) | "Passed" >> AddFacts()
            balance = WithFacts(_balance_rows, options.splits, AsIter(read.facts), AsIter(passed.facts))
            samples.pipeline | "Once" >> beam.Impulse() | "Balance" >> balance
        return blocks, labels, table


def _join_samples(
    group: tuple[int, Iterable[bytes]],
    facts: FactsBuilder,
    labels: LabelMap,
    table: FeatureTable,
    options: RecordOptions,
) -> Iterator[Any]:
    """Yield (BlockKey, packed Block), and a range of names with the name, id and path of each Sample."""
    number = group[0]
    options = options.of_layout(table.layout)
    samples = [stored_sample(sample, options) for sample in sorted(map(unpack_sample, group[1]), key=image_order_of)]
    check_distinct(samples)
    counted: set[int] = set()  # images that have tiles
    for sample in samples:
        key = name_key(sample.file_name)
        names_range = number >> _SPLIT_BITS << _BITS | name_id(key) % (1 << _BITS)
        yield TaggedOutput(_NAMES, (names_range, (key, id_of(sample), sample.path)))
        is_further = sample.tile is not None and sample.tile.id in counted
        rows = InputRows(_PIPELINE, "samples", int(not is_further), _count_rows(sample, is_further))
        facts.add_rows(sample_split(sample, options), rows)
        facts.count(sample_split(sample, options), Metric.TILE_DATA_BYTES, is_further * len(sample.data))
        counted |= {sample.tile.id} if sample.tile else set()
    block = convert_samples(samples, labels, options, facts.reject)
    if block is not None:
        yield from cut_range(number, block)


def _count_rows(sample: Sample, is_further: bool) -> int:
    """Return the number of annotations of a Sample; `is_further` for a tile of an image with an earlier one. The
    panoptic map of the image counts once."""
    return sample.annotation_rows - (is_further and sample.panoptic is not None)


def _check_names(group: tuple[int, Iterable[tuple[str, int, str]]], facts: FactsBuilder, read: Iterable[Facts]) -> None:
    """Check that names of Samples with different ids are unique, but for names that share a file in the source.

    Args:
        group: A range; and the name, id and path of each Sample in it.
        read: Facts of the source of the Samples.

    Raises:
        CollidingImagesError: Two Samples have the same name.
    """
    may_share = shares_files(read)
    for (name, number, path), (other_name, other, other_path) in pairwise(sorted(group[1])):
        if name == other_name and not (may_share and path and path == other_path):
            raise CollidingImagesError(
                f"two Samples have the same name {name!r}, and image_id {number} and {other}. Give each Sample its own "
                "file_name"
            )


def shares_files(read: Iterable[Facts]) -> bool:
    """Return True if the source has several ids of one file, by its Facts."""
    return any(
        metric == Metric.SHARED_FILES.value and number for part in read for (_, metric), number in part.counts.items()
    )


def _balance_rows(
    _: bytes, facts: FactsBuilder, splits: tuple[str, ...], read: Iterable[Facts], passed: Iterable[Facts]
) -> None:
    """Correct the counts of the source: images and annotations that the pipeline removed are counted as removed, and
    those that it added are counted as input.

    Args:
        read, passed: Facts of the source, and of the Samples that the pipeline passed on.
    """
    source_facts, sample_facts = add_facts(read), add_facts(passed)
    for split in splits:
        left, arrived = _remaining_totals(source_facts, split), _input_totals(sample_facts, split)
        unchanged = [min(pair) for pair in zip(left, arrived, strict=True)]
        facts.add_rows(split, InputRows(_PIPELINE, "samples", -unchanged[0], -unchanged[1]))
        facts.count(split, Metric.IMAGES_REMOVED, left[0] - unchanged[0])
        facts.count(split, Metric.ANNOTATIONS_REMOVED, left[1] - unchanged[1])


def _input_totals(facts: Facts, split: str) -> tuple[int, int]:
    inputs = [rows for (name, _, _), rows in facts.inputs.items() if name == split]
    return sum(rows.images for rows in inputs), sum(rows.annotations for rows in inputs)


def _remaining_totals(facts: Facts, split: str) -> tuple[int, int]:
    """Return the numbers of images and annotations that remain of those that were read."""
    images, annotations = _input_totals(facts, split)

    def count(*metrics: Metric) -> int:
        return sum(facts.counts.get((split, metric.value), 0) for metric in metrics)

    for (name, what, _), rejects in facts.rejects.items():
        if name == split:
            images -= rejects.number * (what != "annotation")
            annotations -= rejects.annotations + rejects.number * (what == "annotation")
    images -= count(Metric.ROWS_MERGED, Metric.OF_OTHER_CLASSES, Metric.OVER_LIMIT, Metric.OVER_CLASS_LIMIT)
    images -= count(Metric.IMAGES_REMOVED)
    left_out = Metric.OF_REJECTED_IMAGES, Metric.OF_LIMITED_IMAGES, Metric.ANNOTATIONS_REMOVED
    return images, annotations - count(Metric.ANNOTATIONS_MERGED, *left_out, *FILTERS)
