"""The records that are asked for: by number, by id, by what is in them."""

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
from recordmill.transforms.images.load_images import picture_size
from recordmill.transforms.insight.overlay import OverlayReader, shown_text
from recordmill.transforms.records.example import varint
from recordmill.transforms.records.parse_record import TypedValues, Values, as_meant, first_line, parse_record
from recordmill.transforms.records.record_file import open_records
from recordmill.transforms.records.tfrecord import framed
from recordmill.transforms.show.describe_values import HEX_SHOWN, Meanings, meanings, terms, text_of
from recordmill.transforms.show.find_shards import Found, Shard, Shards, recognise, values_by_source
from recordmill.transforms.storage.resolve import storage_for

CATEGORY = "category"
_NAMED = 5
_IDS = ("image.id", "image.number", "image.file_name")


class Record(NamedTuple):
    """Record with its position.

    Attributes:
        number: within its shard, from 0.
        offset: where it begins in the file, or in what the file unpacks to.
        found: its features, unchanged.
        lists: feature lists of a SequenceExample.
        values: what is known of them, by source.
        overlay: reads what is drawn of it.
        meanings: what its integers stand for.
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
        """The names of the classes in it; those of maps are decoded for it."""
        return self.overlay.classes(self.view())

    def view(self, size: tuple[int, int] = (0, 0)) -> RecordView:
        """See `RecordView`."""
        return RecordView(self.values, size)

    @property
    def ids(self) -> list[str]:
        """The image's id and file name, as far as the record has them."""
        texts = (_texts(self.values.get(source)) for source in _IDS)
        return list(dict.fromkeys(text for each in texts for text in each if text))


class Choice(NamedTuple):
    """Selection of records: by id; by a value of a feature, or of `category`; or all.

    Attributes:
        first: where to begin, counted from 0 over all shards.
    """

    id: str = ""
    first: int | None = None
    feature: str = ""
    value: str = ""


def choose_records(shards: Shards, choice: Choice, count: int, read: Callable[[int], None]) -> Iterator[Record]:
    """Yield the first `count` records of a selection.

    Args:
        read: is called with the number of records read.

    Raises:
        ConfigError: there is none; the message says what there is.
        RecordError: a file is damaged; what comes before has been given.
    """
    if shards.manifest and choice.feature == CATEGORY:
        _check_class(choice.value, shards.manifest)
    seen = _Seen(choice, read)
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
    """Raise ConfigError where a data set has no class of that name, before any record is read."""
    names = {category.name for category in manifest.labels.all}
    if name not in names and CATEGORY not in {feature.name for feature in manifest.features}:
        raise ConfigError(f"--find {CATEGORY}={name}: the data set has no such class; {_nearest(name, names, 'class')}")


def _records(shards: Shards, first: int, may_match: Callable[[bytes], bool]) -> Iterator[Record]:
    """Records from the `first` on, parsed where they may match. Shards whose numbers of records are known are passed
    over unread.

    Raises:
        ConfigError: there are none so far.
    """
    parse = _Parser(shards)
    before = first  # of the records that are left
    is_reached = not first
    for shard in shards.shards:
        if shard.records is not None and before >= shard.records:
            before -= shard.records
            continue
        offset, number = 0, -1
        for number, data in enumerate(open_records(shard.path)):
            if number >= before:
                is_reached = True
                if may_match(data):
                    yield parse(shard, number, offset, data)
            offset += framed(len(data))
        if shard.records not in (None, number + 1):
            found = f"it has {number + 1:,} records, where {shard.records:,} were written"
            raise RecordError(f"{shard.path}: {found}; recordmill verify tells all that is wrong")
        before = max(0, before - number - 1)
    if not is_reached:
        total = first - before
        raise ConfigError(f"--index {first}: records are counted from 0, and there are {total:,} of them")


_Layout = tuple[FeatureTable, OverlayReader, Meanings]


class _Parser:
    """Parses records; their layout is the manifest's, or that of the first record that has the same features."""

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
        if data and not found and not lists:
            raise RecordError(f"{where} is no tf.train.Example: of its {len(data):,} bytes none is a feature's")
        table, reader, known = self._layout(found)
        values = values_by_source(found, table)
        if manifest := self._shards.manifest:
            values = as_meant(values, table, manifest.labels)
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
        """Names that TFDS has beside the files, for any feature."""
        return self._shards.class_names.get(feature.replace("/", "-"), ())

    def _labels(self, table: FeatureTable) -> LabelMap:
        """The classes of objects, or of images, of somebody else's records; none where no file names them."""
        of_source = {feature.source: self._class_names(feature.name) for feature in table.features}
        names = of_source.get("objects.class_index") or of_source.get("image.class_index") or ()
        return LabelMap(tuple(Category(index, name) for index, name in enumerate(names)))


class _Seen:
    """Holds records against a choice, and remembers what there was instead."""

    def __init__(self, choice: Choice, read: Callable[[int], None]):
        self._choice = choice
        self._read = read
        self._records = 0
        self._forms = _forms_of_id(choice.id)
        self._ids: list[str] = []
        self._names: set[str] = set()
        self._features: set[str] = set()

    def may_match(self, data: bytes) -> bool:
        """Whether a record that is not parsed yet may be one that is asked for; parsing takes longer than looking for
        an id. The first ones are, so that it can be said what ids are like."""
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
        """Why no record was found."""
        choice = self._choice
        of = f"none of {self._records:,} records in {len(shards.shards):,} files"
        if choice.id:
            like = f"; ids are such as {', '.join(self._ids)}" if self._ids else ", and none has an id"
            return f"--id {choice.id!r}: {of} has it{like}"
        if choice.feature:
            found = f"--find {choice.feature}={choice.value}: {of} has"
            if choice.feature in self._features:
                return f"{found} that value"
            if choice.feature == CATEGORY:
                return f"{found} it; {_nearest(choice.value, self._names, 'class')}"
            return f"{found} that feature; {_nearest(choice.feature, {*self._features, CATEGORY}, 'feature')}"
        return f"there is no record in {', '.join(shard.path for shard in shards.shards[:_NAMED])}"


def _forms_of_id(id_: str) -> list[bytes]:
    """How an id may stand in a serialised record: as a text, or as a number."""
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
    """Values as a person types them."""
    if isinstance(values, bytes | list):
        return list(map(shown_text, [values] if isinstance(values, bytes) else values))
    return [] if values is None else list(map(str, values.ravel()))


def json_document(path: str, shards: Shards, records: Sequence[Record]) -> dict[str, Any]:
    """All that is shown, of values that strict JSON has."""
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
    """Values as strict JSON has them: a text; an object for bytes that are none; of floats the fewest decimals that are
    the same float32, and for those that JSON lacks their names in Python.

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
        picture = picture_size(value)
    except UnusableError as fault:
        return {"bytes": len(value), "fault": fault.detail}
    if picture:
        format_, width, height = picture
        return {"bytes": len(value), "format": format_, "width": width, "height": height}
    text = text_of(value)
    return {"bytes": len(value), "start": value[:HEX_SHOWN].hex()} if text is None else text
