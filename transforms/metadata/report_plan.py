"""A plan for people: what a job would write, without writing it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import apache_beam as beam
import msgspec
from apache_beam.pvalue import AsList, AsSingleton, PCollection

from recordmill.schemas.encoders import TextEncoder
from recordmill.schemas.features import FeatureTable, Part
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.layouts import LAYOUTS
from recordmill.schemas.manifest import InputRows, num_classes
from recordmill.schemas.plan_report import PlanReport
from recordmill.schemas.rejects import Metric, RejectTally
from recordmill.transforms.blocks.image_tasks import labels_of
from recordmill.transforms.blocks.pack_block import unpack_block
from recordmill.transforms.dataset.facts import Facts, add_facts
from recordmill.transforms.metadata.write_metadata import Findings
from recordmill.transforms.rejects.write_rejects import tally_rejects
from recordmill.transforms.shards.split_plan import SplitPlan
from recordmill.transforms.storage.resolve import storage_for
from recordmill.transforms.text.encode_captions import EncodedTexts

OfSplit = tuple[tuple[str, int | str], int]
"""((split, category id or class name), number)."""


@dataclass(eq=False, repr=False)
class ReportPlan(beam.PTransform):
    """(split, SplitPlan) become a PlanReport, written as JSON to the local file `path`.

    Args:
        checked: a PCollection of one element, without which there is no report.
        findings: of the steps before.
        classes: what CountClasses gives.
        labels, table: one LabelMap, and one FeatureTable.
        texts: what is known of those that are encoded, if any are.
    """

    checked: PCollection
    findings: Findings
    classes: PCollection
    labels: PCollection
    table: PCollection
    path: str
    texts: EncodedTexts | None = None

    def expand(self, plans: PCollection[tuple[str, SplitPlan]]) -> PCollection[None]:
        known = {
            "plans": AsList(plans),
            "parts": AsList(self.findings.facts),
            "classes": AsList(self.classes),
            "table": AsSingleton(self.table),
            "labels": AsSingleton(self.labels),
            "_": AsSingleton(self.checked),
        }
        if texts := self.texts:
            known["encoders"] = AsList(texts.encoders)
        return plans.pipeline | "Once" >> beam.Create([self.path]) | "Report" >> beam.Map(_write_report, **known)


def _write_report(  # one parameter a side input
    path: str,
    plans: list[tuple[str, SplitPlan]],
    parts: list[Facts],
    classes: list[OfSplit],
    labels: LabelMap,
    table: FeatureTable,
    _: object,
    encoders: Iterable[TextEncoder] = (),
) -> None:
    facts = add_facts(parts)
    groups = {split: number for (split, metric), number in facts.counts.items() if metric == Metric.GROUPS.value}
    of_all = tally_rejects(facts.rejects.items()), list(facts.inputs.values())
    report = report_plan(dict(plans), *of_all, classes, labels, table, groups)
    report = msgspec.structs.replace(report, encoders=tuple(encoder.info for encoder in encoders))
    storage_for(path).write(path, msgspec.json.encode(report))


def report_plan(
    plans: Mapping[str, SplitPlan],
    rejected: RejectTally,
    inputs: Iterable[InputRows],
    classes: Iterable[OfSplit],
    labels: LabelMap,
    table: FeatureTable,
    groups: Mapping[str, int] = {},
) -> PlanReport:  # seven, as a report has parts: each comes from a step of its own
    """The plans of all splits as one report."""
    return PlanReport(
        images=sum(plan.images for plan in plans.values()),
        images_by_split={split: plans[split].images for split in sorted(plans)},
        bytes=sum(plan.bytes for plan in plans.values()),
        shards=sum(plan.shards for plan in plans.values()),
        rejected={"image": rejected.reasons("image", "row"), "annotation": rejected.reasons("annotation")},
        classes=tuple(category.name for category in labels.categories),
        class_counts=class_counts(classes, labels),
        num_classes=num_classes(labels, table),
        shifted_labels=len(labels.all) if Part.CATEGORY_ID in table.parts else 0,
        groups_by_split=dict(groups),
        inputs=tuple(sorted(inputs, key=lambda rows: (rows.path, rows.kind))),
        features=() if LAYOUTS[table.layout].features else table.features,
    )


@dataclass(eq=False, repr=False)
class CountClasses(beam.PTransform):
    """Convert (BlockKey, packed Block) to OfSplit."""

    splits: Sequence[str]

    def expand(self, blocks: PCollection[tuple[int, bytes]]) -> PCollection[OfSplit]:
        return blocks | "Classes" >> beam.FlatMap(_classes, self.splits) | "AddClasses" >> beam.CombinePerKey(sum)


def _classes(keyed: tuple[int, bytes], splits: Sequence[str]) -> Iterator[OfSplit]:
    block = unpack_block(keyed[1])
    found: Counter[tuple[int, int | str]] = Counter()
    of_image = block.split.tolist()
    if block.num_objects:
        found.update(zip(block.split[block.image_of_object].tolist(), block.category_id.tolist(), strict=True))
    names = (labels.class_name for labels in labels_of(block))
    found.update((split, name) for split, name in zip(of_image, names, strict=True) if name is not None)
    return (((splits[split], kind), number) for (split, kind), number in found.items())


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
