"""Convert Samples to rows of Blocks, and back."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import numpy as np
from apache_beam.coders import registry

from recordmill.schemas.block import Block, ragged_bytes, ragged_texts
from recordmill.schemas.errors import CollidingImagesError, ConfigError
from recordmill.schemas.features import FeatureKind
from recordmill.schemas.field_features import FieldColumn
from recordmill.schemas.inputs.annotations import PanopticAnnotation, StuffAnnotation
from recordmill.schemas.inputs.fields import leaf_values
from recordmill.schemas.inputs.files import NO_FILE, NOT_A_FILE, File
from recordmill.schemas.inputs.images import MAX_FILE_BYTES, TileOf
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.sample import Sample, SampleObject, SampleTile
from recordmill.schemas.names import name_fault, name_key
from recordmill.schemas.rejects import Reason, Rejected, UnusableError
from recordmill.transforms.blocks.image_tasks import file_folder, image_tasks
from recordmill.transforms.blocks.run_step import hash_in_order, image_order
from recordmill.transforms.join.sample_rows import CategoryFinder, id_of, sample_rows, usable_objects
from recordmill.transforms.runtime.beam_steps import StructCoder, unpacker
from recordmill.transforms.storage.resolve import storage_for
from recordmill.transforms.user_samples.record_options import RecordOptions

_INT64 = 1 << 63
Reject = Callable[[str, Rejected], None]


def _convert_value(value: Any) -> Any:
    """Return a NumPy value or a path as a type that msgspec encodes."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{type(value).__name__} is not a value of a Sample")


pack_sample = msgspec.msgpack.Encoder(enc_hook=_convert_value, order="deterministic").encode
unpack_sample = unpacker(Sample)


_OTHER_TYPE = (msgspec.MsgspecError, TypeError, OverflowError, UnicodeError)


def _mark_unknown(value: Any) -> Any:
    """Return a value with bytes in place of texts that are not UTF-8, and Ext, which no Sample has, in place of other
    parts that MessagePack cannot encode."""
    if isinstance(value, msgspec.Struct) and value.__struct_config__.array_like:
        return list(map(_mark_unknown, msgspec.structs.astuple(value)))
    if isinstance(value, msgspec.Struct | Mapping):
        parts = value if isinstance(value, Mapping) else msgspec.structs.asdict(value)
        if all(isinstance(_mark_unknown(name), str) for name in parts):
            return {name: _mark_unknown(part) for name, part in parts.items()}
        return msgspec.msgpack.Ext(0, b"dict with keys that are not UTF-8 texts")
    if isinstance(value, list | tuple):
        return list(map(_mark_unknown, value))
    try:
        pack_sample(value)
    except UnicodeError:
        return str(value).encode(errors="surrogatepass")
    except _OTHER_TYPE:
        return msgspec.msgpack.Ext(0, type(value).__name__.encode())
    return value


def _decode_loosely(value: Any, type_: Any) -> Any:
    """Return decoded MessagePack as its type, but for parts that have another type."""
    with suppress(msgspec.ValidationError):
        return msgspec.convert(value, type_)
    if isinstance(value, dict) and type_ in (Sample, SampleObject):
        types = {field.name: field.type for field in msgspec.structs.fields(type_)}
        with suppress(TypeError):  # an object that was a dict without some fields
            return type_(**{name: _decode_loosely(part, types.get(name)) for name, part in value.items()})
    if isinstance(value, list) and type_ == tuple[SampleObject, ...]:
        return tuple(_decode_loosely(item, SampleObject) for item in value)
    return value


class SampleCoder(StructCoder):
    """Coder of Samples. It is not deterministic, so that Beam refuses Samples as keys; `file_name` is the key."""

    def encode(self, value):
        try:
            return pack_sample(value)
        except _OTHER_TYPE:
            return pack_sample(_mark_unknown(value))

    def decode(self, encoded):
        try:
            return unpack_sample(encoded)
        except msgspec.ValidationError:  # a value has another type, which `validate_sample` rejects
            return _decode_loosely(msgspec.msgpack.decode(encoded), Sample)

    def is_deterministic(self):
        return False

    def __reduce__(self):
        return SampleCoder, (Sample,)


registry.register_coder(Sample, SampleCoder)


def validate_sample(sample: Sample) -> tuple[Sample, list[Rejected]]:
    """Return a Sample with values of its fields' types, and the rejects of annotations that have other types.

    Raises:
        UnusableError: Another value has another type, or the Sample has no name or no image.
    """
    name = getattr(sample, "file_name", sample)
    rejects: list[Rejected] = []
    try:
        try:
            checked = unpack_sample(pack_sample(sample))
        except _OTHER_TYPE:
            if not isinstance(sample, Sample):
                raise
            checked = unpack_sample(pack_sample(_without_faulty(sample, rejects)))
    except _OTHER_TYPE as error:
        raise UnusableError(Reason.MALFORMED_IMAGE, f"Sample {name!r}: {error}") from error
    if fault := name_fault(checked.file_name):
        raise UnusableError(Reason.UNSAFE_FILE_NAME, f"Sample {name!r}: its file name {fault}")
    if bool(checked.path) == bool(checked.data):
        what = "both path and data" if checked.path else "neither path nor data"
        raise UnusableError(Reason.MALFORMED_IMAGE, f"Sample {name!r} has {what}. Give one, with the image")
    if checked.path.endswith("/"):
        raise UnusableError(Reason.MALFORMED_IMAGE, f"Sample {name!r}: path {checked.path!r} is a folder")
    if checked.image_id is not None and not -_INT64 <= checked.image_id < _INT64:
        raise UnusableError(Reason.MALFORMED_IMAGE, f"Sample {name!r}: image_id {checked.image_id} is beyond 64 bits")
    sides = [side for side in (checked.width, checked.height) if side is not None]
    if len(sides) == 1 or min(sides, default=1) < 1:
        size = f"width {checked.width} and height {checked.height}"
        raise UnusableError(Reason.MALFORMED_IMAGE, f"Sample {name!r}: {size}. Give both in pixels, or neither")
    if fault := _tile_fault(checked):
        raise UnusableError(Reason.MALFORMED_IMAGE, f"Sample {name!r}: {fault}")
    if fault := _field_fault(checked.fields):
        raise UnusableError(Reason.MALFORMED_IMAGE, f"Sample {name!r}: {fault}")
    faults = [_field_fault(item.fields) for item in checked.objects]
    if any(faults):
        objects = checked.objects
        rejects += [
            _rejected(checked, item, Reason.MALFORMED_ANNOTATION, fault)
            for item, fault in zip(objects, faults, strict=True)
            if fault
        ]
        usable = tuple(item for item, fault in zip(objects, faults, strict=True) if not fault)
        checked = msgspec.structs.replace(checked, objects=usable)
    return checked, [msgspec.structs.replace(reject, image_id=id_of(checked)) for reject in rejects]


def _tile_fault(sample: Sample) -> str:
    """Return the fault of the place of a tile; empty if there is none."""
    tile = sample.tile
    if tile is None:
        return ""
    if name_fault(tile.name):
        return f"name {tile.name!r} of its tile's image {name_fault(tile.name)}"
    if not sample.width or not sample.height:
        return "it is a tile without width and height"
    right, bottom = tile.x + sample.width, tile.y + sample.height
    if min(tile.x, tile.y) < 0 or right > tile.width or bottom > tile.height:
        return (
            f"its tile, x {tile.x} to {right} and y {tile.y} to {bottom}, is not within an image of "
            f"{tile.width}x{tile.height} pixels"
        )
    return "" if _is_id(tile.id) else f"id {tile.id} of its tile's image is beyond 64 bits"


_ANNOTATIONS: dict[str, tuple[type, Reason]] = {
    "objects": (SampleObject, Reason.MALFORMED_ANNOTATION),
    "captions": (str, Reason.MALFORMED_CAPTION),
    "stuff": (StuffAnnotation, Reason.MALFORMED_ANNOTATION),
    "panoptic": (PanopticAnnotation, Reason.MALFORMED_PANOPTIC),
}

_PART = re.compile(r"\$\.(\w+)")
_REASONS = {
    "box": Reason.MALFORMED_BOX,
    "corners": Reason.MALFORMED_BOX,
    "keypoints": Reason.MALFORMED_KEYPOINTS,
    "segmentation": Reason.MALFORMED_SEGMENTATION,
}
"""Reasons by the field of an object that a message of msgspec names."""


def _without_faulty(sample: Sample, rejects: list[Rejected]) -> Sample:
    """Return a Sample without annotations whose values have other types, and append their rejects."""
    changes: dict[str, Any] = {}
    for field, (type_, reason) in _ANNOTATIONS.items():
        value = getattr(sample, field)
        is_list = isinstance(value, list | tuple)
        if is_list == (field == "panoptic") or value is None:  # the whole Sample is faulty
            continue
        usable = []
        for number, item in enumerate(value if is_list else [value]):
            try:
                usable.append(unpacker(type_)(pack_sample(item)))
            except _OTHER_TYPE as error:
                where = f"{field}[{number}]" if is_list else field
                part = _PART.search(str(error))
                own_reason = _REASONS.get(part[1], reason) if part and field == "objects" else reason
                rejects.append(_rejected(sample, item, own_reason, f"{where}: {error}"))
        changes[field] = tuple(usable) if is_list else next(iter(usable), None)
    return msgspec.structs.replace(sample, **changes)


def _rejected(sample: Sample, item: Any, reason: Reason, fault: str) -> Rejected:
    """Return the reject of an annotation of a Sample."""
    id_ = item.get("id") if isinstance(item, dict) else getattr(item, "id", None)
    return Rejected("annotation", id_ if _is_id(id_) else None, reason, f"Sample {sample.file_name!r}: {fault}")


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and -_INT64 <= value < _INT64


def _field_fault(fields: Mapping[str, Any]) -> str:
    """Return the fault of open fields; empty if there is none."""
    for path, value in leaf_values(fields):
        if not _is_field_value(value):
            type_ = bytes(value.data).decode() if isinstance(value, msgspec.msgpack.Ext) else type(value).__name__
            return f"field {path} is of {type_}. Give numbers, texts or lists of them"
    return ""


def _is_field_value(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_field_value, value))
    return value is None or isinstance(value, bool | int | float | str)


def sample_split(sample: Sample, options: RecordOptions) -> str:
    """Return the split of a Sample.

    Raises:
        ConfigError: There is no split of that name, or the Sample needs a split.
    """
    division = options.division
    if not sample.split and options.needs_splits:
        raise ConfigError(
            f"Sample {sample.file_name!r} has no split, but the data set names its splits "
            f"({', '.join(division.names)}). Set Sample.split, or give split= to WriteDataset and clear the splits of "
            "all Samples"
        )
    if not sample.split:
        return division.split_of(name_key(sample.whole_name))
    if sample.split not in division.names:
        raise ConfigError(
            f"Sample {sample.file_name!r} has split {sample.split}, which is not written (splits: "
            f"{', '.join(division.names)}). Leave split= out of WriteDataset to write the splits of ReadDataset, or "
            "name all splits of the Samples"
        )
    return sample.split


def convert_samples(
    samples: Sequence[Sample], labels: LabelMap, options: RecordOptions, reject: Reject
) -> Block | None:
    """Return checked Samples as the images of a Block, in order; None if none is usable.

    Args:
        reject: Callback with the split and the reject of each unusable image or annotation.

    Raises:
        ConfigError: See `sample_split`.
    """
    finder = CategoryFinder(labels)
    usable, files, splits, objects = [], [], [], []
    for sample in samples:
        split = sample_split(sample, options)
        try:
            file = find_sample_file(sample)
            if options.is_image_class and sample.class_name not in finder.by_name:
                what = (
                    "no class"
                    if sample.class_name is None
                    else f"class {sample.class_name!r}, which is not one of the labels"
                )
                raise UnusableError(Reason.NO_CLASS, f"Sample {sample.file_name!r} has {what}")
        except UnusableError as fault:
            rejected = Rejected("image", id_of(sample), fault.reason, fault.detail, annotations=sample.annotation_rows)
            reject(split, rejected.named(sample.file_name))
            continue
        usable.append(sample)
        files.append(file)
        splits.append(options.division.names.index(split))
        objects.append(usable_objects(sample, finder, partial(reject, split)))
    if not usable:
        return None
    block = sample_rows(usable, objects, options.is_image_class).replace(
        split=np.array(splits, np.int64),
        file_folder=ragged_texts(
            [file_folder(file.path, sample.file_name) for file, sample in zip(files, usable, strict=True)]
        ),
        file_bytes=np.array([file.size_bytes for file in files], np.int64),
        image_data=ragged_bytes([sample.data for sample in usable]) if any(sample.data for sample in usable) else None,
        file_version=ragged_texts([file.version for file in files]),
    )
    if any(sample.offset >= 0 for sample in usable):
        block = block.replace(file_offset=np.array([sample.offset for sample in usable], np.int64))
    return block.take(image_order(block, hash_in_order(block, options.seed)))


def check_distinct(samples: Iterable[Sample]) -> None:
    """Check that names and ids are unique.

    Raises:
        CollidingImagesError: Two Samples have the same name, or the same id.
    """
    names: dict[int, str] = {}
    for sample in samples:
        name, number = sample.file_name, id_of(sample)
        if (other := names.get(number)) is not None:
            what = f"name {name!r}" if other == name else f"image_id {number}, {other!r} and {name!r}"
            raise CollidingImagesError(f"two Samples have the same {what}. Give each Sample its own")
        names[number] = name


def find_sample_file(sample: Sample) -> File:
    """Return the image file of a Sample."""
    file: File | None
    if sample.data:
        file = File(sample.path, len(sample.data))
    elif sample.size_bytes is not None:
        file = File(sample.path, sample.size_bytes, sample.version)
    else:
        file = storage_for(sample.path).stat(sample.path)
    if file is None:
        raise UnusableError(Reason.IMAGE_MISSING, f"Sample {sample.file_name!r}: no file {sample.path!r}")
    if file.version == NO_FILE:
        raise UnusableError(Reason.IMAGE_INACCESSIBLE, f"Sample {sample.file_name!r}: {sample.path!r} is {NOT_A_FILE}")
    if file.size_bytes > MAX_FILE_BYTES:
        detail = f"Sample {sample.file_name!r}: {file.size_bytes:,} bytes; the limit is {MAX_FILE_BYTES:,}"
        raise UnusableError(Reason.TOO_LARGE, detail)
    return file


def convert_block(
    block: Block, labels: LabelMap, splits: Sequence[str], fields: Iterable[FieldColumn] = ()
) -> Iterator[Sample]:
    """Yield the images of a complete Block as Samples.

    Args:
        fields: Open fields of records. Texts of CSV become their numbers.
    """
    numeric = {field.path: field.kind for field in fields if field.axis == "image" and field.kind in _NUMBERS}
    names = {category.id: category.name for category in labels.categories}
    for task, text in zip(image_tasks(block, splits), block.list_rows("image_fields"), strict=True):
        labels_ = task.labels
        objects = [
            SampleObject(
                names[annotation.category_id],
                annotation.bbox_xywh_px,
                keypoints=annotation.keypoints_xyv,
                segmentation=annotation.segmentation.decode(),
                is_crowd=annotation.is_crowd,
                area_px2=annotation.area_px2,
                category_id=annotation.category_id,
                id=annotation.id,
                frame="fraction" if annotation.in_fractions else "px",
                corners=annotation.corners_px,
                fields=_decode_fields(annotation.fields),
            )
            for annotation in task.annotations
        ]
        yield Sample(
            task.file_name,
            task.ref.path,
            task.ref.data,
            task.width,
            task.height,
            tuple(objects),
            labels_.class_name,
            tuple(caption.caption for caption in labels_.captions),
            task.split,
            task.image_id,
            labels_.regions,
            next(iter(labels_.panoptic), None),
            labels_.neg_category_ids,
            labels_.not_exhaustive_category_ids,
            task.ref.size_bytes,
            task.ref.version,
            labels_.tags,
            {path: _number(value, numeric.get(path)) for path, value in _decode_fields(text).items()},
            sample_tile(task.tile) if task.tile else None,
            task.ignores_exif,
            task.ref.offset,
        )


def sample_tile(tile: TileOf) -> SampleTile:
    """Return the place of a Sample that is a tile."""
    size = tile.whole_width, tile.whole_height
    return SampleTile(tile.x, tile.y, *size, tile.whole_name, tile.whole_id, tile.is_measured)


_NUMBERS: dict[FeatureKind, Callable[[str], Any]] = {FeatureKind.INT64: int, FeatureKind.FLOAT: float}
_BOOLS = {"true": True, "false": False}


def _number(value: Any, kind: FeatureKind | None) -> Any:
    """Return the value that a text stands for in a field of numbers."""
    if not isinstance(value, str) or kind is None:
        return value
    with suppress(ValueError):
        return _BOOLS[value.lower()] if value.lower() in _BOOLS else _NUMBERS[kind](value)
    return value


def _decode_fields(text: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.json.decode(text) if text else {}
    return fields
