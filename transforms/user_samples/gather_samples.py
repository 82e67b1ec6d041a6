"""Convert Samples of a pipeline to complete Blocks, a label map and a feature table."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import AsIter, AsList, AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.dataset.manifest import InputRows
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.sample import Sample
from recordmill.schemas.inputs.splits import Division
from recordmill.schemas.layouts import LAYOUTS
from recordmill.schemas.rejects import FILTERS, Metric, Rejected, UnusableError
from recordmill.transforms.blocks.cut_range import BlockKey, cut_range
from recordmill.transforms.blocks.run_step import hash_images, ranges_of
from recordmill.transforms.dataset.facts import FACTS, AddFacts, Facts, FactsBuilder, add_facts, tagged
from recordmill.transforms.join.sample_rows import id_of
from recordmill.transforms.join.traits import (
    NEGATIVE_AREA,
    OPTIONAL_KINDS,
    Trait,
    area_traits,
    choose_labels,
    parts_of,
    trait_warnings,
)
from recordmill.transforms.user_samples.convert_samples import (
    SampleRules,
    block_of,
    check_distinct,
    checked,
    pack_sample,
    split_of,
    unpack_sample,
)
from recordmill.transforms.user_samples.record_options import MASKS, PARTS, RecordOptions

_TRAITS, _TABLE = "traits", "table"
_BITS = 10
"""There are 2 ** 10 ranges of images, because the number of Samples is unknown."""
_PIPELINE = "the pipeline"


def rules_of(options: RecordOptions) -> SampleRules:
    stored = frozenset(name for name in OPTIONAL_KINDS if getattr(options, name) not in (False, "none"))
    return SampleRules(stored, options.of_image, Division(options.shares), options.seed)


def traits_of(sample: Sample, rules: SampleRules) -> set[Trait]:
    found = {Trait("class", sample.class_name)} if sample.class_name is not None and rules.of_image else set()
    has = {
        "keypoints": any(each.keypoints for each in sample.objects),
        "captions": sample.captions,
        "stuff": sample.stuff,
        "panoptic": sample.panoptic,
        "masks": any(each.segmentation for each in sample.objects),
        "objects": sample.objects and rules.of_image,
        "class_name": sample.class_name is not None and not rules.of_image,
    }
    found |= {Trait(kind) for kind, value in has.items() if value}
    found |= {Trait("part", part.value) for part in sample.parts} | area_traits(sample)
    if not rules.of_image:
        for each in sample.objects:
            id_ = -1 if each.category_id is None else each.category_id
            found.add(Trait("category", each.category, id_, len(each.keypoints) // 3))
    return found


def stored_of(sample: Sample, rules: SampleRules) -> Sample:
    """Return the Sample without annotations that are not stored."""
    objects = () if rules.of_image else sample.objects
    if not {"keypoints", "masks"} <= rules.stored:
        objects = tuple(
            msgspec.structs.replace(
                each,
                keypoints=each.keypoints if "keypoints" in rules.stored else (),
                segmentation=each.segmentation if "masks" in rules.stored else "",
            )
            for each in objects
        )
    return msgspec.structs.replace(
        sample,
        objects=objects,
        class_name=sample.class_name if rules.of_image else None,
        captions=sample.captions if "captions" in rules.stored else (),
        stuff=sample.stuff if "stuff" in rules.stored else (),
        panoptic=sample.panoptic if "panoptic" in rules.stored else None,
    )


class CheckedSamples(NamedTuple):
    """PCollections of (range, packed Sample), one LabelMap, one FeatureTable, Facts of Samples and of Traits."""

    samples: PCollection
    labels: PCollection
    table: PCollection
    facts: PCollection
    described: PCollection


@dataclass(eq=False, repr=False)
class CheckSamples(beam.PTransform):
    """Convert Samples to CheckedSamples.

    Args:
        labels: A PCollection of one LabelMap; None to collect the classes.
        facts: A PCollection of the Facts of the source of the Samples, whose warnings are not repeated; None if there
            is none.
    """

    options: RecordOptions
    labels: PCollection | None
    facts: PCollection | None = None

    def expand(self, samples: PCollection[Sample]):
        check = beam.FlatMap(_check, rules_of(self.options)).with_output_types(tuple[int, bytes])
        found = samples | "Check" >> check.with_outputs(FACTS, _TRAITS, main="samples")
        known: Any = AsList(self.labels) if self.labels is not None else []
        before: Any = AsIter(self.facts) if self.facts is not None else ()
        traits = found[_TRAITS] | beam.Distinct() | beam.combiners.ToList()
        describe = beam.FlatMap(_describe, known, before, self.options)
        described = traits | "Describe" >> describe.with_outputs(_TABLE, FACTS, main="labels")
        labels = self.labels if self.labels is not None else described.labels
        return CheckedSamples(found.samples, labels, described[_TABLE], found[FACTS], described[FACTS])


def _check(sample: Sample, rules: SampleRules) -> Iterator[Any]:
    try:
        found = checked(sample)
    except UnusableError as fault:
        facts, split = FactsBuilder(), str(getattr(sample, "split", ""))
        split = split if split in rules.division.names else rules.division.names[0]
        facts.reject(split, Rejected("image", None, fault.reason, fault.detail))
        facts.add_rows(split, InputRows(_PIPELINE, "samples", 1, 0))
        yield tagged(facts)
        return
    for trait in traits_of(found, rules):
        yield TaggedOutput(_TRAITS, tuple(trait))
    number = int(ranges_of(hash_images(np.array([id_of(found)]), rules.seed), _BITS)[0])
    yield number, pack_sample(stored_of(found, rules))


def _describe(
    traits: list[tuple[str, str, int, int]], known: list[LabelMap], before: Iterable[Facts], options: RecordOptions
) -> Iterator[Any]:
    """Yield LabelMap, FeatureTable and Facts of Traits as tuples."""
    has_warned = any(metric == Metric.NEGATIVE_AREAS.value for facts in before for _, metric in facts.counts)
    found = [trait for trait in (Trait(*trait) for trait in traits) if not (has_warned and trait.kind == NEGATIVE_AREA)]
    kinds = {trait.kind for trait in found}
    labels = known[0] if known else choose_labels(found, options.of_image)
    yield labels
    category_id = (Part.CATEGORY_ID,) if labels.is_shifted and not options.of_image else ()
    parts = (*options.parts, *parts_of(found), *category_id)
    yield TaggedOutput(_TABLE, options.layout_table.with_parts(parts))
    facts = FactsBuilder()
    for text in trait_warnings(found, labels):
        facts.warn(options.splits[0], text)
    stored = rules_of(options).stored
    for kind in sorted(kinds & {*OPTIONAL_KINDS, "objects", "class_name"} - stored):
        of_kind = {"masks": MASKS["both"], **PARTS}.get(kind, ())
        can_store = set(of_kind) & set(LAYOUTS[options.layout].parts)
        asked = 'masks="rle"' if kind == "masks" else f"{kind}=True"
        cure = f"give {asked}" if can_store else "the layout has no feature for that"
        facts.warn(options.splits[0], f"Samples have {kind}, which is not stored in layout {options.layout}: {cure}")
    ids = {(trait.name, trait.category_id) for trait in found if trait.category_id != -1}
    ids -= {(category.name, category.id) for category in labels.categories}
    if ids and not known:
        name, id_ = min(ids)
        facts.warn(
            options.splits[0],
            f"the category ids of Samples are not one for each name ({name!r} has {id_}, among others), so categories "
            "are numbered from 1 in the order of names: give labels= to keep ids",
        )
    yield tagged(facts)


@dataclass(eq=False, repr=False)
class GatherSamples(beam.PTransform):
    """Convert Samples to (BlockKey, packed Block), one LabelMap, one FeatureTable, and several PCollections of Facts.

    Args:
        labels: A PCollection of one LabelMap; None to collect the classes of the Samples.
        facts: A PCollection of the Facts of the source of the Samples; None if there is none.
    """

    options: RecordOptions
    labels: PCollection | None
    facts: PCollection | None

    def expand(self, samples: PCollection[Sample]):
        found = samples | "CheckSamples" >> CheckSamples(self.options, self.labels, self.facts)
        join = beam.FlatMap(_join, AsSingleton(found.labels), rules_of(self.options))
        grouped = found.samples | "GroupByRange" >> beam.GroupByKey()
        typed = join.with_output_types(tuple[BlockKey, bytes])
        joined = grouped | "Join" >> typed.with_outputs(FACTS, main="blocks")
        facts = [found.facts, found.described, joined[FACTS]]
        if self.facts is not None:
            own = (found.facts, joined[FACTS]) | "Own" >> AddFacts()
            before = (self.facts,) | "Before" >> AddFacts()
            balance = beam.Map(_balance, self.options.splits, AsIter(before.facts), AsIter(own.facts))
            facts += [self.facts, samples.pipeline | "Once" >> beam.Impulse() | "Balance" >> balance]
        return joined.blocks, found.labels, found.table, tuple(facts)


def _join(group: tuple[int, Iterable[bytes]], labels: LabelMap, rules: SampleRules) -> Iterator[Any]:
    number, facts = group[0], FactsBuilder()
    samples = sorted(map(unpack_sample, group[1]), key=id_of)
    check_distinct(samples)
    for sample in samples:
        rows = InputRows(_PIPELINE, "samples", 1, sample.annotation_rows)
        facts.add_rows(split_of(sample, rules.division), rows)
    block = block_of(samples, labels, rules, facts.reject)
    yield tagged(facts)
    if block is not None:
        yield from cut_range(number, block)


def _balance(_: bytes, splits: tuple[str, ...], before: Iterable[Facts], own: Iterable[Facts]) -> Facts:
    """Return Facts that correct the counts of the source: images and annotations that the pipeline removed are counted
    as removed, and those that it added are counted as input."""
    read, came, facts = add_facts(before), add_facts(own), FactsBuilder()
    for split in splits:
        left, arrived = _remaining(read, split), _rows(came, split)
        same = [min(pair) for pair in zip(left, arrived, strict=True)]
        facts.add_rows(split, InputRows(_PIPELINE, "samples", -same[0], -same[1]))
        facts.count(split, Metric.IMAGES_REMOVED, left[0] - same[0])
        facts.count(split, Metric.ANNOTATIONS_REMOVED, left[1] - same[1])
    return facts.build()


def _rows(facts: Facts, split: str) -> tuple[int, int]:
    found = [rows for (name, _, _), rows in facts.inputs.items() if name == split]
    return sum(rows.images for rows in found), sum(rows.annotations for rows in found)


def _remaining(facts: Facts, split: str) -> tuple[int, int]:
    """Return the numbers of images and annotations that remain of those that were read."""
    images, annotations = _rows(facts, split)

    def count(*metrics: Metric) -> int:
        return sum(facts.counts.get((split, metric.value), 0) for metric in metrics)

    for (name, what, _), rejects in facts.rejects.items():
        if name == split:
            images -= rejects.number * (what != "annotation")
            annotations -= rejects.annotations + rejects.number * (what == "annotation")
    images -= count(Metric.ROWS_MERGED, Metric.OF_OTHER_CLASSES)
    return images, annotations - count(Metric.ANNOTATIONS_MERGED, Metric.OF_REJECTED_IMAGES, *FILTERS)
