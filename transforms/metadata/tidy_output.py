"""What runs leave behind in a data set's folder, and need no more when a split is listed in the manifest."""

from recordmill.schemas.manifest import SplitManifest, state_folder
from recordmill.schemas.tfds import shard_links
from recordmill.transforms.storage.resolve import storage_for


def tidy(output: str, split: SplitManifest) -> None:
    """Delete the state of a split that is listed, shards that are not, and what killed runs were writing."""
    storage = storage_for(output)
    names = split.recipe.shard_names
    storage.delete_folder(storage.join(output, state_folder(split.recipe.split)))
    ours = {shard.file for shard in split.shards} | shard_links(names, split).keys()
    for name in storage.names(output):  # an earlier run that stopped may have planned another number of shards
        if names.is_one(name) and name not in ours:
            storage.delete(storage.join(output, name))
    storage.delete_leftovers(output)
