"""Splits of drawn records, in every layout, without a job; and what is in them."""

import gzip
import io
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
from PIL import Image

from recordmill._data_set import Split
from recordmill._split_records import RecordContents
from recordmill.schemas.features import CLASS_OF_ROW, Feature, FeatureKind, FeatureTable
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import LAYOUTS, features_table, row_image_features
from recordmill.schemas.shards import ShardInfo
from recordmill.transforms.images.masks import mask_png, mask_rle, run_lengths
from recordmill.transforms.records.example import ExampleWriter
from recordmill.transforms.records.tfrecord import frame
from recordmill.transforms.storage.interface import crc32c_text

KEYPOINTS = 4
METRES_PER_UNIT = 0.00390625
LABELS = LabelMap((Category(3, "cat", keypoints=tuple("abcd")), Category(7, "dog")))


def _row(*pictures: Feature) -> FeatureTable:
    columns = (
        Feature("kind", f"{CLASS_OF_ROW}kind", FeatureKind.INT64, (), "0..classes-1", "kind"),
        Feature("note", "row.note", FeatureKind.BYTES, ("0 or 1 of note",), "utf-8", "note"),
        Feature("numbers", "row.numbers", FeatureKind.FLOAT, ("N of numbers",), "", "numbers"),
    )
    features = tuple(sorted((*columns, *pictures), key=lambda feature: feature.name))
    return FeatureTable("table", features, LAYOUTS["table"].record_of)


CONTENTS = {
    **{
        name: RecordContents(LAYOUTS[name].with_depth_scale(METRES_PER_UNIT), LABELS)
        for name in ("detection", "keras", "tfds", "classification")
    },
    "float32": RecordContents(features_table((2, 3, 5), "float32"), LABELS, ("2", "3", "5")),
    "float16": RecordContents(features_table((2, 3, 5), "float16"), LABELS, ("2", "3", "5")),
    "rows": RecordContents(_row(), LABELS),
    "pictures": RecordContents(_row(*row_image_features(None)), LABELS),
    "pixels": RecordContents(_row(*row_image_features((6, 7))), LABELS),
}
"""Contents of a data set in each layout, with all features."""


class Drawn(NamedTuple):
    """Values of a record by source, and the values that readers return for some of them."""

    values: dict[str, Any]
    expected: dict[str, np.ndarray]


def draw(contents: RecordContents, number: int, objects: int | None = None) -> Drawn:
    """The `number`-th record; every fourth has no object."""
    rng = np.random.default_rng(number)
    height, width = 20 + number, 31 - number % 3
    sizes = {"N": number % 4 if objects is None else objects, "C": 2, "T": 3, "L": 4, "S": 2, "G": 1, "E": 0, "U": 2}
    lists = {"N*K": KEYPOINTS * sizes["N"], "0 or 1 of note": number % 2, "N of numbers": number % 3}
    masks = rng.random((sizes["N"], height, width)) < 0.3
    ids = rng.integers(0, 1 << 24, (height, width))
    grey = {source: rng.integers(0, 256, (height, width), np.uint8) for source in _GREY}
    depth = np.random.default_rng(1000 + number).integers(0, 1 << 16, (height, width), np.uint16)
    runs = [run_lengths(mask) for mask in masks]
    coloured = np.stack([ids & 255, ids >> 8 & 255, ids >> 16], -1).astype(np.uint8)
    known = {
        "image.encoded": encoded(rng.integers(0, 256, (height, width, 3), np.uint8), "PNG" if number % 2 else "JPEG"),
        "image.pixels": rng.integers(0, 256, 6 * 7 * 3, np.uint8).tobytes(),
        "image.id": str(number).encode(),
        "tile.image_id": str(1000 + number).encode(),
        "objects.mask_png": [mask_png(rle, width, height) for rle in runs],
        "objects.mask_rle": [mask_rle(rle) for rle in runs],
        "panoptic.png": encoded(coloured, "PNG"),
        "feature.shape": [2, 3, 5],
        "feature.bytes": rng.standard_normal(30).astype("<f2").tobytes(),
        "depth.png": encoded(depth, "PNG"),
        **{source: encoded(pixels, "PNG") for source, pixels in grey.items()},
    }
    values = {
        feature.source: known[feature.source] if feature.source in known else _drawn(feature, sizes | lists, rng)
        for feature in contents.table.features
    }
    metres = depth.astype(np.float32) * np.float32(METRES_PER_UNIT)
    return Drawn(
        values, {"masks": masks, "segment_map": ids, "depth": metres} | {_GREY[source]: grey[source] for source in grey}
    )


_GREY = {"semantic.png": "semantic", "panoptic.category_png": "categories", "panoptic.instance_png": "instances"}


def encoded(pixels: np.ndarray, format_: str) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format_)
    return stream.getvalue()


def _drawn(feature: Feature, sizes: dict[str, int], rng: np.random.Generator) -> Any:
    shape = [sizes[size] if size in sizes else int(size) for size in feature.shape]
    drawn = rng.random(shape).astype(np.float32) if feature.kind is FeatureKind.FLOAT else rng.integers(0, 2, shape)
    flat = np.ravel(drawn).tolist()
    if feature.kind is FeatureKind.BYTES:
        flat = [b"\xc3\xa9\0%d" % value for value in flat]  # a zero byte within
    return flat if feature.is_list else flat[0]


def write_split(
    folder: Path, contents: RecordContents, drawn: list[Drawn], shards: int = 3, compressed: bool = False
) -> Split:
    """The records in so many shards, one of them empty."""
    writer = ExampleWriter(contents.table)
    records = [writer.write(drawn_record.values) for drawn_record in drawn]
    return split_of(folder, contents, [records[:2], [], records[2:]][:shards], compressed)


def split_of(folder: Path, contents: RecordContents, shards: list[list[bytes]], compressed: bool = False) -> Split:
    split_shards = []
    for number, records in enumerate(shards):
        data = b"".join(part for record in records for part in (frame(record)[0], record, frame(record)[1]))
        data = gzip.compress(data) if compressed else data
        path = folder / f"coco-train.tfrecord-{number:05d}-of-{len(shards):05d}"
        path.write_bytes(data)
        split_shards.append(
            ShardInfo(path.name, len(records), len(data), crc32c_text(google_crc32c.Checksum(data)), "")
        )
    return Split("train", str(folder), split_shards, contents, "GZIP" if compressed else "")
