"""Options that each transform of `recordmill.beam` accepts."""

from collections.abc import Mapping
from copy import copy
from functools import cache

from recordmill.pipelines.choose_format import convert_fields
from recordmill.pipelines.formats import formats
from recordmill.schemas.inputs.option import (
    ARGUMENT,
    READ,
    OptionField,
    by_heading,
    merge_fields,
    option_fields,
)
from recordmill.transforms.user_samples.record_options import PARTS, RecordOptions

ROWS_FORMAT = "table"
"""Format of rows, which are not Samples."""
TRANSFORMS = ("ReadDataset", "Encode", "WriteDataset")


class WriteOptions(RecordOptions):
    """Options of the records of Samples. Messages name keywords of all transforms instead of flags."""

    @property
    def keywords(self) -> Mapping[str, str]:
        return keyword_types()


_SPLITS = ("split", "split_seed", "split_by", "stratify", "group_from", "groups")
_SKIPS = ("no_crowd", "min_area", "exclude", "exclude_kinds", "limit", "max_per_class")
_CHOICE = ("masks", "fields", "classes", "categories", "ignore_labels", *_SKIPS)
_RECORDS = ("layout", "rename", "label_as", "dtype", "masks", *PARTS, "boxes", "fields")
_IMAGES = ("check", "image_format", "max_side", "jpeg_quality", "workers")
_NOT_WRITTEN = {"images", "dry_run", "part"}


@cache
def transform_fields(transform: str) -> tuple[OptionField, ...]:
    """Return the options of a transform."""
    if transform == "ReadDataset":
        return _read_fields()
    fields = option_fields(WriteOptions)
    if transform == "Encode":
        return tuple(field for field in fields if field.name in (*_RECORDS, *_IMAGES))
    return tuple(field for field in fields if field.name not in _NOT_WRITTEN)


def _read_fields() -> tuple[OptionField, ...]:
    """Return the options of all formats of images for inputs, annotations and splits."""
    entries = [entry for entry in formats().values() if entry.name != ROWS_FORMAT]
    by_name: dict[str, dict[str, OptionField]] = {}
    for entry in entries:
        for field in option_fields(entry.options):
            by_name.setdefault(field.name, {})[entry.name] = field
    general = {field.name: copy(field) for field in convert_fields() if field.name in ("data", "format")}
    general["format"].choices = tuple(entry.name for entry in entries)
    merged = [merge_fields(fields, len(entries)) for name, fields in by_name.items() if name not in general]
    names = (*_SPLITS, *_CHOICE)
    read = [field for field in merged if field.group in (ARGUMENT, READ) or field.name in names]
    return by_heading((*general.values(), *read))


@cache
def keyword_types() -> dict[str, str]:
    """Return annotations of the keywords of all transforms and of `recordmill.convert`, by name.

    `captions` and others are files of `convert`, as of ReadDataset, and switches of WriteDataset.
    """
    fields = (*(field for name in TRANSFORMS for field in transform_fields(name)), *convert_fields())
    return {field.name: ", ".join(map(repr, field.choices)) or field.type.__name__ for field in fields}
