"""Convert Samples of a pipeline to complete Blocks, a label map and a feature table."""

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import AsIter, AsList, AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.dataset.manifest import InputRows
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.sample import Sample
from recordmill.schemas.layouts import LAYOUTS
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
from recordmill.transforms.join.sample_rows import id_of
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

_TRAITS, _FIELDS, _TABLE = "traits", "fields", "table"
_BITS = 10
"""There are 2 ** 10 ranges of images, because the number of Samples is unknown."""
_SPLIT_BITS = 16
"""A split has fewer than 2 ** 16 ranges."""
_PIPELINE = "the pipeline"


def sample_traits(sample: Sample, options: RecordOptions) -> set[ObservedLabel]:
    traits = (
        {ObservedLabel("class", sample.class_name)}
        if sample.class_name is not None and options.is_image_class
        else set()
    )
    has = {
        "keypoints": any(item.keypoints for item in sample.objects),
        "captions": sample.captions,
        "stuff": sample.stuff,
        "panoptic": sample.panoptic,
        "masks": any(item.segmentation for item in sample.objects),
        "objects": sample.objects and options.is_image_class,
        "class_name": sample.class_name is not None and not options.is_image_class,
    }
    traits |= {ObservedLabel(kind) for kind, value in has.items() if value}
    traits |= {ObservedLabel("part", part.value) for part in sample.parts} | find_negative_areas(sample)
    if not options.is_image_class:
        for item in sample.objects:
            id_ = -1 if item.category_id is None else item.category_id
            traits.add(ObservedLabel("category", item.category, id_, len(item.keypoints) // 3))
    return traits


def stored_sample(sample: Sample, options: RecordOptions) -> Sample:
    """Return the Sample without annotations that are not stored."""
    objects = () if options.is_image_class else sample.objects
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
        class_name=sample.class_name if options.is_image_class else None,
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
        checked_sample = validate_sample(sample)
    except UnusableError as fault:
        split = str(getattr(sample, "split", ""))
        split = split if split in options.splits else options.splits[0]
        name = getattr(sample, "file_name", "")
        rejected = Rejected("image", None, fault.reason, fault.detail)
        facts.reject(split, rejected.named(name if isinstance(name, str) else ""))
        facts.add_rows(split, InputRows(_PIPELINE, "samples", 1, 0))
        return
    for trait in sample_traits(checked_sample, options):
        yield TaggedOutput(_TRAITS, tuple(trait))
    number = int(ranges_of(hash_images(np.array([id_of(checked_sample)]), options.seed), _BITS)[0])
    if options.needs_splits:  # images of two splits may have one name
        number += options.division.names.index(sample_split(checked_sample, options)) << _SPLIT_BITS
    stored, fields = pick_sample_fields(stored_sample(checked_sample, options), options.selected_fields())
    yield TaggedOutput(_FIELDS, fields)
    yield number, pack_sample(stored)


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
    labels = known[0] if known else choose_labels(distinct, options.is_image_class)
    yield labels
    category_id = (Part.CATEGORY_ID,) if labels.is_shifted and not options.is_image_class else ()
    of_samples = (part for part in observed_parts(distinct) if part not in options.unwritten_parts)
    parts = (*options.parts, *of_samples, *options.observed_parts(kinds), *category_id)
    request = FieldRequest(*options.selected_fields(), options.names_of_fields, None, not options.fields)
    labels_of_fields = (ObservedLabel(*label) for label in observed)
    table, field_warnings, _ = add_requested_fields(options.layout_table.with_parts(parts), request, labels_of_fields)
    yield TaggedOutput(_TABLE, table)
    facts.warn_all(options.splits[:1], field_warnings)
    for text in label_warnings(distinct, labels):
        facts.warn(options.splits[0], text)
    for kind in sorted(kinds & {*OPTIONAL_KINDS, "objects", "class_name"} - options.stored_kinds):
        kind_parts = {"masks": MASKS["both"], **PARTS}.get(kind, ())
        can_store = set(kind_parts) & set(LAYOUTS[options.layout].parts)
        option = 'masks="rle"' if kind == "masks" else f"{kind}=True"
        fix = f"give {option}" if can_store else "the layout has no feature for that"
        facts.warn(options.splits[0], f"Samples have {kind}, which is not stored in layout {options.layout}: {fix}")
    class_kind = "class" if options.is_image_class else "category"
    unknown = {trait.name for trait in distinct if trait.kind == class_kind}
    unknown -= {category.name for category in labels.categories}
    if unknown:
        facts.warn(
            options.splits[0],
            f"Samples have {len(unknown):,} classes that the labels lack ({min(unknown)!r}, for example). Images or "
            "objects of these are rejects. To collect the classes of the Samples: read = p | ReadDataset(…), and "
            "read.samples | … | WriteDataset(…, facts=read.facts)",
        )
    ids = {(trait.name, trait.category_id) for trait in distinct if trait.category_id != -1}
    ids -= {(category.name, category.id) for category in labels.categories}
    if ids and not known:
        name, id_ = min(ids)
        facts.warn(
            options.splits[0],
            f"a category name of Samples has several ids ({name!r} has {id_}, among others), so categories are "
            "numbered from 1 in the order of names. Give labels= to keep ids",
        )


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
            join = WithFacts(_join_samples, AsSingleton(labels), options, types=tuple[BlockKey, bytes])
            blocks = checked_samples | "GroupByRange" >> beam.GroupByKey() | "Join" >> join
        for facts in own:
            hand_over(facts)
        if self._facts is not None:
            hand_over(self._facts)
            read, passed = (self._facts,) | "Read" >> AddFacts(), tuple(own) | "Passed" >> AddFacts()
            balance = WithFacts(_balance_rows, options.splits, AsIter(read.facts), AsIter(passed.facts))
            samples.pipeline | "Once" >> beam.Impulse() | "Balance" >> balance
        return blocks, labels, table


def _join_samples(
    group: tuple[int, Iterable[bytes]], facts: FactsBuilder, labels: LabelMap, options: RecordOptions
) -> Iterator[tuple[BlockKey, bytes]]:
    number = group[0]
    samples = sorted(map(unpack_sample, group[1]), key=id_of)
    check_distinct(samples)
    for sample in samples:
        rows = InputRows(_PIPELINE, "samples", 1, sample.annotation_rows)
        facts.add_rows(sample_split(sample, options), rows)
    block = convert_samples(samples, labels, options, facts.reject)
    if block is not None:
        yield from cut_range(number, block)


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
    images -= count(Metric.ROWS_MERGED, Metric.OF_OTHER_CLASSES)
    return images, annotations - count(Metric.ANNOTATIONS_MERGED, Metric.OF_REJECTED_IMAGES, *FILTERS)
