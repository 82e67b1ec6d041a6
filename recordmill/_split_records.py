"""Records of a split as bytes and NumPy arrays, in order or by number; docs/reading.md shows the values."""

import operator
import os
import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import cached_property
from itertools import accumulate, count, islice, repeat, starmap
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex, TypeVar, overload

import msgspec
import numpy as np

from recordmill._check_arguments import check_names, check_types
from recordmill._decoding import Decoding, check_pad
from recordmill._repeats import RecordClasses, collect_classes, repeat_factors, round_factors
from recordmill.schemas.containers import CONTAINERS, TFRECORD
from recordmill.schemas.errors import ConfigError, RecordError
from recordmill.schemas.features import CLASS_OF_ROW, DTYPES, FeatureTable, Form, Reading, RecordOf
from recordmill.schemas.field_features import field_readings
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import DECODED_IMAGE, is_image_feature
from recordmill.schemas.shards import ShardInfo
from recordmill.schemas.sizes import number_text
from recordmill.schemas.values import VALUES
from recordmill.transforms.containers.container import Contents, container_of
from recordmill.transforms.containers.record_files import RecordFiles
from recordmill.transforms.records.example import Buffer
from recordmill.transforms.runtime.threads import look_ahead
from recordmill.transforms.storage.resolve import join_path

if TYPE_CHECKING:
    from recordmill._decode_record import RecordDecoder


class _Memory(threading.local):
    """Memory of each thread for a record. Fresh memory for each record costs page faults."""

    def __init__(self) -> None:
        self.view = memoryview(np.empty(1 << 20, np.uint8))  # type: ignore[arg-type]


_MEMORY = _Memory()

Records = TypeVar("Records", bound="SplitRecords")


class RecordContents(NamedTuple):
    """Contents of the records of a split.

    Attributes:
        feature_shape: See `table_readings`.
    """

    table: FeatureTable
    labels: LabelMap
    feature_shape: tuple[str, ...] = ()


class SplitPiece(NamedTuple):
    """Range of records of a shard, from `first` to before `end`. The shard is the `number`-th of its split.

    Attributes:
        repeats: int64 [end - first], how often each record comes; None for once.
    """

    number: int
    first: int
    end: int
    repeats: np.ndarray | None = None

    @property
    def records(self) -> int:
        """Number of records, with repetitions."""
        return self.end - self.first if self.repeats is None else int(self.repeats.sum())


class SplitRecords:
    """Records of a split as bytes and NumPy arrays, in order or by number. `Split` documents the attributes."""

    def __init__(
        self,
        name: str,
        folder: str,
        shards: Sequence[ShardInfo],
        contents: RecordContents,
        compression: str = "",
        container: str = TFRECORD,
    ):
        self.name = name
        self.folder = folder
        self.shards = tuple(shards)
        self._contents = contents
        self.compression = compression
        self.container = container
        self._readings = table_readings(contents.table, contents.feature_shape)
        self._decoding = Decoding()
        self._ends = tuple(accumulate(shard.examples for shard in shards))
        # Record numbers in the whole split, ascending; an array if some come several times.
        self._numbers: range | np.ndarray = range(self._ends[-1] if shards else 0)
        self._classes: list[RecordClasses] = []  # of the whole split, once known; shared by all parts of it

    @property
    def features(self) -> dict[str, Reading]:
        """Values of a record by name: dtype, shape, meaning."""
        return dict(self._readings)

    def __len__(self) -> int:
        return len(self._numbers)

    def __repr__(self) -> str:
        records, shards = number_text(len(self), "record"), number_text(len(self._pieces()), "shard")
        return f"Split({self.name!r}, {records} in {shards}: {', '.join(self._readings)})"

    @overload
    def __getitem__(self: Records, index: slice) -> Records: ...

    @overload
    def __getitem__(self, index: SupportsIndex) -> dict[str, Any]: ...

    def __getitem__(self, index: Any) -> Any:
        """Return a record, or a Split for a slice. A negative index counts from the end.

        Raises:
            IndexError: The split has fewer records.
            ConfigError: The shards are compressed, or the slice has a step.
            RecordError: The record, its shard or its index is damaged or was replaced.
            OSError: Storage fails.
        """
        if not isinstance(index, slice):
            return self._examples([operator.index(index)])[0]
        part, positions = copy(self), range(len(self))[index]
        if positions.step != 1:
            raise ConfigError(f"a slice of a split must have the step 1 (got {positions.step})")
        part._numbers = self._numbers[positions.start : positions.stop]
        return part

    @check_names
    def repeated(self: Records, threshold: float, *, seed: int = 0) -> Records:
        """Return the split with records of rare classes several times, as LVIS' repeat factor sampling does.

        A class that a fraction f of the records has gets the factor max(1, sqrt(threshold / f)), and a record the
        largest factor of its classes. Fractions are rounded up or down by a hash of record and seed: give another seed
        in each epoch. Repetitions are neighbours in the order of the data set. Nothing is copied: 8 bytes per record.

        The first call reads all records in order to know their classes, without decoding images. Later calls of this
        process do not.

        Args:
            threshold: Fraction of records below which a class is rare: 0.001 for LVIS.
            seed: Seed of the rounding.

        Raises:
            ConfigError: An argument is wrong, the records have no classes, or the split is repeated already.
            RecordError: A record is damaged, or a shard is not that of the manifest, or was replaced.
            OSError: Storage fails.
        """
        threshold, seed = check_types(SplitRecords.repeated, threshold=threshold, seed=seed)
        if not 0 < threshold <= 1:
            raise ConfigError(f"threshold must be a fraction above 0 and up to 1, such as 0.001 (got {threshold})")
        if not isinstance(self._numbers, range):
            raise ConfigError(f"{self.folder}, split {self.name} is repeated already. Repeat the split that was opened")
        classes = self._record_classes().cut(self._numbers.start, self._numbers.stop)
        numbers, part = np.arange(self._numbers.start, self._numbers.stop), copy(self)
        part._numbers = np.repeat(numbers, round_factors(repeat_factors(classes, threshold), numbers, seed))
        return part

    def _record_classes(self) -> RecordClasses:
        """Return the class indices of each record of the whole split. They are read once."""
        if not self._classes:
            whole = copy(self)
            whole._numbers = range(self._ends[-1] if self._ends else 0)
            readings = table_readings(self._contents.table, self._contents.feature_shape)
            keys = [name for name, reading in readings.items() if _is_class(reading)]
            if not keys:
                raise ConfigError(
                    f"{self.folder}, split {self.name}: repeated needs classes, and the records have "
                    f"{', '.join(readings)}"
                )
            whole._readings = readings
            index = {category.name.encode(): number for number, category in enumerate(self._contents.labels.categories)}
            records = iter(whole._with_decoding(keys, Decoding()))
            self._classes.append(collect_classes(_class_indices(record, index) for record in records))
        return self._classes[0]

    def raw(self, index: SupportsIndex) -> bytes:
        """Return a serialised tf.train.Example. Errors as for `split[index]`."""
        return self.read([operator.index(index)])[0]

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        """Return several serialised records, in the order of `numbers`, by few reads. Errors as for `split[index]`."""
        self._check_random_access()
        return self._files.read([self._global(number) for number in numbers])

    def _examples(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Return several records, by few reads. Errors as for `split[index]`."""
        if len(numbers) == 1:
            self._check_random_access()
            record = self._files.read_view(self._global(numbers[0]), _MEMORY.view)
            return [self._decode(record, numbers[0])]
        return list(self._decode_in_order(zip(self.read(numbers), numbers, strict=True)))

    def _decode_in_order(self, records: Iterable[tuple[Buffer, int]]) -> Iterator[dict[str, Any]]:
        """Yield the values of records, which come with their numbers. The threads end with the iteration."""
        threads = self._decoding.threads
        if threads == 1:
            yield from starmap(self._decode, records)
            return
        process, _ = os.getpid(), self._decoder  # created before threads would create several
        with ThreadPoolExecutor(threads, "decode") as pool:
            for example in look_ahead(self._decode_or_raise, _with_error_as_item(records), pool, threads):
                yield example
                if os.getpid() != process:  # threads do not survive a fork
                    raise RuntimeError("an iteration with threads cannot continue in a forked process. Start a new one")

    def _decode_or_raise(self, item: tuple[Buffer, int] | Exception) -> dict[str, Any]:
        if isinstance(item, Exception):
            raise item
        return self._decode(*item)

    def _check_random_access(self) -> None:
        """Raise ConfigError if the shards are compressed."""
        if self.compression:
            raise ConfigError(
                f"{self.folder}, split {self.name}: the shards are compressed by GZIP, which has no random access. "
                "Read the split in order, or convert without --gzip"
            )
        if not CONTAINERS[self.container].has_random_access:
            raise ConfigError(
                f"{self.folder}, split {self.name}: {self.container} files have no random access. Read the split in "
                "order"
            )

    def _decode(self, record: Buffer, number: int) -> dict[str, Any]:
        """Return the values of a record. `number` is its number, for the error."""
        try:
            return self._decoder(record)
        except RecordError as error:
            raise RecordError(f"{self._location(number)} {error}; recordmill verify tells more") from error
        except ConfigError as error:
            raise ConfigError(f"{self._location(number)}: {error}") from error

    def _location(self, number: int) -> str:
        absolute = self._global(number)
        shard = bisect_right(self._ends, absolute)
        within = absolute - (self._ends[shard] - self.shards[shard].examples)
        return f"{self._files.files[shard].path}: record {within}"

    @cached_property
    def _files(self) -> RecordFiles:
        """Shards at the time of the first access. A shard that is replaced later is an error."""
        container, contents = container_of(self.container), Contents(self._contents.table, self._contents.labels)
        return RecordFiles([container.open(join_path(self.folder, info.file), contents, info) for info in self.shards])

    @check_names
    def numpy(
        self,
        *,
        keys: Sequence[str] | None = None,
        threads: int = 1,
        resize: tuple[int, int] | None = None,
        draft: bool = False,
    ) -> Iterator[dict[str, Any]]:
        """Read the records in order, and check their checksums.

        Args:
            keys: Values to decode, of those of `features`; None for all.
            threads: Number of threads that decode records, each at most two records ahead. They end with the iteration.
            resize: Height and width in pixels of images (bilinear, with antialiasing), masks and maps (nearest). Boxes
                and keypoints are fractions and stay; `box_xywh_px` is scaled.
            draft: Decode JPEGs at 1/2, 1/4 or 1/8 of their size where `resize` allows. It is faster, and pixels differ
                a little.

        Raises:
            ConfigError: A key is not in `features`, `threads` or a size of `resize` is less than 1, `draft` is given
                without `resize`, or `resize` is given and no image, mask or map is decoded.
            RecordError: A record is damaged, or a shard is not that of the manifest, or was replaced.
            OSError: Storage fails.
        """
        decoding = check_types(SplitRecords.numpy, threads=threads, resize=resize, draft=draft)
        return iter(self._with_decoding(keys, Decoding(*decoding)))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        records = (record for piece in self._pieces() for record in self._piece_records(piece))
        return self._decode_in_order(zip(records, count()))

    def _with_keys(self: Records, keys: Sequence[str] | None, pad: int | None = None) -> Records:
        """Return the split with fewer values per record; see `numpy`. Other values are not decoded. With `pad`, texts
        need to be in `keys`."""
        if keys is None and pad is None:
            return self
        if keys is None:
            keys = [name for name, reading in self._readings.items() if reading.dtype != "bytes"]
            if not keys:
                raise ConfigError(f"{self.folder}, split {self.name}: pad leaves texts out. Name them in keys")
        names = [] if isinstance(keys, str) or not isinstance(keys, Iterable) else list(keys)
        unknown = [key for key in names if key not in list(self._readings)]  # a key may be unhashable
        if not names or unknown:
            wrong = f"no key {', '.join(map(repr, unknown))}" if unknown else f"keys={keys!r}"
            raise ConfigError(f"{self.folder}, split {self.name}: {wrong}. Give a list of {', '.join(self._readings)}")
        part = copy(self)
        part.__dict__.pop("_decoder", None)  # cached for all keys
        part._readings = {name: reading for name, reading in self._readings.items() if name in names}
        return part

    def _with_decoding(self: Records, keys: Sequence[str] | None, decoding: Decoding) -> Records:
        """Return the split with the arguments of a reader, see `_with_keys` and `Decoding`."""
        part = copy(self._with_keys(keys, decoding.pad))
        part.__dict__.pop("_decoder", None)  # cached for other arguments
        part._decoding = decoding
        if faults := list(decoding.faults(part._readings)):
            raise ConfigError(f"{self.folder}, split {self.name}: {'; '.join(faults)}")
        part._check_pad(decoding.pad)
        return part

    def _check_pad(self, pad: int | None) -> None:
        """Raise ConfigError if `pad` is less than the objects or captions of an image. Other records have no lists."""
        if pad is not None and self._contents.table.record_of is RecordOf.IMAGE:
            check_pad(pad, self.folder, self.name, self._readings)

    def _piece_records(self, piece: SplitPiece) -> Iterator[Buffer]:
        number = piece.first
        file = self._files.files[piece.number]
        # Threads decode several records at a time.
        records = file.in_order() if self._decoding.threads > 1 else file.views_in_order()
        repeats = repeat(1) if piece.repeats is None else piece.repeats.tolist()
        for record, times in zip(islice(records, piece.first, piece.end), repeats, strict=False):
            for _ in range(times):
                yield record
            number += 1
        if number < piece.end:
            path, examples = self._files.files[piece.number].path, self.shards[piece.number].examples
            raise RecordError(f"{path} ends after {number:,} records, but the manifest has {examples:,}")

    def _pieces(self, host: int = 0, hosts: int = 1) -> list[SplitPiece]:
        """Return the ranges of records of one of several hosts."""
        numbers = self._numbers[len(self) * host // hosts : len(self) * (host + 1) // hosts]
        starts = (0, *self._ends)
        pieces: list[SplitPiece] = []
        for number, (start, end) in enumerate(zip(starts, self._ends, strict=False)):
            if isinstance(numbers, np.ndarray):
                pieces += _repeated_pieces(number, start, end, numbers)
                continue
            first, last = max(numbers.start, start), min(numbers.stop, end)
            if first < last:
                pieces.append(SplitPiece(number, first - start, last - start))
        return pieces

    def _global(self, number: int) -> int:
        """Return a record's number in the whole split."""
        try:
            return int(self._numbers[number])
        except IndexError:
            here = f"split {self.name} has {len(self):,} records, counted from 0"
            raise IndexError(f"{self.folder}: record {number:,} does not exist; {here}") from None

    @cached_property
    def _decoder(self) -> "RecordDecoder":
        from recordmill._decode_record import RecordDecoder  # imports Pillow, which tensorflow() does not need

        return RecordDecoder(self._contents.table, self._readings, self._contents.labels.keypoints, self._decoding)


def _repeated_pieces(number: int, start: int, end: int, numbers: np.ndarray) -> Iterator[SplitPiece]:
    """Yield the piece of the `number`-th shard, whose records are `start` up to `end` of the split.

    Args:
        numbers: int64 [N], ascending record numbers with repetitions, and without gaps.
    """
    within = numbers[slice(*np.searchsorted(numbers, (start, end)))] - start
    if len(within):
        first, last = int(within[0]), int(within[-1])
        yield SplitPiece(number, first, last + 1, np.bincount(within - first))


def _is_class(reading: Reading) -> bool:
    return reading.source in _CLASS_SOURCES or reading.source.startswith(CLASS_OF_ROW)


_CLASS_SOURCES = ("image.class_index", "objects.class_index", "image.tag_names")


def _class_indices(record: Mapping[str, Any], index_by_name: Mapping[bytes, int]) -> Iterator[int]:
    """Yield the class indices in a record; names, of tags for example, as their indices."""
    for value in record.values():
        for item in np.atleast_1d(value).tolist():
            if not isinstance(item, bytes):
                yield item
            elif item in index_by_name:
                yield index_by_name[item]


def _with_error_as_item(items: Iterable[Any]) -> Iterator[Any]:
    """Yield items, and an error of reading in its order: results ahead of it are not lost."""
    try:
        yield from items
    except Exception as error:
        yield error


READINGS = tuple(value.reading for value in VALUES if value.reading)


def table_readings(table: FeatureTable, feature_shape: tuple[str, ...] = ()) -> dict[str, Reading]:
    """Return the readers' values for records of `table`, by name.

    Args:
        feature_shape: Shape of an image's feature, for data sets of `embed`.
    """
    readings: dict[str, Reading] = {}
    for reading in _row_readings(table) if table.record_of is RecordOf.ROW else _known_readings(table):
        readings.setdefault(reading.name, reading)
    if "feature" in readings:
        readings["feature"] = msgspec.structs.replace(readings["feature"], shape=feature_shape)
    return readings


def _known_readings(table: FeatureTable) -> Iterator[Reading]:
    for reading in READINGS:
        if reading.source in table.sources:
            feature = next(feature for feature in table.features if feature.source == reading.source)
            alone = table.record_of is RecordOf.ANNOTATION and reading.shape[:1] == ("N",)
            shape = reading.shape[1:] if alone else reading.shape
            dtype = DTYPES[feature.kind] if reading.form is Form.AS_IT_IS else reading.dtype
            meaning = feature.meaning if feature.source == table.label and dtype == "bytes" else reading.meaning
            scale = 1.0 if feature.scale is None else feature.scale
            yield msgspec.structs.replace(reading, shape=shape, dtype=dtype, meaning=meaning, scale=scale)
    yield from field_readings(table)


def _row_readings(table: FeatureTable) -> Iterator[Reading]:
    """Yield the features of a row under their own names, and its image as `image`."""
    for feature in table.features:
        if is_image_feature(feature) and feature.source == "image.encoded":
            yield msgspec.structs.replace(READINGS[0], name=DECODED_IMAGE)
        elif is_image_feature(feature) and feature.is_packed:
            yield Reading(DECODED_IMAGE, feature.source, "uint8", feature.shape, READINGS[0].meaning, form=Form.PIXELS)
        else:
            yield Reading(feature.name, feature.source, DTYPES[feature.kind], feature.shape, feature.meaning)


def reading_lines(indent: int) -> str:
    """Return the values as lines of a docstring."""
    width = max(len(reading.name) for reading in READINGS)
    lines = (f"{'':{indent}}{reading.name:{width}}  {type_text(reading)}: {reading.meaning}" for reading in READINGS)
    return "\n".join(dict.fromkeys(lines))


def type_text(reading: Reading) -> str:
    return f"{reading.dtype} [{', '.join(reading.shape)}]" if reading.shape else reading.dtype
