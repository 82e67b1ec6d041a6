"""`recordmill repack`: write a finished data set in another container, or in shards that are planned again."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsDict

from recordmill.pipelines.dataset_options import RepackOptions
from recordmill.schemas.containers import CONTAINERS
from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.dataset.recipes import Recipe
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Part, RecordOf
from recordmill.schemas.inputs.options import container_faults
from recordmill.schemas.layouts import shard_names
from recordmill.schemas.shards import ShardKey, SplitSize
from recordmill.schemas.sizes import number_text
from recordmill.transforms.dataset.dataset_folder import unfinished_splits
from recordmill.transforms.insight.write_report import try_to_report
from recordmill.transforms.repack.repack_metadata import read_replan, repacked_recipe, write_metadata
from recordmill.transforms.repack.repack_shards import RecordRange, RepackShard, ShardToRepack, record_ranges
from recordmill.transforms.repack.replan_split import Replan
from recordmill.transforms.verify.check_folder import folder_faults


class Repack(NamedTuple):
    """Data set to repack.

    Attributes:
        manifest: Of the source.
        container, gzip: Of the new shards.
        plans: New shards by split; None if they are those of the source.
    """

    options: RepackOptions
    manifest: Manifest
    container: str
    gzip: bool
    plans: Mapping[str, Replan | None]

    def recipes(self) -> list[Recipe]:
        """Return the recipes of all splits in the new folder."""
        return [repacked_recipe(split.recipe, self.container, self.gzip) for split in self.manifest.splits.values()]

    def shards(self, splits: Sequence[str]) -> list[ShardToRepack]:
        """Return the new shards of some splits."""
        folder, manifest = self.options.folder, self.manifest
        container, table, labels = manifest.container, manifest.table, manifest.labels
        target = self.options.output, manifest.name, manifest.layout, self.gzip, self.container
        shards = []
        for split in splits:
            ranges, made_by = self._ranges(split), manifest.splits[split].made_by
            for index, (sources, order) in enumerate(ranges):
                key = ShardKey(split, index, len(ranges))
                source = folder, container, table, labels, sources, order
                shards.append(ShardToRepack(*source, key, made_by, *target))
        return shards

    def _ranges(self, split: str) -> list[tuple[tuple[RecordRange, ...], bytes]]:
        """Return the records of each new shard of a split, see ShardToRepack."""
        shards, plan = self.manifest.splits[split].numbered_shards, self.plans[split]
        if plan is None:
            return [((RecordRange(shard, 0, shard.examples),), b"") for shard in shards]
        return [record_ranges(shards, plan, target) for target in range(plan.plan.shards)]

    def size(self, split: str) -> SplitSize:
        """Return the size of a split in the new folder."""
        entry, plan = self.manifest.splits[split], self.plans[split]
        return SplitSize(entry.images.records, entry.record_bytes, plan.plan.shards if plan else len(entry.shards))


def read_source(options: RepackOptions, manifest: Manifest) -> Repack:
    """Return the data set, after a check that it is finished, that its metadata are undamaged, and that the container
    can store it.

    Raises:
        ConfigError: With all errors of the container, or the first other one.
    """
    folder = options.folder
    compressed = any(split.compression for split in manifest.splits.values())
    container, gzip = options.container or manifest.container, options.gzip
    if options.container is None and compressed:
        gzip = True
    if faults := list(_container_faults(options, manifest, container, gzip)):
        raise ConfigError(". ".join(faults))
    if unfinished := unfinished_splits(folder):
        raise ConfigError(
            f"{folder} has an unfinished run of {', '.join(unfinished)}. Run its command again, and then repack"
        )
    if folder_damage := folder_faults(folder, ()):
        raise ConfigError(
            f"{folder} has {number_text(len(folder_damage), 'fault')}, the first: {folder_damage[0]}. recordmill "
            "verify lists all damage. Write the data set again with --overwrite, and then repack"
        )
    plans = {split: read_replan(folder, manifest, split) if options.replan else None for split in manifest.splits}
    source = Repack(options, manifest, container, gzip, plans)
    if not CONTAINERS[container].can_be_empty:
        _check_empty_shards(source)
    return source


def _container_faults(options: RepackOptions, manifest: Manifest, container: str, gzip: bool) -> Iterator[str]:
    """Yield a sentence for each reason why the container cannot store a data set."""
    folder, named = options.folder, f"--container {container}"
    compressed = any(split.compression for split in manifest.splits.values())
    if container == manifest.container and compressed == gzip and not options.replan:
        change = " Leave --gzip out to write it uncompressed." if compressed else ""
        change = " Add --gzip to compress it." if CONTAINERS[container].can_gzip and not compressed else change
        yield f"{folder} already has {named}. Copy the folder, or choose another --container.{change}".rstrip(".")
        return
    yield from container_faults(container, manifest.layout, gzip)
    if options.replan and manifest.table.record_of is RecordOf.ROW:
        yield f"{folder} has rows of a table, which --replan does not plan again. Leave it out"
    if Part.MASK_PNG in manifest.parts and not CONTAINERS[container].has_png_masks:
        yield (
            f"{folder} has masks of objects as PNGs, but {named} stores masks of objects as --masks rle only. Convert "
            "again with --masks rle"
        )
    if len(manifest.splits) > 1 and shard_names(manifest.name, "", manifest.layout, container).is_keras:
        yield (
            f"{named} names the shards of layout {manifest.layout} without their split, so a folder has one, but "
            f"{folder} has {' and '.join(manifest.splits)}. Choose another --container"
        )


def _check_empty_shards(source: Repack) -> None:
    """Raise ConfigError if a new shard has no records."""
    folder, named = source.options.folder, f"--container {source.container}"
    old = [shard.file for split in source.manifest.splits.values() for shard in split.shards if not shard.examples]
    if old and not source.options.replan:
        raise ConfigError(
            f"{folder} has {number_text(len(old), 'shard')} without records ({old[0]}), but {named} has no empty "
            "shards, because readers fail at them. Convert again with a smaller --num-shards"
        )
    for split, plan in source.plans.items():
        if plan and (empty := int((plan.examples == 0).sum())):
            raise ConfigError(
                f"--replan gives split {split} of {folder} {number_text(empty, 'shard')} without records, but {named} "
                "has no empty shards, because readers fail at them. Choose another --container"
            )


def replan_doubts(source: Repack) -> Iterator[str]:
    """Yield sentences about splits whose new shards may differ from those of one conversion of all images, or whose
    runs sized shards differently."""
    for split, plan in source.plans.items():
        entry = source.manifest.splits[split]
        reasons = [
            (plan and plan.has_estimates, "sizes of images are estimates, because they were read from shards"),
            (plan and plan.has_guesses, "an image whose annotations were partly rejected is divided at another one"),
            (
                any(run.made_by != entry.made_by for run in entry.runs),
                "its runs were made by different versions of libraries",
            ),
        ]
        if plan and (named := [reason for applies, reason in reasons if applies]):
            yield f"Shards of {split} may differ from those of one conversion of all images: {', and '.join(named)}."
        if plan and any(run.recipe.sizing != entry.recipe.sizing for run in entry.runs):
            yield f"Shards of {split} have the sizes of its first run. Later runs had other options for them."


def build(
    p: beam.Pipeline,
    shards: Sequence[ShardToRepack],
    recipes: Sequence[Recipe],
    source: Repack,
) -> None:
    """Write every shard, and commit all splits once each shard is written.

    Args:
        recipes: Of the splits in the new folder.
    """
    options = source.options
    notes = (
        p
        | "Shards" >> beam.Create(shards)
        | "SpreadShards" >> beam.Reshuffle()
        | "RepackShards" >> beam.ParDo(RepackShard(options.workers, len(shards)))
    )
    commit = beam.Map(_commit, options, source.manifest, recipes, AsDict(notes))
    p | "Once" >> beam.Impulse() | "Commit" >> commit


def _commit(
    _: bytes, options: RepackOptions, manifest: Manifest, recipes: Sequence[Recipe], notes: Mapping[ShardKey, str]
) -> None:
    write_metadata(options.folder, manifest, options.output, recipes, notes, options.replan)
    try_to_report(options.output)
