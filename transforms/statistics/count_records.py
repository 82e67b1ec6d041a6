"""Records that Beam's sink or an older program wrote are counted as they are read back."""

import io
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, NamedTuple

import msgspec
import numpy as np
from PIL import Image

from recordmill.schemas.duplicates import Fingerprints
from recordmill.schemas.features import FeatureTable, RecordOf
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.picture_features import has_picture
from recordmill.schemas.statistics import RecordPlace, Statistics
from recordmill.schemas.tfrecord import FRAME_BYTES
from recordmill.transforms.duplicates.fingerprint_images import ImageFingerprints
from recordmill.transforms.images.measure_pixels import measure_file
from recordmill.transforms.images.open_picture import kind_of, open_picture
from recordmill.transforms.masks.bitmaps import mask_bounds, run_lengths
from recordmill.transforms.masks.decode_segmentation import decode_segmentation
from recordmill.transforms.records.record_values import RecordParser, join_values
from recordmill.transforms.statistics.count_images import ImageCounter
from recordmill.transforms.statistics.image_facts import EDGES, FactsOfValues

_Found = tuple[dict[str, Any], RecordPlace]


class Counted(NamedTuple):
    """What is known of some records.

    Attributes:
        fingerprints: None where they have no pictures.
        last_image: number of the image that the last record is of, where each is of one object.
    """

    statistics: Statistics
    fingerprints: Fingerprints | None
    last_image: int | None = None


def count_records(
    records: Iterable[bytes],
    table: FeatureTable,
    labels: LabelMap,
    shard: str,
    is_measured: bool = False,
    after: int | None = None,
) -> Counted:
    """What is known of the records of the file `shard`. Of stuff, what others hide is not seen, nor things in a
    semantic mask.

    Args:
        is_measured: whether to look at the pixels, too.
        after: `last_image` of the shard before, some of whose objects may be in this one.

    Raises:
        RecordParseError: a record is not of the table.
        Exception: whatever Pillow raises at a picture that it cannot open.
    """
    if not has_picture(table):
        return Counted(Statistics(sum(1 for _ in records)), None)
    counter, fingerprints = ImageCounter(), ImageFingerprints()
    facts_of, segments_of = FactsOfValues(table), _Segments(labels)
    number = after
    for values, place in _images(_placed(records, RecordParser(table)), table):
        before, number = number, _number(values, table)
        values |= _picture_values(values)
        values.pop("image.sha256", None)  # of what is there, which may have been changed
        if "objects.class_index" in values:
            values |= dict(zip((f"objects.{edge}" for edge in EDGES), _edges(values), strict=True))
        values.setdefault("segments.class_index", segments_of(values))
        measures = None
        if is_measured and "image.pixels" not in values:
            measures = measure_file(values["image.encoded"], values["image.format"].decode())
        is_continuation = number is not None and number == before
        facts = facts_of(values, is_continuation, measures, _mask_bounds(values))
        counter.add(facts, place)
        fingerprints.add(facts, place)
    return Counted(counter.statistics(shard), fingerprints.of_shard(shard), number)


def _number(values: dict[str, Any], table: FeatureTable) -> int | None:
    return int(values["image.number"][0]) if table.record_of is RecordOf.ANNOTATION else None


def _placed(records: Iterable[bytes], parse: RecordParser) -> Iterator[_Found]:
    offset = 0
    for index, record in enumerate(records):
        size = len(record) + FRAME_BYTES
        yield parse(record), RecordPlace(index, offset, size)
        offset += size


def _images(found: Iterator[_Found], table: FeatureTable) -> Iterator[_Found]:
    """The records of an image as one: in a layout of one record an object, they follow each other."""
    if table.record_of is not RecordOf.ANNOTATION:
        yield from found
        return
    for _, group in groupby(found, lambda each: _number(each[0], table)):
        records, places = zip(*group, strict=True)
        yield join_values(list(records)), places[0]._replace(bytes=sum(place.bytes for place in places))


def _picture_values(values: dict[str, Any]) -> dict[str, Any]:
    """Size and format of the picture, where the layout has no features of them taken from its file."""
    if "image.pixels" in values:
        data, format_ = values["image.pixels"], b"raw"
    else:
        data, format_ = values["image.encoded"], values.get("image.format") or kind_of(values["image.encoded"]).encode()
    if "image.width" in values:
        width, height = int(values["image.width"][0]), int(values["image.height"][0])
    else:
        with open_picture(data, format_.decode()) as picture:
            width, height = picture.size
    return {"image.encoded": data, "image.format": format_, "image.width": width, "image.height": height}


def _edges(values: dict[str, Any]) -> tuple[np.ndarray, ...]:
    """EDGES of objects, whichever way the layout has their boxes."""
    if "objects.xmin" in values:
        return tuple(values[f"objects.{edge}"] for edge in EDGES)
    if "objects.bbox_yxyx" in values:
        return tuple(values["objects.bbox_yxyx"].reshape(-1, 4).T)
    x, y, width, height = values["objects.bbox_xywh_px"].reshape(-1, 4).T.astype(np.float64)
    across, down = values["image.width"], values["image.height"]
    return y / down, x / across, (y + height) / down, (x + width) / across


def _mask_bounds(values: dict[str, Any]) -> list[tuple[int, int, int, int] | None] | None:
    """Where the masks of objects are, whichever way the records have them."""
    width, height = values["image.width"], values["image.height"]
    if "objects.mask_rle" in values:
        forms = ({"counts": counts.decode(), "size": [height, width]} for counts in values["objects.mask_rle"])
        runs = (decode_segmentation(msgspec.json.encode(form), width, height) for form in forms)
    elif "objects.mask_png" in values:
        runs = (_runs_of_png(png) for png in values["objects.mask_png"])
    else:
        return None
    return [mask_bounds(each, height) for each in runs]


def _runs_of_png(png: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(png)) as mask:
        return run_lengths(np.asarray(mask) > 0)


class _Segments:
    """The categories of an image's stuff and segments, by the pixels of its masks."""

    def __init__(self, labels: LabelMap):
        label, semantic = labels.label_by_id(), labels.semantic_by_id()
        self._of_label = {label[category.id]: index for index, category in enumerate(labels.segments)}
        self._of_stuff = {
            semantic[category.id]: index for index, category in enumerate(labels.segments) if not category.isthing
        }

    def __call__(self, values: dict[str, Any]) -> list[int]:
        if "panoptic.category_png" in values:
            return _found(values["panoptic.category_png"], self._of_label)
        return _found(values["semantic.png"], self._of_stuff) if "semantic.png" in values else []


def _found(png: bytes, index: dict[int, int]) -> list[int]:
    with Image.open(io.BytesIO(png)) as mask:
        return [index[value] for value in np.unique(np.asarray(mask)).tolist() if value in index]
