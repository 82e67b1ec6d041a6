"""A data set's folder, opened to be read.

data = recordmill.open("out")
data["train"][17]["boxes"]
"""

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from recordmill.grain_source import RecordSource
from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.errors import ConfigError
from recordmill.split_records import RecordContents, SplitRecords, SplitShard, listed
from recordmill.transforms.dataset.dataset_folder import require_manifest
from recordmill.transforms.storage.interface import is_remote
from recordmill.transforms.storage.resolve import join_path

if TYPE_CHECKING:
    import tensorflow as tf


class Split(SplitRecords):
    """The records of a split, or of a slice of one, in the order of the data set.

    `split[17]`, and what `split.numpy()` iterates over, is a dict of those of these values that the data set has:

        {values}

    Without dimensions, a value is a numpy scalar, or `bytes`. In the layout keras, where a record is one object, there
    is no dimension N. Of a table, each column's feature under its own name: int64, float32 or bytes, [N] where it is a
    list, [0] or [1] where some rows have no value; and `image`, where rows name pictures. `split.features` has those of
    this data set.

    Attributes:
        name: of the split.
        folder: of the data set.
        shards: in the order of the data set.
        contents: what is in the records.
        compression: `GZIP`, or nothing.
    """

    # As many arguments as tf.data has steps that every training wants.
    def tensorflow(
        self,
        batch: int | None = None,
        *,
        shuffle: bool = False,
        seed: int | None = None,
        shard: tuple[int, int] | None = None,
        resize: tuple[int, int] | None = None,
        pad: int | None = None,
        ragged: bool = False,
        drop_remainder: bool = False,
        as_supervised: bool = False,
    ) -> "tf.data.Dataset":
        """The records as a tf.data.Dataset of dicts of tensors, with the same values as `numpy`; its cardinality is
        known, and its order that of the data set, unless it is shuffled.

        Args:
            batch: how many records a batch; None for single ones. Lists are padded to the longest of their batch, ids
                and labels by -1, all else by 0 or the empty string.
            shuffle: visit the shards in another order each epoch, several at a time, and shuffle within a buffer.
            seed: of that; with one, the order is the same in each run.
            shard: index and number of the hosts that read: each gets other records, as many as the others, or one
                more.
            resize: height and width of all pictures (bilinear), and of masks and maps (nearest). Boxes and keypoints
                are fractions and stay; `box_xywh_px` is scaled.
            pad: the length that all lists are padded to, so that shapes are static, with `drop_remainder`.
            ragged: give batches of lists as ragged tensors instead of padding them.
            drop_remainder: leave out what does not fill a batch at the end; with `shard`, also the batch that only some
                of the hosts have.
            as_supervised: pairs: image or feature, and label (layout keras: the object's, `labels`); of a table, the
                other columns, and the label.

        Raises:
            ConfigError: the data set cannot be read so, or TensorFlow is not installed.
        """
        from recordmill.tensorflow_reader import Steps, tensorflow_dataset

        steps = Steps(batch, shuffle, seed, shard, resize, pad, ragged, drop_remainder, as_supervised)
        return tensorflow_dataset(self, steps)

    def torch(
        self,
        *,
        iterable: bool = False,
        seed: int | None = None,
        part: tuple[int, int] | None = None,
        transform: Callable[..., Any] | None = None,
    ) -> Any:
        """The records as a data set of PyTorch, of pairs as torchvision's models take them, without TensorFlow.

        The first of a pair is the picture, uint8 [3, height, width], or the feature. The second is, of images of one
        class, its index, int64 []; and of objects a dict of tensors:

            boxes      float32 [N, 4]: xmin, ymin, xmax, ymax in pixels
            labels     int64 [N]: class index + 1, as 0 is the background of torchvision's detectors
            masks      uint8 [N, height, width]
            keypoints  float32 [N, K, 3]: x and y in pixels, visibility
            iscrowd    int64 [N]

        and all else of `split[index]` as it is there, texts as bytes. In the layout keras, of one object a record, N is
        1 for boxes and labels. Of a table, the second is a dict of all columns as they are, whatever their names;
        without pictures it is alone.

        Args:
            iterable: give an IterableDataset, which reads each record in one worker of one rank, instead of one from
                which a sampler takes records by number. The epoch of its order is that of `set_epoch`.
            seed: of an IterableDataset's order, another each epoch; None for the order of the data set.
            part: rank and number of ranks of an IterableDataset; by default, whenever it is iterated over, those of
                torch.distributed; before that is initialised, those of the variables RANK and WORLD_SIZE.
            transform: what becomes of the two of a pair, or of the dict that is alone.

        Raises:
            ConfigError: the shards are compressed, or seed or part is given without iterable.
        """
        from recordmill.torch_dataset import torch_dataset

        return torch_dataset(self, iterable=iterable, seed=seed, part=part, transform=transform)

    def grain(self, *, raw: bool = False) -> RecordSource:
        """The records as a RandomAccessDataSource of Grain, dicts of numpy arrays:
        `grain.MapDataset.source(split.grain()).shuffle(seed=0)`.

        Args:
            raw: give serialised tf.train.Examples.
        """
        return RecordSource(self, raw)


Split.__doc__ = (Split.__doc__ or "").format(values=listed(indent=8).lstrip())


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

    @property
    def num_labels(self) -> int:
        """Largest label of the records' own numbers, + 1: `num_classes` of manifest.json and of Model Garden."""
        return self.manifest.num_classes

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
        shards = [SplitShard(join_path(path, info.file), info) for info in entry.shards]
        shape = entry.recipe.options.get("feature_shape")
        contents = RecordContents(manifest.table, manifest.labels, tuple(shape) if isinstance(shape, list) else ())
        splits[name] = Split(name, path, shards, contents, entry.compression)
    return DataSet(path, manifest, splits)
