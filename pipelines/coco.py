"""`recordmill coco`: COCO annotations and images become TFRecord shards."""

import os
from typing import NamedTuple

import apache_beam as beam
from apache_beam.pvalue import PCollection

from pipelines.options import CocoOptions
from schemas.images import PictureRules
from schemas.layouts import LAYOUTS
from schemas.manifest import FORMAT, Recipe
from transforms.choose_features import ChooseFeatures
from transforms.join_images import JoinImages
from transforms.list_images import ListImages
from transforms.merge_categories import MergeCategories, select_categories
from transforms.outputs import Written
from transforms.plan_shards import PlanShards
from transforms.read_coco import ReadCoco
from transforms.report_plan import ReportPlan
from transforms.screen_annotations import Filters, ScreenAnnotations
from transforms.write_metadata import Findings, WriteMetadata
from transforms.write_shards import ShardRecipe, WriteShards
from transforms.write_stock import WriteStock


class Gathered(NamedTuple):
    """What there is to write.

    Attributes:
        tasks: ImageTask.
        labels: one LabelMap, of the classes that were asked for.
        table: one FeatureTable: what is in a record.
        findings: what was found on the way.
    """

    tasks: PCollection
    labels: PCollection
    table: PCollection
    findings: Findings


def build(p: beam.Pipeline, options: CocoOptions, recipe: Recipe) -> None:
    """The job: gather what there is to write, write it, and say so in the manifest."""
    gathered = gather(p, options)
    written = write(gathered, options)
    written | "WriteMetadata" >> WriteMetadata(
        gathered.labels, gathered.table, gathered.findings, recipe, options.output, options.max_rejects
    )


def build_dry_run(p: beam.Pipeline, options: CocoOptions, report: str) -> None:
    """The job without its writing: the plan as JSON in the local file `report`."""
    gathered = gather(p, options)
    planned = gathered.tasks | "PlanShards" >> plan_shards(options)
    planned.plans | "ReportPlan" >> ReportPlan(gathered.findings.rejected, gathered.labels, report)


def gather(p: beam.Pipeline, options: CocoOptions) -> Gathered:
    """Annotations, image files and categories, joined and screened."""
    coco = p | "AnnotationFiles" >> beam.Create(options.sources) | "ReadCoco" >> ReadCoco(options.masks != "none")
    files = p | "ImageFolders" >> beam.Create(options.images) | "ListImages" >> ListImages()
    categories = coco.files | "MergeCategories" >> MergeCategories()
    joined = coco.parts | "JoinImages" >> JoinImages(files, options.split)
    screened = joined.tasks | "ScreenAnnotations" >> ScreenAnnotations(categories, _filters(options))
    return Gathered(
        screened.tasks,
        categories | "SelectCategories" >> beam.Map(select_categories, options.categories),
        coco.files | "ChooseFeatures" >> ChooseFeatures(options.table, LAYOUTS[options.layout]),
        Findings(
            coco.files,
            (coco.rejected, joined.rejected, screened.rejected) | "FoundRejected" >> beam.Flatten(),
            (joined.counted, screened.counted) | "FoundCounted" >> beam.Flatten(),
            joined.unlisted,
        ),
    )


def write(gathered: Gathered, options: CocoOptions) -> Written:
    """The records, by our own writer or by Beam's."""
    if options.writer == "beam":
        shards = options.num_shards or 0
        stock = WriteStock(gathered.labels, gathered.table, _shard_recipe(options), options.split, shards)
        return gathered.tasks | "WriteStock" >> stock
    planned = gathered.tasks | "PlanShards" >> plan_shards(options)
    threads = options.workers or os.cpu_count() or 1
    return planned | "WriteShards" >> WriteShards(gathered.labels, gathered.table, _shard_recipe(options), threads)


def plan_shards(options: CocoOptions) -> PlanShards:
    return PlanShards(options.sizing, options.seed, options.table)


def _filters(options: CocoOptions) -> Filters:
    return Filters(options.categories, not options.no_crowd, options.min_area)


def _shard_recipe(options: CocoOptions) -> ShardRecipe:
    return ShardRecipe(
        options.output,
        options.name,
        options.seed,
        options.layout,
        options.gzip,
        options.boxes,
        PictureRules(options.check, options.format, options.max_side, options.jpeg_quality),
        FORMAT,
    )
