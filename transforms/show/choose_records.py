"""Choose records by number, by id, or by content."""

import difflib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from recordmill.schemas.containers import TFRECORD
from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.errors import ConfigError, RecordError
from recordmill.schemas.features import ColumnType, FeatureKind, FeatureTable
from recordmill.schemas.field_features import field_keys
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.rejects import UnusableError
from recordmill.schemas.sizes import number_text
from recordmill.transforms.containers.container import Contents, container_of
from recordmill.transforms.containers.tfrecord import open_records
from recordmill.transforms.dataset.record_view import RecordView
from recordmill.transforms.images.load_images import encoded_size
from recordmill.transforms.insight.overlay import OverlayReader, decode_text
from recordmill.transforms.records.example import varint
from recordmill.transforms.records.parse_record import (
    TypedValues,
    Values,
    convert_to_layout_types,
    first_line,
    parse_record,
)
from recordmill.transforms.records.tfrecord import framed_size
from recordmill.transforms.show.describe_values import HEX_SHOWN, Meanings, decode_if_text, list_meanings, read_terms
from recordmill.transforms.show.find_shards import RecordFeatures, Shard, Shards, recognise_features, values_by_source
from recordmill.transforms.storage.resolve import storage_for

CATEGORY = "category"
_EXAMPLES_NAMED = 5
_IDS = ("image.id", "image.number", "image.file_name")


class Record(NamedTuple):
    """Record with its position.

    Attributes:
        number: Number within the shard, from 0.
        offset: Start of the record in the file, in bytes after decompression; None without byte ranges.
        features: Features, unchanged.
        lists: Feature lists of a SequenceExample.
        values: Known values, by source.
        overlay: Reader of the record's overlay.
        meanings: Meanings of the record's integers.
    """

    shard: Shard
    number: int
    offset: int | None
    features: RecordFeatures
    lists: dict[str, list[TypedValues | None]]
    table: FeatureTable
    values: dict[str, Any]
    overlay: OverlayReader
    meanings: Meanings

    @property
    def classes(self) -> set[str]:
        """Names of the classes in the record. Maps are decoded to find theirs."""
        return self.overlay.classes(self.view())

    def view(self, size: tuple[int, int] = (0, 0)) -> RecordView:
        """Return the record's RecordView; `size` is that of `RecordView`."""
        return RecordView(self.values, size)

    @property
    def ids(self) -> list[str]:
        """Image id and file name, if the record has them."""
        texts = (_format_values(self.values.get(source)) for source in _IDS)
        return list(dict.fromkeys(text for values in texts for text in values if text))


class Choice(NamedTuple):
    """Selection of records: by id; by a value of a feature, or of `category`; or all.

    Attributes:
        first: First record, counted from 0 over all shards.
    """

    id: str = ""
    first: int | None = None
    feature: str = ""
    value: str = ""


def choose_records(shards: Shards, choice: Choice, count: int, read: Callable[[int], None]) -> Iterator[Record]:
    """Yield the first `count` records of a selection.

    Args:
        read: Callback with the number of records read.

    Raises:
        ConfigError: No record matches. The message lists the existing ids, classes or features.
        RecordError: A file is damaged. Earlier records have been yielded.
    """
    if shards.manifest and choice.feature == CATEGORY:
        _check_class_name(choice.value, shards.manifest)
    filter_ = _Filter(choice, read)
    yielded = 0
    for record in _parse_records(shards, choice.first or 0, filter_.may_match):
        if filter_.matches(record):
            yield record
            yielded += 1
            if yielded == count:
                return
    if not yielded:
        raise ConfigError(filter_.describe_miss(shards))


def _check_class_name(name: str, manifest: Manifest) -> None:
    """Raise ConfigError if the data set has no class of that name, before any record is read."""
    names = {category.name for category in manifest.labels.all}
    if name not in names and CATEGORY not in {feature.name for feature in manifest.features}:
        nearest = _describe_nearest(name, names, "class", "classes")
        raise ConfigError(f"--find {CATEGORY}={name}: the data set has no such class; {nearest}")


def _parse_records(shards: Shards, first: int, may_match: Callable[[bytes], bool]) -> Iterator[Record]:
    """Yield the records from the `first` on that may match, parsed. Shards with a known number of records are skipped
    without a read.

    Raises:
        ConfigError: There are no records so far.
    """
    parse = _Parser(shards)
    before = first  # number of records to skip
    is_reached = not first
    for shard in shards.shards:
        if shard.records is not None and before >= shard.records:
            before -= shard.records
            continue
        number = -1
        for number, (data, offset) in enumerate(_read_records(shard, shards.manifest)):
            if number >= before:
                is_reached = True
                if may_match(data):
                    yield parse(shard, number, offset, data)
        if shard.records not in (None, number + 1):
            raise RecordError(
                f"{shard.path} has {number + 1:,} records, not {shard.records:,} as written; recordmill verify lists "
                "all faults"
            )
        before = max(0, before - number - 1)
    if not is_reached:
        total = first - before
        raise ConfigError(f"--index {first}: there are only {total:,} records, counted from 0")


def _read_records(shard: Shard, manifest: Manifest | None) -> Iterator[tuple[bytes, int | None]]:
    """Yield the records of a shard with their offsets. Files without a manifest are TFRecord files."""
    if manifest is None or manifest.container == TFRECORD:
        offset = 0
        for data in open_records(shard.path, is_shard=shard.records is not None):
            yield data, offset
            offset += framed_size(len(data))
        return
    file = container_of(manifest.container).open(shard.path, Contents(manifest.table, manifest.labels), None)
    for data in file.in_order():
        yield data, None


_WITHOUT_FEATURES = b"\n\0"
"""An Example whose Features are empty, as TensorFlow writes it."""
_Layout = tuple[FeatureTable, OverlayReader, Meanings]


class _Parser:
    """Parser of records. The layout is that of the manifest, or of the first record with the same features."""

    def __init__(self, shards: Shards):
        self._shards = shards
        self._terms: dict[str, Sequence[str]] = read_terms(shards.folder, shards.manifest) if shards.manifest else {}
        self._known: dict[frozenset[tuple[str, FeatureKind]], _Layout] = {}

    def __call__(self, shard: Shard, number: int, offset: int | None, data: bytes) -> Record:
        where = f"{shard.path}: record {number}" + ("" if offset is None else f" at byte {offset:,}")
        try:
            features, lists = parse_record(data)
        except DecodeError as error:
            raise RecordError(f"{where} is not a tf.train.Example ({first_line(error)})") from error
        if data not in (b"", _WITHOUT_FEATURES) and not features and not lists:
            raise RecordError(f"{where} is not a tf.train.Example: its {len(data):,} bytes contain no feature")
        table, reader, known = self._layout(features)
        values = values_by_source(features, table)
        if manifest := self._shards.manifest:
            values = convert_to_layout_types(values, table, manifest.labels)
        return Record(shard, number, offset, features, lists, table, values, reader, known)

    def _layout(self, features: RecordFeatures) -> _Layout:
        names = frozenset((name, kind) for name, (kind, _) in features.items())
        if names not in self._known:
            manifest = self._shards.manifest
            table = manifest.table if manifest else recognise_features(features)
            labels = manifest.labels if manifest else self._labels(table)
            known = list_meanings(table, labels) | self._terms
            known |= {name: class_names for name in features if (class_names := self._class_names(name))}
            self._known[names] = table, OverlayReader(labels, table), known
        return self._known[names]

    def _class_names(self, feature: str) -> Sequence[str]:
        """Return class names of a feature from TFDS's files next to the shards."""
        return self._shards.class_names.get(feature.replace("/", "-"), ())

    def _labels(self, table: FeatureTable) -> LabelMap:
        """Return the classes of records without a manifest; empty if no file names them."""
        names_by_source = {feature.source: self._class_names(feature.name) for feature in table.features}
        names = names_by_source.get("objects.class_index") or names_by_source.get("image.class_index") or ()
        return LabelMap(tuple(Category(index, name) for index, name in enumerate(names)))


class _Filter:
    """Filter of records by a choice. It remembers other ids, names and features for the error."""

    def __init__(self, choice: Choice, read: Callable[[int], None]):
        self._choice = choice
        self._read = read
        self._records = 0
        self._forms = _id_encodings(choice.id)
        self._ids: list[str] = []
        self._names: set[str] = set()
        self._features: set[str] = set()

    def may_match(self, data: bytes) -> bool:
        """Return True if an unparsed record may match. Parsing is slower than a search for the id. The first records
        always match, so that the error can list ids."""
        self._read(self._records)
        self._records += 1
        return not self._forms or self._records <= _EXAMPLES_NAMED or any(form in data for form in self._forms)

    def matches(self, record: Record) -> bool:
        choice = self._choice
        if choice.id:
            self._ids += record.ids[:1] if len(self._ids) < _EXAMPLES_NAMED else []
            return choice.id in record.ids
        if choice.feature == CATEGORY and CATEGORY not in record.features:
            classes = record.classes
            self._names.update(classes)
            return choice.value in classes
        if choice.feature:
            keys = field_keys(record.table)
            self._features.update(record.features, record.lists, keys)
            name = keys.get(choice.feature, choice.feature)
            parts = [part for part in (record.features.get(name), *record.lists.get(name, ())) if part]
            spellings = _spellings(choice.value, record.table, name)
            return any(not spellings.isdisjoint(_format_values(values)) for _, values in parts)
        return True

    def describe_miss(self, shards: Shards) -> str:
        """Return the error for a choice without records."""
        choice = self._choice
        searched = f"none of {number_text(self._records, 'record')} in {number_text(len(shards.shards), 'file')} has"
        if choice.id:
            examples = f"Examples of ids: {', '.join(self._ids)}." if self._ids else "The records have no ids."
            return f"--id {choice.id!r}: {searched} this id. {examples}"
        if choice.feature:
            flag = f"--find {choice.feature}={choice.value}"
            if choice.feature in self._features:
                return f"{flag}: {searched} this value"
            if choice.feature == CATEGORY:
                return (
                    f"{flag}: {searched} this class; {_describe_nearest(choice.value, self._names, 'class', 'classes')}"
                )
            names = {*self._features, CATEGORY}
            return f"{flag}: {searched} this feature; {_describe_nearest(choice.feature, names, 'feature', 'features')}"
        return f"no records in {', '.join(shard.path for shard in shards.shards[:_EXAMPLES_NAMED])}"


def _id_encodings(id_: str) -> list[bytes]:
    """Return the bytes of an id in a serialised record: as a text, or as a number."""
    try:
        return [id_.encode(), varint(int(id_))] if id_ else []
    except (ValueError, OverflowError):
        return [id_.encode()]


def _describe_nearest(word: str, names: set[str], noun: str, plural: str) -> str:
    if near := difflib.get_close_matches(word, sorted(names), 1, 0.5):
        return f"the nearest {noun} is {near[0]}"
    if not names:
        return f"there are no {plural}"
    examples = ", ".join(sorted(names)[:_EXAMPLES_NAMED])
    return f"known {plural} ({len(names):,}): {examples}{' …' if len(names) > _EXAMPLES_NAMED else ''}"


def _format_values(values: Any) -> Sequence[str]:
    """Return values as a person types them."""
    if isinstance(values, bytes | list):
        return list(map(decode_text, [values] if isinstance(values, bytes) else values))
    return [] if values is None else list(map(str, values.ravel()))


_BOOLEANS = {"true": "1", "false": "0"}


def _spellings(value: str, table: FeatureTable, key: str) -> set[str]:
    """Return a value as `_format_values` may return it: also that of a boolean, and of a float with other digits."""
    kinds = {feature.name: (feature.kind, feature.column_type) for feature in table.features}
    kind, column_type = kinds.get(key, (None, None))
    spellings = {value}
    if column_type is ColumnType.BOOL:
        spellings.add(_BOOLEANS.get(value.lower(), value))
    elif kind is FeatureKind.FLOAT:
        with suppress(ValueError):
            spellings.add(str(np.float32(value)))
    return spellings


def json_document(path: str, shards: Shards, records: Sequence[Record]) -> dict[str, Any]:
    """Return everything that `show` prints, as values of strict JSON."""
    return {
        "path": path,
        "data_set": _json_data_set(shards.manifest) if shards.manifest else None,
        "files": [
            {
                "path": shard.path,
                "split": shard.split or None,
                "bytes": storage_for(shard.path).size(shard.path),
                "records": shard.records,
            }
            for shard in shards.shards
        ],
        "records": [_json_record(record) for record in records],
    }


def _json_data_set(manifest: Manifest) -> dict[str, Any]:
    return {
        "name": manifest.name,
        "layout": manifest.layout,
        "parts": [part.value for part in manifest.parts],
        "classes": [category.name for category in manifest.categories],
        "splits": {
            name: {
                "records": split.examples,
                "images": split.images.written,
                **({"tiles": split.images.tiles} if split.images.tiles else {}),
                "annotations": split.annotations.in_records,
                "shards": len(split.shards),
                "bytes": split.bytes,
                "class_counts": split.class_counts,
                "rejected": {"images": split.images.rejected, "annotations": split.annotations.rejected},
            }
            for name, split in manifest.splits.items()
        },
    }


def _json_record(record: Record) -> dict[str, Any]:
    return {
        "file": record.shard.path,
        "split": record.shard.split or None,
        "record": record.number,
        "offset": record.offset,
        "layout": record.table.layout,
        "ids": record.ids,
        "classes": sorted(record.classes),
        "features": {
            name: {"type": kind.value, "values": list(json_values(values))}
            for name, (kind, values) in sorted(record.features.items())
        },
        "feature_lists": {
            name: [step and {"type": step[0].value, "values": list(json_values(step[1]))} for step in steps]
            for name, steps in sorted(record.lists.items())
        },
    }


def json_values(values: Values) -> Iterator[Any]:
    """Yield values of strict JSON: a text; an object for bytes that are not text; the fewest decimals that give the
    same float32; the Python name of a float that JSON lacks.

    >>> list(json_values(np.array([0.1, np.nan], np.float32)))
    [0.1, 'nan']
    """
    if isinstance(values, list):
        yield from map(_json_bytes, values)
    elif values.dtype == np.int64:
        yield from values.tolist()
    else:
        yield from (float(text) if math.isfinite(float(text)) else text for text in map(str, values))


def _json_bytes(value: bytes) -> str | dict[str, Any]:
    try:
        header = encoded_size(value)
    except UnusableError as fault:
        return {"bytes": len(value), "fault": fault.detail}
    if header:
        format_, width, height = header
        return {"bytes": len(value), "format": format_, "width": width, "height": height}
    text = decode_if_text(value)
    return {"bytes": len(value), "start": value[:HEX_SHOWN].hex()} if text is None else text
