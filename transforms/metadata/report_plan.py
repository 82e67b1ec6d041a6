"""The plan of a job, for people: the manifest that it would write, as far as it is known before a picture is read."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import msgspec
from apache_beam.pvalue import AsList, AsSingleton, PCollection

from recordmill.schemas.encoders import TextEncoder
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.manifest import Plan, manifest_of
from recordmill.schemas.recipes import Recipe
from recordmill.schemas.rejects import Metric
from recordmill.schemas.shards import SplitSize
from recordmill.transforms.blocks.image_tasks import labels_of
from recordmill.transforms.blocks.pack_block import unpack_block
from recordmill.transforms.dataset.facts import Facts, add_facts
from recordmill.transforms.metadata.describe_split import SplitShards, class_counts, describe_split
from recordmill.transforms.rejects.write_rejects import RejectList, tally_rejects
from recordmill.transforms.storage.resolve import storage_for


@dataclass(eq=False, repr=False)
class ReportPlan(beam.PTransform):
    """Facts of the steps before the writing, one element, become a Plan, as JSON in the local file `path`.

    Args:
        checked: a PCollection of one element, without which there is no plan.
        labels, table: one LabelMap, and one FeatureTable.
        recipes: one a split.
        encoders: of texts, if any are encoded.
    """

    checked: PCollection
    labels: PCollection
    table: PCollection
    path: str
    recipes: Sequence[Recipe]
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
        once = facts.pipeline | "Once" >> beam.Create([self.path])
        return once | "Report" >> beam.Map(_write_plan, self.recipes, **known)


def _write_plan(path: str, recipes: Sequence[Recipe], facts: list[Facts], _: object, **sides: Any) -> None:
    storage_for(path).write(path, msgspec.json.encode(plan_of(recipes, add_facts(facts), **sides)))


def plan_of(
    recipes: Sequence[Recipe],
    facts: Facts,
    labels: LabelMap,
    table: FeatureTable,
    encoders: Iterable[TextEncoder] = (),
) -> Plan:
    sizes = {recipe.split: facts.plans.get(recipe.split, SplitSize(0, 0, 0)) for recipe in recipes}
    facts.counts |= {(split, Metric.IMAGES.value): size.images for split, size in sizes.items()}
    splits = {}
    for recipe in recipes:
        split = recipe.split
        tally = tally_rejects((kind, rejects) for kind, rejects in facts.rejects.items() if kind[0] == split)
        rejected = RejectList(tally, "", ())
        counts = class_counts(split, labels, facts)
        splits[split] = describe_split(recipe, facts, rejected, SplitShards(()), counts, b"")
    infos = tuple(encoder.info for encoder in encoders)
    return Plan(manifest_of(recipes[0].name, labels, table, splits, infos), sizes)


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
