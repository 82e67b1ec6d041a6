"""Open a data set.

data = recordmill.open("out")
data["train"][17]["boxes"]
"""

import operator
import os
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from html import escape
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, overload

from recordmill._check_arguments import check_names, check_types
from recordmill._decoding import Decoding
from recordmill._split_records import RecordContents, SplitRecords, reading_lines
from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import RecordOf
from recordmill.schemas.paths import is_remote
from recordmill.schemas.sizes import first_texts, number_text, printable
from recordmill.schemas.statistics import REPORT
from recordmill.transforms.dataset.dataset_folder import require_manifest
from recordmill.transforms.storage.resolve import join_path

if TYPE_CHECKING:
    import tensorflow as tf

    from recordmill._torch_dataset import TorchDataset, TorchIterableDataset


class Split(SplitRecords):
    """Records of a split, or of a slice of it, in the order of the data set.

    `split[17]`, and each item of `split.numpy()`, is a dict of the values that the data set has:

        {values}

    A value without dimensions is a NumPy scalar, or `bytes`. The layout keras has one object per record, and no
    dimension N. Records of a table have each column under its own name: int64, float32 or bytes; [N] for lists, [0] or
    [1] if some rows lack a value; and `image` if rows name image files. Open fields have their paths as names:
    `attributes.occluded`. `split.features` lists the values of this data set.

    Attributes:
        name: Name of the split.
        folder: Folder of the data set.
        shards: Shards in the order of the data set.
        compression: `GZIP`, or empty.
        container: Kind of the shards' files, such as `tfrecord`.
    """

    # One argument for each step of tf.data that every training uses.
    @check_names
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
        keys: Sequence[str] | None = None,
    ) -> "tf.data.Dataset":
        """Return a tf.data.Dataset of dicts of tensors, with the values of `numpy`.

        Its cardinality is known. Without `shuffle`, its order is that of the data set.

        Args:
            batch: Records per batch; None for single records. Lists are padded to the longest of the batch: ids and
                labels by -1, open fields by -1, NaN or the empty string, others by 0 or the empty string.
            shuffle: Visit the shards in another order each epoch, several at a time, and shuffle within a buffer.
            seed: Seed of the shuffle. With a seed, each run has the same order.
            shard: Index and number of hosts. Each host reads its own records, as many as the others or one more.
            resize: Height and width in pixels of images (bilinear), masks and maps (nearest). Boxes and keypoints are
                fractions and stay; `box_xywh_px` is scaled.
            pad: Length that all lists are padded to. With `drop_remainder`, shapes are static. Texts are left out
                unless `keys` names them.
            ragged: Return lists of a batch as ragged tensors, without padding.
            drop_remainder: Drop the last batch if it is not full; with `shard`, also a batch that only some hosts have.
            as_supervised: Return pairs: image or feature, and label (layout keras: `labels`); for a table, the other
                columns and the label.
            keys: Values to decode, of those of `features`; None for all.

        Raises:
            ConfigError: The arguments contradict each other or the data set, or TensorFlow is not installed.
        """
        from recordmill._tensorflow_reader import Steps, tensorflow_dataset

        steps = Steps(batch, shuffle, seed, shard, resize, pad, ragged, drop_remainder, as_supervised)
        steps = Steps(*check_types(Split.tensorflow, **steps._asdict()))
        return tensorflow_dataset(self._with_keys(keys, steps.pad), steps)

    @overload
    def torch(
        self,
        *,
        iterable: Literal[False] = False,
        transform: Callable[..., Any] | None = None,
        keys: Sequence[str] | None = None,
        threads: int = 1,
        resize: tuple[int, int] | None = None,
        draft: bool = False,
    ) -> "TorchDataset": ...

    @overload
    def torch(
        self,
        *,
        iterable: Literal[True],
        seed: int | None = None,
        part: tuple[int, int] | None = None,
        even: bool = False,
        transform: Callable[..., Any] | None = None,
        keys: Sequence[str] | None = None,
        threads: int = 1,
        resize: tuple[int, int] | None = None,
        draft: bool = False,
    ) -> "TorchIterableDataset": ...

    @check_names
    def torch(
        self,
        *,
        iterable: bool = False,
        seed: int | None = None,
        part: tuple[int, int] | None = None,
        even: bool = False,
        transform: Callable[..., Any] | None = None,
        keys: Sequence[str] | None = None,
        threads: int = 1,
        resize: tuple[int, int] | None = None,
        draft: bool = False,
    ) -> "TorchDataset | TorchIterableDataset":
        """Return a PyTorch data set of pairs, as torchvision's models expect them. It does not use TensorFlow.

        The first item of a pair is the image, uint8 [3, height, width], or the feature. The second item is the class
        index, int64 [], for images with one class; for objects it is a dict of tensors:

            boxes      float32 [N, 4]: xmin, ymin, xmax, ymax in pixels
            labels     int64 [N]: class index + 1; 0 is the background of torchvision's detectors
            masks      uint8 [N, height, width]
            keypoints  float32 [N, K, 3]: x and y in pixels, visibility
            iscrowd    int64 [N]

        and the other values of `split[index]`. N is 1 in the layout keras. The second item for a table is a dict of all
        columns; without images, the dict is the only item.

        Args:
            iterable: Return an IterableDataset, which reads each record in one worker of one rank. `set_epoch` sets the
                epoch of its order. By default, a sampler chooses records by number.
            seed: Seed of an IterableDataset's order, which differs in each epoch; None for the order of the data set.
            part: Rank and number of ranks of an IterableDataset. Default: those of torch.distributed when an iteration
                starts, or of the variables RANK and WORLD_SIZE before it is initialised.
            even: Drop the last records of an epoch's order, fewer than workers of all ranks, so that every worker has
                the same number. Otherwise ranks may have different numbers of batches, and DistributedDataParallel
                waits for ever.
            transform: Function of both items of a pair, or of the only item.
            keys: Values to decode, of those of `features`, with `image` or `feature` if records have it; None for all.
            threads: Number of threads that decode records, for a DataLoader without worker processes.
            resize: Height and width in pixels, as for `numpy`. `boxes` and `keypoints` are in pixels of that size.
            draft: As for `numpy`.

        Raises:
            ConfigError: The shards are compressed, `seed`, `part` or `even` is given without `iterable`, a key is not
                in `features`, `threads` or a size of `resize` is less than 1, `draft` is given without `resize`, or
                `resize` is given and no image, mask or map is decoded.
        """
        try:
            from recordmill._torch_dataset import TorchDataset, TorchIterableDataset
        except ModuleNotFoundError as error:
            raise ConfigError("Split.torch needs PyTorch. Run: pip install torch") from error

        decoding = check_types(Split.torch, threads=threads, resize=resize, draft=draft)
        split = self._with_decoding(keys, Decoding(*decoding))
        iterable, seed, part, even = check_types(Split.torch, iterable=iterable, seed=seed, part=part, even=even)
        if iterable:
            if part is not None and not 0 <= part[0] < part[1]:
                raise ConfigError(f"part must be (rank, ranks), with ranks from 0 (got {part})")
            return TorchIterableDataset(split, seed, part, even, transform)
        if seed is not None or part is not None or even:
            raise ConfigError("seed, part and even need iterable=True; otherwise the sampler chooses order and parts")
        return TorchDataset(split, transform)

    @check_names
    def grain(
        self,
        *,
        raw: bool = False,
        keys: Sequence[str] | None = None,
        threads: int = 1,
        resize: tuple[int, int] | None = None,
        draft: bool = False,
        pad: int | None = None,
    ) -> "RecordSource":
        """Return a RandomAccessDataSource of Grain: `grain.MapDataset.source(split.grain()).shuffle(seed=0)`.

        Args:
            raw: Return serialised tf.train.Examples in place of dicts of NumPy arrays.
            keys: Values to decode, of those of `features`; None for all.
            threads: Number of threads that decode the records which Grain reads together.
            resize: Height and width in pixels, as for `numpy`. With `pad`, all records have the same shapes.
            draft: As for `numpy`.
            pad: Length that all lists are padded to: ids and labels by -1, open fields by -1, NaN or the empty text,
                others by 0 or the empty text. Texts are left out unless `keys` names them.

        Raises:
            ConfigError: An argument is wrong, `pad` is less than the objects of an image, or the shards are compressed.
        """
        decoding = Decoding(*check_types(Split.grain, threads=threads, resize=resize, draft=draft, pad=pad))
        if raw and decoding != Decoding():
            raise ConfigError("Split.grain: raw=True returns records as they are stored. Leave out the other arguments")
        return RecordSource(self._with_decoding(keys, decoding), raw)


class RecordSource:
    """Grain's RandomAccessDataSource (https://google-grain.readthedocs.io): records by number, single or in batches
    (`_getitems`). It does not import Grain.

    Grain's DataLoader compares the `repr` when it resumes from a checkpoint. It depends on the records, not on the
    path.

    Args:
        raw: Return serialised tf.train.Examples in place of dicts of NumPy arrays.

    Raises:
        ConfigError: The shards are compressed.
    """

    def __init__(self, split: SplitRecords, raw: bool = False):
        split._check_random_access()
        self._split = split
        self._raw = raw

    def __len__(self) -> int:
        return len(self._split)

    def __getitem__(self, number: SupportsIndex) -> Any:
        """Return a record. Errors as for `split[number]`."""
        return self.__getitems__([operator.index(number)])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Return several records, by few reads. PyTorch calls this name."""
        return self._split.read(numbers) if self._raw else self._split._examples(numbers)

    _getitems = __getitems__

    def __repr__(self) -> str:
        split = self._split
        pieces = "".join(
            f"{split.shards[piece.number].crc32c}{piece.first}-{piece.end}"
            f"{'' if piece.repeats is None else piece.repeats.tolist()};"
            for piece in split._pieces()
        )
        digest = sha256(pieces.encode()).hexdigest()[:12]
        return f"RecordSource({split.name!r}, {len(split):,} records{', raw' if self._raw else ''}, {digest})"


Split.__doc__ = (Split.__doc__ or "").format(values=reading_lines(indent=8).lstrip())


_CLASSES_SHOWN = 20


class DataSet:
    """Splits by name: `data["train"]`. Iteration returns the names.

    Attributes:
        path: Folder. A local path is absolute, so that it survives chdir().
        manifest: Counts, options and files of the conversion.
        splits: Splits by name.
    """

    def __init__(self, path: str, manifest: Manifest, splits: dict[str, Split]):
        self.path = path
        self.manifest = manifest
        self.splits = splits

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names. `label` and `labels` are indices into them."""
        return tuple(category.name for category in self.manifest.categories)

    @property
    def num_classes(self) -> int:
        """Number of classes; 0 if the records have none."""
        return len(self.manifest.categories)

    @property
    def num_labels(self) -> int:
        """Largest label of the records' own numbers, + 1: `num_classes` of manifest.json and of Model Garden."""
        return self.manifest.num_classes

    def __getitem__(self, split: str) -> Split:
        """Return a split by name.

        Raises:
            ConfigError: There is no such split.
        """
        if split not in self.splits:
            raise ConfigError(f"{self.path} has no split {split!r}; it has {', '.join(self.splits)}")
        records = self.splits[split]
        _ = records._files  # from now on, a replaced shard is an error
        return records

    def __iter__(self) -> Iterator[str]:
        return iter(self.splits)

    def __contains__(self, split: object) -> bool:
        return split in self.splits

    def __len__(self) -> int:
        return len(self.splits)

    def __repr__(self) -> str:
        """Return images by split, classes, rejects, possible problems and the page in one line."""
        images = ", ".join(f"{name}: {counts[0]}" for name, counts in self._split_texts().items())
        counts = self._total_texts()
        return f"DataSet({self.path!r}, layout {self.manifest.layout}, {images}, {', '.join(counts)})"

    def _repr_html_(self) -> str:
        """Return the same as a table, which notebooks show."""
        rows = "".join(
            f"<tr><th>{escape(name)}</th>{''.join(f'<td>{count}</td>' for count in counts)}</tr>"
            for name, counts in self._split_texts().items()
        )
        names = first_texts(map(printable, self.classes), _CLASSES_SHOWN)
        totals = ", ".join(map(escape, self._total_texts()))
        return (
            f"<div><b>DataSet</b> {escape(printable(self.path))}, layout {escape(self.manifest.layout)}"
            f"<table>{rows}</table>{totals}{f'<br>{escape(names)}' * bool(names)}</div>"
        )

    def _split_texts(self) -> dict[str, tuple[str, str, str]]:
        """Return images, rejects and possible problems by split."""
        is_of_rows = self.manifest.table.record_of is RecordOf.ROW
        return {
            name: (
                (f"{number_text(entry.images.tiles, 'tile')} of " if entry.images.tiles else "")
                + number_text(entry.images.written, "row" if is_of_rows else "image"),
                number_text(entry.rejects, "reject"),
                number_text(self._problems(name), "possible problem"),
            )
            for name, entry in self.manifest.splits.items()
        }

    def _problems(self, split: str) -> int:
        listed = (self.manifest.problems or {}).get(split)
        return sum((listed.numbers if listed else self.manifest.splits[split].findings).values())

    def _total_texts(self) -> tuple[str, ...]:
        """Return classes, rejects, possible problems and the path of the page."""
        entries, page = self.manifest.splits, join_path(self.path, REPORT)
        has_page = is_remote(page) or os.path.isfile(page)  # no request for a page in a bucket
        num_pixel_classes = len(self.manifest.segments) if self.manifest.labels.has_pixel_ids else 0
        number = self.num_classes or num_pixel_classes
        return (
            f"{number:,} class{'es' * (number != 1)}",
            number_text(sum(entry.rejects for entry in entries.values()), "reject"),
            number_text(sum(map(self._problems, entries)), "possible problem"),
            f"report {printable(page)}" if has_page else f"no {REPORT}",
        )


def open(path: str | os.PathLike[str]) -> DataSet:
    """Open a data set, local or in a bucket. Only the manifest is read.

    Raises:
        ConfigError: `path` is not a folder, or has no manifest: it is not a data set of Recordmill, or not finished.
        OSError: Storage fails.
    """
    path = os.fsdecode(path)
    manifest = require_manifest(path)
    path = path if is_remote(path) else os.path.abspath(path)
    splits = {}
    for name, entry in manifest.splits.items():
        shape = entry.recipe.options.get("feature_shape")
        contents = RecordContents(manifest.table, manifest.labels, tuple(shape) if isinstance(shape, list) else ())
        splits[name] = Split(name, path, entry.shards, contents, entry.compression, manifest.container)
    return DataSet(path, manifest, splits)
