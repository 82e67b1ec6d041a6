"""The steps that all conversions share: write what was gathered as records, and record that in the manifest."""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection

from recordmill.pipelines.options.picture_options import DividedOptions, ImageOptions, PictureOptions
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.manifest import FORMAT
from recordmill.schemas.names import name_key
from recordmill.schemas.recipes import Recipe
from recordmill.schemas.splits import Division
from recordmill.transforms.blocks.pack_block import unpack_block
from recordmill.transforms.dataset.facts import AddFacts
from recordmill.transforms.join.read_groups import ReadGroups
from recordmill.transforms.metadata.check_findings import CheckFindings, Demands
from recordmill.transforms.metadata.count_groups import CountGroups
from recordmill.transforms.metadata.limit_rejects import LimitRejects
from recordmill.transforms.metadata.report_plan import CountClasses, ReportPlan
from recordmill.transforms.metadata.write_metadata import Findings, Target, WriteMetadata
from recordmill.transforms.report.report_folder import ReportFolder
from recordmill.transforms.shards.encode_pictures import EncodePictures
from recordmill.transforms.shards.plan_blocks import PlanBlocks, ShardPlans
from recordmill.transforms.shards.record_maker import RecordMaker
from recordmill.transforms.shards.shard_file import ShardRecipe
from recordmill.transforms.shards.write_shards import WriteShards, Written, written_of
from recordmill.transforms.shards.write_with_beam_sink import RESULTS, MakeRecords, SinkRecords, only_counted
from recordmill.transforms.storage.interface import is_remote
from recordmill.transforms.text.encode_captions import EncodedTexts

_IN_FLIGHT = 64
"""Images that are fetched from a bucket at once, see docs/decisions/0008-buckets.md."""


class Gathered(NamedTuple):
    """What there is to write.

    Attributes:
        blocks: (BlockKey, packed Block) of whole Blocks, see `recordmill.transforms.shards.plan_blocks`.
        labels: one LabelMap, of the classes that were asked for.
        table: one FeatureTable: what is in a record.
        facts: PCollections of Facts, of the steps.
        warnings: a PCollection of further (split, text).
        texts: what is known of those that were encoded; None where none are.
        listings: InputFile of folders whose listing decides what is written; None where an input does.
        division: into splits; or None where no groups are kept together.
    """

    blocks: PCollection
    labels: PCollection
    table: PCollection
    facts: tuple[PCollection, ...]
    warnings: PCollection
    texts: EncodedTexts | None = None
    listings: PCollection | None = None
    division: Division | AsSingleton | None = None


class Contents(NamedTuple):
    """What is in records.

    Attributes:
        table: as far as it is known before the job.
        maker: of the records.
    """

    table: FeatureTable
    maker: RecordMaker


def read_division(p: beam.Pipeline, options: DividedOptions) -> Division | AsSingleton:
    """How images are divided, to be given to steps: as it is, or as a side input where a file says what belongs
    together."""
    if not options.groups:
        return options.division
    return AsSingleton(p | "GroupsFile" >> beam.Create([options.groups]) | "ReadGroups" >> ReadGroups(options.division))


def pictures(options: PictureOptions) -> Contents:
    """Records that hold the pictures."""
    return Contents(options.table, EncodePictures(options.box_policy, options.pictures))


class ImageJob(NamedTuple):
    """A conversion of image files; every task belongs to one of the splits.

    Attributes:
        gather: adds the steps that give what there is to write.
    """

    options: ImageOptions
    splits: tuple[str, ...]
    gather: Callable[[beam.Pipeline], Gathered]
    contents: Contents

    def write(self, p: beam.Pipeline, recipes: Sequence[Recipe]) -> None:
        """Write the splits that there are recipes for, which are all splits of the job."""
        options, gathered = self.options, self.gather(p)
        planned = gathered.blocks | "PlanShards" >> self._plan_shards()
        findings = _findings(gathered, planned, self.splits)
        demands = demands_of(options, self.splits, options.output)
        checked = findings.facts | "CheckFindings" >> CheckFindings(demands, findings.warnings)
        written = _written(gathered, planned, checked, options, self.contents.maker, self.splits)
        written.facts | "LimitRejects" >> LimitRejects(checked, findings.facts, demands)
        duplicates = options.duplicates if isinstance(options, PictureOptions) else "report"
        target = Target(tuple(recipes), options.output, options.max_rejects, duplicates)
        metadata = WriteMetadata(gathered.labels, gathered.table, findings, target, gathered.texts, gathered.listings)
        written | "WriteMetadata" >> metadata | "ReportFolder" >> ReportFolder(options.output)

    def report(self, p: beam.Pipeline, path: str) -> None:
        """Write nothing but the plan of the splits, as JSON into the local file `path`."""
        gathered = self.gather(p)
        planned = gathered.blocks | "PlanShards" >> self._plan_shards()
        findings = _findings(gathered, planned, self.splits)
        demands = demands_of(self.options, self.splits, output="")
        checked = findings.facts | "CheckFindings" >> CheckFindings(demands, findings.warnings)
        classes = gathered.blocks | "CountClasses" >> CountClasses(self.splits)
        planned.plans | "ReportPlan" >> ReportPlan(
            checked, findings, classes, gathered.labels, gathered.table, path, gathered.texts
        )

    def _plan_shards(self) -> PlanBlocks:
        options, estimate = self.options, self.contents.maker.estimate(self.contents.table)
        return PlanBlocks(self.splits, options.sizing, options.seed, estimate)


def write_nothing(p: beam.Pipeline, reason: str) -> None:
    """A job that logs why it has nothing to do."""
    p | "Reason" >> beam.Create([reason]) | "LogReason" >> beam.LogElements(level=logging.INFO)


def _findings(gathered: Gathered, planned: ShardPlans, splits: Sequence[str]) -> Findings:
    """What was found on the way, and what is odd about the plan."""
    parts = (*gathered.facts, planned.facts)
    if gathered.division:
        names = gathered.blocks | "NamesOfGroups" >> beam.FlatMap(_named, splits).with_output_types(tuple[str, str])
        parts += names | "CountGroups" >> CountGroups(gathered.division)
    return Findings(parts | "AddFacts" >> AddFacts(), gathered.warnings)


def _named(keyed: tuple[int, bytes], splits: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the split and the name of each image of a Block."""
    block = unpack_block(keyed[1])
    for split, name in zip(block.split.tolist(), block.file_name.texts(), strict=True):
        yield splits[split], name_key(name)


def demands_of(options: ImageOptions, splits: tuple[str, ...], output: str) -> Demands:
    """What is asked of the findings of a job that writes into the folder `output`."""
    return Demands(splits, options.name_sources, options.max_rejects, output)


def _written(
    gathered: Gathered,
    planned: ShardPlans,
    checked: PCollection,
    options: ImageOptions,
    maker: RecordMaker,
    splits: Sequence[str],
) -> Written:
    recipe = ShardRecipe(options.output, options.name, options.layout, options.gzip, options.seed, maker, FORMAT)
    threads = options.workers or (_IN_FLIGHT if any(map(is_remote, options.images)) else None)
    if options.writer != "beam":
        return planned.placed | "WriteShards" >> WriteShards(checked, gathered.labels, gathered.table, recipe, threads)
    sides = AsSingleton(gathered.labels), AsSingleton(gathered.table), AsSingleton(checked)
    made = (
        planned.placed
        | "GroupByShard" >> beam.GroupByKey()
        | "MakeRecords" >> beam.ParDo(MakeRecords(recipe, threads), *sides).with_outputs(RESULTS, main="records")
    )
    shards = made.records | "SinkRecords" >> SinkRecords(recipe, splits, options.num_shards)
    written = written_of(made[RESULTS])
    facts = (written.facts, shards | "OnlyCounted" >> beam.Map(only_counted)) | "AllFacts" >> beam.Flatten()
    return written._replace(shards=shards, facts=facts)
