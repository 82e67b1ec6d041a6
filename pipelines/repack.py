"""`recordmill repack`: write a finished data set in another container."""

from collections.abc import Iterator, Mapping, Sequence

import apache_beam as beam
from apache_beam.pvalue import AsDict

from recordmill.pipelines.dataset_options import RepackOptions
from recordmill.schemas.containers import CONTAINERS
from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.dataset.recipes import Recipe
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.options import container_faults
from recordmill.schemas.layouts import shard_names
from recordmill.schemas.shards import ShardKey
from recordmill.schemas.sizes import number_text
from recordmill.transforms.containers.read_shards import ManifestShard
from recordmill.transforms.dataset.dataset_folder import unfinished_splits
from recordmill.transforms.insight.write_report import try_to_report
from recordmill.transforms.repack.repack_metadata import repacked_recipe, write_metadata
from recordmill.transforms.repack.repack_shards import RepackShard, ShardToRepack
from recordmill.transforms.storage.resolve import join_path
from recordmill.transforms.verify.check_folder import folder_faults


def check_source(options: RepackOptions, manifest: Manifest) -> None:
    """Check that a data set is finished, that its metadata are undamaged, and that the container can store it.

    Raises:
        ConfigError: With all errors of the container, or the first other one.
    """
    folder = options.folder
    if faults := list(_container_faults(options, manifest)):
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


def _container_faults(options: RepackOptions, manifest: Manifest) -> Iterator[str]:
    """Yield a sentence for each reason why the container cannot store a data set."""
    folder, container = options.folder, options.container
    named = f"--container {container}"
    compressed = any(split.compression for split in manifest.splits.values())
    if container == manifest.container and compressed == options.gzip:
        change = " Leave --gzip out to write it uncompressed." if compressed else ""
        change = " Add --gzip to compress it." if CONTAINERS[container].can_gzip and not compressed else change
        yield f"{folder} already has {named}: copy the folder, or choose another --container.{change}".rstrip(".")
        return
    yield from container_faults(container, manifest.layout, options.gzip)
    if Part.MASK_PNG in manifest.parts and not CONTAINERS[container].has_png_masks:
        yield (
            f"{folder} has masks of objects as PNGs, but {named} stores masks of objects as --masks rle only. Convert "
            "again with --masks rle"
        )
    empty = [shard.file for split in manifest.splits.values() for shard in split.shards if not shard.examples]
    if empty and not CONTAINERS[container].can_be_empty:
        yield (
            f"{folder} has {number_text(len(empty), 'shard')} without records ({empty[0]}), but {named} has no empty "
            "shards, because readers fail at them. Convert again with a smaller --num-shards"
        )
    if len(manifest.splits) > 1 and shard_names(manifest.name, "", manifest.layout, container).is_keras:
        yield (
            f"{named} names the shards of layout {manifest.layout} without their split, so a folder has one, but "
            f"{folder} has {' and '.join(manifest.splits)}. Choose another --container"
        )


def repacked_recipes(options: RepackOptions, manifest: Manifest) -> list[Recipe]:
    """Return the recipes of all splits in the new folder."""
    return [repacked_recipe(split.recipe, options.container, options.gzip) for split in manifest.splits.values()]


def shards_to_repack(options: RepackOptions, manifest: Manifest, splits: Sequence[str]) -> list[ShardToRepack]:
    """Return the shards of some splits of the manifest."""
    source = manifest.table, manifest.labels
    target = options.output, manifest.name, manifest.layout, options.gzip, options.container
    return [
        ShardToRepack(
            ManifestShard(join_path(options.folder, shard.file), name, shard, *source, manifest.container),
            manifest.shard_names(name).key(shard.file, len(manifest.splits[name].shards)),
            manifest.splits[name].made_by,
            *target,
        )
        for name in splits
        for shard in manifest.splits[name].shards
    ]


def build(
    p: beam.Pipeline,
    shards: Sequence[ShardToRepack],
    recipes: Sequence[Recipe],
    options: RepackOptions,
    manifest: Manifest,
) -> None:
    """Write every shard, and commit all splits once each shard is written.

    Args:
        recipes: Of the splits in the new folder.
        manifest: Of the source.
    """
    notes = (
        p
        | "Shards" >> beam.Create(shards)
        | "SpreadShards" >> beam.Reshuffle()
        | "RepackShards" >> beam.ParDo(RepackShard(options.workers, len(shards)))
    )
    commit = beam.Map(_commit, options.folder, manifest, options.output, recipes, AsDict(notes))
    p | "Once" >> beam.Impulse() | "Commit" >> commit


def _commit(
    _: bytes, folder: str, manifest: Manifest, output: str, recipes: Sequence[Recipe], notes: Mapping[ShardKey, str]
) -> None:
    write_metadata(folder, manifest, output, recipes, notes)
    try_to_report(output)
