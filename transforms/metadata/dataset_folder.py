"""The folder of a data set: its manifest, and what runs leave behind in it."""

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.manifest import MANIFEST, Manifest, SplitManifest, decode_manifest, state_folder
from recordmill.schemas.tfds import shard_links
from recordmill.transforms.storage.resolve import storage_for


def read_manifest(output: str) -> Manifest | None:
    """The manifest of a data set folder; None where it has none.

    Raises:
        ConfigError: see `recordmill.schemas.manifest.decode_manifest`.
    """
    storage = storage_for(output)
    path = storage.join(output, MANIFEST)
    if storage.size(path) is None:
        return None
    try:
        data = storage.read(path)
    except FileNotFoundError:  # another run may just have deleted it
        return None
    return decode_manifest(data, path)


def require_manifest(output: str) -> Manifest:
    """The manifest of a complete data set.

    Raises:
        ConfigError: it has none, or see `read_manifest`.
    """
    manifest = read_manifest(output)
    if manifest is None:
        raise ConfigError(
            f"{output} has no {MANIFEST}: it is no Recordmill data set, or one that was not finished (run it again)"
        )
    return manifest


def tidy(output: str, split: SplitManifest) -> None:
    """Delete what earlier runs of a complete split left: its resume state, shards that are not in the manifest, and
    files that killed runs were writing."""
    storage = storage_for(output)
    names = split.recipe.shard_names
    storage.delete_folder(storage.join(output, state_folder(split.recipe.split)))
    ours = {shard.file for shard in split.shards} | shard_links(names, split).keys()
    for name in storage.names(output):  # an earlier run that stopped may have planned another number of shards
        if names.is_one(name) and name not in ours:
            storage.delete(storage.join(output, name))
    storage.delete_leftovers(output)
