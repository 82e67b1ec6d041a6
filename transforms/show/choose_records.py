"""Choose records by number, by id, or by content."""

import difflib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.errors import ConfigError, RecordError
from recordmill.schemas.features import FeatureKind, FeatureTable
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.rejects import UnusableError
from recordmill.transforms.dataset.record_view import RecordView
from recordmill.transforms.images.load_images import encoded_size
from recordmill.transforms.insight.overlay import OverlayReader, shown_text
from recordmill.transforms.records.example import varint
from recordmill.transforms.records.parse_record import (
    TypedValues,
    Values,
    convert_to_layout_types,
    first_line,
    parse_record,
)
from recordmill.transforms.records.record_file import open_records
from recordmill.transforms.records.tfrecord import framed_size
from recordmill.transforms.show.describe_values import HEX_SHOWN, Meanings, meanings, terms, text_of
from recordmill.transforms.show.find_shards import Found, Shard, Shards, recognise, values_by_source
from recordmill.transforms.storage.resolve import storage_for

CATEGORY = "category"
_NAMED = 5
_IDS = ("image.id", "image.number", "image.file_name")


class Record(NamedTuple):
    """Record with its position.

    Attributes:
        number: Number within the shard, from 0.
        offset: Start of the record in the file, in bytes after decompression.
        found: Features, unchanged.
        lists: Feature lists of a SequenceExample.
        values: Known values, by source.
        overlay: Reader of the record's overlay.
        meanings: Meanings of the record's integers.
    """

    shard: Shard
    number: int
    offset: int
    found: Found
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
        texts = (_texts(self.values.get(source)) for source in _IDS)
        return list(dict.fromkeys(text for each in texts for text in each if text))


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
        ConfigError: There is no such record. The message lists what there is.
        RecordError: A file is damaged. Earlier records have been yielded.
    """
    if shards.manifest and choice.feature == CATEGORY:
        _check_class(choice.value, shards.manifest)
    seen = _Filter(choice, read)
    given = 0
    for record in _records(shards, choice.first or 0, seen.may_match):
        if seen.matches(record):
            yield record
            given += 1
            if given == count:
                return
    if not given:
        raise ConfigError(seen.nothing(shards))


def _check_class(name: str, manifest: Manifest) -> None:
    """Raise ConfigError if the data set has no class of that name, before any record is read."""
    names = {category.name for category in manifest.labels.all}
    if name not in names and CATEGORY not in {feature.name for feature in manifest.features}:
        raise ConfigError(f"--find {CATEGORY}={name}: the data set has no such class; {_nearest(name, names, 'class')}")


def _records(shards: Shards, first: int, may_match: Callable[[bytes], bool]) -> Iterator[Record]:
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
        offset, number = 0, -1
        for number, data in enumerate(open_records(shard.path, is_shard=shard.records is not None)):
            if number >= before:
                is_reached = True
                if may_match(data):
                    yield parse(shard, number, offset, data)
            offset += framed_size(len(data))
        if shard.records not in (None, number + 1):
            found = f"it has {number + 1:,} records, where {shard.records:,} were written"
            raise RecordError(f"{shard.path}: {found}; recordmill verify tells all that is wrong")
        before = max(0, before - number - 1)
    if not is_reached:
        total = first - before
        raise ConfigError(f"--index {first}: records are counted from 0, and there are {total:,} of them")


_WITHOUT_FEATURES = b"\n\0"
"""An Example whose Features are empty, as TensorFlow writes it."""
_Layout = tuple[FeatureTable, OverlayReader, Meanings]


class _Parser:
    """Parser of records. The layout is that of the manifest, or of the first record with the same features."""

    def __init__(self, shards: Shards):
        self._shards = shards
        self._terms: dict[str, Sequence[str]] = terms(shards.folder, shards.manifest) if shards.manifest else {}
        self._known: dict[frozenset[tuple[str, FeatureKind]], _Layout] = {}

    def __call__(self, shard: Shard, number: int, offset: int, data: bytes) -> Record:
        where = f"{shard.path}: record {number} at byte {offset:,}"
        try:
            found, lists = parse_record(data)
        except DecodeError as error:
            raise RecordError(f"{where} is no tf.train.Example ({first_line(error)})") from error
        if data not in (b"", _WITHOUT_FEATURES) and not found and not lists:
            raise RecordError(f"{where} is no tf.train.Example: of its {len(data):,} bytes none is a feature's")
        table, reader, known = self._layout(found)
        values = values_by_source(found, table)
        if manifest := self._shards.manifest:
            values = convert_to_layout_types(values, table, manifest.labels)
        return Record(shard, number, offset, found, lists, table, values, reader, known)

    def _layout(self, found: Found) -> _Layout:
        names = frozenset((name, kind) for name, (kind, _) in found.items())
        if names not in self._known:
            manifest = self._shards.manifest
            table = manifest.table if manifest else recognise(found)
            labels = manifest.labels if manifest else self._labels(table)
            known = meanings(table, labels) | self._terms
            known |= {name: of_tfds for name in found if (of_tfds := self._class_names(name))}
            self._known[names] = table, OverlayReader(labels, table), known
        return self._known[names]

    def _class_names(self, feature: str) -> Sequence[str]:
        """Return class names of a feature from TFDS's files next to the shards."""
        return self._shards.class_names.get(feature.replace("/", "-"), ())

    def _labels(self, table: FeatureTable) -> LabelMap:
        """Return the classes of records without a manifest; empty if no file names them."""
        of_source = {feature.source: self._class_names(feature.name) for feature in table.features}
        names = of_source.get("objects.class_index") or of_source.get("image.class_index") or ()
        return LabelMap(tuple(Category(index, name) for index, name in enumerate(names)))


class _Filter:
    """Filter of records by a choice. It remembers other ids, names and features for the error."""

    def __init__(self, choice: Choice, read: Callable[[int], None]):
        self._choice = choice
        self._read = read
        self._records = 0
        self._forms = _forms_of_id(choice.id)
        self._ids: list[str] = []
        self._names: set[str] = set()
        self._features: set[str] = set()

    def may_match(self, data: bytes) -> bool:
        """Return True if an unparsed record may match. Parsing is slower than a search for the id. The first records
        always match, so that the error can list ids."""
        self._read(self._records)
        self._records += 1
        return not self._forms or self._records <= _NAMED or any(form in data for form in self._forms)

    def matches(self, record: Record) -> bool:
        choice = self._choice
        if choice.id:
            self._ids += record.ids[:1] if len(self._ids) < _NAMED else []
            return choice.id in record.ids
        if choice.feature == CATEGORY and CATEGORY not in record.found:
            classes = record.classes
            self._names.update(classes)
            return choice.value in classes
        if choice.feature:
            self._features.update(record.found, record.lists)
            parts = [record.found.get(choice.feature), *record.lists.get(choice.feature, ())]
            return any(choice.value in _texts(part[1]) for part in parts if part)
        return True

    def nothing(self, shards: Shards) -> str:
        """Return the error for a choice without records."""
        choice = self._choice
        searched = f"none of {self._records:,} records in {len(shards.shards):,} files"
        if choice.id:
            like = f"; ids are such as {', '.join(self._ids)}" if self._ids else ", and none has an id"
            return f"--id {choice.id!r}: {searched} has it{like}"
        if choice.feature:
            found = f"--find {choice.feature}={choice.value}: {searched} has"
            if choice.feature in self._features:
                return f"{found} that value"
            if choice.feature == CATEGORY:
                return f"{found} it; {_nearest(choice.value, self._names, 'class')}"
            return f"{found} that feature; {_nearest(choice.feature, {*self._features, CATEGORY}, 'feature')}"
        return f"there is no record in {', '.join(shard.path for shard in shards.shards[:_NAMED])}"


def _forms_of_id(id_: str) -> list[bytes]:
    """Return the bytes of an id in a serialised record: as a text, or as a number."""
    try:
        return [id_.encode(), varint(int(id_))] if id_ else []
    except (ValueError, OverflowError):
        return [id_.encode()]


def _nearest(word: str, names: set[str], what: str) -> str:
    if near := difflib.get_close_matches(word, sorted(names), 1, 0.5):
        return f"the nearest {what} is {near[0]}"
    if not names:
        return f"there is no {what}"
    return f"there are {len(names):,}: {', '.join(sorted(names)[:_NAMED])}{' …' if len(names) > _NAMED else ''}"


def _texts(values: Any) -> Sequence[str]:
    """Return values as a person types them."""
    if isinstance(values, bytes | list):
        return list(map(shown_text, [values] if isinstance(values, bytes) else values))
    return [] if values is None else list(map(str, values.ravel()))


def json_document(path: str, shards: Shards, records: Sequence[Record]) -> dict[str, Any]:
    """Return everything that `show` prints, as values of strict JSON."""
    return {
        "path": path,
        "data_set": _data_set(shards.manifest) if shards.manifest else None,
        "files": [
            {
                "path": shard.path,
                "split": shard.split or None,
                "bytes": storage_for(shard.path).size(shard.path),
                "records": shard.records,
            }
            for shard in shards.shards
        ],
        "records": [_record(record) for record in records],
    }


def _data_set(manifest: Manifest) -> dict[str, Any]:
    return {
        "name": manifest.name,
        "layout": manifest.layout,
        "parts": [part.value for part in manifest.parts],
        "classes": [category.name for category in manifest.categories],
        "splits": {
            name: {
                "records": split.examples,
                "images": split.images.written,
                "annotations": split.annotations.in_records,
                "shards": len(split.shards),
                "bytes": split.bytes,
                "class_counts": split.class_counts,
                "rejected": {"images": split.images.rejected, "annotations": split.annotations.rejected},
            }
            for name, split in manifest.splits.items()
        },
    }


def _record(record: Record) -> dict[str, Any]:
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
            for name, (kind, values) in sorted(record.found.items())
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
        yield from map(_bytes, values)
    elif values.dtype == np.int64:
        yield from values.tolist()
    else:
        yield from (float(text) if math.isfinite(float(text)) else text for text in map(str, values))


def _bytes(value: bytes) -> str | dict[str, Any]:
    try:
        picture = encoded_size(value)
    except UnusableError as fault:
        return {"bytes": len(value), "fault": fault.detail}
    if picture:
        format_, width, height = picture
        return {"bytes": len(value), "format": format_, "width": width, "height": height}
    text = text_of(value)
    return {"bytes": len(value), "start": value[:HEX_SHOWN].hex()} if text is None else text
