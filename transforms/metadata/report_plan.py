"""A plan for people: what a job would write, without writing it."""

from collections.abc import Iterable, Mapping

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
from recordmill.transforms.dataset.facts import Facts, add_facts
from recordmill.transforms.metadata.count_classes import OfSplit, class_counts
from recordmill.transforms.metadata.write_metadata import Findings
from recordmill.transforms.rejects.write_rejects import tally_rejects
from recordmill.transforms.shards.split_plan import SplitPlan
from recordmill.transforms.storage.resolve import storage_for
from recordmill.transforms.text.encode_captions import EncodedTexts


class ReportPlan(beam.PTransform):
    """(split, SplitPlan) become a PlanReport, written as JSON to the local file `path`.

    Args:
        checked: a PCollection of one element, without which there is no report.
        findings: of the steps before.
        classes: what CountClasses gives.
        labels, table: one LabelMap, and one FeatureTable.
        texts: what is known of those that are encoded, if any are.
    """

    def __init__(
        self,
        checked: PCollection,
        findings: Findings,
        classes: PCollection,
        labels: PCollection,
        table: PCollection,
        path: str,
        texts: EncodedTexts | None = None,
    ):
        super().__init__()
        self._classes = classes
        self._table = table
        self._checked = checked
        self._findings = findings
        self._labels = labels
        self._path = path
        self._texts = texts

    def expand(self, plans: PCollection[tuple[str, SplitPlan]]) -> PCollection[None]:
        known = {
            "plans": AsList(plans),
            "parts": AsList(self._findings.facts),
            "classes": AsList(self._classes),
            "table": AsSingleton(self._table),
            "labels": AsSingleton(self._labels),
            "_": AsSingleton(self._checked),
        }
        if texts := self._texts:
            known["encoders"] = AsList(texts.encoders)
        return plans.pipeline | "Once" >> beam.Create([self._path]) | "Report" >> beam.Map(_write_report, **known)


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
