"""Steps of all conversions: write records, and the manifest."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsIter, AsList, AsSingleton, PCollection

from recordmill.pipelines.gathered import Gathered
from recordmill.pipelines.grow import (
    adds,
    adopt_images,
    count_changes,
    first_shards,
    grow_images,
    grow_job,
    limits_with_base,
    rewrite_shards,
    tile_places,
)
from recordmill.schemas.dataset.manifest import FORMAT, Manifest
from recordmill.schemas.dataset.recipes import InputFile, Recipe, unlisted_folder
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import FeatureTable, Part
from recordmill.schemas.inputs.encoders import EncoderSource, TextEncoder
from recordmill.schemas.inputs.image_options import ALLOW_EMPTY, AnnotatedOptions, StoredImageOptions, TileOptions
from recordmill.schemas.inputs.labels import ExistingLabels
from recordmill.schemas.inputs.options import ChoiceOptions, DividedOptions, ImageOptions, RecipeValue
from recordmill.schemas.inputs.splits import Division
from recordmill.schemas.layouts import shard_names
from recordmill.schemas.names import name_key
from recordmill.schemas.paths import is_remote
from recordmill.transforms.blocks.cut_range import BlockKey
from recordmill.transforms.blocks.pack_block import pack_block, unpack_block
from recordmill.transforms.dataset.collect_facts import WithFacts, collect_facts
from recordmill.transforms.dataset.dataset_folder import existing_labels
from recordmill.transforms.dataset.facts import AddFacts, FactsBuilder
from recordmill.transforms.encoders.encode_captions import EncodeCaptions
from recordmill.transforms.encoders.fit_encoder import encoder_warnings
from recordmill.transforms.encoders.record_maker import RecordMaker
from recordmill.transforms.grow.grow_images import GrowJob, MadeRecords
from recordmill.transforms.insight.write_report import try_to_report
from recordmill.transforms.join.divide_images import read_groups, with_groups
from recordmill.transforms.join.drop_images import DropCopies, ExcludeImages, read_exclusions
from recordmill.transforms.join.join_maps import JoinMaps
from recordmill.transforms.shape.class_map import read_class_map
from recordmill.transforms.shape.limit_blocks import LimitBlocks
from recordmill.transforms.shape.shape_classes import ShapeClasses
from recordmill.transforms.shape.tile_images import TileImages, TileJob
from recordmill.transforms.shards.check_findings import CheckFindings, JobLimits, LimitRejects
from recordmill.transforms.shards.count_groups import CountGroups
from recordmill.transforms.shards.describe_split import count_classes, write_plan
from recordmill.transforms.shards.encode_images import EncodeImages
from recordmill.transforms.shards.job_parts import KeepPart, plan_part, write_part
from recordmill.transforms.shards.plan_blocks import PlanBlocks
from recordmill.transforms.shards.shard_file import ShardRecipe
from recordmill.transforms.shards.write_metadata import WriteMetadata
from recordmill.transforms.shards.write_shards import WriteShards, WriteWithBeam
from recordmill.transforms.storage.resolve import file_version, storage_for
from recordmill.transforms.user_samples.record_options import RecordOptions

_IN_FLIGHT = 64
"""Maximum number of concurrent requests for images of a bucket, see docs/decisions/0008-buckets.md."""


def read_division(p: beam.Pipeline, options: DividedOptions) -> Division | AsSingleton:
    """Return the assignment of images to splits: a value, or a side input if a file groups images."""
    if not options.groups:
        return options.division
    path = p | "GroupsFile" >> beam.Create([options.groups])
    read = beam.Map(with_groups, options.division, file_version(options.groups), options.groups_prefix)
    return AsSingleton(path | "ReadGroups" >> read)


def encode_and_plan(
    options: StoredImageOptions, splits: Sequence[str], table: FeatureTable
) -> tuple[RecordMaker, PlanBlocks]:
    """Return the encoder of records that hold images, and the plan of their shards; see Job.

    Args:
        table: Features that are known before the job.
    """
    maker = EncodeImages(options.box_policy, options.image_rules, _min_area(options))
    return maker, PlanBlocks(splits, options.sizing, maker.estimate(table), options.container)


def _min_area(options: StoredImageOptions) -> float:
    return options.min_area if isinstance(options, AnnotatedOptions | RecordOptions) else 0.0


def input_file(kind: str, path: str, masks: str = "") -> InputFile:
    """Return a file with its size and checksum."""
    size, checksum = storage_for(path).checksum(path)
    return InputFile(kind, path, size, checksum, masks)


def choice_files(options: ImageOptions) -> Iterator[InputFile]:
    """Yield the files of `--groups`, `--exclude` and `--class-map`, after a check of their lines; and the folders of
    maps."""
    if isinstance(options, DividedOptions) and options.groups:
        read_groups(options.groups)
        yield input_file("groups", options.groups)
    if isinstance(options, ChoiceOptions) and options.exclude:
        read_exclusions(options.exclude, options.exclude_kinds)
        yield from (input_file("exclude", path) for path in options.exclude)
    if isinstance(options, ChoiceOptions) and options.class_map:
        read_class_map(options.class_map)
        yield input_file("class_map", options.class_map)
    if isinstance(options, AnnotatedOptions):
        yield from map(unlisted_folder, dict.fromkeys(folder.path for folder in options.map_folders))


def read_existing(options: ChoiceOptions, splits: Sequence[str]) -> ExistingLabels | None:
    """Return the labels of the data set that the splits are added to; None for a new data set, and for one of several
    sets, whose classes the job compares."""
    return None if options.is_part else existing_labels(options.output, splits)


def shape_images(options: ImageOptions, gathered: Gathered, splits: Sequence[str]) -> Gathered:
    """Return the images that options do not skip. The order of the steps is part of the options' meaning."""
    blocks, labels, table = gathered.blocks, gathered.labels, gathered.table
    if isinstance(options, ChoiceOptions) and options.exclude:
        blocks = blocks | "ExcludeImages" >> ExcludeImages(
            options.exclude, options.exclude_kinds, splits, adds(options)
        )
    if isinstance(options, ChoiceOptions) and options.changes_classes and options.has_classes_in_blocks:
        shape = ShapeClasses(options, splits, read_existing(options, splits))
        blocks, labels, table = (blocks, labels, table) | "ShapeClasses" >> shape
    if isinstance(options, StoredImageOptions) and options.duplicates == "drop" and not adds(options):
        blocks = blocks | "DropCopies" >> DropCopies(splits)
    if isinstance(options, ChoiceOptions) and options.limits:
        limit = LimitBlocks(options.limits, splits, gathered.division, AsSingleton(labels))
        blocks = blocks | "LimitBlocks" >> limit
    return gathered._replace(blocks=blocks, labels=labels, table=table)


def _encode_captions(gathered: Gathered, text: EncoderSource, splits: Sequence[str]) -> Gathered:
    """Return images with their captions encoded, and the encoder."""
    blocks, encoders = gathered.blocks | "EncodeCaptions" >> EncodeCaptions(text, tuple(splits))
    encoders | "EncoderWarnings" >> WithFacts(_warn_encoder, splits)
    return gathered._replace(blocks=blocks, encoders=encoders)


def _warn_encoder(encoder: TextEncoder, facts: FactsBuilder, splits: Sequence[str]) -> None:
    facts.warn_all(splits, encoder_warnings(encoder))


def _threads(options: ImageOptions) -> int | None:
    """Return the number of threads that read images; None for the number of cores."""
    return options.workers or (_IN_FLIGHT if any(map(is_remote, options.images)) else None)


def _tile_job(options: ImageOptions, splits: tuple[str, ...]) -> TileJob | None:
    """Return the tiles that options request; None without any."""
    if not isinstance(options, TileOptions) or options.tile_rules is None:
        return None
    return TileJob(options.tile_rules, options.image_rules, options.box_policy, _min_area(options), splits)


def _add_tile_keys(options: ImageOptions, gathered: Gathered) -> Gathered:
    add_keys = beam.Map(FeatureTable.adding, options.layout_table, Part.TILES).with_output_types(FeatureTable)
    return gathered._replace(table=gathered.table | "AddTileKeys" >> add_keys)


_KEY_BITS = 48
"""A part has fewer than 2 ** 16 ranges of 2 ** 32 Blocks."""


def place_in_split(blocks: PCollection, split: str, splits: Sequence[str]) -> PCollection:
    """Return (BlockKey, packed Block) of a part with the index of its split, and with keys that are unique in the job.

    Args:
        split: Split of the part.
        splits: Splits of the job.
    """
    place = beam.Map(_place_block, splits.index(split)).with_output_types(tuple[BlockKey, bytes])
    return blocks | f"OfSplit{split}" >> place


def _place_block(keyed: tuple[BlockKey, bytes], split: int) -> tuple[BlockKey, bytes]:
    key, block = keyed[0], unpack_block(keyed[1])
    return key + (split << _KEY_BITS), pack_block(block.replace(split=np.full(len(block), split, np.int64)))


class Job(NamedTuple):
    """Conversion. Each image or row has one split."""

    options: ImageOptions
    splits: tuple[str, ...]
    # Returns the files that determine the bytes of each split, with their checksums, except those of `choice_files`.
    inputs: Callable[[], Iterable[InputFile]]
    gather: Callable[[beam.Pipeline], Gathered]  # adds the steps of a source
    maker: RecordMaker  # encoder of records
    plan: beam.PTransform  # converts `Gathered.blocks` to (ShardKey, packed Block)
    has_images: bool = True  # True if `Gathered.blocks` are images; False for Spills of rows, whose Facts have counts
    captions: EncoderSource | None = None  # encoder of the images' captions; None to leave them as they are
    more_recorded: Mapping[str, RecipeValue] = {}  # values besides the options that determine the bytes of each split
    notes: tuple[str, ...] = ()  # contents of a folder, in words
    names_splits: bool = False  # True if the data set names its splits
    parts: tuple["Job", ...] = ()  # jobs that write the same splits one by one, if each split has its folder
    base: Manifest | None = None  # manifest of the data set that the job adds to; None without --add

    def recipes(self) -> list[Recipe]:
        """Return the recipe of each split.

        Raises:
            ConfigError: The data set names several splits, whose shards would have the same names.
        """
        if (
            len(self.splits) > 1
            and shard_names(self.options.name, "", self.options.layout, self.options.container).is_keras
        ):
            raise ConfigError(
                f"--layout {self.options.layout} names shards without their split, so a folder has one, but the data "
                f"set has {' and '.join(self.splits)}. Convert each split to its own --output, or choose another "
                "--layout"
            )
        if self.parts:
            return [recipe for part in self.parts for recipe in part.recipes()]
        options, images = self.options, tuple(sorted(self.options.images))
        inputs = (*self.inputs(), *choice_files(options))
        recorded = options.record_options | dict(self.more_recorded)
        return [
            Recipe(FORMAT, options.name, split, options.layout, options.table.parts, inputs, images, recorded)
            for split in self.splits
        ]

    def write(self, p: beam.Pipeline, recipes: Sequence[Recipe]) -> PCollection:
        """Write the splits of `recipes`, which are all splits of the job. Return a PCollection of one Manifest, or of
        the JobPart if only that is written. It is emitted when everything is written."""
        options = self.options
        with collect_facts() as facts:
            gathered, placed = self._plan(p)
        findings = tuple(facts) | "AddFindings" >> AddFacts()
        limits = self._limits(options.output)
        checked = findings | "CheckFindings" >> CheckFindings(limits)
        writer = self._writer(gathered, checked)
        if part := options.job_part:
            placed, hashes = placed | "KeepPart" >> KeepPart(part)
            findings.facts | "PlanPart" >> beam.Map(plan_part, part)
        written = placed | "WriteShards" >> writer
        limit_rejects = beam.ParDo(LimitRejects(limits), AsSingleton(checked), AsIter(findings.lists))
        written | "LimitRejects" >> limit_rejects
        if part:
            images = AsSingleton(hashes)
            metadata = WriteMetadata(findings, recipes, limits, gathered.sides, write_part, part=part, images=images)
            return written | "WritePart" >> metadata
        sides = gathered.sides | gathered.lists
        more: dict[str, Any] = {"prune": True} if getattr(options, "prune", False) else {}
        if addition := self._addition:
            more |= rewrite_shards(addition, gathered, written, findings.facts, _threads(options))
        manifest = written | "WriteMetadata" >> WriteMetadata(findings, recipes, limits, sides, **more)
        if not getattr(options, "labels_only", False):
            manifest | "ReportFolder" >> beam.Map(lambda _, output: try_to_report(output), options.output)
        return manifest

    def report(self, p: beam.Pipeline, recipes: Sequence[Recipe], path: str) -> None:
        """Write only the Plan of the splits, as JSON to the local file `path`."""
        with collect_facts() as facts:
            gathered, _ = self._plan(p)
            if gathered.changes and isinstance(self.options, DividedOptions) and self.options.sync:
                gathered.changes | "CountChanges" >> WithFacts(count_changes)
            if self.has_images:
                count = WithFacts(count_classes, AsSingleton(gathered.labels), self.splits)
                gathered.blocks | "CountClasses" >> count
        findings = tuple(facts) | "AddFindings" >> AddFacts()
        checked = findings | "CheckFindings" >> CheckFindings(self._limits(output=""))
        sides = gathered.sides | {"first_shards": first_shards(self.base, self.splits)}
        checked | "ReportPlan" >> beam.Map(write_plan, path, recipes, AsList(findings.facts), **sides)

    def read(self, p: beam.Pipeline) -> Gathered:
        """Return the images, or rows, of the job. Facts have the numbers of groups, except for a set that has those of
        the job."""
        gathered = self.gather(p)
        if isinstance(self.options, AnnotatedOptions) and (maps := self.options.map_folders):
            joined = gathered.blocks | "JoinMaps" >> JoinMaps(maps, self.splits, self.options.output)
            gathered = gathered._replace(blocks=joined)
        read = gathered
        if self.has_images:
            gathered = shape_images(self.options, gathered, self.splits)
        if gathered.division and not (isinstance(self.options, ChoiceOptions) and self.options.groups_prefix):
            list_names = beam.FlatMap(_image_names, self.splits).with_output_types(tuple[str, str])
            names = read_names = gathered.blocks | "NamesOfGroups" >> list_names
            if read.blocks is not gathered.blocks:
                read_names = read.blocks | "NamesRead" >> list_names
            (names, read_names) | "CountGroups" >> CountGroups(gathered.division, adds(self.options))
        return gathered

    def _plan(self, p: beam.Pipeline) -> tuple[Gathered, PCollection]:
        """Return the input of the shards, and (ShardKey, packed Block)."""
        addition, read = self._addition, partial(self.read, p)
        gathered = adopt_images(addition, self.options, read) if addition else read()
        if self.captions:
            gathered = _encode_captions(gathered, self.captions, self.splits)
        tiles = _tile_job(self.options, self.splits) if self.has_images else None
        if tiles:
            gathered = _add_tile_keys(self.options, gathered)
        if addition:
            assert isinstance(self.maker, EncodeImages)
            records = MadeRecords(self.splits, self.maker, tiles)
            gathered = grow_images(addition, gathered, records, _threads(self.options))
        if tiles:
            known = tile_places(addition, p) if addition else None
            divide = TileImages(tiles, gathered.labels, gathered.table, _threads(self.options), known)
            gathered = gathered._replace(blocks=gathered.blocks | "TileImages" >> divide)
        return gathered, gathered.blocks | "PlanShards" >> self._shards()

    @property
    def _addition(self) -> GrowJob | None:
        return grow_job(self.base, self.options, self.splits) if self.base else None

    def _limits(self, output: str) -> JobLimits:
        limits = job_limits(self.options, self.splits, output)
        return limits_with_base(limits, self.base, self.options) if self.base else limits

    def _shards(self) -> beam.PTransform:
        if self.base and isinstance(self.plan, PlanBlocks):
            return self.plan.after(first_shards(self.base, self.splits))
        return self.plan

    def _writer(self, gathered: Gathered, checked: PCollection) -> WriteShards:
        options = self.options
        names = options.output, options.name, options.layout
        rest = FORMAT, options.container, first_shards(self.base, self.splits)
        recipe = ShardRecipe(*names, options.gzip, options.seed, self.maker, *rest)
        arguments = checked, gathered.labels, gathered.table, recipe, _threads(options)
        if options.writer == "beam":
            return WriteWithBeam(*arguments, splits=self.splits, num_shards=options.num_shards)
        return WriteShards(*arguments, self.plan.estimate if isinstance(self.plan, PlanBlocks) else None)


def write_nothing(p: beam.Pipeline, reason: str) -> None:
    """Add a job that logs why it is empty."""
    p | "Reason" >> beam.Create([reason]) | "LogReason" >> beam.LogElements(level=logging.INFO)


def _image_names(keyed: tuple[int, bytes], splits: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the split and name of a Block's images."""
    block = unpack_block(keyed[1])
    for split, name in zip(block.split.tolist(), block.file_name.texts(), strict=True):
        yield splits[split], name_key(name)


def job_limits(options: ImageOptions, splits: tuple[str, ...], output: str) -> JobLimits:
    """Return the limits for the findings of a job that writes to the folder `output`."""
    return JobLimits(
        splits,
        options.name_sources,
        options.max_rejects,
        output,
        options.has_exact_sizes,
        options.checked_shares(splits),
        options.share_cure,
        options.keywords,
        options.refused_duplicates if isinstance(options, StoredImageOptions) else "report",
        dict(_needed_labels(options)),
        joins_sets=bool(options.set_options),
        keeps_state=options.job_part is not None,
    )


def _needed_labels(options: ImageOptions) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the class maps that may not drop all labels of a split, see JobLimits."""
    if isinstance(options, RecordOptions) and not options.allow_empty:
        yield "", ("the class map", "" if options.is_image_class else f"{ALLOW_EMPTY} to ReadDataset")
    for name, own in {} if adds(options) else {"": options, **options.set_options}.items():
        if isinstance(own, ChoiceOptions) and own.class_map and not getattr(own, "allow_empty", False):
            yield name, (f"--class-map {own.class_map}", "" if own.has_image_classes else ALLOW_EMPTY)
