"""A data set's folder, opened to be read.

data = recordmill.open("out")
data["train"][17]["boxes"]
"""

import os
from collections.abc import Iterator

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.manifest import Manifest
from recordmill.split import Contents, Shard, Split
from recordmill.transforms.metadata.dataset_folder import require_manifest
from recordmill.transforms.storage.interface import is_remote
from recordmill.transforms.storage.resolve import join_path


class DataSet:
    """The splits of a folder, by name: `data["train"]`. Iterating gives the names.

    Attributes:
        path: of the folder; of a local one from the root on, so that it holds wherever a process goes.
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
        found = self.splits[split]
        _ = found.files  # from here on, another shard of the same name is an error
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.splits)

    def __contains__(self, split: object) -> bool:
        return split in self.splits

    def __len__(self) -> int:
        return len(self.splits)

    def __repr__(self) -> str:
        splits = ", ".join(f"{name}: {len(split):,} records" for name, split in self.splits.items())
        return f"DataSet({self.path!r}, layout {self.manifest.layout}, {splits}, {self.num_classes:,} classes)"


def open(path: str | os.PathLike[str]) -> DataSet:
    """Open a data set, local or in a bucket: one read, of its manifest.

    Raises:
        ConfigError: `path` is no folder, or has no manifest: it is no data set of Recordmill's, or not finished.
        OSError: storage fails; a PermissionError: it may not be read.
    """
    path = os.fsdecode(path)
    path = path if is_remote(path) else os.path.abspath(path)
    manifest = require_manifest(path)
    splits = {}
    for name, entry in manifest.splits.items():
        shards = [Shard(join_path(path, info.file), info) for info in entry.shards]
        shape = entry.recipe.options.get("feature_shape")
        contents = Contents(manifest.table, manifest.labels, tuple(shape) if isinstance(shape, list) else ())
        splits[name] = Split(name, path, shards, contents, entry.compression)
    return DataSet(path, manifest, splits)
