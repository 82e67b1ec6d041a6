"""The folder of a data set: its manifest, and what runs leave behind in it."""

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.labels import LABEL_FILES
from recordmill.schemas.manifest import (
    MANIFEST,
    RECIPE,
    REJECTS,
    Manifest,
    SplitManifest,
    decode_manifest,
    state_folder,
)
from recordmill.schemas.tfds import DATASET_INFO, FEATURES, shard_links
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
        if not storage_for(output).is_folder(output):
            raise ConfigError(f"{output}: no such folder; give the folder that holds {MANIFEST}")
        raise ConfigError(
            f"{output} has no {MANIFEST}: it is no Recordmill data set, or one that was not finished (run it again)"
        )
    return manifest


def is_metadata(name: str) -> bool:
    """Whether a file of that name is written beside the shards.

    >>> is_metadata("labels.csv"), is_metadata("objects-label.labels.txt"), is_metadata("a.csv")
    (True, True, False)
    """
    return name in (MANIFEST, REJECTS, DATASET_INFO, FEATURES, *LABEL_FILES) or name.endswith(".labels.txt")


def unfinished_splits(output: str) -> list[str]:
    """Splits of which an unfinished run has left its recipe in a data set's folder."""
    storage = storage_for(output)
    if not storage.is_folder(output):
        return []
    ending = f"/{RECIPE}"
    notes = (file.name for file in storage.walk(output) if file.name.endswith(ending))
    return sorted(note[len(state_folder("")) : -len(ending)] for note in notes if note.startswith(state_folder("")))


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
