"""A plan for people: what a job would write, without writing it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import apache_beam as beam
import msgspec
from apache_beam.pvalue import AsList, AsSingleton, PCollection

from recordmill.schemas.encoders import TextEncoder
from recordmill.schemas.features import FeatureTable, Part
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.layouts import LAYOUTS
from recordmill.schemas.manifest import num_classes
from recordmill.schemas.plan_report import PlanReport
from recordmill.schemas.rejects import Metric
from recordmill.transforms.blocks.image_tasks import labels_of
from recordmill.transforms.blocks.pack_block import unpack_block
from recordmill.transforms.dataset.facts import Facts, add_facts
from recordmill.transforms.rejects.write_rejects import tally_rejects
from recordmill.transforms.storage.resolve import storage_for


@dataclass(eq=False, repr=False)
class ReportPlan(beam.PTransform):
    """Facts of the steps before the writing, one element, become a PlanReport, as JSON in the local file `path`.

    Args:
        checked: a PCollection of one element, without which there is no report.
        labels, table: one LabelMap, and one FeatureTable.
        encoders: of texts, if any are encoded.
    """

    checked: PCollection
    labels: PCollection
    table: PCollection
    path: str
    encoders: PCollection | None = None

    def expand(self, facts: PCollection[Facts]) -> PCollection[None]:
        known = {
            "facts": AsList(facts),
            "labels": AsSingleton(self.labels),
            "table": AsSingleton(self.table),
            "_": AsSingleton(self.checked),
        }
        if self.encoders is not None:
            known["encoders"] = AsList(self.encoders)
        return facts.pipeline | "Once" >> beam.Create([self.path]) | "Report" >> beam.Map(_write_report, **known)


def _write_report(
    path: str,
    facts: list[Facts],
    labels: LabelMap,
    table: FeatureTable,
    _: object,
    encoders: Iterable[TextEncoder] = (),
) -> None:
    report = report_plan(add_facts(facts), labels, table, encoders)
    storage_for(path).write(path, msgspec.json.encode(report))


def report_plan(
    facts: Facts, labels: LabelMap, table: FeatureTable, encoders: Iterable[TextEncoder] = ()
) -> PlanReport:
    """The plans of all splits as one report."""
    plans, rejected = facts.plans, tally_rejects(facts.rejects.items())
    classes: dict[str, list[int]] = {}
    for (split, index), number in facts.classes.items():
        classes.setdefault(split, [0] * len(labels.categories))[index] += number
    return PlanReport(
        images=sum(plan.images for plan in plans.values()),
        images_by_split={split: plans[split].images for split in sorted(plans)},
        bytes=sum(plan.bytes for plan in plans.values()),
        shards=sum(plan.shards for plan in plans.values()),
        rejected={"image": rejected.reasons("image", "row"), "annotation": rejected.reasons("annotation")},
        classes=tuple(category.name for category in labels.categories),
        class_counts=classes,
        num_classes=num_classes(labels, table),
        shifted_labels=len(labels.all) if Part.CATEGORY_ID in table.parts else 0,
        groups_by_split={
            split: number for (split, metric), number in facts.counts.items() if metric == Metric.GROUPS.value
        },
        inputs=tuple(sorted(facts.inputs.values(), key=lambda rows: (rows.path, rows.kind))),
        features=() if LAYOUTS[table.layout].features else table.features,
        encoders=tuple(encoder.info for encoder in encoders),
    )


@dataclass(eq=False, repr=False)
class CountClasses(beam.PTransform):
    """Convert (BlockKey, packed Block) to Facts with the classes of each Block.

    Args:
        labels: a PCollection of one LabelMap.
    """

    splits: Sequence[str]
    labels: PCollection

    def expand(self, blocks: PCollection[tuple[int, bytes]]) -> PCollection[Facts]:
        return blocks | "Classes" >> beam.Map(_classes, AsSingleton(self.labels), self.splits)


def _classes(keyed: tuple[int, bytes], labels: LabelMap, splits: Sequence[str]) -> Facts:
    block = unpack_block(keyed[1])
    of_id = labels.index_by_id()
    of_name = {category.name: index for index, category in enumerate(labels.categories)}
    found: Counter[tuple[str, int]] = Counter()
    if block.num_objects:
        objects = zip(block.split[block.image_of_object].tolist(), block.category_id.tolist(), strict=True)
        found.update((splits[split], of_id[category]) for split, category in objects)
    names = zip(block.split.tolist(), (labels.class_name for labels in labels_of(block)), strict=True)
    found.update((splits[split], of_name[name]) for split, name in names if name is not None)
    return Facts(classes=dict(found))
