"""A data set's folder, opened to be read.

data = recordmill.open("out")
data["train"][17]["boxes"]
"""

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.manifest import Manifest, SplitManifest
from recordmill.split import Contents, Shard, Split
from recordmill.transforms.metadata.dataset_folder import require_manifest
from recordmill.transforms.storage.resolve import storage_for


class DataSet:
    """The splits of a folder, by name: `data["train"]`.

    Attributes:
        path: of the folder.
        manifest: what was read and written.
        splits: by name.
    """

    def __init__(self, path: str, manifest: Manifest, splits: dict[str, Split]):
        self.path = path
        self.manifest = manifest
        self.splits = splits

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes; `label` and `labels` are indices here."""
        return tuple(category.name for category in self.manifest.categories)

    @property
    def num_classes(self) -> int:
        """How many; 0 where the records have none."""
        return len(self.manifest.categories)

    def __getitem__(self, split: str) -> Split:
        """
        Raises:
            ConfigError: there is no such split.
        """
        if split not in self.splits:
            raise ConfigError(f"{self.path} has no split {split!r}; it has {', '.join(self.splits)}")
        return self.splits[split]

    def __repr__(self) -> str:
        splits = ", ".join(f"{name}: {len(split):,} records" for name, split in self.splits.items())
        return f"DataSet({self.path!r}, layout {self.manifest.layout}, {splits}, {self.num_classes:,} classes)"


def open(path: str) -> DataSet:
    """Open a data set, local or in a bucket: one read, of its manifest.

    Raises:
        ConfigError: `path` is no folder, or has no manifest: it is no data set of Recordmill's, or not finished.
        OSError: storage fails; a PermissionError: it may not be read.
    """
    manifest = require_manifest(path)
    return DataSet(path, manifest, {name: _split(path, manifest, entry) for name, entry in manifest.splits.items()})


def _split(path: str, manifest: Manifest, entry: SplitManifest) -> Split:
    storage = storage_for(path)
    shards = [Shard(storage.join(path, info.file), info) for info in entry.shards]
    shape = entry.recipe.options.get("feature_shape")
    contents = Contents(manifest.table, manifest.labels, tuple(shape) if isinstance(shape, list) else ())
    return Split(entry.recipe.split, path, shards, contents, entry.compression)
