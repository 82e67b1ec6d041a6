"""A split of a data set: its records as numpy arrays, in order or by number, and as what frameworks read."""

import operator
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import cached_property
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex, overload

from recordmill.schemas.errors import ConfigError, RecordError
from recordmill.schemas.features import FeatureTable, Reading
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.readings import listed, readings_of
from recordmill.schemas.shards import ShardInfo
from recordmill.transforms.index.record_file import RecordFile, RecordFiles

if TYPE_CHECKING:
    import tensorflow as tf

    from recordmill.decode_record import RecordDecoder
    from recordmill.grain_source import RecordSource


class Contents(NamedTuple):
    """What is in the records of a split.

    Attributes:
        feature_shape: see `recordmill.schemas.readings.readings_of`.
    """

    table: FeatureTable
    labels: LabelMap
    feature_shape: tuple[str, ...] = ()


class Shard(NamedTuple):
    """A file of records, and what the manifest says of it."""

    path: str
    info: ShardInfo


class Piece(NamedTuple):
    """Neighbouring records of a shard, the `number`-th of its split: from number `first` to before `end`."""

    shard: Shard
    number: int
    first: int
    end: int


class Split:
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

    def __init__(self, name: str, folder: str, shards: Sequence[Shard], contents: Contents, compression: str = ""):
        self.name = name
        self.folder = folder
        self.shards = tuple(shards)
        self.contents = contents
        self.compression = compression
        self._readings = readings_of(contents.table, contents.feature_shape)
        self._ends = tuple(accumulate(shard.info.examples for shard in shards))
        self._numbers = range(self._ends[-1] if shards else 0)

    @property
    def features(self) -> dict[str, Reading]:
        """What is given of each record, by name: dtype, shape, meaning."""
        return dict(self._readings)

    def __len__(self) -> int:
        return len(self._numbers)

    def __repr__(self) -> str:
        shards = f"{len(self.pieces()):,} shards"
        return f"Split({self.name!r}, {len(self):,} records in {shards}: {', '.join(self._readings)})"

    @overload
    def __getitem__(self, index: slice) -> "Split": ...

    @overload
    def __getitem__(self, index: SupportsIndex) -> dict[str, Any]: ...

    def __getitem__(self, index: Any) -> Any:
        """A record, counted from the end where `index` is negative; or, of a slice, a Split of neighbouring records.

        Raises:
            IndexError: there are not so many records.
            ConfigError: the shards are compressed, or the slice has a step.
            RecordError: the record, its shard or its index is damaged, or has been replaced.
            OSError: storage fails.
        """
        if isinstance(index, slice):
            return self._slice(index)
        number = operator.index(index)
        return self.decode(self.read([number])[0], number)

    def raw(self, index: SupportsIndex) -> bytes:
        """A record as it is, a serialised tf.train.Example; otherwise as `split[index]`."""
        return self.read([operator.index(index)])[0]

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        """Several records as they are, in any order, read at once; otherwise as `split[index]`."""
        self.check_random_access()
        return self.files.read([self._global(number) for number in numbers])

    def check_random_access(self) -> None:
        """
        Raises:
            ConfigError: the shards are compressed, so no record can be read by its number.
        """
        if self.compression:
            raise ConfigError(
                f"{self.folder}, split {self.name}: the shards are GZIP, which is read from its beginning only; read "
                "the split in order, or convert without --gzip"
            )

    def decode(self, record: bytes, number: int) -> dict[str, Any]:
        """The values of a record; `number` is its own, for the error.

        Raises:
            RecordError: it cannot be decoded.
        """
        try:
            return self._decode(record)
        except RecordError as error:
            absolute = self._global(number)
            shard = bisect_right(self._ends, absolute)
            path, info = self.shards[shard]
            within = absolute - (self._ends[shard] - info.examples)
            raise RecordError(f"{path}: record {within} {error}; recordmill verify tells more") from error

    @cached_property
    def files(self) -> RecordFiles:
        """The shards as they were when these were first asked for: others that come in their place are an error."""
        return RecordFiles([RecordFile(*shard) for shard in self.shards])

    def numpy(self) -> Iterator[dict[str, Any]]:
        """The records in order, shard by shard, their checksums checked.

        Raises:
            RecordError: at a damaged record, or a shard that is not the one of the manifest, or has been replaced.
            OSError: storage fails.
        """
        records = (record for piece in self.pieces() for record in self._of_piece(piece))
        for number, record in enumerate(records):
            yield self.decode(record, number)

    __iter__ = numpy

    def _of_piece(self, piece: Piece) -> Iterator[bytes]:
        number = piece.first
        for record in islice(self.files.files[piece.number].in_order(), piece.first, piece.end):
            yield record
            number += 1
        if number < piece.end:
            path, info = piece.shard
            raise RecordError(f"{path}: it ends after {number:,} records, where the manifest has {info.examples:,}")

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

    def grain(self, *, raw: bool = False) -> "RecordSource":
        """The records as a RandomAccessDataSource of Grain, dicts of numpy arrays:
        `grain.MapDataset.source(split.grain()).shuffle(seed=0)`.

        Args:
            raw: give serialised tf.train.Examples.
        """
        from recordmill.grain_source import RecordSource

        return RecordSource(self, raw)

    def pieces(self, host: int = 0, hosts: int = 1) -> list[Piece]:
        """Where the records are, of one of several hosts."""
        numbers = self._numbers[len(self) * host // hosts : len(self) * (host + 1) // hosts]
        starts = (0, *self._ends)
        found = []
        for number, (shard, start, end) in enumerate(zip(self.shards, starts, self._ends, strict=False)):
            first, last = max(numbers.start, start), min(numbers.stop, end)
            if first < last:
                found.append(Piece(shard, number, first - start, last - start))
        return found

    def _slice(self, index: slice) -> "Split":
        numbers = self._numbers[index]
        if numbers.step != 1:
            raise ConfigError(
                f"a slice of step {numbers.step}; of a split, only neighbouring records are: give no step"
            )
        part = copy(self)
        part._numbers = numbers
        return part

    def _global(self, number: int) -> int:
        """The number of a record of this slice in the whole split."""
        try:
            return self._numbers[number]
        except IndexError:
            here = f"{self.name} has {len(self):,} here, counted from 0"
            raise IndexError(f"{self.folder}: there is no record {number:,}; {here}") from None

    @cached_property
    def _decode(self) -> "RecordDecoder":
        from recordmill.decode_record import RecordDecoder  # and Pillow, which TensorFlow does without

        return RecordDecoder(self.contents.table, self._readings, self.contents.labels.keypoints)


Split.__doc__ = (Split.__doc__ or "").format(values=listed(indent=8).lstrip())
