"""What `recordmill show --json` prints. docs/cli.md describes it."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from recordmill.schemas.manifest import Manifest
from recordmill.schemas.rejects import UnusableError
from recordmill.transforms.images.load_images import picture_size
from recordmill.transforms.records.parse_record import Values
from recordmill.transforms.show.choose_records import Record
from recordmill.transforms.show.describe_values import HEX_SHOWN, text_of
from recordmill.transforms.show.find_shards import Shards
from recordmill.transforms.storage.resolve import storage_for


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
