"""Source of TFRecord files of other tools: the Object Detection API's, keras' recipe, TFDS's, and classification."""

import posixpath
import shlex
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

from recordmill.schemas.errors import ConfigError, RecordError
from recordmill.schemas.features import FeatureKind, Part
from recordmill.schemas.inputs.splits import USUAL_SPLITS
from recordmill.schemas.rejects import UnusableError
from recordmill.schemas.sizes import first_texts
from recordmill.transforms.annotated.naming import mask_warnings
from recordmill.transforms.annotated.source import Source, SourceFolder
from recordmill.transforms.images.load_images import encoded_size
from recordmill.transforms.records.parse_record import TypedValues
from recordmill.transforms.records.tfrecord import read_usable_records
from recordmill.transforms.storage.resolve import join_path, storage_for
from recordmill.transforms.tfrecord.find_records import TfrecordFiles, file_warnings, find_record_files
from recordmill.transforms.tfrecord.label_map import ClassNames, is_label_map, numbered_names, read_label_map
from recordmill.transforms.tfrecord.parse_records import RecordReader, RecordRules, file_split, parse_records
from recordmill.transforms.tfrecord.record_keys import (
    BOXES,
    CAPTION,
    EDGES,
    IMAGE,
    LABEL,
    TAG_LABEL,
    TAG_TEXT,
    TEXT,
    RecordKeys,
    choose_keys,
)
from recordmill.transforms.tfrecord.tfrecord_options import TfrecordOptions

_LABELS = (*EDGES, *BOXES, TAG_TEXT, TAG_LABEL, CAPTION)
_FILES, _RECORDS = 8, 8
"""Number of files, and of records of each, that show the keys."""
_SHOWN = 12


class _FirstRecord(NamedTuple):
    """A record that shows the keys.

    Attributes:
        where: File and number, for messages.
    """

    where: str
    data: bytes


def source(options: TfrecordOptions) -> Source:
    """Return the Source of TFRecord files.

    Raises:
        ConfigError: See `find_record_files`; or records have no images, or classes without names; or only some files
            name a split.
    """
    files = find_record_files(options)
    records = [record for name in _spread(files.names) for record in _first_records(files.folder, name)]
    keys = _choose_keys(records, options)
    readers = [(record, reader) for record in records if (reader := _usable_reader(record.data, keys))]
    _check_images(readers)
    if not options.allow_empty:
        _check_labels(readers, options)
    classes, label_map, warnings = _find_classes(files, readers, options)
    only_class = options.class_names[0] if len(options.class_names) == 1 else ""
    splits = _splits_of(files, options)
    has_captions = any(reader.texts(CAPTION) for _, reader in readers)
    rules = RecordRules(keys, classes, only_class, bool(splits), options.masks != "none", has_captions)
    return Source(
        path=options.data,
        kind=options.format_name(),
        folders=(SourceFolder(files.folder, has_images=False),),
        parse=partial(parse_records, rules=rules),
        is_label=frozenset(files.names).__contains__,
        categories=classes.categories if classes else None,
        splits=splits,
        check=_note_warnings,
        parts=(Part.CAPTIONS,) if has_captions else (),
        inputs=(label_map,) if label_map else (),
        warnings=(*warnings, *file_warnings(files)),
        notes=(f"names and ids of classes are those of {label_map}",) if label_map and not options.label_map else (),
        holds_images=True,
    )


def _note_warnings(notes: frozenset[str]) -> Iterator[str]:
    yield from mask_warnings(notes)
    if CAPTION in notes:
        yield (
            f"captions are not written, because the first {_RECORDS} records of the first {_FILES} files have none. "
            "Rename a file whose first record has captions, so that its name comes first"
        )


def _splits_of(files: TfrecordFiles, options: TfrecordOptions) -> tuple[str, ...]:
    """Return the splits that all files name; () if none names one.

    Raises:
        ConfigError: Only some name one.
    """
    splits = {name: file_split(name) for name in files.names}
    named = [name for name, split in splits.items() if split]
    if named and len(named) < len(splits):
        other = next(name for name, split in splits.items() if not split)
        raise ConfigError(
            f"{options.data}: {named[0]} names the split {splits[named[0]]}, and {other} none. Rename files, or choose "
            f"some by --files {shlex.quote(named[0])}"
        )
    return tuple(split for split in USUAL_SPLITS if split in splits.values())


def _spread(names: Sequence[str]) -> Sequence[str]:
    """Return at most `_FILES` names, evenly spaced."""
    step = max(1, len(names) // _FILES)
    return names[::step][:_FILES]


def _first_records(folder: str, name: str) -> Iterator[_FirstRecord]:
    """Yield the first usable records of a file. The job reports damaged ones."""
    path = join_path(folder, name)
    with storage_for(path).open(path) as stream:
        try:
            for number, (_, record) in enumerate(islice(read_usable_records(stream), _RECORDS)):
                if isinstance(record, bytes):
                    yield _FirstRecord(f"{path}, record {number}", record)
        except RecordError:
            return


def _choose_keys(records: Sequence[_FirstRecord], options: TfrecordOptions) -> RecordKeys:
    """Return the keys of records.

    Raises:
        ConfigError: They are no Examples, or have no image.
    """
    names: set[str] = set()
    images: set[str] = set()
    faults: list[str] = []
    for where, data in records:
        try:
            values = RecordReader(data, choose_keys((), options.roles)).values
            names |= values.keys()
            images |= {name for name, typed in values.items() if _is_image(typed)}
        except UnusableError as fault:
            faults.append(f"{where}: {fault.detail}. TFRecord files of images have one in each record")
    if not names and faults:
        raise ConfigError(faults[0])
    if not names and records:
        raise ConfigError(f"{options.data}: the first records are empty. TFRecord files of images have one in each")
    keys = choose_keys(names, options.roles)
    if records and not any(name in names for name in keys.names.get(IMAGE, ())):
        raise ConfigError(
            f"{options.data}: records have no key of an image, {keys.names[IMAGE][0] if keys.names[IMAGE] else IMAGE}. "
            f"Their keys are {first_texts(sorted(names), _SHOWN)}. Name the key of encoded images by --keys "
            f"{IMAGE}={min(images, default='NAME')}, and those of labels, {EDGES[0]}=NAME or {TAG_LABEL}=NAME"
        )
    return keys


def _usable_reader(data: bytes, keys: RecordKeys) -> RecordReader | None:
    """Return the reader of a record; None if it, or a value of its labels, is unusable, which the job reports."""
    try:
        reader = RecordReader(data, keys)
        _ = [reader.texts(role) for role in (TEXT, TAG_TEXT, CAPTION)]
        _ = [reader.whole_numbers(role) for role in (LABEL, TAG_LABEL)]
    except UnusableError:
        return None
    return reader


def _is_image(typed: TypedValues) -> bool:
    """Return True for an encoded image."""
    kind, values = typed
    return kind is FeatureKind.BYTES and len(values) == 1 and _is_encoded(values[0])


def _is_encoded(data: bytes) -> bool:
    """Return True for the bytes of an encoded image, also of a damaged one."""
    try:
        return bool(encoded_size(data)) or data[4:8] == b"ftyp" or data.startswith(b"BM")
    except UnusableError:
        return True


def _check_labels(readers: Sequence[tuple[_FirstRecord, RecordReader]], options: TfrecordOptions) -> None:
    """Refuse records of which none has a key of labels, or whose boxes have no class.

    Raises:
        ConfigError: See above.
    """
    names = {name for _, reader in readers for name in reader.values}
    if readers and not any(
        name in names for _, reader in readers for role in _LABELS for name in reader.names_of(role)
    ):
        raise ConfigError(
            f"{options.data}: records have no key of boxes or classes, {EDGES[0]} for example. Their keys are "
            f"{first_texts(sorted(names), _SHOWN)}. Name those of boxes by --keys {EDGES[0]}=NAME and so on, or those "
            f"of images' classes by --keys {TAG_LABEL}=NAME. If all images are background, add --allow-empty"
        )
    boxed = next((record.where for record, reader in readers if reader.has_boxes), "")
    has_classes = any(
        len(reader.values_of(role)) for _, reader in readers for role in (TEXT, LABEL, TAG_TEXT, TAG_LABEL)
    )
    if boxed and not has_classes and not options.class_names:
        raise ConfigError(f"{boxed}: objects have no class. Add --class-names object for one class of this name")


def _check_images(readers: Sequence[tuple[_FirstRecord, RecordReader]]) -> None:
    """Refuse records whose first image is pixels.

    Raises:
        ConfigError: See above.
    """
    for (where, _), reader in readers[:1]:
        name = reader.name(IMAGE)
        kind, values = reader.values.get(name, (FeatureKind.BYTES, []))
        text = f"{where}: {name} has {len(values):,} {kind.value} values"
        if kind is FeatureKind.BYTES:
            data = values[0] if len(values) == 1 else b""
            if len(values) != 1 or _is_encoded(data):
                return
            text = f"{where}: {name} has {len(data):,} bytes that begin with {data[:8]!r}"
        raise ConfigError(
            f"{text}, not an encoded image such as JPEG or PNG. Write the pixels to image files, with their labels in "
            "a format that convert reads"
        )


def _find_classes(
    files: TfrecordFiles, readers: Sequence[tuple[_FirstRecord, RecordReader]], options: TfrecordOptions
) -> tuple[ClassNames | None, str, list[str]]:
    """Return the names of classes that records give by number, None if records have the names; the file that has them,
    or ""; and a warning of a file that is not read.

    Raises:
        ConfigError: No file has the names, or several have different ones.
    """
    if options.class_names:
        return numbered_names(options.class_names), "", []
    if options.label_map:
        return read_label_map(options.label_map), options.label_map, []
    texts = {text for _, reader in readers for role in (TEXT, TAG_TEXT) for text in reader.texts(role) if text.strip()}
    roles = ((where, reader, role) for (where, _), reader in readers for role in (LABEL, TAG_LABEL))
    numbered = next((one for one in roles if one[1].whole_numbers(one[2])), None)
    needs_names = numbered is not None and not texts
    maps, warnings = _read_label_maps(files, needs_names)
    different = list({one.categories: name for name, one in reversed(maps.items())}.values())[::-1]
    if len(different) == 1:
        classes = maps[different[0]]
        if unknown := sorted(texts - classes.name_by_text.keys()):
            lack = f"{different[0]} is not read: records have the class {unknown[0]!r}, and it has not"
            return None, "", [lack, *warnings]
        return classes, join_path(files.folder, different[0]), warnings
    if needs_names and numbered:
        where, reader, role = numbered
        number = reader.whole_numbers(role)[0]
        which = f"several files have different names of classes: {first_texts(different, 3)}" if different else ""
        raise ConfigError(
            f"{where}: {reader.name(role)} has the class {number}, and {which or 'no key and no file has its name'}. "
            f"Add --label-map {posixpath.basename(different[0]) if different else 'FILE.pbtxt'}, or --class-names "
            f"cat={number},dog={number + 1} with the names and numbers of all classes"
        )
    return None, "", warnings


def _read_label_maps(files: TfrecordFiles, needs_names: bool) -> tuple[dict[str, ClassNames], list[str]]:
    """Return the classes of each label map beside the records, and warnings of those that are not usable.

    Raises:
        ConfigError: One is not usable, and records have no names of classes.
    """
    maps: dict[str, ClassNames] = {}
    warnings: list[str] = []
    for name in sorted(files.others):
        path = join_path(files.folder, name)
        try:
            maps |= {name: read_label_map(path)} if is_label_map(path) else {}
        except ConfigError as fault:
            if needs_names:
                raise
            warnings.append(f"{name} is not read: {fault}")
    return maps, warnings
